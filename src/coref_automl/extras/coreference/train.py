"""Training coreference. In: a recipe. Out: a run folder: models, answers on the test documents, coref_results.json.

    RUN/recipe.yaml manifest.json split.json events.ndjson coref_results.json DONE
    RUN/seed-0/{resume.pt, model/, result.json, answers/<split>.jsonl, DONE}          or seed-0/fold-1/... when cross-fitting
    RUN/start.jsonl                                                                   with --from: answers of the starting head
    RUN/seed-0/evaluated/                                                             what `coref evaluate` adds

A finished seed is never trained again; an interrupted one resumes from its last whole epoch. The epoch and the threshold are
selected on dev documents, which are never the tested ones; cross-fitting selects nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coref_automl.base.binding import Binding, begin_run
from coref_automl.base.config import expect, to_mapping
from coref_automl.base.errors import ModelError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.folders import EVENTS, MANIFEST, is_done, mark_done
from coref_automl.base.locks import claimed
from coref_automl.base.machine import pick_device
from coref_automl.base.progress import Progress, quiet
from coref_automl.base.records import grouped
from coref_automl.base.say import say
from coref_automl.base.store import write_json
from coref_automl.corpus.batch import skipped
from coref_automl.evaluation.targets import target_of
from coref_automl.extras.coreference.answers import KIND, START, DocumentAnswer, answer_documents, summarize
from coref_automl.extras.coreference.conventions import Convention, convention_of, convert_document
from coref_automl.extras.coreference.data import CorefData, read_schemes
from coref_automl.extras.coreference.documents import GENERAL, CorefDocument
from coref_automl.extras.coreference.evaluate import models_of
from coref_automl.extras.coreference.metrics import conll, score_document, sum_scores
from coref_automl.extras.coreference.recipe import FREE, SETTINGS, AnnotationScheme, CoreferenceRecipe, read_settings, scheme_for
from coref_automl.extras.coreference.results import CoreferenceResult, CoreferenceSeed
from coref_automl.extras.coreference.split import (
    Split,
    by_hash,
    check_split,
    documents_fingerprint,
    folds,
    sides_of,
    unseen,
    write_seen,
)
from coref_automl.extras.coreference.tokens import tokenize_documents
from coref_automl.models.model_files import folder_fingerprint, model_fingerprints

if TYPE_CHECKING:
    from coref_automl.extras.coreference.model import CoreferenceModel
    from coref_automl.extras.coreference.resolve import EncodedDocument

_BOUND_BY_CONTENT = (*FREE, "model", "start", "data", "more", "split")
"""Recipe fields that may differ in name on resuming, as long as their content is the same; and free ones."""
SPLIT = "split.json"
_FOLDS = 4
"""Default number of folds for a head that is trained further."""
_THRESHOLDS = tuple(step / 4 for step in range(-8, 9))
OnEpoch = Callable[[int, int, float], None]


@dataclass(frozen=True, slots=True)
class _Work:
    """A recipe with its documents: all that a seed needs besides its number."""

    run: Path
    recipe: CoreferenceRecipe
    data: CorefData
    splits: tuple[Split, ...]

    @property
    def scored(self) -> str:
        if self.recipe.folds:
            return f"{self.data.name}-{self.recipe.folds}-folds"
        return f"{self.data.name}-{'test' if self.splits[0].test else 'dev'}"

    @property
    def tested(self) -> tuple[CorefDocument, ...]:
        names = {name for split in self.splits for name in (split.test or split.dev)}
        return tuple(document for document in self.data.documents if document.id in names)


def train_coreference(
    recipe: CoreferenceRecipe, *, progress: Progress | None = None, on_epoch: OnEpoch | None = None
) -> CoreferenceResult:
    """Train every unfinished seed, answer the test documents, and summarize.

    `on_epoch(seed, epoch, score)` is called after every epoch; what it raises stops the run, which can be resumed.
    """
    work = _begin(expect(recipe, CoreferenceRecipe, "train_coreference"))
    recipe, data = work.recipe, work.data
    with claimed(work.run, KIND):
        _bind(work)
        progress = (progress or quiet()).into(work.run / EVENTS)
        for line in (*(problem.in_words() for problem in data.problems), *data.notes):
            progress.event("note", text=line)
        if data.problems:
            where = progress.say(f"사유는 {EVENTS}에 있습니다.", f"{EVENTS} lists them with reasons.")
            progress.note(f"{skipped(len(data.problems), data.name)} {where}")
        if recipe.start and recipe.folds and not (work.run / START).is_file():
            DocumentAnswer.write(work.run / START, _start_answers(work))
        for seed in range(recipe.first_seed, recipe.first_seed + recipe.seeds):
            for number, split in enumerate(work.splits, 1):
                folder = work.run / f"seed-{seed}"
                folder = folder / f"fold-{number}" if number <= recipe.folds else folder
                if not is_done(folder):
                    _bind(work)  # the model may have changed while the previous one was trained
                    _train_one(work, split, folder, seed, progress, on_epoch)
        result = summarize(work.run, work.tested)
        mark_done(work.run)
    return result


def _begin(recipe: CoreferenceRecipe) -> _Work:
    files, default = (recipe.data, *recipe.more), GENERAL
    if recipe.start:
        recipe, schemes = _with_start(recipe)
        default = schemes[0].name
    data = read_schemes(files, skip_bad=recipe.skip_bad, default=default)
    if recipe.start:
        data = _convert_to_start(recipe, data, schemes)
        if not recipe.folds and not recipe.split and len(data.documents) > 1:
            recipe = replace(recipe, folds=min(_FOLDS, len(data.documents)))
    if recipe.folds:
        whole = (Split(tuple(sorted(document.id for document in data.documents))),) if recipe.start else ()
        splits = (*folds(data.documents, recipe.folds), *whole)
    else:
        split = sides_of(recipe.split, data.documents) if recipe.split else by_hash(data.documents, recipe.holdout)
        check_split(split, data.documents)
        splits = (split,)
    return _Work(Path(recipe.out), recipe, data, splits)


def _with_start(recipe: CoreferenceRecipe) -> tuple[CoreferenceRecipe, tuple[AnnotationScheme, ...]]:
    """Complete the recipe with the settings of its starting head; return its schemes too."""
    folder = models_of(recipe.start)[0]
    settings = read_settings(folder)
    if recipe.model and not settings.rank and model_fingerprints(recipe.model)["weights"] != settings.weights:
        raise ModelError(f"{folder} holds its whole encoder, and {recipe.model} would not be read; leave --model out.")
    inherited = {name: getattr(settings, name) for name in ("window", "size", "rank")}
    return replace(recipe, start=str(folder), model=recipe.model or settings.base, **inherited), settings.schemes


def _convert_to_start(recipe: CoreferenceRecipe, data: CorefData, schemes: Sequence[AnnotationScheme]) -> CorefData:
    """Convert the data to the conventions of the starting head."""
    converted: list[CorefDocument] = []
    for name, documents in grouped(data.documents, attrgetter("scheme")).items():
        source, target = convention_of(documents, recipe.convention), Convention(scheme_for(schemes, name).convention)
        converted += [convert_document(document, source, target) for document in documents]
    return replace(data, documents=tuple(converted))


def _train_one(work: _Work, split: Split, folder: Path, seed: int, progress: Progress, on_epoch: OnEpoch | None) -> None:
    from coref_automl.extras.coreference.fit import train_model
    from coref_automl.extras.coreference.model import load_model, save_weights
    from coref_automl.extras.coreference.resolve import encode_document, with_weights
    from coref_automl.models.execution import move
    from coref_automl.training.finetuning import finish_seed

    recipe, device, model_folder = work.recipe, pick_device(work.recipe.device), folder / "model"
    train, dev, test = (split.side(side, work.data.documents) for side in ("train", "dev", "test"))
    model = move(_new_model(recipe, train, seed), device)
    folder.mkdir(parents=True, exist_ok=True)
    tokenized_train, tokenized_dev = (tokenize_documents(model.tokenizer, documents) for documents in (train, dev))
    state = train_model(model, tokenized_train, tokenized_dev, recipe, seed, folder, progress, on_epoch)
    save_weights(model_folder, model)
    # score the model as saved: an adapter is rounded when written and merged into its encoder when read
    model = load_model(model_folder, device, base=_base_of(recipe), settings=model.settings)
    encoded = [encode_document(model, doc, precision=recipe.precision) for doc in tokenized_dev]
    schemes = tuple(with_weights(model, _with_threshold(model, scheme, encoded), encoded) for scheme in model.settings.schemes)
    model.settings = replace(model.settings, schemes=schemes, note=recipe.note)
    answers = answer_documents(model, test or dev, precision=recipe.precision)
    DocumentAnswer.write(folder / "answers" / f"{work.scored}.jsonl", answers)
    write_seen(model_folder, (*train, *dev), recipe.start)
    write_json(model_folder / SETTINGS, model.settings.to_json())  # last: a folder without them is incomplete
    result = CoreferenceSeed(
        seed=seed,
        best_epoch=state.best_epoch or state.epoch,
        epochs=state.epoch,
        dev_gold=round(100 * state.best_gold, 2),
        dev_found=round(100 * state.best_found, 2),
        threshold=schemes[0].threshold,
        seconds=round(state.seconds, 2),
        tokens_per_second=round(state.tokens / max(state.seconds, 1e-9), 1),
        peak_gigabytes=state.peak,
        device=device,
    )
    finish_seed(folder, result)


def _start_answers(work: _Work) -> list[DocumentAnswer]:
    """Answers of the starting head to the tested documents it has not learned from."""
    from coref_automl.extras.coreference.model import load_model

    folder, device = Path(work.recipe.start), pick_device(work.recipe.device)
    model = load_model(folder, device, base=_base_of(work.recipe))
    return answer_documents(model, unseen(work.tested, [folder]), precision=work.recipe.precision)


def _base_of(recipe: CoreferenceRecipe) -> str | None:
    """The path of an adapter's encoder; a model trained whole has its own."""
    return recipe.model if recipe.rank else None


