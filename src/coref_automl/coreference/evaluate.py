"""A trained run on annotated documents. In: its seeds and a file. Out: the mean over seeds with intervals by document.

Documents that the run learned from or chose by are left out. One seed's model by itself is scored too. Answers are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from coref_automl.coreference.breakdown import Group, by_group, kinds_of
from coref_automl.coreference.data import CorefDocument, read_coref
from coref_automl.coreference.layout import lay
from coref_automl.coreference.results import (
    VERSION,
    Answer,
    CoreferenceResult,
    SeedResult,
    answer,
    read_answers,
    summed,
    write_answers,
)
from coref_automl.coreference.split import Split, documents_fingerprint, named_split
from coref_automl.coreference.train import KIND, LEARNED, finished_seeds, text_mark
from coref_automl.errors import CoreferenceDataError, ModelError
from coref_automl.models.load import pick_device
from coref_automl.progress import Progress, quiet
from coref_automl.records import Record
from coref_automl.store import is_done, kind_of_folder, read_json

BUNDLED = "bundled:ko-mini-coref"
_UNTRAINED = SeedResult(0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, "")


@dataclass(frozen=True, slots=True)
class Evaluated(Record):
    """The scores, and where they come from: groups of mentions under both modes, of the first seed."""

    result: CoreferenceResult
    groups: dict[str, dict[str, Group]]


def models_of(run: str | Path) -> list[Path]:
    """The models that can answer: the finished seeds of a run, the folder itself where it is a model, or the bundled one."""
    from coref_automl.coreference.model import SETTINGS

    if str(run) == BUNDLED:
        return [bundled_model()]
    folder = Path(run)
    if (folder / SETTINGS).is_file():
        return [folder]
    if (folder / "model" / SETTINGS).is_file() and is_done(folder):
        return [folder / "model"]
    if kind_of_folder(folder) != KIND:
        raise ModelError(
            f"{run} is not a coreference run, nor one seed's model; make one with: coref-automl coref train --out {run}"
        )
    found = [seed / "model" for seed in finished_seeds(folder) if (seed / "model" / SETTINGS).is_file()]
    if not found:
        raise ModelError(
            f"{run} has no model that answers for all documents (none is finished, or it was cross-fitted); "
            "run the same `coref-automl coref train` again to go on, or train without --folds."
        )
    return found


def bundled_model() -> Path:
    from importlib.resources import files

    return Path(str(files("coref_automl") / "assets" / "coreference" / "ko-mini"))


def evaluate_coreference(
    run: str | Path,
    data: str,
    *,
    split: str | None = None,
    side: str = "test",
    skip_bad: bool = False,
    device: str = "auto",
    base: str | None = None,
    groups: bool = False,
    progress: Progress | None = None,
) -> Evaluated:
    """Every finished seed of a run, or one model, on annotated documents; with `split`, on one side of them alone."""
    progress, models = progress or quiet(), models_of(run)
    read = read_coref(data, skip_bad=skip_bad)
    name, documents = read.name, read.documents
    if split:
        chosen: Split = named_split(split)
        if side not in ("train", "dev", "test"):
            raise CoreferenceDataError(f"A split has no side {side!r}; choose train, dev or test.")
        name, documents = f"{name}-{side}", chosen.side(side, documents)
    seen = {mark for model in models for mark in _learned_from(model)}
    kept = tuple(document for document in documents if text_mark(document.text) not in seen)
    notes = [f"{len(read.problems):,} bad rows of {read.name} were skipped."] if read.problems else []
    if not kept:
        raise CoreferenceDataError(
            f"No document of {name} is left to score: {run} learned from all of them; pass other documents."
        )
    if len(kept) < len(documents):
        notes.append(f"{len(documents) - len(kept)} documents that {run} learned from were left out.")
    answers = [_answers(model, name, kept, device, base, progress) for model in models]
    seeds = tuple(_seed(model) for model in models)
    from coref_automl.coreference.model import SETTINGS

    settings = read_json(models[0] / SETTINGS)
    result = CoreferenceResult(
        run=str(run),
        model=settings["base"],
        split=name,
        documents=len(kept),
        mentions=sum(len(document.mentions) for document in kept),
        seeds=seeds,
        fingerprints={"weights": settings["weights"], "documents": documents_fingerprint(kept)},
        notes=tuple(notes),
        **summed(answers),
    )
    return Evaluated(result, grouped(kept, answers[0]) if groups else {})


def grouped(documents: tuple[CorefDocument, ...], answers: list[Answer]) -> dict[str, dict[str, Group]]:
    kinds = [kinds_of(document) for document in documents]
    return {mode: by_group(documents, [getattr(one, mode) for one in answers], kinds) for mode in ("gold", "found")}


def group_lines(groups: dict[str, dict[str, Group]]) -> list[str]:
    """One row per group: gold mentions, found, share of the chain recovered under both modes."""
    shown = [f"{'gold mentions that are':<46}{'n':>7}{'found':>8}{'gold':>8}{'found':>8}   (share of the chain recovered)"]
    for name, group in groups["gold"].items():
        other = groups["found"][name]
        shown.append(
            f"{name:<46}{group.mentions:>7,}{100 * other.found:>8.1f}{100 * group.recovered:>8.1f}{100 * other.recovered:>8.1f}"
        )
    return shown


def _answers(
    folder: Path, name: str, documents: tuple[CorefDocument, ...], device: str, base: str | None, progress: Progress
) -> list[Answer]:
    from coref_automl.coreference.fit import READ_TOKENS
    from coref_automl.coreference.model import load_model
    from coref_automl.coreference.resolve import resolve_all

    kept = folder.parent / "answers" / f"{name}.jsonl"
    if kept.is_file():
        held = read_answers(kept)
        if [(one.document, one.key, one.version) for one in held] == [(d.id, d.chains, VERSION) for d in documents]:
            return held
    device = pick_device(device)
    model = load_model(folder, device, base=base)
    laid = lay(model.tokenizer, documents)
    found = resolve_all(model, laid, tokens=READ_TOKENS[device.split(":")[0]], progress=progress)
    single = model.settings.singletons
    answers = [
        answer(d, gold.as_spans(), own.as_spans(singletons=single)) for d, (gold, own) in zip(documents, found, strict=True)
    ]
    if is_done(folder.parent):
        write_answers(kept, answers)
    return answers


def _seed(folder: Path) -> SeedResult:
    path = folder.parent / "result.json"
    return SeedResult.from_json(read_json(path)) if path.is_file() else _UNTRAINED


def _learned_from(folder: Path) -> list[str]:
    path = folder / LEARNED
    marks = read_json(path) if path.is_file() else []
    if not isinstance(marks, list) or not all(isinstance(mark, str) for mark in marks):
        raise ModelError(f"{path} is damaged: it should list the documents that the model learned from; train that seed again.")
    return marks
