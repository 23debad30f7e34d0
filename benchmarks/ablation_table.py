"""The tables of an ablation. In: finished runs and the split they were scored on. Out: one line per run, as Markdown.

A verdict about a method pairs runs by seed; it is "shown" only if neither other seeds nor other sentences can explain it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coref_automl.base.errors import ComparisonError, InputError
from coref_automl.base.folders import is_done
from coref_automl.base.records import Record
from coref_automl.base.store import read_json
from coref_automl.extras.relation.data import RelationData, sentence_key
from coref_automl.extras.relation.metrics import Scored, method_verdict, score
from coref_automl.extras.relation.rows import gold_indices
from coref_automl.extras.relation.scoring import has_predictions, read_probabilities, read_scores
from coref_automl.statistics.methods import MethodVerdict


@dataclass(frozen=True, slots=True)
class Line(Record):
    """One variant on one split. Numbers are points of 100, means over seeds; verdicts are against the reference.

    `together` is the micro-F1 of all seeds as one model, their probabilities averaged; None for one seed.
    """

    name: str
    seeds: int
    micro_f1: float
    spread: float | None
    auprc: float
    accuracy: float
    seconds: float
    together: float | None = None
    verdict: MethodVerdict | None = None
    auprc_verdict: MethodVerdict | None = None


def seeds_of(variant: Path) -> dict[str, Path]:
    """The finished seeds of a variant's runs, by name."""
    return {seed.name: seed for run in sorted(variant.glob("run-*")) for seed in run.glob("seed-*") if is_done(seed)}


def load_scored(folders: Iterable[Path], data: RelationData) -> Scored:
    """The stored predictions of finished seeds on a split."""
    missing = [folder for folder in folders if not has_predictions(folder, data)]
    if missing:
        run = missing[0].parent
        raise ComparisonError(f"{missing[0]} has no predictions on {data.split}; run: coref-automl re evaluate {run} --data FILE")
    found = [read_probabilities(folder, data.split) for folder in folders]
    sentences = np.array([sentence_key(row.sentence) for row in data.rows])
    return Scored(gold_indices(data.rows), np.stack(found), sentences)


def table(runs: dict[str, Path], data: RelationData, *, reference: str, seed: int = 0, auprc: bool = False) -> tuple[Line, ...]:
    """One line per run, with verdicts against the reference over the seeds both have; `auprc` adds verdicts on AUPRC (slow)."""
    if reference not in runs:
        raise ComparisonError(f"The reference {reference!r} is not among {', '.join(runs)}.")
    folders = {name: seeds_of(run) for name, run in runs.items()}
    loaded = {name: load_scored(found.values(), data) for name, found in folders.items()}
    seeds = {name: list(found) for name, found in folders.items()}
    lines = []
    for name, scored in loaded.items():
        each = [read_scores(one / "predictions" / f"{data.split}.json") for one in folders[name].values()]
        verdicts: list[MethodVerdict | None] = [None, None]
        both = [one for one in seeds[name] if one in seeds[reference]]
        if name != reference and both:
            pair = _of(scored, seeds[name], both), _of(loaded[reference], seeds[reference], both)
            verdicts[0] = method_verdict(*pair, seed=seed)
            verdicts[1] = method_verdict(*pair, metric="auprc", seed=seed) if auprc else None
        lines.append(
            Line(
                name=name,
                seeds=len(each),
                micro_f1=float(np.mean([one.micro_f1 for one in each])),
                spread=float(np.std([one.micro_f1 for one in each], ddof=1)) if len(each) > 1 else None,
                auprc=float(np.mean([one.auprc for one in each])),
                accuracy=float(np.mean([one.accuracy for one in each])),
                seconds=float(np.mean([read_json(one / "result.json")["seconds"] for one in folders[name].values()])),
                together=score(scored.gold, scored.probabilities.mean(0)).micro_f1 if len(each) > 1 else None,
                verdict=verdicts[0],
                auprc_verdict=verdicts[1],
            )
        )
    return tuple(lines)


def _of(scored: Scored, seeds: Sequence[str], chosen: Sequence[str]) -> Scored:
    """The same rows under some of the seeds."""
    return Scored(scored.gold, scored.probabilities[[seeds.index(one) for one in chosen]], scored.sentences)


def markdown(lines: Sequence[Line], data: RelationData, reference: str) -> str:
    """The table as documentation prints it; the split's name stands above every number."""
    judged = sum(_is_judged(line.verdict) for line in lines)
    head = (
        f"Split `{data.split}`, {len(data.rows):,} rows; differences to `{reference}`. "
        f"Verdicts: {judged}, each judged by itself; they are not corrected for their number.\n\n"
        "| variant | seeds | micro-F1 | spread | together | AUPRC | accuracy | difference in micro-F1 | verdict |\n"
        "|---|---:|---:|---:|---:|---:|---:|---|---|\n"
    )
    return head + "".join(
        f"| {line.name} | {line.seeds} | {line.micro_f1:.1f} | {_or_dash(line.spread)} | {_or_dash(line.together)} "
        f"| {line.auprc:.1f} | {line.accuracy:.1f} | {_difference(line.verdict)} | {_say(line.verdict)} |\n"
        for line in lines
    )


def _or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _difference(verdict: MethodVerdict | None) -> str:
    if verdict is None:
        return "reference"
    over = verdict.over_documents
    text = f"{100 * verdict.difference:+.1f} [{100 * over.low:+.1f}, {100 * over.high:+.1f}]"
    if verdict.over_seeds is not None:
        text += f" ([{100 * verdict.over_seeds.low:+.1f}, {100 * verdict.over_seeds.high:+.1f}])"
    return text


def _is_judged(verdict: MethodVerdict | None) -> bool:
    """One seed, or seeds without a spread, cannot tell luck from a method."""
    return verdict is not None and verdict.over_seeds is not None


def _say(verdict: MethodVerdict | None) -> str:
    if verdict is None:
        return ""
    if not _is_judged(verdict):
        return "no verdict"
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
