"""What is known of one model, and what is written of it. In: a target and a set. Out: an evaluation, computed at most once.

An evaluation is the same when its bytes are: weights, tokenizer files, items, noun table, scorer version, dtype, length. Names of
folders do not count, so that a renamed checkpoint is found again and changed weights are not. A finished evaluation is never
overwritten by another one: the plain name belongs to the first, a later one has a mark of its identity in its folder's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from coref_automl.evaluation.columns import ITEMS
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.evaluation.leftright import LeftToRight, check_left_to_right
from coref_automl.evaluation.nouns import read_table
from coref_automl.evaluation.one import evaluate_one, items_of, table_fingerprint, wanted_ids
from coref_automl.evaluation.stored import (
    RESULT,
    StoredEvaluation,
    base_evaluation,
    find_evaluations,
    open_evaluation,
    summary_json,
)
from coref_automl.evaluation.targets import EVALUATIONS, Target, target_of
from coref_automl.evaluation.version import SCORER
from coref_automl.evaluation.words import WordMode
from coref_automl.models.files import TOKENIZER_FILES, detect_seq_len, folder_of, weights_fingerprint
from coref_automl.progress import Progress
from coref_automl.records import ClozeItem, Evaluation, ItemScore
from coref_automl.store import (
    DONE,
    JsonlAppender,
    explained,
    fingerprint,
    fingerprint_files,
    kind_of_folder,
    mark_done,
    read_json,
    read_jsonl,
    write_json,
    write_jsonl,
    write_text,
)

if TYPE_CHECKING:
    from coref_automl.models.load import LoadedModel

_SHARED_MARKS = 2
"""Names that are looked through for this very evaluation before an empty one is taken."""


class Desk:
    """The work on one target. Loads the model only when an item is to be scored."""

    def __init__(self, target: Target, out: Path | None, *, new_head: bool = False) -> None:
        self._target = target
        self._out = out
        self._new_head = new_head
        self._loaded: LoadedModel | None = None
        self._scores: dict[str, list[ItemScore]] = {}
        self._finished: dict[str, Path] = {}

    def seq_len(self) -> int:
        return detect_seq_len(self._target.model)

    @cached_property
    def _bytes(self) -> dict[str, str]:
        folder = folder_of(self._target.model)
        files = [folder / name for name in TOKENIZER_FILES if (folder / name).is_file()]
        return {"weights": weights_fingerprint(self._target.model), "tokenizer_files": fingerprint_files(files)}

    def known(self, evalset: EvalSet, seq_len: int, dtype: str, words: WordMode) -> Evaluation | None:
        """A finished evaluation of the same bytes, wherever it stands near; None when an item still has to be scored."""
        for stored in self._near(evalset, seq_len):
            if not self._same(stored.evaluation, evalset, seq_len, dtype):
                continue
            items = items_of(evalset)
            if lacks(stored.folder, items, wanted_ids(items, words)):
                continue
            self._finished[evalset.fingerprint] = stored.folder
            return self._stamped(stored.evaluation, evalset)
        return None

    def score(
        self,
        evalset: EvalSet,
        seq_len: int,
        device: str,
        dtype: str,
        words: WordMode,
        *,
        budget: int | None = None,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Evaluation:
        """Score what is missing, appending as it goes; an interrupted call leaves its items for the next one."""
        folder = self._folder(evalset, seq_len, dtype)
        partial = folder / self._partial(evalset, seq_len, dtype)
        known = self._half_done(evalset, seq_len, dtype) | _read_scores(partial)
        loaded = self._load(seq_len, device)
        for note in loaded.notes:
            if progress and not note.startswith("Attention"):  # which kernel runs decides no score
                progress.note(f"{self._target.name}: {note}")
        with explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with JsonlAppender(partial) as rows:
            evaluation, scores = evaluate_one(
                loaded, evalset, seq_len=seq_len, dtype=dtype, words=words, budget=budget, known=known, seed=seed,
                on_scores=lambda batch: rows.append(score.to_json() for score in batch), name=self._target.name,
                progress=progress,
            )  # fmt: skip
        self._scores[evalset.fingerprint] = scores
        return self._stamped(replace(evaluation, fingerprints={**evaluation.fingerprints, **self._bytes}), evalset)

    def check_left_to_right(
        self, evalset: EvalSet, seq_len: int, device: str, dtype: str, budget: int | None, seed: int
    ) -> list[LeftToRight]:
        """`word` checked on a sample, kept beside the evaluation as l2r.json."""
        path = self._folder(evalset, seq_len, dtype) / "l2r.json"
        key = self._key(evalset, seq_len, dtype)
        if path.is_file() and (held := read_json(path)).get("key") == key:
            return [LeftToRight.from_json(row) for row in held["checks"]]
        loaded = self._load(seq_len, device)
        checks = check_left_to_right(loaded, evalset, seq_len=seq_len, dtype=dtype, budget=budget, seed=seed)
        write_json(path, {"key": key, "checks": [check.to_json() for check in checks]})
        return checks

    def _load(self, seq_len: int, device: str) -> LoadedModel:
        from coref_automl.models.load import load_masked_lm

        if self._loaded is None or self._loaded.seq_len != seq_len:
            self._loaded = load_masked_lm(self._target.model, seq_len=seq_len, device=device, new_head=self._new_head)
        return self._loaded

    def with_base(self, evaluation: Evaluation, evalset: EvalSet, seq_len: int, dtype: str) -> Evaluation:
        """The same evaluation with the un-adapted model among its baselines, where that one has been evaluated."""
        provenance = evaluation.provenance
        if provenance is None:
            return evaluation

        def wanted(held: Evaluation) -> bool:
            itself = provenance.base_bytes in ("", held.fingerprints.get("weights", ""))
            return itself and _comparable(held, evalset.fingerprint, seq_len, dtype)

        base = base_evaluation(provenance.base, wanted, self._out)
        if base is None or base.evaluation.path == evaluation.path:
            return evaluation
        return replace(evaluation, baselines={**evaluation.baselines, "un-adapted": base.evaluation.estimates})

    def write(self, evaluation: Evaluation, evalset: EvalSet, *, summary: bool) -> None:
        """Items first, the mark last: what has no mark is not there. Nothing is rewritten that says the same already."""
        folder = self._folder(evalset, evaluation.seq_len, evaluation.dtype)
        source = self._finished.get(evalset.fingerprint)
        at_home = source is not None and source.resolve() == folder.resolve()
        if not at_home or read_json(folder / RESULT) != evaluation.to_json():
            with explained(folder):
                (folder / DONE).unlink(missing_ok=True)
            if source is None:
                write_jsonl(folder / ITEMS, (score.to_json() for score in self._scores[evalset.fingerprint]))
            elif not at_home:
                write_text(folder / ITEMS, (source / ITEMS).read_text("utf-8"))
            write_json(folder / RESULT, evaluation.to_json())
            mark_done(folder)
        (folder / self._partial(evalset, evaluation.seq_len, evaluation.dtype)).unlink(missing_ok=True)
        if summary and self._summary_is_due(evaluation):
            write_json(self._target.summary, summary_json(evaluation))

    def _summary_is_due(self, evaluation: Evaluation) -> bool:
        """The flat file stays with the first set, length and dtype that these weights were scored with."""
        if not self._target.summary.is_file():
            return True
        held, told = read_json(self._target.summary), summary_json(evaluation)
        prints = held.get("fingerprints", {})
        if prints.get("weights") != evaluation.fingerprints["weights"]:
            return True
        same = prints.get("items") == evaluation.fingerprints["items"] and held.get("seq_len") == evaluation.seq_len
        return bool(same and held.get("dtype", evaluation.dtype) == evaluation.dtype and held != told)

    def _folder(self, evalset: EvalSet, seq_len: int, dtype: str) -> Path:
        """Where this very evaluation stands, or the first place that no finished one of another identity has."""
        source = self._finished.get(evalset.fingerprint)
        if source is not None and self._target.holds(source):
            return source  # under the name that its set had then
        empty: Path | None = None
        for turn, mark in enumerate(self._marks(evalset, dtype)):
            folder = self._target.folder(evalset.name, seq_len, mark)
            held = open_evaluation(folder)
            if held is None:
                empty = empty or folder
            elif not held.archived and self._same(held.evaluation, evalset, seq_len, dtype):
                return folder
            if empty is not None and turn >= _SHARED_MARKS:
                return empty
        raise AssertionError("marks do not end")

    def _marks(self, evalset: EvalSet, dtype: str) -> Iterator[str]:
        """None for the first evaluation of a name; then one that the checkpoints of a run share; then one of these weights."""
        own = (evalset.fingerprint, SCORER, dtype)
        yield from ("", fingerprint(*own)[:8])
        for turn in count():
            yield fingerprint(*own, self._bytes, turn)[:8]

    def _key(self, evalset: EvalSet, seq_len: int, dtype: str) -> str:
        return fingerprint(self._bytes, evalset.fingerprint, SCORER, dtype, seq_len)

    def _partial(self, evalset: EvalSet, seq_len: int, dtype: str) -> str:
        return f".items-{self._key(evalset, seq_len, dtype)}.jsonl"

    def _stamped(self, evaluation: Evaluation, evalset: EvalSet) -> Evaluation:
        """Names and origin as they are today, whatever they were when the items were scored."""
        return replace(
            evaluation,
            checkpoint=self._target.name,
            path=self._target.model,
            evalset=evalset.name,
            evalset_path=str(evalset.folder.resolve()),
            provenance=self._target.provenance(),
        )

    def _same(self, evaluation: Evaluation, evalset: EvalSet, seq_len: int, dtype: str) -> bool:
        if not _comparable(evaluation, evalset.fingerprint, seq_len, dtype):
            return False
        if any(evaluation.fingerprints.get(name) != value for name, value in self._bytes.items()):
            return False
        table = evalset.folder / f"nouns-{evaluation.fingerprints['tokenizer']}.npy"
        return not table.is_file() or table_fingerprint(read_table(table)) == evaluation.fingerprints["nouns"]

    def _near(self, evalset: EvalSet, seq_len: int) -> Iterator[StoredEvaluation]:
        """Where a finished evaluation may stand: its own folder, the model's other evaluations, and earlier output folders."""
        home = target_of(self._target.model)
        own = self._target.folder(evalset.name, seq_len), home.folder(evalset.name, seq_len)
        roots = [self._target.base, home.base] if self._target.in_run else [self._target.base.parent, Path(EVALUATIONS)]
        if self._out:
            roots += [
                folder
                for folder in self._out.absolute().parent.iterdir()
                if folder.is_dir() and kind_of_folder(folder) == "evaluations"
            ]
        seen: set[Path] = set()
        for folder in own:
            if (stored := open_evaluation(folder)) is not None and not stored.archived:
                seen.add(folder.resolve())
                yield stored
        for root in roots:
            for stored in find_evaluations([root] if root.is_dir() else [], skip_damaged=True):
                if stored.folder.resolve() not in seen and not stored.archived:
                    seen.add(stored.folder.resolve())
                    yield stored

    def _half_done(self, evalset: EvalSet, seq_len: int, dtype: str) -> dict[str, ItemScore]:
        """Scores of a finished evaluation that lacks only words."""
        for stored in self._near(evalset, seq_len):
            if self._same(stored.evaluation, evalset, seq_len, dtype):
                return {score.item: score for score in stored.scores()}
        return {}


def lacks(folder: Path, items: Sequence[ClozeItem], words: frozenset[str]) -> bool:
    """Does a finished file lack an item, or a word rank that is now wanted? Plain rows: it is asked of every checkpoint."""
    held = {row["item"]: row["word_rank"] for row in read_jsonl(folder / ITEMS)}
    return any(item.id not in held or (item.id in words and held[item.id] is None) for item in items)


def _comparable(evaluation: Evaluation, items: str, seq_len: int, dtype: str) -> bool:
    same_items = evaluation.fingerprints.get("items") == items
    return same_items and (evaluation.scorer, evaluation.dtype, evaluation.seq_len) == (SCORER, dtype, seq_len)


def _read_scores(path: Path) -> dict[str, ItemScore]:
    if not path.is_file():
        return {}
    return {row["item"]: ItemScore.from_json(row) for row in read_jsonl(path)}