def _new_model(recipe: CoreferenceRecipe, documents: Sequence[CorefDocument], seed: int) -> CoreferenceModel:
    """Build a model for the schemes of its training documents, or load the starting head, which knows them."""
    from coref_automl.extras.coreference.model import build_model, load_for_training

    by_scheme = grouped(documents, attrgetter("scheme"))
    conventions = {name: convention_of(group, recipe.convention) for name, group in by_scheme.items()}
    if not recipe.start:
        schemes = [AnnotationScheme(name, own.singletons, convention=own.edges) for name, own in conventions.items()]
        shape = {name: getattr(recipe, name) for name in ("window", "size", "dropout", "rank")}
        return build_model(recipe.model, **shape, seed=seed, schemes=tuple(schemes))
    model = load_for_training(Path(recipe.start), _base_of(recipe), dropout=recipe.dropout, seed=seed)
    schemes = [
        replace(scheme, singletons=conventions[scheme.name].singletons) if scheme.name in conventions else scheme
        for scheme in model.settings.schemes
    ]
    model.settings = replace(model.settings, schemes=tuple(schemes))
    return model


def _with_threshold(model: CoreferenceModel, scheme: AnnotationScheme, dev: Sequence[EncodedDocument]) -> AnnotationScheme:
    """Select a scheme's mention threshold by the CoNLL of its dev documents; of equal ones, the nearest to 0."""
    from coref_automl.extras.coreference.resolve import resolve_found

    own = [encoded for encoded in dev if encoded.doc.document.scheme == scheme.name]

    def rank(threshold: float) -> tuple[float, float]:
        answers = [(encoded.doc.document.chains, resolve_found(model, encoded, threshold=threshold)) for encoded in own]
        score = conll(sum_scores(score_document(key, found.as_spans()) for key, found in answers))
        return round(score, 6), -abs(threshold)

    return replace(scheme, threshold=max(_THRESHOLDS, key=rank)) if own else scheme


