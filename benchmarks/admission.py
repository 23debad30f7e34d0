"""Which metrics may lead an answer? In: a recipe. Out: OUT/scores.npz, OUT/admission.json and one table.

    python benchmarks/admission.py documents --corpus CORPUS --out texts
    coref-automl prepare combined --source local:texts/train.jsonl --holdout 0 ...
    coref-automl prepare eval --source local:texts/judge.jsonl --all-documents ...
    python benchmarks/admission.py run --recipe recipes/admission.yaml --out admission [key=value ...]
    python benchmarks/admission.py table --out admission

Contenders are models whose order is known, or known to be none: `mlm` by tokens and by whole words, `nouns` (nothing left to
copy), `entity`, `copy+link`; the base with noise in its matrices, with less attention, and after a rate that ruins. Each is a
process of its own, `jobs` side by side: it trains or damages, scores every item, scores it again with the other mentions of the
answer hidden, and leaves arrays. `admission_table` has the thresholds and turns the arrays into verdicts.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import admission_table
from coref_automl.config import from_mapping, read_yaml
from coref_automl.evaluation.evalset import EvalSet, bundled_eval_set
from coref_automl.evaluation.metrics import COPY_BONUSES
from coref_automl.evaluation.scorer import Scorer, ScoringItem, pick
from coref_automl.evaluation.tasks import TASKS
from coref_automl.evaluation.windows import WINDOW
from coref_automl.models.load import load_masked_lm
from coref_automl.models.vocabulary import word_ids
from coref_automl.records import ClozeItem


@dataclass(frozen=True, slots=True)
class Admission:
    """`methods` are trained with the settings of `train` and their own, one run per seed. `ruin` is trained once. `noise` is the
    standard deviation of Gaussian noise, as a share of each matrix's own. `attention` cuts the reach of global layers to that
    many tokens. Windows have `window` tokens and grow to `longest` for far items. `items`: at most
    that many items of a task, in the order of their id, a hash. After `minutes` nothing more is started or goes on.
    """

    model: str
    dataset: str
    eval_set: str
    methods: dict[str, dict[str, Any]]
    train: dict[str, Any] = field(default_factory=dict)
    ruin: dict[str, Any] = field(default_factory=dict)
    seeds: int = 3
    noise: tuple[float, ...] = (0.10, 0.15, 0.20, 0.30)
    draws: int = 3
    attention: tuple[int, ...] = (64, 16)
    window: int = WINDOW
    longest: int = 2048
    items: dict[str, int] = field(default_factory=dict)
    device: str = "auto"
    jobs: int = 1
    minutes: float = 600.0


@dataclass(frozen=True, slots=True)
class Contender:
    """One model. `train` is None for a model that is not trained; `group` names what differs in seeds or draws alone."""

    group: str
    number: int = 0
    train: dict[str, Any] | None = None
    noise: float = 0.0
    attention: int | None = None

    @property
    def name(self) -> str:
        return f"{self.group}-{self.number}".replace(" ", "-").replace("%", "").replace("+", "-")


def contenders(recipe: Admission) -> list[Contender]:
    """The models: the base, which all verdicts need, then those that take longest."""
    trained = [
        Contender(method, seed, {"objective": method, **recipe.train, **settings})
        for seed in range(recipe.seeds)
        for method, settings in recipe.methods.items()
    ]
    if recipe.ruin:
        trained.append(Contender(admission_table.RUIN, 0, {**recipe.train, **recipe.ruin}))
    noise = [
        Contender(admission_table.noise_group(share), draw, noise=share) for share in recipe.noise for draw in range(recipe.draws)
    ]
    cut = [Contender(admission_table.attention_group(tokens), attention=tokens) for tokens in recipe.attention]
    return [Contender(admission_table.BASE), *trained, *noise, *cut]


class BonusScorer(Scorer):
    """The scorer, with hits under each copy bonus for every task that ranks entries."""

    bonus_tasks = tuple(TASKS)


class WithoutMentions(Scorer):
    """The scorer, with every other occurrence of the answer's pieces in the window replaced by masks.

    The window, the gap and the competitors stay. Both forms of the answer are hidden: at the start of a word and inside one.
    """

    def prepare(self, item: ClozeItem, *arguments: Any) -> ScoringItem:
        prepared = super().prepare(item, *arguments)
        window = prepared.window
        forms = {tuple(word_ids(self._tokenizer, item.answer, initial=initial)) for initial in (True, False)}
        hide = partial(masked, forms=forms | {window.pieces}, mask_id=self.mask_id)
        return replace(prepared, window=replace(window, before=hide(window.before), after=hide(window.after)))


def masked(ids: NDArray[np.int32], forms: set[tuple[int, ...]], mask_id: int) -> NDArray[np.int32]:
    hidden = ids.copy()
    for form in forms:
        if len(form) > len(ids):
            continue
        places = np.lib.stride_tricks.sliding_window_view(ids, len(form))
        for start in np.flatnonzero((places == np.array(form)).all(axis=1)):
            hidden[start : start + len(form)] = mask_id
    return hidden


def add_noise(model: Any, share: float, draw: int) -> None:
    """Add Gaussian noise to every matrix, in place."""
    generator = torch.Generator().manual_seed(round(1000 * share) * 1000 + draw)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                noise = torch.randn(weight.shape, generator=generator)
                weight += (share * weight.float().std() * noise.to(weight.device)).to(weight.dtype)


def cut_attention(model: Any, tokens: int) -> None:
    """Let the global layers of a ModernBERT attend to half of `tokens` on either side, as local layers do.

    Rotary positions stay those of global layers, which a changed config would replace.
    """
    for layer in model.base_model.layers:
        if layer.attn.sliding_window is None:
            layer.attn.sliding_window = tokens // 2 + 1  # one more than the largest distance, as the library has it
            layer.attn.register_forward_pre_hook(partial(_band, tokens // 2), with_kwargs=True)


def _band(reach: int, _: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Intersect the mask that SDPA gets with a band around the diagonal; padding far from all text attends to itself."""
    hidden = arguments[0] if arguments else options["hidden_states"]
    position = torch.arange(hidden.shape[1], device=hidden.device)
    distance = (position[:, None] - position[None, :]).abs()[None, None]
    allowed = distance <= reach
    if (given := options.get("attention_mask")) is not None:
        allowed = given & allowed | (distance == 0)
    return arguments, {**options, "attention_mask": allowed}


