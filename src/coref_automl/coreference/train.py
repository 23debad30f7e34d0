"""Training coreference. In: a recipe. Out: a run folder: models, answers on the test documents, coref_results.json.

    RUN/recipe.yaml manifest.json split.json events.ndjson coref_results.json DONE
    RUN/seed-0/{resume.pt, model/, result.json, answers/<split>.jsonl, DONE}          or seed-0/fold-1/... when cross-fitting
    RUN/start.jsonl                                                                   with --from: answers of what it began from
    RUN/seed-0/evaluated/                                                             what `coref evaluate` adds

A finished seed is never trained again; an interrupted one resumes from its last whole epoch. Documents that choose the epoch and
the threshold (dev) are never those that are tested; cross-fitting chooses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from coref_automl.config import expect, to_mapping
from coref_automl.coreference.answers import KIND, START, DocumentAnswer, answers_of, summarise, write_answers
from coref_automl.coreference.conventions import Convention, convention_of, moved_document
from coref_automl.coreference.data import CorefData, read_schemes
from coref_automl.coreference.documents import GENERAL, CorefDocument
from coref_automl.coreference.evaluate import models_of
from coref_automl.coreference.metrics import added, conll, score_document
from coref_automl.coreference.recipe import FREE, CoreferenceRecipe
from coref_automl.coreference.results import CoreferenceResult, CoreferenceSeed
from coref_automl.coreference.split import Split, by_hash, check_split, documents_fingerprint, folds, sides_of, unseen, write_seen
from coref_automl.coreference.tokens import tokenized
from coref_automl.corpus.batch import skipped
from coref_automl.engine.binding import Binding, begin_run
from coref_automl.evaluation.targets import target_of
from coref_automl.fingerprints import fingerprint
from coref_automl.folders import EVENTS, MANIFEST, is_done, mark_done
from coref_automl.locks import claimed
from coref_automl.machine import pick_device
from coref_automl.models.model_files import folder_fingerprint, model_fingerprints
from coref_automl.progress import Progress, quiet
from coref_automl.records import grouped
from coref_automl.say import say
from coref_automl.store import write_json

_FILES = (*FREE, "model", "start", "data", "more", "split")
"""What a run is bound to by its content, not by its name."""
SPLIT = "split.json"
_FOLDS = 4
"""Cross-fitting of a head that is trained further, where nobody says."""
_THRESHOLDS = tuple(step / 4 for step in range(-8, 9))
OnEpoch = Callable[[int, int, float], None]


@dataclass(frozen=True, slots=True)
class _Work:
    """A recipe with its documents: all that one seed needs besides its number."""

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
    """Train every seed that is not done yet, answer the test documents, and sum up.

    `on_epoch(seed, epoch, score)` hears of every epoch; what it raises stops the run, which can be resumed.
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
            write_answers(work.run / START, _start_answers(work))
        for seed in range(recipe.first_seed, recipe.first_seed + recipe.seeds):
            for number, split in enumerate(work.splits, 1):
                folder = work.run / f"seed-{seed}"
                folder = folder / f"fold-{number}" if number <= recipe.folds else folder
                if not is_done(folder):
                    _bind(work)  # the model may have changed while the one before was trained
                    _train_one(work, split, folder, seed, progress, on_epoch)
        result = summarise(work.run, work.tested)
        mark_done(work.run)
    return result


def _begin(recipe: CoreferenceRecipe) -> _Work:
    files, default = (recipe.data, *recipe.more), GENERAL
    if recipe.start:
        recipe, schemes = _from_head(recipe)
        default = schemes[0].name
    data = read_schemes(files, skip_bad=recipe.skip_bad, default=default)
    if recipe.start:
        data = _as_start(recipe, data, schemes)
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


def _from_head(recipe: CoreferenceRecipe) -> tuple[CoreferenceRecipe, tuple[Any, ...]]:
    """The recipe with what a head to train further brings along, and its schemes."""
    from coref_automl.coreference.model import read_settings

    folder = models_of(recipe.start)[0]
    settings = read_settings(folder)
    brought = {name: getattr(settings, name) for name in ("window", "size", "rank")}
    return replace(recipe, start=str(folder), model=recipe.model or settings.base, **brought), settings.schemes


def _as_start(recipe: CoreferenceRecipe, data: CorefData, schemes: Sequence[Any]) -> CorefData:
    """The data in the conventions of the head that is trained further; nothing moves where they are the same."""
    from coref_automl.coreference.model import scheme_for

    documents: list[CorefDocument] = []
    for name, own in grouped(data.documents, attrgetter("scheme")).items():
        source, target = convention_of(own, recipe.convention), Convention(scheme_for(schemes, name).convention)
        documents += [moved_document(document, source, target) for document in own]
    return replace(data, documents=tuple(documents))


