"""Finished evaluations. In: a model, a set, a length. Out: their names, paths, identity, and the evaluations on disk.

    runs/<run>/evaluations/<set>-<length>/checkpoint-65/{items.jsonl, result.json, DONE}
    runs/<run>/evaluations/<set>-<length>-<mark>/checkpoint-65/...           another set of that name, dtype or scorer version
    runs/<run>/checkpoint-65_eval_results.json
    runs/<run>/base-evaluations/<model>/<set>-<length>/...                   the model that the run began from
    evaluations/<model>/<set>-<length>/{items.jsonl, result.json, DONE}      a model outside a run folder
    evaluations/<model>/<model>_eval_results.json

A run keeps its base's evaluation, so that it is found from any current folder, also after the run has moved.

Two evaluations are the same when their bytes are: weights, tokenizer files, items, noun table, scorer version, dtype, length.
Folder names do not count, so that a renamed checkpoint is recognised and changed weights are a new model. A finished evaluation
is never overwritten by a different one: the first has the plain name, later ones a mark of their identity in it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Any, TypedDict

from coref_automl.decoder import read_stored
from coref_automl.errors import InputError
from coref_automl.evaluation.answers import read_table, table_fingerprint, table_path
from coref_automl.evaluation.columns import ITEMS, RANKS, has_items, holds_text, lacks, read_items, read_scores
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.evaluation.words import WordMode, wanted_ids
from coref_automl.models.model_files import SETTINGS, model_place
from coref_automl.records import SCHEMA, Evaluation, ItemScore, Provenance
from coref_automl.store import (
    DONE,
    check_name,
    explained,
    files_under,
    fingerprint,
    is_done,
    kind_of_folder,
    mark_done,
    natural_order,
    read_json,
    sweep,
    write_json,
    write_jsonl,
    write_text,
)

SCORER = "2"
"""Version of everything that decides a score: windows, matching, candidates, ranks. Scores of two versions are never compared."""

EVALUATIONS = "evaluations"
BASES = "base-evaluations"
RESULT = "result.json"
CHECKPOINT = re.compile(r"checkpoint-\d+")

_REMEDY = "remove it, and evaluate again"
_SHARED_MARKS = 2
"""Folder names that are searched for this evaluation before an empty one is taken."""


class Summary(TypedDict, total=False):
    """What `<checkpoint>_eval_results.json` holds: the part of it that is read."""

    path: str
    seq_len: int
    dtype: str
    fingerprints: dict[str, str]


@dataclass(frozen=True, slots=True)
class Target:
    """A model to evaluate: what to load, its unique name, and where its evaluations are written."""

    model: str
    name: str
    label: str
    base: Path
    in_run: bool

    def folder(self, evalset: str, seq_len: int, mark: str = "") -> Path:
        """Where an evaluation is written; `mark` distinguishes it from another one that has the plain name."""
        inside = folder_name(evalset, seq_len, mark)
        return self.base / EVALUATIONS / inside / self.label if self.in_run else self.base / inside

    def holds(self, folder: Path) -> bool:
        """Whether this folder is one of the model's own evaluations, whatever set it is named after."""
        home = folder.parents[1] / folder.name if self.in_run else folder.parent
        return home.resolve() == (self.base / EVALUATIONS / self.label if self.in_run else self.base).resolve()

    @property
    def summary(self) -> Path:
        return self.base / f"{self.label}_eval_results.json"

    @property
    def home(self) -> str:
        """The place of the run or of the model: what distinguishes two of one name."""
        return _home(self.model, self.in_run)

    def owner(self) -> str | None:
        """The home of the model whose evaluations this folder already holds, if that model still exists.

        A run owns its own folder: in a copied run, the flat files still name the run that it was copied from.
        """
        if self.in_run and str(self.base.resolve()) == self.home:
            return self.home
        if not self.summary.is_file():
            return None
        path = read_stored(self.summary, Summary, remedy=_REMEDY).get("path", "")
        return _home(path, self.in_run) if path and (Path(path).is_dir() or not Path(self.model).is_dir()) else None

    def provenance(self) -> Provenance | None:
        path = Path(self.model) / "training.json"
        return read_stored(path, Provenance) if path.is_file() else None


