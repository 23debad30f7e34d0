"""Training coreference. In: a recipe. Out: a run folder: models, answers on the test documents, coref_results.json.

    RUN/recipe.yaml manifest.json split.json events.ndjson coref_results.json DONE
    RUN/seed-0/{resume.pt, model/, result.json, answers/<split>.jsonl, DONE}          or seed-0/fold-1/... when cross-fitting
    RUN/seed-0/evaluated/                                                             what `coref evaluate` adds

A finished seed is never trained again; an interrupted one resumes from its last whole epoch. Documents that choose the epoch and
the threshold (dev) are never those that are tested; cross-fitting chooses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

from coref_automl.comparison.coreference_runs import SPLIT
from coref_automl.config import expect, to_mapping, to_yaml
from coref_automl.coreference.data import CorefData, CorefDocument, read_coref
from coref_automl.coreference.metrics import added, conll, score_document
from coref_automl.coreference.recipe import FREE, CoreferenceRecipe
from coref_automl.coreference.results import (
    AGAIN,
    RESULTS,
    Chains,
    CoreferenceResult,
    SeedResult,
    answer,
    read_answers,
    summed,
    write_answers,
)
from coref_automl.coreference.split import Split, by_hash, check_split, documents_fingerprint, folds, named_split
from coref_automl.coreference.tokens import lay
from coref_automl.decoder import read_stored
from coref_automl.engine.binding import Binding, check_binding
from coref_automl.errors import FolderError
from coref_automl.evaluation.results import target_of
from coref_automl.locks import claimed
from coref_automl.machine import pick_device
from coref_automl.models.attention import move
from coref_automl.models.model_files import model_prints
from coref_automl.progress import Progress, quiet
from coref_automl.say import say, skipped
from coref_automl.store import MANIFEST, fingerprint, is_done, mark_done, write_json, write_text

KIND = "coreference run"
LEARNED = "learned_from.json"
"""Marks of the texts a model learned from or was chosen by; beside its weights, so that it keeps them when it moves."""
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
        """The name of what the run scores itself on."""
        if self.recipe.folds:
            return f"{self.data.name}-{self.recipe.folds}-folds"
        return f"{self.data.name}-{'test' if self.splits[0].test else 'dev'}"

    @property
    def tested(self) -> tuple[CorefDocument, ...]:
        """What the run scores itself on."""
        names = {name for split in self.splits for name in (split.test or split.dev)}
        return tuple(document for document in self.data.documents if document.id in names)


def train_coreference(
    recipe: CoreferenceRecipe, *, progress: Progress | None = None, on_epoch: OnEpoch | None = None
) -> CoreferenceResult:
    """Train every seed that is not done yet, answer the test documents, and sum up.

    `on_epoch(seed, epoch, score)` hears of every epoch; what it raises stops the run, which can be resumed.
    """
    work = _begin(expect(recipe, CoreferenceRecipe, "train_coreference"))
    with claimed(work.run, KIND):
        _bind(work)
        return _train(work, (progress or quiet()).into(work.run / "events.ndjson"), on_epoch)


def _train(work: _Work, progress: Progress, on_epoch: OnEpoch | None) -> CoreferenceResult:
    recipe = work.recipe
    for line in (*(problem.in_words() for problem in work.data.problems), *work.data.notes):
        progress.event("note", text=line)
    if work.data.problems:
        where = progress.say("사유는 events.ndjson에 있습니다.", "events.ndjson lists them with reasons.")
        progress.note(f"{skipped(len(work.data.problems), work.data.name)} {where}")
    for seed in range(recipe.first_seed, recipe.first_seed + recipe.seeds):
        for number, split in enumerate(work.splits):
            folder = _folder(work, seed, number)
            if not is_done(folder):
                _bind(work)  # the model may have changed while the one before was trained
                _train_one(work, split, folder, seed, progress, on_epoch)
    result = summarise(work.run, work.tested)
    write_json(work.run / RESULTS, result.to_json())
    mark_done(work.run)
    return result


class RunManifest(TypedDict):
    """manifest.json of a run: what it was begun with, and what its scores are about."""

    model: str
    scored: str
    scored_documents: str
    notes: list[str]
    binding: Binding


def summarise(run: Path, tested: Sequence[CorefDocument]) -> CoreferenceResult:
    """What the finished seeds of a run score on its own test documents, read from their answers."""
    manifest = read_stored(run / MANIFEST, RunManifest)
    asked = sorted((document.id, document.chains) for document in tested)
    seeds, answers = [], []
    for folder in finished_seeds(run):
        parts = sorted(folder.glob("fold-*"), key=lambda path: int(path.name.partition("-")[2])) or [folder]
        own = [read_stored(part / "result.json", SeedResult, remedy=AGAIN) for part in parts]
        seeds.append(_joined(own))
        answers.append([one for part in parts for one in read_answers(part / "answers" / f"{manifest['scored']}.jsonl")])
        if sorted((one.document, one.key) for one in answers[-1]) != asked:
            raise FolderError(
                f"{folder} has answers to other documents than its run is tested on; "
                f"remove {folder} and run the same command again."
            )
    whole = summed(answers)
    return CoreferenceResult(
        run=str(run),
        model=manifest["model"],
        split=manifest["scored"],
        documents=len(answers[0]),
        mentions=sum(each.mentions for each in answers[0]),
        seeds=tuple(seeds),
        fingerprints={
            "weights": manifest["binding"]["fingerprints"].get("weights", ""),
            "documents": manifest["scored_documents"],
        },
        notes=tuple(manifest["notes"]),
        **whole,
    )


def finished_seeds(run: Path) -> list[Path]:
    found = sorted(run.glob("seed-*"), key=lambda path: int(path.name.partition("-")[2]))
    return [seed for seed in found if is_done(seed) or ((parts := list(seed.glob("fold-*"))) and all(map(is_done, parts)))]


def _joined(parts: Sequence[SeedResult]) -> SeedResult:
    """The folds of one seed as one: times add up, the rest is their mean or largest."""
    if len(parts) == 1:
        return parts[0]
    seconds = sum(part.seconds for part in parts)
    return replace(
        parts[0],
        seconds=round(seconds, 2),
        tokens_per_second=round(sum(part.tokens_per_second * part.seconds for part in parts) / max(seconds, 1e-9), 1),
        peak_gigabytes=max(part.peak_gigabytes for part in parts),
    )


def _begin(recipe: CoreferenceRecipe) -> _Work:
    data = read_coref(recipe.data, skip_bad=recipe.skip_bad)
    if recipe.folds:
        splits = tuple(folds(data.documents, recipe.folds))
    else:
        split = named_split(recipe.split) if recipe.split else by_hash(data.documents, recipe.holdout)
        check_split(split, data.documents)
        splits = (split,)
    return _Work(Path(recipe.out), recipe, data, splits)


def _folder(work: _Work, seed: int, number: int) -> Path:
    own = work.run / f"seed-{seed}"
    return own / f"fold-{number + 1}" if work.recipe.folds else own


def _train_one(work: _Work, split: Split, folder: Path, seed: int, progress: Progress, on_epoch: OnEpoch | None) -> None:
    from coref_automl.coreference.fit import READ_TOKENS, fit
    from coref_automl.coreference.model import build_model, save_model
    from coref_automl.coreference.resolve import read_document, resolve_all, with_found
    from coref_automl.training.finetuning import RESUME

    recipe, device = work.recipe, pick_device(work.recipe.device)
    model = build_model(recipe.model, window=recipe.window, size=recipe.size, dropout=recipe.dropout, rank=recipe.rank, seed=seed)
    move(model, device)
    folder.mkdir(parents=True, exist_ok=True)
    train, dev, test = (lay(model.tokenizer, split.side(side, work.data.documents)) for side in ("train", "dev", "test"))
    single = any(len(chain) == 1 for laid in train for chain in laid.document.chains)
    model.settings = replace(model.settings, singletons=single)  # the epoch and the threshold are chosen by what will be answered
    state = fit(model, train, dev, recipe, seed, folder, progress, on_epoch)
    tokens = READ_TOKENS[device.split(":")[0]]
    threshold = 0.0
    if dev:
        read = [read_document(model, laid, tokens=tokens, precision=recipe.precision) for laid in dev]
        threshold = _best_threshold(
            [one.laid.document for one in read],
            lambda at: [with_found(model, one, threshold=at).as_spans(singletons=single) for one in read],
        )
    settings = replace(model.settings, threshold=threshold, note=recipe.note)
    model.settings = settings
    answers = []
    for laid, (gold, found) in zip(
        test or dev, resolve_all(model, test or dev, tokens=tokens, precision=recipe.precision), strict=True
    ):
        answers.append(answer(laid.document, gold.as_spans(), found.as_spans(singletons=single)))
    write_answers(folder / "answers" / f"{work.scored}.jsonl", answers)
    write_json(folder / "model" / LEARNED, [text_mark(document.text) for document in _learned(split, work.data.documents)])
    save_model(folder / "model", model, settings)
    done = SeedResult(
        seed=seed,
        best_epoch=state.best_epoch or state.epoch,
        epochs=state.epoch,
        dev_gold=round(100 * state.best_gold, 2),
        dev_found=round(100 * state.best_found, 2),
        threshold=threshold,
        seconds=round(state.seconds, 2),
        tokens_per_second=round(state.tokens / max(state.seconds, 1e-9), 1),
        peak_gigabytes=state.peak,
        device=device,
    )
    write_json(folder / "result.json", done.to_json())
    mark_done(folder)
    (folder / RESUME).unlink(missing_ok=True)


def _best_threshold(documents: Sequence[CorefDocument], answers: Callable[[float], Sequence[Chains]]) -> float:
    """The score from which a stretch counts as a mention, by CoNLL of the documents that choose; the nearest to 0 of equals."""

    def value(at: float) -> float:
        return conll(added(score_document(d.chains, found) for d, found in zip(documents, answers(at), strict=True)))

    return max(_THRESHOLDS, key=lambda at: (round(value(at), 6), -abs(at)))


def _bind(work: _Work) -> None:
    """Write the run's manifest, or refuse a folder that was begun with something else."""
    recipe, documents = work.recipe, work.data.documents
    settings = {key: value for key, value in to_mapping(recipe).items() if key not in (*FREE, "model", "data", "split")}
    prints = {
        **model_prints(recipe.model),
        "documents": documents_fingerprint(documents),
        "split": fingerprint([split.to_json() for split in work.splits]),
    }
    path = work.run / MANIFEST
    binding = Binding(settings=settings, fingerprints=prints)
    if path.is_file():
        check_binding(work.run, read_stored(path, RunManifest)["binding"], binding)
        return
    write_text(work.run / "recipe.yaml", to_yaml(recipe))
    write_json(work.run / SPLIT, work.splits[0].to_json() if not recipe.folds else [s.to_json() for s in work.splits])
    write_json(
        path,
        {
            "kind": KIND,
            "model": recipe.model,
            "data": work.data.name,
            "scored": work.scored,
            "scored_documents": documents_fingerprint(work.tested),
            "notes": list(_notes(work)),
            "pretraining": made.to_json() if (made := target_of(recipe.model).provenance()) else None,
            "binding": binding,
        },
    )


def _learned(split: Split, documents: Sequence[CorefDocument]) -> tuple[CorefDocument, ...]:
    return (*split.side("train", documents), *split.side("dev", documents))


def text_mark(text: str) -> str:
    """A short name of a text, so that a run can say which documents it has learned from."""
    return fingerprint(" ".join(text.split()))[:12]


def _notes(work: _Work) -> tuple[str, ...]:
    notes = []
    if work.data.problems:
        notes.append(skipped(len(work.data.problems), work.data.name))
    if not work.recipe.folds and not work.splits[0].test:
        told = say(
            "에폭을 고를 때 쓴 문서로 잰 값입니다. 독립적인 측정에는 test 문서가 있는 분할을 주세요.",
            "The documents scored here also chose the epoch; an independent score needs a split with test documents.",
        )
        notes.append(told)
    return tuple(notes)
