"""Models to evaluate, and where. In: paths of checkpoints, runs, or folders of runs. Out: each model once, with a unique name.

    runs/<run>/evaluations/<set>-<length>/checkpoint-65/{items.jsonl, result.json, DONE}
    runs/<run>/evaluations/<set>-<length>-<mark>/checkpoint-65/...           another set of that name, dtype or scorer version
    runs/<run>/checkpoint-65_eval_results.json
    runs/<run>/base-evaluations/<model>/<set>-<length>/...                   the model that the run began from
    evaluations/<model>/<set>-<length>/{items.jsonl, result.json, DONE}      a model outside a run folder
    evaluations/<model>/<model>_eval_results.json

A run keeps its base's evaluation, so that it is found from any current folder, also after the run has moved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TypedDict

from coref_automl.corpus.overlap import frozen_fingerprint
from coref_automl.decoder import read_stored
from coref_automl.errors import CorefError, InputError, ModelError
from coref_automl.evaluation.windows import WordMode
from coref_automl.fingerprints import fingerprint
from coref_automl.folders import State, natural_order, state_of
from coref_automl.models.load import load_tokenizer, tokenizer_fingerprint
from coref_automl.models.model_files import full_name, is_local, model_fingerprints, refuse_foreign, resolve, weights_fingerprint
from coref_automl.progress import Progress
from coref_automl.records import Provenance

EVALUATIONS = "evaluations"
BASES = "base-evaluations"
CHECKPOINT = re.compile(r"checkpoint-\d+")
REMEDY = "remove it, and evaluate again"
_DEEPEST = 3


class Summary(TypedDict, total=False):
    """What `<checkpoint>_eval_results.json` holds: the part of it that is read."""

    path: str
    seq_len: int
    dtype: str
    fingerprints: dict[str, str]


@dataclass(frozen=True, slots=True)
class Target:
    """A model to evaluate: what to load, its unique name, and the place of its evaluations. `label` is its own folder's name."""

    model: str
    name: str
    label: str
    place: Path
    in_run: bool

    def folder(self, evalset: str, seq_len: int, mark: str = "") -> Path:
        """Where an evaluation is written; `mark` distinguishes it from another one that has the plain name."""
        inside = folder_name(evalset, seq_len, mark)
        return self.place / EVALUATIONS / inside / self.label if self.in_run else self.place / inside

    def holds(self, folder: Path) -> bool:
        """Whether this folder is one of the model's own evaluations, whatever set it is named after."""
        beside = folder.parents[1] / folder.name if self.in_run else folder.parent
        return beside.resolve() == (self.place / EVALUATIONS / self.label if self.in_run else self.place).resolve()

    @property
    def summary(self) -> Path:
        return self.place / f"{self.label}_eval_results.json"

    @property
    def origin(self) -> str:
        """Where the run or the model lies: what distinguishes two of one name."""
        return origin_of(self.model, self.in_run)

    def owner(self) -> str | None:
        """The origin of the model whose evaluations this place already holds, if that model still exists.

        A run owns its own folder: in a copied run, the flat files still name the run that it was copied from.
        """
        if self.in_run and str(self.place.resolve()) == self.origin:
            return self.origin
        evaluated = self.stored_summary().get("path", "")
        is_there, is_name = Path(evaluated).is_dir(), not Path(self.model).is_dir()  # a hub id has no folder that could be gone
        return origin_of(evaluated, self.in_run) if evaluated and (is_there or is_name) else None

    def stored_summary(self) -> Summary:
        return read_stored(self.summary, Summary, remedy=REMEDY) if self.summary.is_file() else {}

    def marked(self) -> Target:
        """The same with a mark of the model's place in its folder and name, for when another model has the plain name."""
        place = self.place.with_name(f"{self.place.name}-{fingerprint(self.origin)[:6]}")
        return replace(self, place=place, name=f"{place.name}/{self.label}" if self.in_run else place.name)

    def provenance(self) -> Provenance | None:
        path = Path(self.model) / "training.json"
        return read_stored(path, Provenance) if path.is_file() else None


def target_of(model: str, out: Path | None = None) -> Target:
    """A model under its plain name; `out` is another folder for its evaluations than its run's, or than ./evaluations."""
    folder = Path(model)
    if folder.is_dir() and CHECKPOINT.fullmatch(folder.resolve().name):
        folder = folder if folder.name else folder.resolve()
        run = folder.parent.resolve().name
        return Target(str(folder), f"{run}/{folder.name}", folder.name, out / run if out else folder.parent, True)
    label = model_slug(model)
    return Target(model, label, label, (out or Path(EVALUATIONS)) / label, False)


def origin_of(model: str, in_run: bool) -> str:
    """The resolved folder of a run or a model; a hub id or a bundled name as it is."""
    path = Path(model).resolve()
    return str(path.parent if in_run else path) if path.is_dir() else model


def folder_name(evalset: str, seq_len: int, mark: str = "") -> str:
    return f"{evalset}-{seq_len}-{mark}" if mark else f"{evalset}-{seq_len}"


def model_slug(model: str) -> str:
    """A folder name for a hub id, a bundled name or a model folder."""
    return Path(model).resolve().name if Path(model).is_dir() or Path(model).is_absolute() else slug(model)


def slug(name: str) -> str:
    """A name without the characters that a folder's name cannot have; a hub id keeps its owner."""
    return re.sub(r"[^\w.-]+", "-", name.replace("/", "--"))


def is_model_folder(folder: Path) -> bool:
    return (folder / "config.json").is_file()


