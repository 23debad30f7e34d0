"""A trained run on annotated documents. In: its seeds and a file. Out: the mean over seeds with intervals by document.

Documents that the run was trained or selected on are left out. A single seed's model can be scored too. Answers are cached.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import CoreferenceDataError, ModelError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.folders import is_done, kind_of_folder
from coref_automl.base.machine import pick_device
from coref_automl.base.progress import Progress, quiet
from coref_automl.base.say import say
from coref_automl.corpus.batch import skipped
from coref_automl.extras.coreference.answers import KIND, VERSION, DocumentAnswer, aggregate, answer_documents, finished_seeds
from coref_automl.extras.coreference.conventions import Convention, EdgesOrAuto, convention_of
from coref_automl.extras.coreference.data import read_coref
from coref_automl.extras.coreference.documents import CorefDocument
from coref_automl.extras.coreference.metrics import sum_scores
from coref_automl.extras.coreference.recipe import BUNDLED, SETTINGS, read_settings, scheme_for
from coref_automl.extras.coreference.results import RETRAIN, CoreferenceResult, CoreferenceSeed
from coref_automl.extras.coreference.split import SIDES, documents_fingerprint, sides_of, unseen

if TYPE_CHECKING:
    from coref_automl.extras.coreference.model import CoreferenceModel

EVALUATED = "evaluated"
"""Folder of `<name>-<key>.jsonl`, answers beside a model; those to its run's own test documents are in `answers`."""
_SHORTEST = 12
"""How many of the shortest documents select a scheme."""
_UNTRAINED = CoreferenceSeed(0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, "")


def models_of(run: str | Path) -> list[Path]:
    """List the model folders that can answer: a run's finished seeds, the folder itself if it is a model, or the bundled one."""
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
    models = [seed / "model" for seed in finished_seeds(folder) if (seed / "model" / SETTINGS).is_file()]
    if not models:
        raise ModelError(
            f"{run} has no model that answers for all documents (none is finished, or it was cross-fitted); "
            "run the same `coref-automl coref train` again to resume, or train without --folds."
        )
    return models


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
    convention: EdgesOrAuto = "auto",
    progress: Progress | None = None,
) -> CoreferenceResult:
    """Evaluate every finished seed of a run, or one model, on annotated documents; with `split`, on one side of it only.

    Scores are in the convention of the file's own mentions. If the model knows several schemes and none is requested, the one
    whose mentions agree best with those of the shortest documents is used.
    """
    progress, models = progress or quiet(), models_of(run)
    annotated = read_coref(data, skip_bad=skip_bad)
    name, documents = annotated.name, annotated.documents
    if split:
        if side not in SIDES:
            raise CoreferenceDataError(f"Unknown side {side!r} of a split; choose train, dev or test.")
        name, documents = f"{name}-{side}", sides_of(split, documents).side(side, documents)
    kept = unseen(documents, models)
    if not kept:
        raise CoreferenceDataError(f"No document of {name} is left to score: {run} learned from all of them; pass other ones.")
    settings, detected = read_settings(models[0]), convention_of(kept, convention)
    notes = [detected.line()]
    if annotated.problems:
        notes.append(skipped(len(annotated.problems), annotated.name))
    if left := len(documents) - len(kept):
        notes.append(
            say(f"{run}의 학습에 쓰인 문서 {left}개를 제외했습니다.", f"{left} documents that {run} learned from were left out.")
        )
    evaluators = [_Evaluator(model, detected, pick_device(device), base) for model in models]
    kept = evaluators[0].with_scheme(kept, scheme)
    if len(settings.schemes) > 1:
        notes.insert(1, say(f"주석 방식: {kept[0].scheme}", f"Annotation scheme: {kept[0].scheme}"))
    answers = [evaluator.answers(name, kept, progress) for evaluator in evaluators]
    seeds = [model.parent / "result.json" for model in models]
    return CoreferenceResult(
        run=str(run),
        model=settings.base,
        split=name,
        documents=len(kept),
        mentions=sum(len(document.mentions) for document in kept),
        seeds=tuple(read_stored(path, CoreferenceSeed, remedy=RETRAIN) if path.is_file() else _UNTRAINED for path in seeds),
        fingerprints={"weights": settings.weights, "documents": documents_fingerprint(kept)},
        notes=tuple(notes),
        **aggregate(answers),
    )


class _Evaluator:
    def __init__(self, folder: Path, convention: Convention, device: str, base: str | None) -> None:
        self.folder, self.convention, self.device, self.base = folder, convention, device, base

    @cached_property
    def model(self) -> CoreferenceModel:
        from coref_automl.extras.coreference.model import load_model

        return load_model(self.folder, self.device, base=self.base)

    def with_scheme(self, documents: tuple[CorefDocument, ...], requested: str | None) -> tuple[CorefDocument, ...]:
        """Assign the requested scheme to the documents, or the one whose mentions agree best with theirs."""
        schemes = read_settings(self.folder).schemes
        versions = [tuple(replace(document, scheme=scheme.name) for document in documents) for scheme in schemes]
        if requested is not None or len(schemes) == 1:
            return versions[schemes.index(scheme_for(schemes, requested))]

        def agreement(version: tuple[CorefDocument, ...]) -> float:
            shortest = sorted(version, key=lambda document: len(document.text))[:_SHORTEST]
            answers = answer_documents(self.model, shortest, self.convention)
            return sum_scores(answer.sums["found"] for answer in answers)["mention"].f1

        return max(versions, key=agreement)

    def answers(self, name: str, documents: tuple[CorefDocument, ...], progress: Progress) -> list[DocumentAnswer]:
        """Read the stored answers if they are current, else answer; answers are stored beside models of finished seeds."""
        path = self.folder.parent / EVALUATED / f"{name}-{self._key(documents)}.jsonl"
        if path.is_file():
            stored = DocumentAnswer.read(path)
            current = [(document.id, document.chains, VERSION) for document in documents]
            if [(answer.document, answer.key, answer.version) for answer in stored] == current:
                return stored
        answers = answer_documents(self.model, documents, self.convention, progress=progress)
        if is_done(self.folder.parent):
            DocumentAnswer.write(path, answers)
        return answers

    def _key(self, documents: tuple[CorefDocument, ...]) -> str:
        """Fingerprint texts, chains, scheme, convention and model."""
        from coref_automl.extras.coreference.model import head_identity

        model = head_identity(self.folder, read_settings(self.folder), self.base)
        return fingerprint(documents_fingerprint(documents), documents[0].scheme, self.convention.edges, model)[:12]