def _train_one(work: _Work, split: Split, folder: Path, seed: int, progress: Progress, on_epoch: OnEpoch | None) -> None:
    from coref_automl.coreference.fit import fit
    from coref_automl.coreference.model import SETTINGS, load_model, save_weights
    from coref_automl.coreference.resolve import read_document
    from coref_automl.models.execution import move
    from coref_automl.training.finetuning import finish_seed

    recipe, device, kept = work.recipe, pick_device(work.recipe.device), folder / "model"
    model = move(_built(recipe, split.side("train", work.data.documents), seed), device)
    folder.mkdir(parents=True, exist_ok=True)
    train, dev, test = (tokenized(model.tokenizer, split.side(side, work.data.documents)) for side in ("train", "dev", "test"))
    state = fit(model, train, dev, recipe, seed, folder, progress, on_epoch)
    save_weights(kept, model)
    # what is saved is scored: a low-rank change is rounded on its way to the disk, and added to its encoder on its way back
    model = load_model(kept, device, base=_base_of(recipe), settings=model.settings)
    read = [read_document(model, doc, precision=recipe.precision) for doc in dev]
    chosen = tuple(replace(scheme, threshold=_best_threshold(model, scheme, read)) for scheme in model.settings.schemes)
    model.settings = replace(model.settings, schemes=chosen, note=recipe.note)
    write_answers(
        folder / "answers" / f"{work.scored}.jsonl",
        answers_of(model, [doc.document for doc in test or dev], precision=recipe.precision),
    )
    write_seen(kept, [doc.document for doc in (*train, *dev)], recipe.start)
    write_json(kept / SETTINGS, model.settings.to_json())  # last: a folder without them is incomplete
    done = CoreferenceSeed(
        seed=seed,
        best_epoch=state.best_epoch or state.epoch,
        epochs=state.epoch,
        dev_gold=round(100 * state.best_gold, 2),
        dev_found=round(100 * state.best_found, 2),
        threshold=chosen[0].threshold,
        seconds=round(state.seconds, 2),
        tokens_per_second=round(state.tokens / max(state.seconds, 1e-9), 1),
        peak_gigabytes=state.peak,
        device=device,
    )
    finish_seed(folder, done)


def _start_answers(work: _Work) -> list[DocumentAnswer]:
    """What the head that is trained further says of the documents that it has not learned from."""
    from coref_automl.coreference.model import load_model

    folder, device = Path(work.recipe.start), pick_device(work.recipe.device)
    model = load_model(folder, device, base=_base_of(work.recipe))
    return answers_of(model, unseen(work.tested, [folder]), precision=work.recipe.precision)


def _base_of(recipe: CoreferenceRecipe) -> str | None:
    """Where the encoder of a low-rank change lies; a model that was trained whole holds its own."""
    return recipe.model if recipe.rank else None


def _built(recipe: CoreferenceRecipe, documents: Sequence[CorefDocument], seed: int) -> Any:
    """A new head for the schemes of its training documents, or one that is trained further and knows them."""
    from coref_automl.coreference.model import AnnotationScheme, build_from, build_model

    found = {name: convention_of(own, recipe.convention) for name, own in grouped(documents, attrgetter("scheme")).items()}
    if recipe.start:
        model = build_from(Path(recipe.start), _base_of(recipe), dropout=recipe.dropout, seed=seed)
        known = [
            replace(one, singletons=found[one.name].singletons) if one.name in found else one for one in model.settings.schemes
        ]
        model.settings = replace(model.settings, schemes=tuple(known))
        return model
    schemes = tuple(AnnotationScheme(name, own.singletons, convention=own.edges) for name, own in found.items())
    shape = {name: getattr(recipe, name) for name in ("window", "size", "dropout", "rank")}
    return build_model(recipe.model, **shape, seed=seed, schemes=schemes)


def _best_threshold(model: Any, scheme: Any, reads: Sequence[Any]) -> float:
    """The score from which a span counts as a mention, by CoNLL of the documents that choose; the nearest to 0 of equals."""
    from coref_automl.coreference.resolve import with_found

    own = [read for read in reads if read.doc.document.scheme == scheme.name]

    def value(at: float) -> float:
        answers = [(read.doc.document.chains, with_found(model, read, threshold=at).as_spans()) for read in own]
        return conll(added(score_document(key, found) for key, found in answers))

    return max(_THRESHOLDS, key=lambda at: (round(value(at), 6), -abs(at))) if own else float(scheme.threshold)


def _bind(work: _Work) -> None:
    recipe, documents = work.recipe, work.data.documents
    settings = {key: value for key, value in to_mapping(recipe).items() if key not in _FILES}
    prints = {
        **model_fingerprints(recipe.model),
        "documents": documents_fingerprint(documents),
        "schemes": fingerprint([document.scheme for document in documents]),
        "split": fingerprint([split.to_json() for split in work.splits]),
    }
    if recipe.start:
        prints["start"] = folder_fingerprint(Path(recipe.start))
    if not (work.run / MANIFEST).is_file():
        write_json(work.run / SPLIT, work.splits[0].to_json() if not recipe.folds else [s.to_json() for s in work.splits])
    begin_run(
        work.run,
        recipe,
        Binding(settings=settings, fingerprints=prints),
        lambda: {
            "kind": KIND,
            "model": recipe.model,
            "data": work.data.name,
            "scored": work.scored,
            "scored_documents": documents_fingerprint(work.tested),
            "notes": _notes(work),
            "pretraining": origin.to_json() if (origin := target_of(recipe.model).provenance()) else None,
        },
    )


def _notes(work: _Work) -> list[str]:
    notes = [skipped(len(work.data.problems), work.data.name)] if work.data.problems else []
    if not work.recipe.folds and not work.splits[0].test:
        notes.append(
            say(
                "에폭을 고를 때 쓴 문서로 잰 값입니다. 독립적인 측정에는 test 문서가 있는 분할을 주세요.",
                "The documents scored here also chose the epoch; an independent score needs a split with test documents.",
            )
        )
    return notes
