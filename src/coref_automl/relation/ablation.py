"""An ablation: variants of one recipe, compared. In: variants and a time limit. Out: a run a variant, and a table with verdicts.

Seeds are the outer loop: when time runs out, all variants have as many seeds as there was time for. Nothing is done twice.
A verdict about a method pairs runs by seed; it is "shown" only if neither other seeds nor other sentences can explain it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from coref_automl.errors import ComparisonError, InputError
from coref_automl.progress import Progress, quiet
from coref_automl.records import Record
from coref_automl.relation.cache import RowCache
from coref_automl.relation.data import RelationData, sentence_key
from coref_automl.relation.evaluate import finished_seeds, has_predictions
from coref_automl.relation.intervals import Scored, method_verdict
from coref_automl.relation.labels import gold_indices
from coref_automl.relation.metrics import score
from coref_automl.relation.recipe import RelationRecipe
from coref_automl.relation.results import read_predictions
from coref_automl.relation.train import train_one_seed
from coref_automl.statistics import MethodVerdict
from coref_automl.store import is_done, read_json

VARIANTS: dict[str, dict[str, Any]] = {
    "none": {"scheme": "none"},
    "plain": {"scheme": "plain"},
    "typed": {"scheme": "typed"},
    "punct": {"scheme": "punct"},
    "typed-punct": {"scheme": "typed-punct"},
    "typed-prompt": {"scheme": "typed-prompt"},
    "typed-punct-prompt": {"scheme": "typed-punct-prompt"},
    "typed-punct-question": {"scheme": "typed-punct-question"},
    "head-cls": {"head": "cls"},
    "head-starts": {"head": "starts"},
    "mask-hard": {"label_mask": "hard"},
    "mask-soft": {"label_mask": "soft"},
    "hard-negatives": {"hard_negatives": 0.2},
    "r-drop": {"r_drop": 1.0},
    "smoothing": {"label_smoothing": 0.1},
    "layer-decay": {"layer_decay": 0.9},
}
"""What each variant changes in the base recipe."""


@dataclass(frozen=True, slots=True)
class Line(Record):
    """One variant on one split. Numbers are points of 100, means over seeds; verdicts are against the reference."""

    name: str
    seeds: int
    micro_f1: float
    spread: float | None
    auprc: float
    accuracy: float
    seconds: float
    verdict: MethodVerdict | None = None
    auprc_verdict: MethodVerdict | None = None


def run_variants(
    recipes: dict[str, RelationRecipe],
    *,
    seeds: int,
    seconds: float | None = None,
    progress: Progress | None = None,
    cache: RowCache | None = None,
) -> dict[str, int]:
    """Train what is missing, seed by seed across all recipes, while time lasts; returns how many seeds each has."""
    progress, cache = progress or quiet(), cache or RowCache()
    began, longest = time.monotonic(), 0.0
    for seed in range(seeds):
        for name, recipe in recipes.items():
            if is_done(Path(recipe.out) / f"seed-{seed}"):
                continue
            left = None if seconds is None else seconds - (time.monotonic() - began)
            if left is not None and left < 1.2 * longest:
                progress.note(f"Time is up before {name}, seed {seed}; the same command goes on from there.")
                return _counts(recipes)
            started = time.monotonic()
            done = train_one_seed(recipe, seed, progress=progress, cache=cache)
            longest = max(longest, time.monotonic() - started)
            progress.note(
                f"{name}, seed {seed}: validation micro-F1 {done.validation.micro_f1:.2f}, epoch {done.best_epoch}, "
                f"{time.monotonic() - started:.1f} s"
            )
    return _counts(recipes)


def _counts(recipes: dict[str, RelationRecipe]) -> dict[str, int]:
    return {name: sum(1 for _ in Path(recipe.out).glob("seed-*/DONE")) for name, recipe in recipes.items()}


def variants_of(base: RelationRecipe, names: Sequence[str], out: Path) -> dict[str, RelationRecipe]:
    """Recipes by name: the base with one thing changed, each in its own folder."""
    unknown = [name for name in names if name not in VARIANTS and name != "base"]
    if unknown:
        raise InputError(f"There is no variant {unknown[0]!r}; known: base, {', '.join(VARIANTS)}.")
    return {name: replace(base, **VARIANTS.get(name, {}), out=str(out / name)) for name in names}


def load_scored(run: Path, data: RelationData, *, seeds: int | None = None) -> Scored:
    """The stored predictions of a run's seeds on a split."""
    folders = finished_seeds(run)[:seeds]
    missing = [folder for folder in folders if not has_predictions(folder, data)]
    if missing:
        raise ComparisonError(f"{missing[0]} has no predictions on {data.split}; run: coref-automl re evaluate {run} --data FILE")
    found = [read_predictions(folder / "predictions" / f"{data.split}.jsonl")[2] for folder in folders]
    sentences = np.array([sentence_key(row.sentence) for row in data.rows])
    return Scored(gold_indices(data.rows), np.stack(found), sentences)


