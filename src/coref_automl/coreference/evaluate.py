"""A trained run on annotated documents. In: its seeds and a file. Out: the mean over seeds with intervals by document.

Documents that the run learned from or chose by are left out. One seed's model by itself is scored too. Answers are kept.

Groups say where a model is right, by kind of mention (name, noun, pronoun) and by how far back, in characters, the entity was
last mentioned. A mention's share is its B-cubed recall: of the mentions of its entity, those in its predicted chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from coref_automl.coreference.data import CorefDocument, read_coref
from coref_automl.coreference.results import (
    AGAIN,
    VERSION,
    Answer,
    CoreferenceResult,
    SeedResult,
    answer,
    read_answers,
    summed,
    write_answers,
)
from coref_automl.coreference.split import SIDES, Split, documents_fingerprint, named_split
from coref_automl.coreference.tokens import lay
from coref_automl.coreference.train import KIND, LEARNED, finished_seeds, text_mark
from coref_automl.decoder import read_stored
from coref_automl.errors import CoreferenceDataError, ModelError
from coref_automl.evaluation.tasks.gold import PRONOUNS
from coref_automl.korean import KINDS, Tagger
from coref_automl.machine import pick_device
from coref_automl.progress import Progress, quiet
from coref_automl.records import Record
from coref_automl.say import language, say, skipped
from coref_automl.store import fingerprint, is_done, kind_of_folder
from coref_automl.tabular import align

Span = tuple[int, int]
DISTANCES = (50, 200, 1_000)
"""Where a distance in characters counts as longer."""
NOMINAL = "name or noun"
EVALUATED = "evaluated"
"""Holds `<name>-<key>.jsonl`, answers beside a model; those of its run to its own test documents are in `answers`."""
_KOREAN = {
    "kind": "종류",
    "pronoun": "대명사",
    "name": "고유명사",
    "noun": "일반명사",
    NOMINAL: "고유명사나 일반명사",
    "last mentioned": "직전 언급",
    "never": "없음",
    **{f"under {edge:,} characters before": f"{edge:,}자 미만 앞" for edge in DISTANCES},
    f"{DISTANCES[-1]:,} characters before or more": f"{DISTANCES[-1]:,}자 이상 앞",
}
"""Groups of mentions as a Korean table names them; other kinds, named by the data, stay as they are."""


@dataclass(frozen=True, slots=True)
class Group(Record):
    """How many gold mentions, how many of them were found, and the mean share of their chains."""

    mentions: int
    found: float
    recovered: float


def by_group(
    documents: Sequence[CorefDocument], chains: Sequence[Iterable[Iterable[Span]]], kinds: Sequence[Sequence[str]]
) -> dict[str, Group]:
    """Groups under `kind ...` and `last mentioned ...`."""
    rows: dict[str, list[tuple[bool, float]]] = {}
    for document, given, named in zip(documents, chains, kinds, strict=True):
        owner = {span: number for number, chain in enumerate(given) for span in chain}
        entities: dict[str, list[Span]] = {}
        for mention in document.mentions:
            entities.setdefault(mention.entity, []).append(mention.span)
        last: dict[str, int] = {}
        for mention, kind in zip(document.mentions, named, strict=True):
            own, place = entities[mention.entity], owner.get(mention.span)
            share = sum(owner.get(span) == place for span in own) / len(own) if place is not None else 0.0
            for group in (f"kind: {kind}", f"last mentioned: {_distance(last.get(mention.entity), mention.start)}"):
                rows.setdefault(group, []).append((place is not None, share))
            last[mention.entity] = mention.end
    return {
        name: Group(len(group), sum(found for found, _ in group) / len(group), sum(share for _, share in group) / len(group))
        for name, group in sorted(rows.items())
    }


def kinds_of(document: CorefDocument) -> tuple[str, ...]:
    """What the data say; else a closed list of pronouns, and the tagger's word for the rest where it is installed."""
    if all(mention.kind for mention in document.mentions):
        return tuple(mention.kind for mention in document.mentions)
    tags = _tags(document.text)
    return tuple(
        mention.kind or _kind(document.text[mention.start : mention.end], tags, mention.span) for mention in document.mentions
    )