def _bind(work: _Work) -> None:
    recipe, documents = work.recipe, work.data.documents
    settings = {key: value for key, value in to_mapping(recipe).items() if key not in _BOUND_BY_CONTENT}
    fingerprints = {
        **model_fingerprints(recipe.model),
        "documents": documents_fingerprint(documents),
        "schemes": fingerprint([document.scheme for document in documents]),
        "split": fingerprint([split.to_json() for split in work.splits]),
    }
    if recipe.start:
        fingerprints["start"] = folder_fingerprint(Path(recipe.start))
    if not (work.run / MANIFEST).is_file():
        write_json(work.run / SPLIT, work.splits[0].to_json() if not recipe.folds else [s.to_json() for s in work.splits])
    begin_run(work.run, recipe, Binding(settings=settings, fingerprints=fingerprints), lambda: _manifest(work))


def _manifest(work: _Work) -> dict[str, Any]:
    pretraining = target_of(work.recipe.model).provenance()
    return {
        "kind": KIND,
        "model": work.recipe.model,
        "data": work.data.name,
        "scored": work.scored,
        "scored_documents": documents_fingerprint(work.tested),
        "notes": _notes(work),
        "pretraining": pretraining.to_json() if pretraining else None,
    }


def _notes(work: _Work) -> list[str]:
    notes = [skipped(len(work.data.problems), work.data.name)] if work.data.problems else []
    if not work.recipe.folds and not work.splits[0].test:
        notes.append(
            say(
                "에폭을 고를 때 쓴 문서로 잰 값입니다. 독립적인 측정에는 test 문서가 있는 분할을 주세요.",
                "The documents scored here also chose the epoch; an independent score needs a split with test documents.",
            )
        )
    tested, starts = work.tested, [Path(work.recipe.start)] if work.recipe.start else []
    if learned := len(tested) - len(unseen(tested, starts)):
        notes.append(
            say(
                f"채점한 문서 {len(tested):,}개 중 {learned:,}개는 시작 헤드가 학습한 것이므로 점수가 실제보다 높을 수 있습니다.",
                f"The starting head had learned {learned:,} of the {len(tested):,} scored documents: scores may be too high.",
            )
        )
    return notes
