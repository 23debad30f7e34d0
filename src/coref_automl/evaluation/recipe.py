"""The recipe of an evaluation set. In: options or YAML, items and drops. Out: a frozen recipe, and the set's manifest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Protocol

from coref_automl.base.binding import BYTES
from coref_automl.base.binding import difference as difference_between
from coref_automl.base.config import Setting, choose, to_mapping, typed
from coref_automl.base.errors import RecipeError
from coref_automl.base.fingerprints import fingerprint_files
from coref_automl.base.korean import kiwi_version
from coref_automl.base.records import ClozeItem, Half, Task, halves_of
from coref_automl.base.say import in_words, say
from coref_automl.corpus.clean import LEAST, SHARE
from coref_automl.corpus.files import files_of, name_of
from coref_automl.corpus.inputs import content_of
from coref_automl.corpus.recipe import HeldOutShare
from coref_automl.corpus.sources import inputs_of, licence_of
from coref_automl.evaluation.evalset import SetManifest
from coref_automl.evaluation.tasks import TASKS
from coref_automl.evaluation.tasks.far import BUCKETS, bucket_of
from coref_automl.evaluation.tasks.lambada import HUB
from coref_automl.evaluation.tasks.task import PER_DOCUMENT, ClozeTask


@dataclass(frozen=True, slots=True)
class EvalRecipe:
    """What to build an evaluation set from.

    Distances are in tokens of the first of `models`, the reference. All tasks but `lambada` read the held-out documents of
    `sources`: those that `prepare mlm|entity|combined` leaves out. `single_entry` drops items whose answer is not one token
    of the reference, which it does not count.
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
    lambada: Annotated[tuple[str, ...], Setting("File in Ko-LAMBADA's columns, ko-lambada or bundled:cloze; repeatable.")] = ()
    field: Annotated[str | None, Setting("Field with the text, if not the source's usual one.")] = None
    limit: Annotated[int | None, Setting("Read at most this many rows of each file or hub source.", 1)] = None
    holdout: HeldOutShare = SHARE
    least: Annotated[int, Setting("Minimum number of documents held out per source.", 0)] = LEAST
    all_documents: Annotated[bool, Setting("Use all documents, not only held-out ones: texts never trained on.")] = False
    per_source: Annotated[int, Setting("Maximum number of real items per source, and of new ones.", 1)] = 4_000
    per_bucket: Annotated[int, Setting("Maximum number of far items per source and distance bucket.", 1)] = 800
    per_document: Annotated[int, Setting("Maximum number of real items per document, and of new ones.", 1)] = PER_DOCUMENT
    single_entry: Annotated[bool, Setting("Keep only nouns that are one token of the first --model.")] = False
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
        return bool(self.sources or self.lambada or self.files)

    def inputs(self, task: Task) -> tuple[str, ...]:
        """The sources of a task's documents, or its annotated files."""
        if TASKS[task].rows is None:
            return self.sources
        own = self.lambada if task == "lambada" else ()
        return (*own, *(path for name, _, path in (entry.partition("=") for entry in self.files) if name == task))


def _option(task: ClozeTask) -> str:
    if task.rows is None:
        return "--source"
    return "--lambada" if task.name == "lambada" else f"--file {task.name}=PATH"


def settings(recipe: EvalRecipe, reference: str) -> dict[str, Any]:
    """Everything that decides the bytes of a set: the recipe without paths of this machine, and fingerprints of local inputs."""
    values = to_mapping(recipe)
    for key in ("models", "sources", "lambada", "files"):
        values.pop(key)
    parts = [part for name in recipe.sources for part in inputs_of(name)]
    inputs = [(part.label, content_of(part) if part.is_file else "") for part in parts]
    files = [entry.partition("=")[2] for entry in recipe.files]
    inputs += [entry for name in (*recipe.lambada, *files) for entry in _annotations(name)]
    return {
        **values,
        "inputs": _by_label(inputs),
        "reference": reference,
    }