def target_of(model: str, out: Path | None = None) -> Target:
    folder = Path(model)
    if folder.is_dir() and CHECKPOINT.fullmatch(folder.resolve().name):
        folder = folder if folder.name else folder.resolve()
        run = folder.parent.resolve().name
        return Target(str(folder), f"{run}/{folder.name}", folder.name, out / run if out else folder.parent, True)
    label = model_slug(model)
    return Target(model, label, label, (out or Path(EVALUATIONS)) / label, False)


def marked(target: Target) -> Target:
    """The same with a mark of the model's place in its folder and name, for when another model has the plain name."""
    base = target.base.with_name(f"{target.base.name}-{fingerprint(target.home)[:6]}")
    return replace(target, base=base, name=f"{base.name}/{target.label}" if target.in_run else base.name)


def _home(model: str, in_run: bool) -> str:
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


def checkpoints_of(folder: Path) -> list[Path]:
    inside = [path for path in folder.iterdir() if path.is_dir() and CHECKPOINT.fullmatch(path.name)]
    return sorted(inside, key=lambda path: natural_order(path.name))


@dataclass(frozen=True, slots=True)
class StoredEvaluation:
    """A finished evaluation and its folder; `scores()` reads the items. An archived one has ranks but no text."""

    evaluation: Evaluation
    folder: Path

    @property
    def archived(self) -> bool:
        return not holds_text(self.folder)

    def scores(self) -> list[ItemScore]:
        return read_scores(self.folder)


def open_evaluation(folder: Path) -> StoredEvaluation | None:
    """The evaluation in a folder; None if it holds no finished one."""
    check_name(folder)
    finished = is_done(folder) or (folder / RANKS).is_file()
    if not finished or not (folder / RESULT).is_file() or not has_items(folder):
        return None
    evaluation = read_stored(folder / RESULT, Evaluation, remedy=_REMEDY)
    if evaluation.schema != SCHEMA:
        raise InputError(f"{folder} was written by another version; remove it and run coref-automl evaluate again.")
    run = run_of(folder)
    if run is not None and (moved := run / folder.name).is_dir():
        evaluation = replace(evaluation, checkpoint=f"{moved.parent.resolve().name}/{moved.name}", path=str(moved))
    return StoredEvaluation(evaluation, folder)


def run_of(folder: Path) -> Path | None:
    """The run whose checkpoint was evaluated in this folder; None for a model outside runs."""
    in_run = CHECKPOINT.fullmatch(folder.name) and len(folder.parents) > 2 and folder.parents[1].name == EVALUATIONS
    return folder.parents[2] if in_run else None


def find_evaluations(paths: Sequence[str | Path], *, skip_damaged: bool = False) -> list[StoredEvaluation]:
    """Every finished evaluation under the paths, in natural order. A checkpoint's or a model's path leads to its evaluations.

    A damaged one is an error, unless `skip_damaged`.
    """
    found, damaged = look_through(paths)
    if damaged and not skip_damaged:
        raise damaged[0]
    return found


def look_through(paths: Sequence[str | Path]) -> tuple[list[StoredEvaluation], list[InputError]]:
    """Every finished evaluation under the paths, in natural order, and the error of each that cannot be read or looked for."""
    found: dict[Path, StoredEvaluation] = {}
    damaged: dict[Path, InputError] = {}
    for path in paths:
        unread: list[InputError] = []
        for folder in _evaluation_folders(str(path), unread):
            try:
                if (stored := open_evaluation(folder)) is not None:
                    found.setdefault(folder.resolve(), stored)
            except InputError as error:
                damaged.setdefault(folder.resolve(), error)
        damaged |= {Path(str(error)): error for error in unread}
    return list(found.values()), list(damaged.values())


