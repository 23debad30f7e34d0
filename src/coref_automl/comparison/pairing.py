"""What may be compared with what. In: paths, a metric, a reference. Out: one group, the metric to judge by, the reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from coref_automl.comparison.groups import (
    bases_of,
    evaluations_under,
    left_out,
    not_evaluated,
    nothing_under,
    read_groups,
)
from coref_automl.comparison.scores import Entry, Group
from coref_automl.config import choose, nearest
from coref_automl.errors import ComparisonError
from coref_automl.evaluation.metrics import METRICS, PRIMARY


def choose_group(paths: Sequence[str], *, common: bool = False, evalset: str | None = None) -> tuple[Group, list[str]]:
    """The group that holds an evaluation of every path; unlike fingerprints and scorer versions are refused by name."""
    groups, notes = read_groups(paths, common=common), [f"Left out: {wrong}" for wrong in left_out(paths)]
    if missing := not_evaluated(paths):
        raise ComparisonError(nothing_under(missing))
    paths = [path for path in paths if evaluations_under([path])]  # the others are relation runs
    if evalset is not None:
        if not any(evalset in (group.evalset, group.fingerprint) for group in groups):
            raise ComparisonError(
                f"No evaluation on the set {evalset!r} here. {nearest(evalset, {group.evalset for group in groups})}"
            )
        groups = [group for group in groups if evalset in (group.evalset, group.fingerprint)]
    whole = [group for group in groups if all(_holds(group, path) for path in paths)] if len(paths) > 1 else groups
    if not whole:
        raise ComparisonError(_refusal(groups))
    chosen = whole[0]
    left = [group for group in groups if group is not chosen]
    notes += [
        f"{len(group.entries)} evaluations on {group.evalset} (items {group.fingerprint[:8]}) are not in this table."
        for group in left
    ]
    return chosen, notes


def settle_metric(group: Group, metric: str | None) -> tuple[str, list[str]]:
    """The metric to judge by: as asked, or strict Real@1, or `word` where tokenizers differ, or the first that was run."""
    several = group.tokenizers > 1
    usable = [name for name in group.metrics() if not several or (METRICS[name].rule == "word" and not METRICS[name].parts)]
    if metric is not None:
        choose(metric, METRICS, "metric")
        if metric in usable:
            return metric, []
        if several and metric in group.metrics():
            raise ComparisonError(
                f"These checkpoints have different tokenizers, so {metric} cannot compare them; "
                f"use --metric {usable[0] if usable else 'real_word'}."
            )
        raise ComparisonError(f"{metric} was not run on {group.evalset}. Run there: {', '.join(usable) or 'nothing comparable'}.")
    if not usable:
        raise ComparisonError(
            "No metric was run by all of these; where tokenizers differ, run: coref-automl evaluate --words all"
        )
    if several:
        return usable[0], [f"Tokenizers differ, so {METRICS[usable[0]].label} is compared and nothing else."]
    return (PRIMARY if PRIMARY in usable else usable[0]), []


def find_reference(entries: Sequence[Entry], reference: str | None) -> int:
    """The entry of that name or path; unless given, the base model in windows as its checkpoints have them, or the first."""
    if reference is None:
        base = next((entry for entry in entries if not entry.trained), None)
        return _as_long_as_most(entries, base) if base is not None else 0
    wanted = Path(reference)
    for number, entry in enumerate(entries):
        if reference in (entry.name, entry.evaluation.checkpoint, entry.evaluation.path) or _same(
            wanted, Path(entry.evaluation.path)
        ):
            return number
    raise ComparisonError(
        f"No evaluation of the reference {reference!r} here. {nearest(reference, [entry.name for entry in entries])}"
    )


def _as_long_as_most(entries: Sequence[Entry], base: Entry) -> int:
    """The same model in windows as long as those of the most checkpoints that began from it; the first of equals."""
    begun: Counter[int] = Counter()
    for entry in entries:
        if (made := entry.evaluation.provenance) is not None and base in bases_of(entries, made):
            begun[entry.evaluation.seq_len] += 1
    same = [number for number, one in enumerate(entries) if not one.trained and one.same_model_as(base)]
    return max(same, key=lambda number: begun[entries[number].evaluation.seq_len])


def own_base(entries: Sequence[Entry], entry: Entry, base: Entry | None) -> Entry | None:
    """The evaluated model that a checkpoint began from: the study's base, or one in windows as long, or of its only length.

    A checkpoint without a record of its training is taken to have begun from the study's base.
    """
    made = entry.evaluation.provenance
    if made is None:
        return base
    found = [one for one in bases_of(entries, made) if one is not entry]
    if base is not None and any(one is base for one in found):
        return base
    as_long = next((one for one in found if one.evaluation.seq_len == entry.evaluation.seq_len), None)
    return as_long or (found[0] if len(found) == 1 else None)


def references(entries: Sequence[Entry], first: Entry) -> list[Entry | None]:
    """What each is judged against where nobody chose: the model it began from, or None if that was not evaluated.

    A model from elsewhere stands beside the reference that is the same model in other windows, else beside `first`, unless it is
    a reference itself. Where none of the models behind the checkpoints was evaluated, all stand beside `first`.
    """
    base = None if first.trained else first
    out = [own_base(entries, one, base) if one.trained or one.evaluation.provenance else None for one in entries]
    used = list({id(one): one for one in out if one is not None}.values())
    if not used:
        return [first] * len(entries)
    other = first if first in used else used[0]
    for number, entry in enumerate(entries):
        if not entry.trained and entry.evaluation.provenance is None and entry not in used:
            out[number] = next((one for one in used if one.same_model_as(entry)), other)
    return out


def _holds(group: Group, path: str) -> bool:
    folders = {entry.folder.resolve() for entry in group.entries}
    return any(stored.folder.resolve() in folders for stored in evaluations_under([path]))


def _same(a: Path, b: Path) -> bool:
    return a.exists() and b.exists() and a.resolve() == b.resolve()


def _refusal(groups: Sequence[Group]) -> str:
    lists = [
        f"{', '.join(e.name for e in g.entries[:3])}: items {g.fingerprint[:8]} of {g.evalset}, scorer {g.scorer}" for g in groups
    ]
    return (
        f"These evaluations do not share their items or their scorer ({'; '.join(lists)}). "
        "Evaluate them on one set with one version, or pass --common to compare the items they share."
    )
