"""A trained run on annotated documents. In: its seeds and a file. Out: the mean over seeds with intervals by document.

Documents that the run learned from or chose by are left out. One seed's model by itself is scored too. Answers are kept.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from coref_automl.coreference.answers import (
    KIND,
    VERSION,
    DocumentAnswer,
    answers_of,
    finished_seeds,
    read_answers,
    summed,
    write_answers,
)
from coref_automl.coreference.conventions import Asked, Convention, convention_of
from coref_automl.coreference.data import read_coref
from coref_automl.coreference.documents import CorefDocument
from coref_automl.coreference.metrics import added
from coref_automl.coreference.recipe import BUNDLED
from coref_automl.coreference.results import AGAIN, CoreferenceResult, CoreferenceSeed
from coref_automl.coreference.split import SIDES, documents_fingerprint, sides_of, unseen
from coref_automl.corpus.batch import skipped
from coref_automl.decoder import read_stored
from coref_automl.errors import CoreferenceDataError, ModelError
from coref_automl.fingerprints import fingerprint
from coref_automl.folders import is_done, kind_of_folder
from coref_automl.machine import pick_device
from coref_automl.progress import Progress, quiet
from coref_automl.say import say

EVALUATED = "evaluated"
"""Holds `<name>-<key>.jsonl`, answers beside a model; those of its run to its own test documents are in `answers`."""
_SHORTEST = 12
"""Documents that a scheme is chosen by, the shortest."""
_UNTRAINED = CoreferenceSeed(0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, "")


def models_of(run: str | Path) -> list[Path]:
    """The models that can answer: the finished seeds of a run, the folder itself where it is a model, or the bundled one."""
    from coref_automl.coreference.model import SETTINGS

    if str(run) == BUNDLED:
        return [Path(str(files("coref_automl") / "assets" / "coreference" / "ko-mini"))]
    folder = Path(run)
    if (folder / SETTINGS).is_file():
        return [folder]
    if (folder / "model" / SETTINGS).is_file() and is_done(folder):
        return [folder / "model"]
    if kind_of_folder(folder) != KIND:
        raise ModelError(
            f"{run} is not a coreference run, nor one seed's model; make one with: "
            "coref-automl coref train --model bundled:ko-mini --data mine.jsonl --out runs/mine"
        )
    found = [seed / "model" for seed in finished_seeds(folder) if (seed / "model" / SETTINGS).is_file()]
    if not found:
        raise ModelError(
            f"{run} has no model that answers for all documents (none is finished, or it was cross-fitted); "
            "run the same `coref-automl coref train` again to resume, or train without --folds."
        )
    return found


def evaluate_coreference(
    run: str | Path,
    data: str,
    *,
    split: str | None = None,
    side: str = "test",
    skip_bad: bool = False,
    device: str = "auto",
    base: str | None = None,
    scheme: str | None = None,
    convention: Asked = "auto",
    progress: Progress | None = None,
) -> CoreferenceResult:
    """Every finished seed of a run, or one model, on annotated documents; with `split`, on one side of them alone.

    Scores are in the convention of the file's own mentions. The scheme, where the model knows several and none is asked for, is
    the one whose mentions agree best with those of the shortest documents.
    """
    from coref_automl.coreference.model import read_settings

    progress, models = progress or quiet(), models_of(run)
    read = read_coref(data, skip_bad=skip_bad)
    name, documents = read.name, read.documents
    if split:
        if side not in SIDES:
            raise CoreferenceDataError(f"Unknown side {side!r} of a split; choose train, dev or test.")
        name, documents = f"{name}-{side}", sides_of(split, documents).side(side, documents)
    kept = unseen(documents, models)
    if not kept:
        raise CoreferenceDataError(f"No document of {name} is left to score: {run} learned from all of them; pass other ones.")
    notes = [skipped(len(read.problems), read.name)] if read.problems else []
    if left := len(documents) - len(kept):
        notes.append(
            say(f"{run}의 학습에 쓰인 문서 {left}개를 제외했습니다.", f"{left} documents that {run} learned from were left out.")
        )
    settings, own = read_settings(models[0]), convention_of(kept, convention)
    notes.insert(0, own.line())
    readers = [_Reader(model, own, pick_device(device), base) for model in models]
    kept = readers[0].under_scheme(kept, scheme)
    if len(settings.schemes) > 1:
        notes.insert(1, say(f"주석 방식: {kept[0].scheme}", f"Annotation scheme: {kept[0].scheme}"))
    answers = [reader.answers(name, kept, progress) for reader in readers]
    seeds = tuple(_seed(model) for model in models)
    return CoreferenceResult(
        run=str(run),
        model=settings.base,
        split=name,
        documents=len(kept),
        mentions=sum(len(document.mentions) for document in kept),
        seeds=seeds,
        fingerprints={"weights": settings.weights, "documents": documents_fingerprint(kept)},
        notes=tuple(notes),
        **summed(answers),
    )


class _Reader:
    def __init__(self, folder: Path, own: Convention, device: str, base: str | None) -> None:
        self.folder, self.own, self.device, self.base = folder, own, device, base

    @cached_property
    def model(self) -> Any:
        from coref_automl.coreference.model import load_model

        return load_model(self.folder, self.device, base=self.base)

    def under_scheme(self, documents: tuple[CorefDocument, ...], asked: str | None) -> tuple[CorefDocument, ...]:
        """The documents with the scheme that is asked for; else with the one that finds their mentions best."""
        from coref_automl.coreference.model import read_settings, scheme_for

        schemes = read_settings(self.folder).schemes
        named = [tuple(replace(document, scheme=one.name) for document in documents) for one in schemes]
        if asked is not None or len(schemes) == 1:
            return named[schemes.index(scheme_for(schemes, asked))]
        shortest = sorted(range(len(documents)), key=lambda place: len(documents[place].text))[:_SHORTEST]

        def agreement(own: tuple[CorefDocument, ...]) -> float:
            answers = answers_of(self.model, [own[place] for place in shortest], self.own)
            return added(one.sums["found"] for one in answers)["mention"].f1

        return max(named, key=agreement)

    def answers(self, name: str, documents: tuple[CorefDocument, ...], progress: Progress) -> list[DocumentAnswer]:
        kept = self.folder.parent / EVALUATED / f"{name}-{self._key(documents)}.jsonl"
        if kept.is_file():
            stored = read_answers(kept)
            if [(one.document, one.key, one.version) for one in stored] == [(d.id, d.chains, VERSION) for d in documents]:
                return stored
        answers = answers_of(self.model, documents, self.own, progress=progress)
        if is_done(self.folder.parent):
            write_answers(kept, answers)
        return answers

    def _key(self, documents: tuple[CorefDocument, ...]) -> str:
        """Names texts, chains, what is asked of them, and the model."""
        from coref_automl.coreference.model import head_identity, read_settings

        model = head_identity(self.folder, read_settings(self.folder), self.base)
        return fingerprint(documents_fingerprint(documents), documents[0].scheme, self.own.edges, model)[:12]


def _seed(folder: Path) -> CoreferenceSeed:
    path = folder.parent / "result.json"
    return read_stored(path, CoreferenceSeed, remedy=AGAIN) if path.is_file() else _UNTRAINED
