"""The functions of `import coref_automl as ca` that take the options of a command by name. In: paths, options. Out: records.

`compare`, `recommend` and `report` are in the report room; the functions here build a recipe from their options and run it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from coref_automl.base.config import as_paths, checked, recipe_with
from coref_automl.base.progress import Shown, as_progress
from coref_automl.base.records import Evaluation, Tabular
from coref_automl.evaluation.fill import Filled, fill_all, find_gap
from coref_automl.evaluation.metrics import METRICS, leading
from coref_automl.evaluation.run import EvaluateRecipe
from coref_automl.evaluation.run import evaluate as run
from coref_automl.models.load import LoadedModel, load_masked_lm
from coref_automl.report.printout import html_table

if TYPE_CHECKING:
    from coref_automl.training.recipe import TrainRecipe
    from coref_automl.training.run import TrainResult

Models = str | Path | Sequence[str | Path]


class Evaluations(Tabular, list[Evaluation]):
    """Evaluations in the order of their paths; as a notebook shows them, a table of metrics in percent."""

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per evaluation: every metric in percent, with the ends of its interval."""
        names = [name for name in METRICS if any(name in evaluation.estimates for evaluation in self)]
        rows = []
        for result in self:
            row: dict[str, Any] = {"checkpoint": result.checkpoint, "evalset": result.evalset, "seq_len": result.seq_len}
            for name in names:
                estimate = result.estimates.get(name)
                row |= {name: 100 * estimate.value if estimate else None}
                row |= {f"{name}_{end}": 100 * getattr(estimate, end) if estimate else None for end in ("low", "high")}
            rows.append(row)
        return rows

    def __repr__(self) -> str:
        return "\n".join(map(_line, self)) or "no evaluation"

    def _repr_html_(self) -> str:
        ends = ("_low", "_high")
        return html_table([{name: value for name, value in row.items() if not name.endswith(ends)} for row in self.to_rows()])


class Fills(Tabular, list[Filled]):
    """The words of each model for one gap."""

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per word: model, rank, word, probability in percent."""
        return [
            {"model": filled.model, "rank": rank, "word": word, "percent": 100 * probability}
            for filled in self
            for rank, (word, probability) in enumerate(zip(filled.words, filled.probabilities, strict=True), 1)
        ]

    def __repr__(self) -> str:
        return "\n".join(f"{filled.model}: {', '.join(filled.words[:5])}" for filled in self)

    def _repr_html_(self) -> str:
        return html_table(self.to_rows())


def evaluate(
    paths: str | Path | Sequence[str | Path], recipe: EvaluateRecipe | None = None, *, progress: Shown = None, **options: Any
) -> Evaluations:
    """Score checkpoints, runs or models on frozen items, as `coref-automl evaluate` does.

    Args:
        paths: one or several checkpoints, runs, folders of runs, or model names.
        recipe: all options in one object, instead of by name.
        progress: True shows progress on standard error.
        options: every option of `coref-automl evaluate` with underscores: eval_set (one or several), seq_len, out, device,
            dtype, words, batch_tokens, base, new_head, seed, engine.

    Example:
        >>> import coref_automl as ca
        >>> results = ca.evaluate("bundled:ko-mini", eval_set=eval_set, device="cpu")
        >>> [result.checkpoint for result in results]
        ['bundled-ko-mini']
    """
    fields = {"eval_set": "eval_sets", "batch_tokens": "budget"}
    values = {fields.get(name, name): value for name, value in options.items()}
    if values.get("eval_sets") is not None:
        values["eval_sets"] = as_paths(values["eval_sets"], "eval_set")
    return Evaluations(run(paths, recipe_with(EvaluateRecipe, recipe, values, "evaluate"), progress=as_progress(progress)))


@overload
def fill(  # type: ignore[overload-overlap]  # a str is a sequence of str
    text: str, models: Models = ..., *, nouns: bool = ..., top: int = ..., device: str = ...
) -> Fills: ...


@overload
def fill(text: Sequence[str], models: Models = ..., *, nouns: bool = ..., top: int = ..., device: str = ...) -> list[Fills]: ...


def fill(
    text: str | Sequence[str], models: Models = "bundled:ko-mini", *, nouns: bool = True, top: int = 10, device: str = "cpu"
) -> Fills | list[Fills]:
    """Predict the words of the one [MASK] in a text, or in each text of a list, as `coref-automl fill` does.

    Args:
        text: a sentence with one [MASK], or a list of them; a particle after it stays with the hidden word.
        models: one or several hub ids, folders, or bundled:ko-mini.
        nouns: only nouns of two or more syllables, or all words.
        top: number of words.
        device: cpu, cuda, cuda:1, or auto.

    Example:
        >>> import coref_automl as ca
        >>> fills = ca.fill("서울은 [MASK]의 수도이다.", nouns=False, top=3)
        >>> len(fills[0].words)
        3
        >>> [fill[0].words for fill in ca.fill(["서울은 [MASK]의 수도이다."], nouns=False, top=3)] == [fills[0].words]
        True
    """
    texts: list[Any] = list(text) if isinstance(text, list | tuple) else [text]
    for sentence in texts:
        find_gap(sentence)
    checked(str, device, "device")
    names = as_paths(models, "models")
    by_model = [fill_all(load_masked_lm(name, device=device), texts, name=name, nouns_only=nouns, top=top) for name in names]
    by_text = [Fills(of_text) for of_text in zip(*by_model, strict=True)]
    return by_text[0] if isinstance(text, str) else by_text


def path(model: str | Path) -> str:
    """A path for `from_pretrained`: the folder of a bundled model or of a run's chosen checkpoint; hub ids are unchanged.

    Example:
        >>> import coref_automl as ca
        >>> from transformers import AutoTokenizer
        >>> AutoTokenizer.from_pretrained(ca.path("bundled:ko-mini")).mask_token
        '[MASK]'
    """
    from coref_automl.models.model_files import resolve
    from coref_automl.training.folder import checkpoint_of_run

    return resolve(checkpoint_of_run(str(model), "model") or str(model))


def load(model: str | Path, *, seq_len: int | None = None, device: str = "cpu") -> LoadedModel:
    """Load and check a masked language model; the result has `.model` and `.tokenizer` of transformers.

    Args:
        model: a hub id, a folder, a run (its chosen checkpoint), or bundled:ko-mini.
        seq_len: lengthen the model to this many tokens. Default: its own length.
        device: cpu, cuda, cuda:1, or auto.

    Example:
        >>> import coref_automl as ca
        >>> loaded = ca.load("bundled:ko-mini")
        >>> loaded.model.config.model_type, loaded.tokenizer.mask_token
        ('modernbert', '[MASK]')
    """
    checked(int | None, seq_len, "seq_len")
    return load_masked_lm(path(model), seq_len=seq_len, device=checked(str, device, "device"))


def train(recipe: TrainRecipe | None = None, *, progress: Shown = None, **options: Any) -> TrainResult:
    """Train a model on prepared data, or resume, as `coref-automl train` does.

    Args:
        recipe: all options in one object, instead of by name.
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


def _line(evaluation: Evaluation) -> str:
    metric = leading(evaluation.estimates) if evaluation.estimates else ""
    result = f"{METRICS[metric].label} {evaluation.estimates[metric]}" if metric else "nothing was run"
    return f"{evaluation.checkpoint} on {evaluation.evalset} at {evaluation.seq_len:,} tokens: {result}"