def table(runs: dict[str, Path], data: RelationData, *, reference: str, seed: int = 0, auprc: bool = False) -> tuple[Line, ...]:
    """A line a run, with verdicts against the reference over the seeds both have; for AUPRC too, which takes long, if asked."""
    loaded = {name: load_scored(run, data) for name, run in runs.items()}
    if reference not in loaded:
        raise ComparisonError(f"The reference {reference!r} is not among {', '.join(loaded)}.")
    lines = []
    for name, scored in loaded.items():
        each = [score(scored.gold, probabilities) for probabilities in scored.probabilities]
        verdicts: list[MethodVerdict | None] = [None, None]
        if name != reference:
            pair = _paired(scored, loaded[reference])
            verdicts[0] = method_verdict(*pair, seed=seed)
            verdicts[1] = method_verdict(*pair, metric="auprc", seed=seed) if auprc else None
        folders = finished_seeds(runs[name])
        lines.append(
            Line(
                name=name,
                seeds=len(each),
                micro_f1=float(np.mean([one.micro_f1 for one in each])),
                spread=float(np.std([one.micro_f1 for one in each], ddof=1)) if len(each) > 1 else None,
                auprc=float(np.mean([one.auprc for one in each])),
                accuracy=float(np.mean([one.accuracy for one in each])),
                seconds=float(np.mean([read_json(folder / "result.json")["seconds"] for folder in folders])),
                verdict=verdicts[0],
                auprc_verdict=verdicts[1],
            )
        )
    return tuple(lines)


def _paired(one: Scored, other: Scored) -> tuple[Scored, Scored]:
    count = min(len(one.probabilities), len(other.probabilities))
    return (
        Scored(one.gold, one.probabilities[:count], one.sentences),
        Scored(other.gold, other.probabilities[:count], other.sentences),
    )


def markdown(lines: Sequence[Line], data: RelationData, reference: str) -> str:
    """The table as documentation prints it; the split's name stands above every number."""
    head = (
        f"Split `{data.split}`, {len(data.rows):,} rows; means over seeds; difference to `{reference}` with the 95% interval\n"
        "over sentences, and over seeds in brackets where there are two or more.\n\n"
        "| variant | seeds | micro-F1 | spread | AUPRC | accuracy | difference in micro-F1 | verdict |\n"
        "|---|---:|---:|---:|---:|---:|---|---|\n"
    )
    return head + "".join(
        f"| {line.name} | {line.seeds} | {line.micro_f1:.1f} | {'–' if line.spread is None else f'{line.spread:.1f}'} "
        f"| {line.auprc:.1f} | {line.accuracy:.1f} | {_difference(line.verdict)} | {_say(line.verdict)} |\n"
        for line in lines
    )


def _difference(verdict: MethodVerdict | None) -> str:
    if verdict is None:
        return "reference"
    over = verdict.over_documents
    text = f"{100 * verdict.difference:+.1f} [{100 * over.low:+.1f}, {100 * over.high:+.1f}]"
    if verdict.over_seeds is not None:
        text += f" ([{100 * verdict.over_seeds.low:+.1f}, {100 * verdict.over_seeds.high:+.1f}])"
    return text


def _say(verdict: MethodVerdict | None) -> str:
    if verdict is None:
        return ""
    if not verdict.shown:
        return "no difference shown"
    return "better" if verdict.difference > 0 else "worse"


def fill_section(text: str, name: str, body: str) -> str:
    """A document with the part between its two markers replaced; the markers must be there."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    if begin not in text or end not in text:
        raise InputError(f"The document has no section between {begin} and {end}; add both lines where the table should stand.")
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n{body.strip()}\n{rest[rest.index(end) :]}"