class Built(Protocol):
    """What was built: items by task, drops by task and reason, documents by source, and the items of one token."""

    items: dict[Task, list[ClozeItem]]
    drops: dict[str, Counter[str]]
    sources: dict[str, Counter[str]]
    single: set[str]


def facts(recipe: EvalRecipe, chosen: dict[str, Any], built: Built) -> dict[str, Any]:
    """The manifest without the fingerprint."""
    halves = halves_of((item.task, item.cluster) for of_task in built.items.values() for item in of_task)
    tasks = {task: counts(of_task, halves, built.single) for task, of_task in built.items.items()}
    return {
        "settings": chosen,
        "reference": {"model": label(recipe.models[0]), "tokenizer": chosen["reference"]},
        "tagger": kiwi_version(),
        "licences": {label(name): licence_of(name) for name in recipe.sources},
        "documents": {source: dict(numbers) for source, numbers in built.sources.items()},
        "tasks": {task: {**of_task, "drops": dict(built.drops.get(task, {}))} for task, of_task in tasks.items()},
    }


def counts(items: Sequence[ClozeItem], halves: Mapping[str, Half], single: Set[str]) -> dict[str, Any]:
    """The numbers of items and clusters, by half, source, tag and distance; `single` are one reference token."""
    by_bucket = Counter(bucket_of(item.distance) for item in items)
    one = [item for item in items if item.id in single]
    return {
        "items": len(items),
        "clusters": len({item.cluster for item in items}),
        "halves": dict(sorted(Counter(halves[item.cluster] for item in items).items())),
        "sources": dict(sorted(Counter(item.source for item in items).items())),
        "tags": dict(sorted(Counter(item.tag or "none" for item in items).items())),
        "buckets": {f"{low}-{high}": by_bucket[low, high] for low, high in BUCKETS},
        "single": len(one),
        "single tags": dict(sorted(Counter(item.tag or "none" for item in one).items())),
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
        single = f"{of_task['single']:,} ({of_task['single'] / max(1, of_task['items']):.0%})"
        lines.append(say(f"  기준 토큰 하나인 정답: {single}", f"  answers that are one reference token: {single}"))
        if task == "real-far":
            lines.append(say(f"  거리별: {buckets}", f"  by distance: {buckets}"))
        lines.append(say(f"  데이터 소스별: {sources}", f"  by source: {sources}"))
        dropped = {in_words(reason): number for reason, number in of_task["drops"].items()}
        lines.append(say("  제외: ", "  dropped: ") + reasons(dropped))
    if real := manifest.get("tasks", {}).get("real"):
        lines.append(shows(real["clusters"]))
    return lines


_POINTS = 35.4
"""Points of Noun@1 that tell two checkpoints apart with one document; 3.3 with 120 documents and 1.6 with 480 were measured."""


def shows(documents: int) -> str:
    """What a set of so many documents tells apart."""
    points = f"{_POINTS / max(1, documents) ** 0.5:.1f}"
    return say(
        f"문서 {documents:,}개: 두 체크포인트의 차이가 약 {points}점이면 80% 확률로 검출됩니다",
        f"{documents:,} documents: a difference of about {points} points between two checkpoints is detected with 80% power",
    )


def reasons(drops: Mapping[str, int]) -> str:
    """Reasons with their counts, the most frequent first."""
    ranked = sorted(drops.items(), key=lambda entry: (-entry[1], entry[0]))
    return ", ".join(f"{reason} {count:,}" for reason, count in ranked) or say("없음", "none")


def difference(stored: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    """The first input or setting that has changed since a set was made, in words; empty if none has."""

    def flat(values: Mapping[str, Any]) -> dict[str, Any]:
        inputs = {f"{BYTES}input {label}": fingerprint or "named" for label, fingerprint in values["inputs"].items()}
        return {**values, "inputs": None, **inputs}

    return difference_between(flat({"inputs": {}, **stored}), flat(current))


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
