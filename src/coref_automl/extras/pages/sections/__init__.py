"""What a report is about, and its sections. In: the results behind paths. Out: a Subject, which every section reads.

To add a section, write a function of a Subject in a module here that returns a Section, None or a list, and list it in SECTIONS
of `extras/pages/checkpoint_report`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from coref_automl.base.errors import RecipeError
from coref_automl.base.folders import EVENTS, is_done, is_there
from coref_automl.base.say import Say
from coref_automl.comparison.groups import others_than, read_groups
from coref_automl.comparison.reader import Results
from coref_automl.comparison.scores import Entry, Group
from coref_automl.comparison.study import Study, study_at
from coref_automl.comparison.study_data import MARGIN
from coref_automl.comparison.vocabularies import vocabulary_pairs
from coref_automl.evaluation.metrics import metric_named
from coref_automl.report.page import note
from coref_automl.report.wording import pair_lines


@dataclass(frozen=True, kw_only=True)
class Subject(Study):
    """A study, the language to write in, and the targets to reach."""

    say: Say
    target: Mapping[str, float] = field(default_factory=dict)


def read_subject(
    results: Results,
    say: Say,
    *,
    metric: str | None = None,
    margin: float = MARGIN,
    evalset: str | None = None,
    seed: int = 0,
    target: Mapping[str, float] | None = None,
    groups: Sequence[Group] | None = None,
) -> Subject:
    """The subject of a report on the results: the largest group of evaluations, or the first of the given `groups`."""
    groups = read_groups(results, evalset=evalset) if groups is None else groups
    chosen = groups[0]
    study = study_at(results, chosen, metric=metric, margin=margin, seed=seed)
    missing = [path for path in results.check_evaluated() if path not in results.runs.damaged]  # those are notes of the results
    names, command = ", ".join(missing), f"coref-automl evaluate {shlex.join(missing)}"
    notes = [
        *([note("not evaluated", say, names=names, command=command)] if names else ()),
        *results.notes_on(chosen),
        *others_than(chosen, groups),
        *_still_training(chosen, say),
        *(line for pair in vocabulary_pairs(chosen, seed=seed) for line in pair_lines(pair, say)),
        *study.notes,
        *([note("dropped items", say, dropped=study.dropped)] if study.dropped else ()),
    ]
    values = {item.name: getattr(study, item.name) for item in fields(study)}
    return Subject(**{**values, "notes": tuple(notes)}, say=say, target=target or {})


def _still_training(group: Group, say: Say) -> list[str]:
    """A note on runs that have started and not finished; they are reported as they are."""
    folders = {Path(entry.evaluation.path).parent for entry in group.entries if entry.trained}
    unfinished = sorted(folder.name for folder in folders if is_there(folder / EVENTS) and not is_done(folder))
    if not unfinished:
        return []
    names = ", ".join(unfinished)
    return [say(f"아직 학습 중: {names}. 지금까지의 체크포인트로 썼습니다.", f"Still training: {names}. Reported as it stands.")]


def epoch_text(entry: Entry) -> str:
    return f"{entry.evaluation.provenance.epoch:.2f}" if entry.evaluation.provenance else "–"


def parse_target(text: str) -> dict[str, float]:
    """Parse `real1=0.68,real5=0.83`; 68 means 68%."""
    targets: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, value = part.partition("=")
        try:
            number = float(value)
        except ValueError:
            raise RecipeError(f"--target {part!r} should read METRIC=NUMBER, such as real1=0.68.") from None
        number = number / 100 if number > 1 else number
        if not 0 < number <= 1:
            raise RecipeError(f"--target {part!r} should lie between 0 and 1 (or 100 percent).")
        targets[metric_named(name.strip()).name] = number
    return targets
