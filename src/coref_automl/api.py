"""The functions of `import coref_automl as ca` that take the options of a command by name. In: paths, options. Out: records.

`compare`, `recommend` and `report` are in the report room; every function here builds a recipe from its options and runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coref_automl.config import as_paths, recipe_with
from coref_automl.evaluation.metrics import METRICS, PRIMARY
from coref_automl.evaluation.run import EvaluateRecipe
from coref_automl.progress import Shown, as_progress
from coref_automl.records import Evaluation
from coref_automl.report.printout import html_table
from coref_automl.tabular import Tabular

if TYPE_CHECKING:
    from coref_automl.evaluation.fill import Filled
    from coref_automl.training.recipe import TrainRecipe
    from coref_automl.training.run import TrainResult


class Evaluations(Tabular, list[Evaluation]):
    """Evaluations in the order of their paths: a list that shows itself as a table of metrics in percent."""

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per evaluation: every metric in percent, with the ends of its interval."""
        names = [name for name in METRICS if any(name in one.estimates for one in self)]
        out = []
        for one in self:
            row: dict[str, Any] = {"checkpoint": one.checkpoint, "evalset": one.evalset, "seq_len": one.seq_len}
            for name in names:
                held = one.estimates.get(name)
                row |= {name: 100 * held.value if held else None}
                row |= {f"{name}_{end}": 100 * getattr(held, end) if held else None for end in ("low", "high")}
            out.append(row)
        return out

    def __repr__(self) -> str:
        return "\n".join(_line(one) for one in self) or "no evaluation"

    def _repr_html_(self) -> str:
        ends = ("_low", "_high")
        return html_table([{name: value for name, value in row.items() if not name.endswith(ends)} for row in self.to_rows()])


class Fills(Tabular, list["Filled"]):
    """The words of each model for one gap."""

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per word: model, rank, word, probability in percent."""
        return [
            {"model": one.model, "rank": rank, "word": word, "percent": 100 * chance}
            for one in self
            for rank, (word, chance) in enumerate(zip(one.words, one.probabilities, strict=True), 1)
        ]

    def __repr__(self) -> str:
        return "\n".join(f"{one.model}: {', '.join(one.words[:5])}" for one in self)

    def _repr_html_(self) -> str:
        return html_table(self.to_rows())


def evaluate(
    paths: str | Path | Sequence[str | Path],
    recipe: EvaluateRecipe | None = None,
    *,
    eval_set: str | Path | Sequence[str | Path] | None = None,
    seq_len: int | None = None,
    out: str | Path | None = None,
    device: str | None = None,
    dtype: str | None = None,
    words: str | None = None,
    batch_tokens: int | None = None,
    base: bool | None = None,
    new_head: bool | None = None,
    seed: int | None = None,
    engine: str | None = None,
    progress: Shown = None,
) -> Evaluations:
    """Score checkpoints, runs or models on frozen items, as `coref-automl evaluate` does.

    Args:
        paths: one or several checkpoints, runs, folders of runs, or model names.
        recipe: all options at once, instead of the options below.
        eval_set: one or several evaluation sets. Default: the bundled one.
        seq_len: window length in tokens. Default: each model's own.
        out: folder for results. Default: the run's own folder.
        device: cpu, cuda, cuda:1, or auto.
        dtype: float32, bfloat16, float16, or auto.
        words: word ranks for `all` items, `gold` only, a `sample`, or `none`.
        batch_tokens: tokens per batch.
        base: also score the model that training started from.
        new_head: allow an untrained mask head.
        seed: random seed.
        engine: local or ray.
        progress: True shows progress on standard error.

    Example:
        >>> import coref_automl as ca
        >>> found = ca.evaluate("bundled:ko-mini", eval_set=eval_set, device="cpu", words="none")
        >>> [one.checkpoint for one in found]
        ['bundled-ko-mini']
    """
    from coref_automl.evaluation.run import evaluate as run

    given = {
        "eval_sets": as_paths(eval_set, "eval_set") if eval_set is not None else None,
        "seq_len": seq_len, "out": str(out) if out is not None else None, "device": device, "dtype": dtype, "words": words,
        "budget": batch_tokens, "base": base, "new_head": new_head, "seed": seed, "engine": engine,
    }  # fmt: skip
    return Evaluations(run(paths, recipe_with(EvaluateRecipe, recipe, given, "evaluate"), progress=as_progress(progress)))


def fill(
    text: str,
    models: str | Path | Sequence[str | Path] = "bundled:ko-mini",
    *,
    nouns: bool = True,
    top: int = 10,
    device: str = "cpu",
) -> Fills:
    """What models put into the one [MASK] of a text, side by side, as `coref-automl fill` does.

    Args:
        text: a sentence with one [MASK]; a particle after it stays with the hidden word.
        models: one or several hub ids, folders, or bundled:ko-mini.
        nouns: only nouns of two or more syllables, or all words.
        top: number of words.
        device: cpu, cuda, cuda:1, or auto.

    Example:
        >>> import coref_automl as ca
        >>> found = ca.fill("서울은 [MASK]의 수도이다.", nouns=False, top=3)
        >>> len(found[0].words)
        3
    """
    from coref_automl.evaluation.fill import fill as run
    from coref_automl.evaluation.fill import find_gap
    from coref_automl.models.load import load_masked_lm

    find_gap(text)
    return Fills(
        run(load_masked_lm(name, device=device), text, name=name, nouns_only=nouns, top=top)
        for name in as_paths(models, "models")
    )


def train(recipe: TrainRecipe | None = None, *, progress: Shown = None, **options: Any) -> TrainResult:
    """Train a model on prepared data, or resume, as `coref-automl train` does.

    Args:
        recipe: all options at once, instead of naming them.
        progress: True shows progress on standard error.
        options: every option of `coref-automl train` with underscores: model, dataset, out, objective, epochs, seed, ...

    Example:
        >>> import coref_automl as ca
        >>> run = ca.train(model="new:tiny", tokenizer=tokenizer, dataset=dataset, out=out, max_tokens=2_000, device="cpu")
        >>> run.tokens > 0
        True
    """
    from coref_automl.training.recipe import TrainRecipe
    from coref_automl.training.run import train as run

    return run(recipe_with(TrainRecipe, recipe, options, "train"), progress=as_progress(progress))


def _line(one: Evaluation) -> str:
    metric = PRIMARY if PRIMARY in one.estimates else next(iter(one.estimates), "")
    told = f"{METRICS[metric].label} {one.estimates[metric]}" if metric else "nothing was run"
    return f"{one.checkpoint} on {one.evalset} at {one.seq_len:,} tokens: {told}"