def _kind(form: str, tags: tuple[tuple[int, int, str], ...] | None, span: Span) -> str:
    if form.split() and all(word in PRONOUNS for word in form.split()):
        return "pronoun"
    if tags is None:
        return NOMINAL
    inside = [tag for start, end, tag in tags if span[0] <= start and end <= span[1]]
    return {"NNP": "name", "NNG": "noun", "NP": "pronoun"}.get(inside[-1] if inside else "", NOMINAL)


@cache
def _tags(text: str) -> tuple[tuple[int, int, str], ...] | None:
    if find_spec("kiwipiepy") is None:
        return None
    found = next(iter(Tagger().tag([text])))
    return tuple((int(a), int(b), KINDS[int(k)]) for (a, b), k in zip(found.spans, found.kinds, strict=True))


def _distance(before: int | None, start: int) -> str:
    if before is None:
        return "never"
    for edge in DISTANCES:
        if start - before < edge:
            return f"under {edge:,} characters before"
    return f"{DISTANCES[-1]:,} characters before or more"


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
            "run the same `coref-automl coref train` again to resume, or train without --folds."
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
        if side not in SIDES:
            raise CoreferenceDataError(f"Unknown side {side!r} of a split; choose train, dev or test.")
        name, documents = f"{name}-{side}", chosen.side(side, documents)
    seen = {mark for model in models for mark in _learned_from(model)}
    kept = tuple(document for document in documents if text_mark(document.text) not in seen)
    notes = [skipped(len(read.problems), read.name)] if read.problems else []
    if not kept:
        raise CoreferenceDataError(
            f"No document of {name} is left to score: {run} learned from all of them; pass other documents."
        )
    if len(kept) < len(documents):
        left = len(documents) - len(kept)
        notes.append(
            say(f"{run}의 학습에 쓰인 문서 {left}개를 제외했습니다.", f"{left} documents that {run} learned from were left out.")
        )
    answers = [_answers(model, name, kept, device, base, progress) for model in models]
    seeds = tuple(_seed(model) for model in models)
    from coref_automl.coreference.model import SETTINGS, HeadSettings

    settings = read_stored(models[0] / SETTINGS, HeadSettings, error=ModelError, remedy=AGAIN)
    result = CoreferenceResult(
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
    return Evaluated(result, grouped(kept, answers[0]) if groups else {})


def grouped(documents: tuple[CorefDocument, ...], answers: list[Answer]) -> dict[str, dict[str, Group]]:
    kinds = [kinds_of(document) for document in documents]
    return {mode: by_group(documents, [getattr(one, mode) for one in answers], kinds) for mode in ("gold", "found")}


def group_lines(groups: dict[str, dict[str, Group]]) -> list[str]:
    """One row per group: gold mentions, found, share of the chain recovered under both modes."""
    head = ("정답 언급의 종류", "n", "찾음 %", "사슬 복원 % (정답 언급)", "사슬 복원 % (찾은 언급)")
    rows: list[tuple[str, ...]] = [
        head if language() == "ko" else ("gold mentions", "n", "found %", "chain recovered %, gold", "chain recovered %, found")
    ]
    for name, group in groups["gold"].items():
        other = groups["found"][name]
        shares = (other.found, group.recovered, other.recovered)
        told = ": ".join(say(_KOREAN.get(part, part), part) for part in name.split(": ", 1))
        rows.append((told, f"{group.mentions:,}", *(f"{100 * share:.1f}" for share in shares)))
    return align(rows, right=True)


def _answers(
    folder: Path, name: str, documents: tuple[CorefDocument, ...], device: str, base: str | None, progress: Progress
) -> list[Answer]:
    from coref_automl.coreference.fit import READ_TOKENS
    from coref_automl.coreference.model import SETTINGS, HeadSettings, head_identity, load_model
    from coref_automl.coreference.resolve import resolve_all

    settings = read_stored(folder / SETTINGS, HeadSettings, error=ModelError, remedy=AGAIN)
    mark = fingerprint(documents_fingerprint(documents), head_identity(folder, settings, base))[:12]
    kept = folder.parent / EVALUATED / f"{name}-{mark}.jsonl"
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
    return read_stored(path, SeedResult, remedy=AGAIN) if path.is_file() else _UNTRAINED


def _learned_from(folder: Path) -> list[str]:
    path = folder / LEARNED
    return read_stored(path, list[str], remedy=AGAIN) if path.is_file() else []