def is_of_one_model(path: str) -> bool:
    """Whether a path names one model or one evaluation, rather than a folder that may hold several."""
    folder = Path(path)
    if not folder.is_dir() or (folder / RESULT).is_file() or CHECKPOINT.fullmatch(folder.resolve().name):
        return True
    return is_model_folder(folder) and not checkpoints_of(folder)


def base_evaluation(
    made: Provenance, wanted: Callable[[Evaluation], bool], *, run: Path | None = None, out: Path | None = None
) -> StoredEvaluation | None:
    """An evaluation of the model that a checkpoint began from: in its run, in `out`, or in ./evaluations.

    Its bytes decide, never its name; where an older record has none, the run's own, or one of a model in the same place.
    """
    roots = [run / BASES] if run else []
    for plain in dict.fromkeys(target_of(made.base, place) for place in (out, None)):
        roots += [plain.base, marked(plain).base] if plain.base.name else [plain.base]
    for root in roots:
        for found in find_evaluations([root] if root.is_dir() else [], skip_damaged=True):
            weights, own = found.evaluation.fingerprints.get("weights"), BASES in root.parts
            same = own or model_place(found.evaluation.path) == model_place(made.base)
            if (weights == made.base_bytes if made.base_bytes else same) and wanted(found.evaluation):
                return found
    return None


def neighbours(model: str, out: Path | None = None) -> list[StoredEvaluation]:
    """Evaluations near a model's own: those of its run, of sibling runs, of models outside runs, and of `out`."""
    target = target_of(model)
    roots = [Path(EVALUATIONS), *([out] if out else [])]
    if target.in_run:
        beside = target.base.parent if target.base.name else target.base / ".."
        roots += sorted(beside.glob(f"*/{EVALUATIONS}"), key=natural_order)
    return find_evaluations([root for root in roots if root.is_dir()], skip_damaged=True)


