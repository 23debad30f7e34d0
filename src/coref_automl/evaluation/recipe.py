"""The recipe of an evaluation set. In: options or YAML, items and drops. Out: a frozen recipe, and the set's manifest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Annotated, Any

from coref_automl.config import Setting, choose, to_mapping, typed
from coref_automl.corpus.clean import LEAST, SHARE
from coref_automl.corpus.files import files_of, name_of
from coref_automl.corpus.inputs import content_of
from coref_automl.corpus.recipe import HeldOutShare
from coref_automl.corpus.sources import inputs_of, licence_of
from coref_automl.engine.binding import BYTES
from coref_automl.engine.binding import difference as difference_between
from coref_automl.errors import RecipeError
from coref_automl.evaluation.evalset import SetManifest
from coref_automl.evaluation.tasks import TASKS
from coref_automl.evaluation.tasks.far import BUCKETS, bucket_of
from coref_automl.evaluation.tasks.lambada import HUB
from coref_automl.evaluation.tasks.real import PER_DOCUMENT
from coref_automl.evaluation.tasks.task import ClozeTask
from coref_automl.fingerprints import fingerprint_files
from coref_automl.korean import kiwi_version
from coref_automl.records import ClozeItem, Half, Task, halves_of
from coref_automl.say import in_words, say


@dataclass(frozen=True, slots=True)
class EvalRecipe:
    """What to build an evaluation set from.

    Distances are in tokens of the first of `models`, the reference. `real`, `real-far` and `passage` read the held-out documents
    of `sources`: those that `prepare mlm|entity|combined` leaves out. Limits count names and common nouns separately.
    `single_entry` drops items whose answer is not one entry of the reference's vocabulary, which strict cannot reach.
    """

    models: Annotated[
        tuple[str, ...],
        Setting("Model whose tokenizer to build noun tables for; the first is the reference. Repeatable.", flags=("--model",)),
    ]
    tasks: Annotated[
        tuple[Task, ...], Setting(f"{', '.join(TASKS)}; repeatable. Default: the tasks that the inputs allow.", flags=("--task",))
    ] = ()
    sources: Annotated[
        tuple[str, ...],
        Setting("Named source (see: coref-automl sources), local:PATH or a quoted glob; repeatable.", flags=("--source",)),
    ] = ()
    gold: Annotated[tuple[str, ...], Setting("File of texts with coreference clusters; repeatable.")] = ()
    lambada: Annotated[tuple[str, ...], Setting("File in Ko-LAMBADA's columns, ko-lambada or bundled:cloze; repeatable.")] = ()
    field: Annotated[str | None, Setting("Field with the text, if not the source's usual one.")] = None
    limit: Annotated[int | None, Setting("Read at most this many rows of each file or hub source.", 1)] = None
    holdout: HeldOutShare = SHARE
    least: Annotated[int, Setting("Minimum number of documents held out per source.", 0)] = LEAST
    all_documents: Annotated[bool, Setting("Use all documents, not only held-out ones: texts never trained on.")] = False
    per_source: Annotated[int, Setting("Maximum number of real items per source, of names and of common nouns.", 1)] = 1_600
    per_bucket: Annotated[int, Setting("Maximum number of far items per source and distance bucket.", 1)] = 800
    per_document: Annotated[int, Setting("Maximum number of real items per document.", 1)] = PER_DOCUMENT
    min_syllables: Annotated[int, Setting("Minimum number of syllables of the answer of a real item or passage.", 2)] = 3
    single_entry: Annotated[bool, Setting("Keep only real items whose answer is one entry of the first --model.")] = False
    seed: Annotated[int, Setting("Random seed.", 0)] = 0
    files: Annotated[tuple[str, ...], Setting("File of another task, as TASK=PATH; repeatable.", flags=("--file",))] = ()

    def __post_init__(self) -> None:
        typed(self)
        if not self.models:
            raise RecipeError("Name the model whose tokenizer is the reference, with --model.")
        for entry in self.files:
            choose(entry.partition("=")[0], {name: task for name, task in TASKS.items() if task.rows}, "task with files")
        if not self.tasks:
            allowed = tuple(name for name, task in TASKS.items() if self.inputs(name) and not task.on_request)
            object.__setattr__(self, "tasks", allowed)
        for task in self.tasks:
            choose(task, TASKS, "task")
            if self.has_inputs and not self.inputs(task):
                raise RecipeError(f"The task {task} needs {_option(TASKS[task])}; name one, or leave the task out.")

    @property
    def has_inputs(self) -> bool:
        return bool(self.sources or self.gold or self.lambada or self.files)

    def inputs(self, task: Task) -> tuple[str, ...]:
        """The sources of a task's documents, or its annotated files."""
        if TASKS[task].rows is None:
            return self.sources
        own = {"gold": self.gold, "lambada": self.lambada}.get(task, ())
        return (*own, *(path for name, _, path in (entry.partition("=") for entry in self.files) if name == task))


def _option(task: ClozeTask) -> str:
    if task.rows is None:
        return "--source"
    return f"--{task.name}" if task.name in ("gold", "lambada") else f"--file {task.name}=PATH"


