"""One evaluation. In: a model, a set, a length, a dtype. Out: what is finished of it, its scores, and the files of what is new.

Two evaluations are the same if their bytes are: weights, tokenizer files, items, noun table, scorer version, dtype, length; a
set without its noun table is compared without it. Folder names do not count: a renamed checkpoint is recognized, and changed
weights are a new model. A finished evaluation is never overwritten by a different one, which gets a name of its own:

    evaluations/bundled-512/checkpoint-65            the first evaluation on a set of this name at this length
    evaluations/bundled-512-3f9a0c21/checkpoint-65   other items, scorer or dtype; the hash is the same for all checkpoints
    evaluations/bundled-512-77d1e0aa/checkpoint-65   those too, with another noun table; a hash for every further one
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from pathlib import Path

from coref_automl.base.errors import InputError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.folders import DONE, kind_of_folder, mark_done, natural_order
from coref_automl.base.records import Evaluation, ItemScore
from coref_automl.base.store import os_errors_as_ours, read_json, sweep, write_json, write_jsonl, write_text
from coref_automl.evaluation.answers import read_table, table_fingerprint, table_path
from coref_automl.evaluation.columns import ITEMS, lacks, read_items
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.evaluation.results import RESULT, StoredEvaluation, base_evaluation, find_evaluations, open_evaluation
from coref_automl.evaluation.targets import BASES, EVALUATIONS, Target, summary_json, target_of
from coref_automl.models.model_files import SETTINGS

SCORER = "4"
"""Version of everything that decides a score: windows, counted items, competitors, ranks. Two versions are never compared."""

_NAMES_SEARCHED = 6
"""Names searched for this evaluation even if an earlier one is free: another evaluation may have been removed from it."""


@dataclass(frozen=True, slots=True)
class Slot:
    """The evaluation of one model on one set with one dtype and length. `read_fingerprints` is of its files; callers cache it."""

    target: Target
    evalset: EvalSet
    seq_len: int
    dtype: str
    read_fingerprints: Callable[[], dict[str, str]]
    out: Path | None = None

    def find(self) -> StoredEvaluation | None:
        """A finished evaluation of the same bytes with all items, here or nearby."""
        items = self.evalset.select()
        return next((stored for stored in self._existing() if not lacks(stored.folder, items)), None)

    def known_scores(self, nouns: str) -> dict[str, ItemScore]:
        """Scores of an interrupted evaluation under the same noun table (its fingerprint), which need not be computed again."""
        unfinished = self.unfinished_items(self.folder(), nouns)
        return {score.item: score for score in read_items(unfinished)} if unfinished.is_file() else {}

    def folder(self, known: StoredEvaluation | None = None) -> Path:
        """That of `known`, if it is the model's own; else that of a finished evaluation of the same bytes; else a free name."""
        if known is not None and self.target.holds(known.folder):
            return known.folder  # under the name that its set had then
        free: list[Path] = []
        for number, folder in enumerate(self._names(), 1):
            stored = open_evaluation(folder)
            if stored is None:
                free.append(folder)
            elif not stored.archived and self._is_same(stored.evaluation):
                return folder
            if free and number >= _NAMES_SEARCHED:
                break
        return free[0]  # names do not end before one is free

    def _names(self) -> Iterator[Path]:
        """The plain name, the name that checkpoints share, then numbered names of this model's bytes, without end."""
        shared = (self.evalset.fingerprint, SCORER, self.dtype)
        numbered = (fingerprint(*shared, self.read_fingerprints(), number)[:8] for number in count())
        for mark in chain(("", fingerprint(*shared)[:8]), numbered):
            yield self.target.folder(self.evalset.name, self.seq_len, mark)

    def unfinished_items(self, folder: Path, nouns: str) -> Path:
        """The file to which items are appended while they are scored."""
        key = fingerprint(self.read_fingerprints(), self.evalset.fingerprint, nouns, SCORER, self.dtype, self.seq_len)
        return folder / f".items-{key}.jsonl"

    def remove_leftovers(self) -> None:
        """Remove the temporary files (.part) of killed processes; items scored so far (`unfinished_items`) stay."""
        for folder in (*islice(self._names(), _NAMES_SEARCHED), self.target.root):
            sweep(folder, deep=False)

    def with_current_names(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation with current names and provenance, and its base model among the baselines if that was evaluated."""
        provenance = self.target.provenance()
        evaluation = replace(
            evaluation, checkpoint=self.target.name, path=self.target.model, evalset=self.evalset.name,
            evalset_path=str(self.evalset.folder.resolve()), provenance=provenance,
        )  # fmt: skip
        run = Path(self.target.model).parent
        base = base_evaluation(provenance, self._is_comparable, run=run, out=self.out) if provenance else None
        if base is None or base.evaluation.path == evaluation.path:
            return evaluation
        return replace(evaluation, baselines={**evaluation.baselines, "un-adapted": base.evaluation.estimates})

    def write(self, evaluation: Evaluation, scored: StoredEvaluation | Sequence[ItemScore], *, summary: bool) -> Path:
        """Write items, then the result, DONE last, and return the folder. Items are those of `scored`: new scores, or a finished
        evaluation, whose items are copied unless it lies in that folder already; then only a changed result is written."""
        known = scored if isinstance(scored, StoredEvaluation) else None
        folder = self.folder(known)
        in_place = known is not None and known.folder.resolve() == folder.resolve()
        if not in_place or read_json(folder / RESULT) != evaluation.to_json():
            if (folder / ITEMS).is_dir():  # before DONE is removed
                raise InputError(f"{folder / ITEMS} is a folder; remove it and run the same command again.")
            with os_errors_as_ours(folder):
                (folder / DONE).unlink(missing_ok=True)
            if not isinstance(scored, StoredEvaluation):
                write_jsonl(folder / ITEMS, (score.to_json() for score in scored))
            elif not in_place:
                write_text(folder / ITEMS, (scored.folder / ITEMS).read_text("utf-8"))
            write_json(folder / RESULT, evaluation.to_json())
            mark_done(folder)
        self.unfinished_items(folder, evaluation.fingerprints.get("nouns", "")).unlink(missing_ok=True)
        if summary and self._updates_summary(evaluation):
            write_json(self.target.summary, summary_json(evaluation))
        return folder

    def _updates_summary(self, evaluation: Evaluation) -> bool:
        """Whether to write the summary, which is of the first set, length and dtype that these weights were scored with."""
        stored = self.target.stored_summary()
        fingerprints = stored.get("fingerprints", {})
        other_weights = fingerprints.get("weights") != evaluation.fingerprints["weights"]
        scored_on = fingerprints.get("items"), stored.get("seq_len"), stored.get("dtype", evaluation.dtype)
        same = scored_on == (evaluation.fingerprints["items"], evaluation.seq_len, evaluation.dtype)
        return other_weights or (same and stored != summary_json(evaluation))

    def _is_comparable(self, evaluation: Evaluation) -> bool:
        """Was it scored in the same way, with the noun table that the set has now for its tokenizer, if it has one?"""
        if evaluation.condition != (self.evalset.fingerprint, SCORER, self.dtype, self.seq_len):
            return False
        table = table_path(self.evalset.folder, evaluation.fingerprints.get("tokenizer", ""))
        return not table.is_file() or table_fingerprint(read_table(table)) == evaluation.fingerprints.get("nouns")

    def _is_same(self, evaluation: Evaluation) -> bool:
        """Is it comparable, and of this model's bytes?"""
        if not self._is_comparable(evaluation):
            return False
        fingerprints = self.read_fingerprints()
        scored = {SETTINGS: fingerprints[SETTINGS], **evaluation.fingerprints}  # 0.2.0 did not record the settings
        return fingerprints.items() <= scored.items()

    def _existing(self) -> Iterator[StoredEvaluation]:
        """Yield finished evaluations of the same bytes, each once: in its folder with and without --out, then in those nearby."""
        usual = target_of(self.target.model)  # without --out
        own = (target.folder(self.evalset.name, self.seq_len) for target in (self.target, usual))
        roots = filter(Path.is_dir, self._roots(usual))
        nearby = (stored for root in roots for stored in find_evaluations([root], skip_damaged=True))
        seen: set[Path] = set()
        for stored in chain(filter(None, map(open_evaluation, own)), nearby):
            folder = stored.folder.resolve()
            if folder not in seen and not stored.archived and self._is_same(stored.evaluation):
                yield stored
            seen.add(folder)

    def _roots(self, usual: Target) -> list[Path]:
        """Folders with evaluations of the same model: its own, those of runs that began from it, earlier output folders."""
        roots = [self.target.root, usual.root] if self.target.in_run else [self.target.root.parent, Path(EVALUATIONS)]
        if self.target.root.parent.name == BASES:  # other runs may have begun from it
            runs = self.target.root.absolute().parents[2]  # of RUNS/RUN/base-evaluations/MODEL
            roots += sorted(runs.glob(f"*/{BASES}"), key=natural_order)
        if self.out:  # an earlier command may have written beside it
            with suppress(OSError):  # a parent that cannot be listed
                siblings = list(self.out.absolute().parent.iterdir())
                roots += [folder for folder in siblings if kind_of_folder(folder) == "evaluations"]
        return roots
