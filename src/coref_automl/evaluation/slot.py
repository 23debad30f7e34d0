"""One evaluation. In: a model, a set, a length, a dtype. Out: what is finished of it, its scores, and the files of what is new.

Two evaluations are the same when their bytes are: weights, tokenizer files, items, noun table, scorer version, dtype, length.
Folder names do not count, so that a renamed checkpoint is recognised and changed weights are a new model. A finished evaluation
is never overwritten by a different one: the first has the plain name, later ones a mark of their identity in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Any

from coref_automl.errors import InputError
from coref_automl.evaluation.answers import read_table, table_fingerprint, table_path
from coref_automl.evaluation.columns import ITEMS, lacks, read_items
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.evaluation.results import RESULT, StoredEvaluation, base_evaluation, find_evaluations, open_evaluation
from coref_automl.evaluation.targets import BASES, EVALUATIONS, Target, target_of
from coref_automl.evaluation.windows import WordMode, wanted_ids
from coref_automl.fingerprints import fingerprint
from coref_automl.folders import DONE, kind_of_folder, mark_done, natural_order
from coref_automl.models.model_files import SETTINGS
from coref_automl.records import Evaluation, ItemScore
from coref_automl.store import os_errors_as_ours, read_json, sweep, write_json, write_jsonl, write_text

SCORER = "2"
"""Version of everything that decides a score: windows, matching, candidates, ranks. Scores of two versions are never compared."""

_NAMES_TRIED = 6
"""Names that are looked at, although an earlier one is free: an evaluation may have been removed."""


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of one evaluation: a model on a set with a dtype and a length; `read_fingerprints` reads that model's bytes."""

    target: Target
    evalset: EvalSet
    seq_len: int
    dtype: str
    read_fingerprints: Callable[[], dict[str, str]]
    out: Path | None = None

    def find(self, words: WordMode) -> StoredEvaluation | None:
        """A finished evaluation of the same bytes, here or nearby; None if an item still has to be scored."""
        items = self.evalset.select()
        ids = wanted_ids(items, words)
        return next((stored for stored in self._same_nearby() if not lacks(stored.folder, items, ids)), None)

    def half_done(self) -> dict[str, ItemScore]:
        """Scores that need not be computed again: of a finished evaluation that lacks words, and of an interrupted one."""
        finished = next(self._same_nearby(), None)
        known = {score.item: score for score in finished.scores()} if finished else {}
        partial = self.partial(self.folder())
        return known | ({score.item: score for score in read_items(partial)} if partial.is_file() else {})

    def folder(self, known: StoredEvaluation | None = None) -> Path:
        """Where this evaluation is, or the first place without a finished one of another identity."""
        if known is not None and self.target.holds(known.folder):
            return known.folder  # under the name that its set had then
        free: list[Path] = []
        for number, place in enumerate(self._places(), 1):
            stored = open_evaluation(place)
            if stored is None:
                free.append(place)
            elif not stored.archived and self._is_same(stored.evaluation):
                return place
            if free and number >= _NAMES_TRIED:
                break
        return free[0]

    def _places(self) -> Iterator[Path]:
        """The plain name, one that the checkpoints of a run share, and without end more: each new noun table needs another."""
        own = (self.evalset.fingerprint, SCORER, self.dtype)
        of_tables = (fingerprint(*own, self.read_fingerprints(), turn)[:8] for turn in count())
        for mark in chain(("", fingerprint(*own)[:8]), of_tables):
            yield self.target.folder(self.evalset.name, self.seq_len, mark)

    @property
    def key(self) -> str:
        return fingerprint(self.read_fingerprints(), self.evalset.fingerprint, SCORER, self.dtype, self.seq_len)

    def partial(self, folder: Path) -> Path:
        """The file to which items are appended while they are scored."""
        return folder / f".items-{self.key}.jsonl"

    def sweep(self) -> None:
        """Remove what killed processes left half written."""
        for folder in (self.target.folder(self.evalset.name, self.seq_len), self.target.place):
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
            with os_errors_as_ours(folder):
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
        stored = self.target.stored_summary()
        fingerprints = stored.get("fingerprints", {})
        if fingerprints.get("weights") != evaluation.fingerprints["weights"]:
            return True
        same = fingerprints.get("items") == evaluation.fingerprints["items"] and stored.get("seq_len") == evaluation.seq_len
        return bool(same and stored.get("dtype", evaluation.dtype) == evaluation.dtype and stored != summary_json(evaluation))

    def _is_comparable(self, evaluation: Evaluation) -> bool:
        same_items = evaluation.fingerprints.get("items") == self.evalset.fingerprint
        return same_items and (evaluation.scorer, evaluation.dtype, evaluation.seq_len) == (SCORER, self.dtype, self.seq_len)

    def _is_same(self, evaluation: Evaluation) -> bool:
        if not self._is_comparable(evaluation):
            return False
        fingerprints = self.read_fingerprints()
        scored = {SETTINGS: fingerprints[SETTINGS], **evaluation.fingerprints}  # evaluations of 0.2.0 say nothing of them
        if any(scored.get(name) != value for name, value in fingerprints.items()):
            return False
        table = table_path(self.evalset.folder, evaluation.fingerprints.get("tokenizer", ""))
        return not table.is_file() or table_fingerprint(read_table(table)) == evaluation.fingerprints.get("nouns")

    def _same_nearby(self) -> Iterator[StoredEvaluation]:
        """Finished evaluations of this identity: in their own folder, among the model's others, in earlier output folders."""
        home = target_of(self.target.model)
        own = (target.folder(self.evalset.name, self.seq_len) for target in (self.target, home))
        roots = [self.target.place, home.place] if self.target.in_run else [self.target.place.parent, Path(EVALUATIONS)]
        if self.target.place.parent.name == BASES:
            runs = self.target.place.absolute().parents[2]  # one of which has the same base
            roots += sorted(runs.glob(f"*/{BASES}"), key=natural_order)
        if self.out:
            with suppress(OSError):  # a parent that cannot be listed
                beside = list(self.out.absolute().parent.iterdir())
                roots += [folder for folder in beside if kind_of_folder(folder) == "evaluations"]
        seen: set[Path] = set()
        under = (stored for root in roots if root.is_dir() for stored in find_evaluations([root], skip_damaged=True))
        for stored in chain(filter(None, map(open_evaluation, own)), under):
            if stored.folder.resolve() not in seen and not stored.archived:
                seen.add(stored.folder.resolve())
                if self._is_same(stored.evaluation):
                    yield stored


def summary_json(evaluation: Evaluation) -> dict[str, Any]:
    """What `<checkpoint>_eval_results.json` holds and `evaluate --json` prints: flat keys for `jq`, null for what was not run.

    docs/result-schema.md describes every key.
    """
    value = {name: estimate.value for name, estimate in evaluation.estimates.items()}
    count = {name: estimate.n for name, estimate in evaluation.estimates.items()}
    stored = evaluation.to_json()

    def taken(*names: str) -> dict[str, Any]:
        return {name: stored[name] for name in names}

    return {
        **taken("checkpoint", "seq_len", "dtype", "evaluated_at"),
        **{name: value.get(name) for name in ("real1", "real5", "lambada_top1", "score")},
        "coref_samples": count.get("real1", 0),
        "lambada_samples": count.get("lambada_top1", 0),
        "eval_time_seconds": evaluation.seconds,
        **taken("schema", "path"),
        "eval_set": evaluation.evalset,
        **taken("estimates", "fingerprints", "scorer", "single_entry_share", "out_of_reach", "baselines", "provenance"),
    }