def run_one(recipe: Admission, contender: Contender, out: Path) -> None:
    """Train or damage a contender, score it, and write its arrays."""
    path = recipe.model
    if contender.train is not None:
        from coref_automl.training.recipe import TrainRecipe
        from coref_automl.training.run import train

        settings: dict[str, Any] = {"model": recipe.model, "dataset": recipe.dataset, "out": str(out / "runs" / contender.name)}
        settings |= {"seed": contender.number, "device": recipe.device, "checkpoints": 1, **contender.train}
        path = str(train(from_mapping(TrainRecipe, settings, contender.name)).checkpoints[-1])
    evalset = opened(recipe)
    items = chosen_items(evalset, recipe)
    device, dtype = pick(recipe.device)
    loaded = load_masked_lm(path, seq_len=recipe.longest, device=device)
    if contender.noise:
        add_noise(loaded.model, contender.noise, contender.number)
    if contender.attention is not None:
        cut_attention(loaded.model, contender.attention)
    arrays: dict[str, Any] = {"group": contender.group, "number": contender.number}
    for name, kind in (("rank", BonusScorer), ("hidden", WithoutMentions)):
        scorer = kind(loaded, evalset.noun_table(loaded.tokenizer), seq_len=recipe.window, dtype=dtype)
        scores = {one.item: one for batch in scorer.score(items, evalset.documents, evalset.nouns) for one in batch}
        arrays[name] = np.array([scores[item.id].rank for item in items], np.int32)
        if name == "rank":
            bonuses = [scores[item.id].bonus_hits or (False,) * len(COPY_BONUSES) for item in items]
            arrays["bonus"] = np.array(bonuses, np.bool_)
            arrays["has_bonus"] = np.array([bool(scores[item.id].bonus_hits) for item in items])
    np.savez_compressed(out / "contenders" / f"{contender.name}.npz", **arrays)