def is_model_alone(folder: Path) -> bool:
    """Whether a folder is a model's and holds no checkpoints besides."""
    return is_model_folder(folder) and not checkpoint_folders(folder)


def checkpoint_folders(folder: Path) -> list[Path]:
    inside = [path for path in folder.iterdir() if path.is_dir() and CHECKPOINT.fullmatch(path.name)]
    return sorted(inside, key=lambda path: natural_order(path.name))


def place_of(model: str) -> Path | None:
    """The folder with the evaluations of a model outside runs; None where another model of that name has it."""
    plain = target_of(model)
    if not Path(model).is_dir():
        return plain.place
    if (own := plain.marked().place).is_dir():
        return own
    stored: Summary = {}
    with suppress(InputError):  # a damaged file says nothing
        stored = plain.stored_summary()
    evaluated, weights = stored.get("path", ""), stored.get("fingerprints", {}).get("weights", "")
    is_own = not evaluated or origin_of(evaluated, plain.in_run) == plain.origin or has_bytes(Path(model), weights)
    return plain.place if is_own else None


def has_bytes(folder: Path, known: str) -> bool:
    """Whether a folder holds the model, the dataset or the evaluation set of this fingerprint."""
    with suppress(CorefError, OSError):
        if known and is_model_folder(folder):
            return _weights_of(folder.resolve(), state_of(folder)) == known
        return bool(known) and frozen_fingerprint(folder) == known
    return False


@cache
def _weights_of(folder: Path, _state: State) -> str:
    return weights_fingerprint(str(folder))


def find_targets(paths: Sequence[str | Path], out: Path | None = None, unread: list[str] | None = None) -> list[Target]:
    """The models behind the paths, each once: checkpoints of a run in natural order, runs of a folder in natural order.

    `unread` gets a sentence for each folder under them that cannot be looked into.
    """
    targets: dict[str, Target] = {}
    for path in paths:
        for model in _models(str(path), [] if unread is None else unread):
            targets.setdefault(full_name(model), target_of(model, out))
    return _unique(list(targets.values()))


def base_targets(models: Sequence[str], beside: Sequence[Target], out: Path | None = None) -> dict[str, Target]:
    """The targets of models that checkpoints began from; none shares a folder with another, nor with one of those `beside` it."""
    held = {full_name(target.model): target for target in beside}
    for model in models:
        held.setdefault(full_name(model), target_of(model, out))
    apart = dict(zip(held, _unique(list(held.values())), strict=True))
    return {model: apart[full_name(model)] for model in models}


def _models(path: str, unread: list[str]) -> list[str]:
    """The models a path means; what is not a folder is left to the loader, which knows hub ids and bundled names."""
    folder = Path(path)
    if not path:
        raise ModelError("A path is empty; pass a checkpoint, a run, runs, or . for this folder.")
    if not folder.is_dir():
        resolve(path)
        return [path]
    if checkpoints := checkpoint_folders(folder):
        return [str(checkpoint) for checkpoint in checkpoints]
    if is_model_folder(folder) or CHECKPOINT.fullmatch(folder.resolve().name):
        return [path]
    inside = [model for run in _run_folders(folder, _DEEPEST, unread) for model in _models(str(run), unread)]
    if not inside and unread:
        raise ModelError(unread[0])
    if not inside:
        refuse_foreign(folder)
        raise ModelError(f"{path} holds no checkpoint (neither checkpoint-N nor config.json); pass a checkpoint, a run, or runs.")
    return inside


def _run_folders(folder: Path, depth: int, unread: list[str]) -> Iterator[Path]:
    for path in sorted((entry for entry in folder.iterdir() if entry.is_dir()), key=lambda entry: natural_order(entry.name)):
        if path.name in (EVALUATIONS, BASES) or path.name.startswith("."):
            continue
        try:
            own = bool(checkpoint_folders(path)) or is_model_folder(path)
        except PermissionError as error:
            unread.append(f"{path} cannot be read ({error.strerror}); make it readable, or move it away.")
            continue
        if own:
            yield path
        elif depth > 1:
            yield from _run_folders(path, depth - 1, unread)


def _unique(targets: list[Target]) -> list[Target]:
    """Of models with one name from different places, the later ones get a mark, so that none overwrites another."""
    owners: dict[Path, str] = {}
    out = []
    for target in targets:
        if owners.setdefault(target.place, target.owner() or target.origin) != target.origin:
            target = target.marked()
        out.append(target)
    names = [target.name for target in out]
    return [replace(entry, name=Path(entry.model).as_posix()) if names.count(entry.name) > 1 else entry for entry in out]


def words_to_compare(targets: Sequence[Target], words: WordMode, progress: Progress) -> WordMode:
    """`words` as asked, or a sample of them where tokenizers differ: word ranks are all that such models can be compared by."""
    if words not in ("none", "gold"):
        return words
    by_bytes: dict[str, str] = {}
    for target in targets:
        try:
            made = target.provenance()
            for model in (target.model, *([made.base] if made and is_local(made.base) else [])):
                by_bytes.setdefault(model_fingerprints(model, weights=False)["tokenizer_files"], model)
        except CorefError:
            continue  # the target's own evaluation will report it
    if len(by_bytes) < 2 or len({tokenizer_fingerprint(load_tokenizer(model)) for model in by_bytes.values()}) < 2:
        return words
    progress.note(
        "토크나이저가 서로 달라, 비교에 쓸 단어 순위를 표본으로 함께 채점합니다(--words sample).",
        "Tokenizers differ, so word ranks are scored on a sample, by which such models are compared (--words sample).",
    )
    return "sample"