def _evaluation_folders(path: str, unread: list[InputError]) -> Iterator[Path]:
    folder = Path(path)
    if not folder.is_dir():
        folder = Path(EVALUATIONS) / model_slug(path)
        if not folder.is_dir():
            return
    elif CHECKPOINT.fullmatch(folder.resolve().name) and not (folder / RESULT).is_file():
        held = folder.parent / EVALUATIONS
        if held.is_dir() and not os.access(held, os.R_OK | os.X_OK):
            unread.append(InputError(f"{held} cannot be read (Permission denied); make it readable."))
        yield from sorted(held.glob(f"*/{folder.resolve().name}"), key=natural_order)
        return
    elif is_model_folder(folder) and not checkpoints_of(folder):
        plain = target_of(path)
        folder = own if (own := marked(plain).base).is_dir() else plain.base
    for entry in files_under(folder, RESULT, unread):
        if BASES not in entry.relative_to(folder).parts:  # found through the checkpoints that began from it
            yield entry.parent


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of one evaluation: of one model on one set with one dtype and length. `prints` reads the model's bytes, once."""

    target: Target
    evalset: EvalSet
    seq_len: int
    dtype: str
    prints: Callable[[], dict[str, str]]
    out: Path | None = None

    def find(self, words: WordMode) -> StoredEvaluation | None:
        """A finished evaluation of the same bytes, here or nearby; None if an item still has to be scored."""
        items = self.evalset.select()
        ids = wanted_ids(items, words)
        return next((stored for stored in self._same_nearby() if not lacks(stored.folder, items, ids)), None)

    def half_done(self) -> dict[str, ItemScore]:
        """Scores that need not be computed again: of a finished evaluation that lacks words, and of an interrupted one."""
        finished = next(self._same_nearby(), None)
        held = {score.item: score for score in finished.scores()} if finished else {}
        partial = self.partial(self.folder())
        return held | ({score.item: score for score in read_items(partial)} if partial.is_file() else {})

    def folder(self, known: StoredEvaluation | None = None) -> Path:
        """Where this evaluation is, or the first place without a finished one of another identity."""
        if known is not None and self.target.holds(known.folder):
            return known.folder  # under the name that its set had then
        empty: Path | None = None
        for turn, mark in enumerate(self._marks()):
            folder = self.target.folder(self.evalset.name, self.seq_len, mark)
            held = open_evaluation(folder)
            if held is None:
                empty = empty or folder
            elif not held.archived and self._is_same(held.evaluation):
                return folder
            if empty is not None and turn >= _SHARED_MARKS:
                return empty
        raise AssertionError("marks do not end")

    @property
    def key(self) -> str:
        return fingerprint(self.prints(), self.evalset.fingerprint, SCORER, self.dtype, self.seq_len)

    def partial(self, folder: Path) -> Path:
        """The file to which items are appended while they are scored."""
        return folder / f".items-{self.key}.jsonl"

    def sweep(self) -> None:
        """Remove what killed processes left half written."""
        for folder in (self.target.folder(self.evalset.name, self.seq_len), self.target.base):
            sweep(folder, deep=False)

    def stamp(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation with today's names and origin, and the un-adapted model among its baselines if that was evaluated."""
        made = self.target.provenance()
        evaluation = replace(
            evaluation,
            checkpoint=self.target.name,
            path=self.target.model,
            evalset=self.evalset.name,
            evalset_path=str(self.evalset.folder.resolve()),
            provenance=made,
        )
        if made is None:
            return evaluation

        base = base_evaluation(made, self._is_comparable, run=Path(self.target.model).parent, out=self.out)
        if base is None or base.evaluation.path == evaluation.path:
            return evaluation
        return replace(evaluation, baselines={**evaluation.baselines, "un-adapted": base.evaluation.estimates})

    def write(self, evaluation: Evaluation, scored: StoredEvaluation | Sequence[ItemScore], *, summary: bool) -> Path:
        """Items first, the mark last: a folder without the mark is not finished. What is already there is not rewritten."""
        known = scored if isinstance(scored, StoredEvaluation) else None
        folder = self.folder(known)
        at_home = known is not None and known.folder.resolve() == folder.resolve()
        if not at_home or read_json(folder / RESULT) != evaluation.to_json():
            if (folder / ITEMS).is_dir():  # before the mark is removed
                raise InputError(f"{folder / ITEMS} is a folder; remove it and run the same command again.")
            with explained(folder):
                (folder / DONE).unlink(missing_ok=True)
            if not isinstance(scored, StoredEvaluation):
                write_jsonl(folder / ITEMS, (score.to_json() for score in scored))
            elif not at_home:
                write_text(folder / ITEMS, (scored.folder / ITEMS).read_text("utf-8"))
            write_json(folder / RESULT, evaluation.to_json())
            mark_done(folder)
        self.partial(folder).unlink(missing_ok=True)
        if summary and self._summary_is_due(evaluation):
            write_json(self.target.summary, summary_json(evaluation))
        return folder

    def _summary_is_due(self, evaluation: Evaluation) -> bool:
        """The flat file belongs to the first set, length and dtype that these weights were scored with."""
        if not self.target.summary.is_file():
            return True
        held = read_stored(self.target.summary, Summary, remedy=_REMEDY)
        prints = held.get("fingerprints", {})
        if prints.get("weights") != evaluation.fingerprints["weights"]:
            return True
        same = prints.get("items") == evaluation.fingerprints["items"] and held.get("seq_len") == evaluation.seq_len
        return bool(same and held.get("dtype", evaluation.dtype) == evaluation.dtype and held != summary_json(evaluation))

    def _marks(self) -> Iterator[str]:
        """None for the first evaluation of a name; then one that the checkpoints of a run share; then one of these weights."""
        own = (self.evalset.fingerprint, SCORER, self.dtype)
        yield from ("", fingerprint(*own)[:8])
        for turn in count():
            yield fingerprint(*own, self.prints(), turn)[:8]

    def _is_comparable(self, evaluation: Evaluation) -> bool:
        same_items = evaluation.fingerprints.get("items") == self.evalset.fingerprint
        return same_items and (evaluation.scorer, evaluation.dtype, evaluation.seq_len) == (SCORER, self.dtype, self.seq_len)

    def _is_same(self, evaluation: Evaluation) -> bool:
        if not self._is_comparable(evaluation):
            return False
        prints = self.prints()
        held = {SETTINGS: prints[SETTINGS], **evaluation.fingerprints}  # evaluations of 0.2.0 say nothing of them
        if any(held.get(name) != value for name, value in prints.items()):
            return False
        table = table_path(self.evalset.folder, evaluation.fingerprints.get("tokenizer", ""))
        return not table.is_file() or table_fingerprint(read_table(table)) == evaluation.fingerprints.get("nouns")

    def _same_nearby(self) -> Iterator[StoredEvaluation]:
        """Finished evaluations of this identity: in their own folder, among the model's others, in earlier output folders."""
        home = target_of(self.target.model)
        own = (target.folder(self.evalset.name, self.seq_len) for target in (self.target, home))
        roots = [self.target.base, home.base] if self.target.in_run else [self.target.base.parent, Path(EVALUATIONS)]
        if self.target.base.parent.name == BASES:
            roots += sorted(self.target.base.parents[2].glob(f"*/{BASES}"), key=natural_order)  # of runs from the same base
        if self.out:
            with suppress(OSError):  # a parent that cannot be listed
                beside = list(self.out.absolute().parent.iterdir())
                roots += [folder for folder in beside if kind_of_folder(folder) == "evaluations"]
        seen: set[Path] = set()
        for stored in chain(filter(None, map(open_evaluation, own)), _under(roots)):
            if stored.folder.resolve() not in seen and not stored.archived:
                seen.add(stored.folder.resolve())
                if self._is_same(stored.evaluation):
                    yield stored


def _under(roots: Sequence[Path]) -> Iterator[StoredEvaluation]:
    for root in roots:
        yield from find_evaluations([root] if root.is_dir() else [], skip_damaged=True)


def summary_json(evaluation: Evaluation) -> dict[str, Any]:
    """What `<checkpoint>_eval_results.json` holds and `evaluate --json` prints: flat keys for `jq`, null for what was not run.

    docs/result-schema.md describes every key.
    """
    value = {name: estimate.value for name, estimate in evaluation.estimates.items()}
    count = {name: estimate.n for name, estimate in evaluation.estimates.items()}
    return {
        "checkpoint": evaluation.checkpoint,
        "seq_len": evaluation.seq_len,
        "dtype": evaluation.dtype,
        "evaluated_at": evaluation.evaluated_at,
        "real1": value.get("real1"),
        "real5": value.get("real5"),
        "lambada_top1": value.get("lambada_top1"),
        "score": value.get("score"),
        "coref_samples": count.get("real1", 0),
        "lambada_samples": count.get("lambada_top1", 0),
        "eval_time_seconds": evaluation.seconds,
        "schema": evaluation.schema,
        "path": evaluation.path,
        "eval_set": evaluation.evalset,
        "estimates": {name: estimate.to_json() for name, estimate in evaluation.estimates.items()},
        "fingerprints": evaluation.fingerprints,
        "scorer": evaluation.scorer,
        "single_entry_share": evaluation.single_entry_share,
        "out_of_reach": evaluation.out_of_reach,
        "baselines": {name: {one: held.to_json() for one, held in found.items()} for name, found in evaluation.baselines.items()},
        "provenance": evaluation.provenance.to_json() if evaluation.provenance else None,
    }