_ADDED = {"per_document": 3, "min_syllables": 2}
"""Settings that older sets did not record, with the value that applied."""


def settings(recipe: EvalRecipe, reference: str) -> dict[str, Any]:
    """Everything that decides the bytes of a set: the recipe without paths of this machine, and fingerprints of local inputs."""
    values = to_mapping(recipe)
    for key in ("models", "sources", "gold", "lambada", "files"):
        values.pop(key)
    parts = [part for name in recipe.sources for part in inputs_of(name)]
    inputs = [(part.label, content_of(part) if part.is_file else "") for part in parts]
    files = [entry.partition("=")[2] for entry in recipe.files]
    inputs += [entry for name in (*recipe.gold, *recipe.lambada, *files) for entry in _annotations(name)]
    return {
        **values,
        "inputs": _by_label(inputs),
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
    """The manifest without the fingerprint. `documents` has each source's documents seen, used and dropped by reason."""
    halves = halves_of((item.task, item.cluster) for of_task in items.values() for item in of_task)
    return {
        "settings": chosen,
        "reference": {"model": label(recipe.models[0]), "tokenizer": chosen["reference"]},
        "tagger": kiwi_version(),
        "licences": {label(name): licence_of(name) for name in recipe.sources},
        "documents": {source: dict(numbers) for source, numbers in documents.items()},
        "tasks": {task: {**counts(of_task, halves), "drops": dict(drops.get(task, {}))} for task, of_task in items.items()},
    }


def counts(items: Sequence[ClozeItem], halves: Mapping[str, Half]) -> dict[str, Any]:
    """The numbers of items and clusters, by half, source, tag and distance."""
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


_KOREAN = {"documents": "문서", "held out": "평가용", "kept": "사용"}


def lines(manifest: SetManifest) -> list[str]:
    """The manifest as lines for the terminal."""
    model = manifest.get("reference", {}).get("model", "unknown")
    fingerprint = manifest["fingerprint"]
    lines = [say(f"기준 토크나이저 {model}, 핑거프린트 {fingerprint}", f"reference tokenizer {model}, fingerprint {fingerprint}")]
    for source, numbers in manifest.get("documents", {}).items():
        named = {say(_KOREAN.get(name) or in_words(name), name): number for name, number in numbers.items()}
        lines.append(f"{source}: {', '.join(f'{name} {number:,}' for name, number in named.items())}")
    for task, of_task in manifest.get("tasks", {}).items():
        halves = ", ".join(f"{half} {number:,}" for half, number in of_task["halves"].items())
        items, clusters = f"{of_task['items']:,}", f"{of_task['clusters']:,}"
        en = f"{task}: {items} items of {clusters} documents ({halves})"
        lines.append(say(f"{task}: 문서 {clusters}개의 문항 {items}개 ({halves})", en))
        buckets = ", ".join(f"{bucket}: {number:,}" for bucket, number in of_task["buckets"].items())
        sources = ", ".join(f"{source} {number:,}" for source, number in of_task["sources"].items())
        lines.append(say(f"  거리별: {buckets}", f"  by distance: {buckets}"))
        lines.append(say(f"  데이터 소스별: {sources}", f"  by source: {sources}"))
        dropped = {in_words(reason): number for reason, number in of_task["drops"].items()}
        lines.append(say("  제외: ", "  dropped: ") + reasons(dropped))
    return lines


def reasons(drops: Mapping[str, int]) -> str:
    """Reasons with their counts, the most frequent first."""
    ranked = sorted(drops.items(), key=lambda entry: (-entry[1], entry[0]))
    return ", ".join(f"{reason} {count:,}" for reason, count in ranked) or say("없음", "none")


def difference(stored: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    """The first input or setting that has changed since a set was made, in words; empty if none has."""

    def flat(values: Mapping[str, Any]) -> dict[str, Any]:
        inputs = {f"{BYTES}input {label}": fingerprint or "named" for label, fingerprint in values["inputs"].items()}
        return {**values, "inputs": None, **inputs}

    return difference_between(flat({"inputs": {}, **_ADDED, **stored}), flat(current))


def _by_label(inputs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Fingerprints by label, from pairs of both; repeated labels are numbered."""
    fingerprints: dict[str, str] = {}
    for label, fingerprint in inputs:
        fingerprints[numbered(label, fingerprints)] = fingerprint
    return fingerprints


def numbered(label: str, known: Collection[str]) -> str:
    """The label, with a number if an earlier input has it."""
    names = (f"{label} ({number})" for number in count(2))
    return label if label not in known else next(name for name in names if name not in known)


def _annotations(name: str) -> list[tuple[str, str]]:
    if name.startswith("bundled:") or name in ("ko-lambada", HUB):
        return [(name, "")]
    return [(path.name, fingerprint_files([path])) for path in files_of(name.removeprefix("local:"))]


def label(name: str) -> str:
    """The last part of a file's or folder's path, which is the same on every machine; other names as they are."""
    plain = name.removeprefix("local:")
    return name_of(plain) if name.startswith("local:") or Path(plain).exists() else name
