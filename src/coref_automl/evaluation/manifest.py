"""The manifest of an evaluation set. In: its recipe, items and drops. Out: settings and counts, and lines for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coref_automl import store
from coref_automl.config import to_mapping
from coref_automl.corpus.files import files_of, name_of
from coref_automl.corpus.sources import inputs_of, licence_of
from coref_automl.evaluation.recipe import EvalRecipe
from coref_automl.evaluation.tasks import TASKS
from coref_automl.evaluation.tasks.far import BUCKETS, bucket_of
from coref_automl.evaluation.tasks.lambada import HUB
from coref_automl.korean import kiwi_version
from coref_automl.records import ClozeItem, Half, Task, halves_of
from coref_automl.say import in_words, say

if TYPE_CHECKING:
    from coref_automl.evaluation.evalset import SetManifest


ADDED = {"per_document": 3, "single_entry": False}
"""Settings that older sets do not name, with the value that applied then."""


def settings(recipe: EvalRecipe, reference: str) -> dict[str, Any]:
    """What decides the bytes of a set: the recipe without paths of this machine, and fingerprints of local inputs."""
    values = to_mapping(recipe)
    for key in ("models", "sources", "gold", "lambada", "files"):
        values.pop(key)
    marks = [mark for name in recipe.sources for mark in _inputs(name)]
    others = [entry.partition("=")[2] for entry in recipe.files]
    marks += [mark for name in (*recipe.gold, *recipe.lambada, *others) for mark in _annotations(name)]
    return {
        **values,
        "inputs": _by_label(marks),
        "reference": reference,
        "versions": {task: TASKS[task].version for task in recipe.tasks},
    }


def facts(
    recipe: EvalRecipe,
    chosen: dict[str, Any],
    items: Mapping[Task, Sequence[ClozeItem]],
    drops: Mapping[str, Mapping[str, int]],
    documents: Mapping[str, Mapping[str, int]],
) -> dict[str, Any]:
    """Everything but the fingerprint. `documents` counts for each source the documents seen, used and dropped by reason."""
    halves = halves_of((item.task, item.cluster) for found in items.values() for item in found)
    return {
        "settings": chosen,
        "reference": {"model": label(recipe.models[0]), "tokenizer": chosen["reference"]},
        "tagger": kiwi_version(),
        "licences": {label(name): licence_of(name) for name in recipe.sources},
        "documents": {source: dict(seen) for source, seen in documents.items()},
        "tasks": {task: {**counts(found, halves), "drops": dict(drops.get(task, {}))} for task, found in items.items()},
    }


def counts(items: Sequence[ClozeItem], halves: Mapping[str, Half]) -> dict[str, Any]:
    """How many items, in how many clusters, by half, source, tag and distance."""
    by_bucket = Counter(bucket_of(item.distance) for item in items)
    return {
        "items": len(items),
        "clusters": len({item.cluster for item in items}),
        "halves": dict(sorted(Counter(halves[item.cluster] for item in items).items())),
        "sources": dict(sorted(Counter(item.source for item in items).items())),
        "tags": dict(sorted(Counter(item.tag or "none" for item in items).items())),
        "buckets": {f"{low}-{high}": by_bucket[low, high] for low, high in BUCKETS},
        "without antecedent": sum(item.antecedent is None for item in items),
        "pronoun between": sum(item.pronoun_between for item in items),
        "candidates": round(sum(len(item.candidates) for item in items) / max(1, len(items)), 2),
    }


_SEEN = {"documents": "문서", "held out": "평가용", "kept": "사용"}


def lines(manifest: SetManifest) -> list[str]:
    """The manifest as a table for the terminal."""
    model = manifest.get("reference", {}).get("model", "unknown")
    mark = manifest["fingerprint"]
    shown = [say(f"기준 토크나이저 {model}, 지문 {mark}", f"reference tokenizer {model}, fingerprint {mark}")]
    for source, seen in manifest.get("documents", {}).items():
        told = {say(_SEEN.get(name) or in_words(name), name): count for name, count in seen.items()}
        shown.append(f"{source}: {', '.join(f'{name} {count:,}' for name, count in told.items())}")
    for task, held in manifest.get("tasks", {}).items():
        halves = ", ".join(f"{half} {count:,}" for half, count in held["halves"].items())
        items, clusters = f"{held['items']:,}", f"{held['clusters']:,}"
        shown.append(
            say(
                f"{task}: 문서 {clusters}개의 문항 {items}개 ({halves})",
                f"{task}: {items} items of {clusters} documents ({halves})",
            )
        )
        buckets = ", ".join(f"{bucket}: {count:,}" for bucket, count in held["buckets"].items())
        sources = ", ".join(f"{source} {count:,}" for source, count in held["sources"].items())
        shown.append(say(f"  거리별: {buckets}", f"  by distance: {buckets}"))
        shown.append(say(f"  데이터 소스별: {sources}", f"  by source: {sources}"))
        shown.append(say("  제외: ", "  dropped: ") + reasons({in_words(why): count for why, count in held["drops"].items()}))
    return shown


def reasons(drops: Mapping[str, int]) -> str:
    """Reasons with their counts, most frequent first."""
    ranked = sorted(drops.items(), key=lambda entry: (-entry[1], entry[0]))
    return ", ".join(f"{reason} {count:,}" for reason, count in ranked) or say("없음", "none")


def difference(held: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """The first input or setting that has changed since the set was made, as a clause; None if none has."""
    before, after = held.get("inputs", {}), now["inputs"]
    for label, mark in after.items():
        if before.get(label) != mark:
            return f"{label} {'has changed' if label in before else 'is new'} since it was made"
    if gone := [label for label in before if label not in after]:
        return f"{gone[0]} is gone since it was made"
    for key in sorted({*held, *now} - {"inputs"}):
        if held.get(key) != now.get(key):
            was, asked = (_shown(values.get(key)) for values in (held, now))
            return f"it was made with {key} {was}, and this command has {asked}"
    return None


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _by_label(marks: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Fingerprints by file name; later files of the same name are numbered."""
    found: dict[str, str] = {}
    for label, mark in marks:
        found[numbered(label, found)] = mark
    return found


def numbered(label: str, known: Collection[str]) -> str:
    """The label, with a number where an earlier input has it."""
    names = (f"{label} ({number})" for number in count(2))
    return label if label not in known else next(name for name in names if name not in known)


def _inputs(name: str) -> list[tuple[str, str]]:
    return [(part.label, store.fingerprint_files([part.path]) if part.path else "") for part in inputs_of(name)]


def _annotations(name: str) -> list[tuple[str, str]]:
    if name.startswith("bundled:") or name in ("ko-lambada", HUB):
        return [(name, "")]
    return [(path.name, store.fingerprint_files([path])) for path in files_of(name.removeprefix("local:"))]


def label(name: str) -> str:
    """A file or folder by its last part: its place on this machine means nothing on another."""
    plain = name.removeprefix("local:")
    return name_of(plain) if name.startswith("local:") or Path(plain).exists() else name