def opened(recipe: Admission) -> EvalSet:
    return EvalSet.open(bundled_eval_set() if recipe.eval_set == "bundled" else Path(recipe.eval_set))


def chosen_items(evalset: EvalSet, recipe: Admission) -> list[ClozeItem]:
    chosen: list[ClozeItem] = []
    for task, items in evalset.items.items():
        ordered = sorted(items, key=lambda item: item.id)
        chosen += ordered[: recipe.items.get(task, len(items))]
    return chosen


def run_all(recipe: Admission, given: argparse.Namespace) -> None:
    """Run the contenders that have no arrays yet, each in a process of its own."""
    (given.out / "contenders").mkdir(parents=True, exist_ok=True)
    started = time.monotonic()

    def run(contender: Contender) -> str | None:
        if (given.out / "contenders" / f"{contender.name}.npz").is_file():
            return None
        command = [sys.executable, __file__, "one", "--recipe", str(given.recipe), "--out", str(given.out)]
        command += ["--contender", contender.name, *given.changes]
        left = 60 * recipe.minutes - (time.monotonic() - started)
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=max(left, 0.001))
            error = done.stderr[-2000:] if done.returncode else ""
        except subprocess.TimeoutExpired:
            error = "out of time"
        state = f"FAILED: {error}" if error else "done"
        print(f"{time.monotonic() - started:6.0f} s  {contender.name}: {state}", flush=True)
        return contender.name if error else None

    with ThreadPoolExecutor(recipe.jobs) as threads:
        failed = [name for name in threads.map(run, contenders(recipe)) if name]
    if failed:
        print(f"{len(failed)} contenders failed: {', '.join(failed)}; the same command runs them again.", file=sys.stderr)
    pack(recipe, given.out)


def pack(recipe: Admission, out: Path) -> None:
    """Write what all contenders left, and the items' own facts, as one file."""
    items = chosen_items(opened(recipe), recipe)
    facts = {name: np.array([getattr(item, name) for item in items]) for name in ("id", "task", "cluster", "source", "tag")}
    facts["distance"] = np.array([item.distance for item in items], np.int32)
    arrays: dict[str, Any] = {f"item/{name}": values for name, values in facts.items()}
    for path in sorted((out / "contenders").glob("*.npz")):
        with np.load(path) as found:
            arrays |= {f"{path.stem}/{name}": found[name] for name in found.files}
    np.savez_compressed(out / "scores.npz", **arrays)


def read_recipe(path: Path, changes: Sequence[str]) -> Admission:
    """The recipe, with `key=value` of the command line over it; values are YAML, keys of sections are joined by dots."""
    import yaml

    values = read_yaml(path)
    for change in changes:
        name, _, value = change.partition("=")
        *sections, key = name.split(".")
        section = values
        for part in sections:
            section = section.setdefault(part, {})
        section[key] = yaml.safe_load(value)
    return from_mapping(Admission, values, str(path))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    texts = verbs.add_parser("documents", help="choose the documents to judge with and to train on")
    texts.add_argument("--corpus", type=Path, required=True)
    texts.add_argument("--out", type=Path, required=True)
    for verb, what in (("run", "train, damage and score"), ("one", "one contender"), ("table", "verdicts from scores.npz")):
        command = verbs.add_parser(verb, help=what)
        command.add_argument("--out", type=Path, required=True)
        if verb != "table":
            command.add_argument("--recipe", type=Path, required=True)
            command.add_argument("changes", nargs="*", metavar="key=value")
        if verb == "one":
            command.add_argument("--contender", required=True)
    given = parser.parse_args()
    if given.verb == "documents":
        from admission_documents import choose_documents

        choose_documents(given.corpus, given.out)
        return 0
    if given.verb in ("run", "one"):
        recipe = read_recipe(given.recipe, given.changes)
        if given.verb == "one":
            run_one(recipe, {one.name: one for one in contenders(recipe)}[given.contender], given.out)
            return 0
        run_all(recipe, given)
    print("\n".join(admission_table.write(given.out)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
