"""A trained run on annotated documents. In: its seeds and a file. Out: the mean over seeds with intervals by document.

Documents that the run learned from or chose by are left out. One seed's model by itself is scored too. Answers are kept.

Groups say where a model is right, by kind of mention (name, noun, pronoun) and by how far back, in characters, the entity was
last mentioned. A mention's share is its B-cubed recall: of the mentions of its entity, those in its predicted chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from coref_automl.coreference.baseline import tagged
from coref_automl.coreference.conventions import Asked, Convention, convention_of, moved_chains, moved_spans
from coref_automl.coreference.data import CorefDocument, read_coref
from coref_automl.coreference.metrics import added, score_document
from coref_automl.coreference.results import (
    AGAIN,
    VERSION,
    Answer,
    Chains,
    CoreferenceResult,
    SeedResult,
    answer,
    read_answers,
    summed,
    write_answers,
)
from coref_automl.coreference.rewrite import is_pronoun
from coref_automl.coreference.split import SIDES, Split, documents_fingerprint, sides_of
from coref_automl.coreference.tokens import lay
from coref_automl.coreference.train import KIND, finished_seeds, learned_from, text_mark
from coref_automl.decoder import read_stored
from coref_automl.errors import CoreferenceDataError, ModelError
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
_LOOKED = 4
"""Documents that a scheme is chosen by, the shortest."""
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
    tags = tagged(document.text)
    return tuple(
        mention.kind or _kind(document.text[mention.start : mention.end], tags, mention.span) for mention in document.mentions
    )


def _kind(form: str, tags: tuple[tuple[int, int, str], ...] | None, span: Span) -> str:
    if is_pronoun(form):
        return "pronoun"
    if tags is None:
        return NOMINAL
    inside = [tag for start, end, tag in tags if span[0] <= start and end <= span[1]]
    return {"NNP": "name", "NNG": "noun", "NP": "pronoun"}.get(inside[-1] if inside else "", NOMINAL)


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
    scheme: str | None = None,
    convention: Asked = "auto",
    groups: bool = False,
    progress: Progress | None = None,
) -> Evaluated:
    """Every finished seed of a run, or one model, on annotated documents; with `split`, on one side of them alone.

    Scores are in the convention of the file's own mentions. The scheme, where the model knows several and none is asked for, is
    the one whose mentions agree best with those of the shortest documents.
    """
    from coref_automl.coreference.model import read_settings

    progress, models = progress or quiet(), models_of(run)
    read = read_coref(data, skip_bad=skip_bad)
    name, documents = read.name, read.documents
    if split:
        chosen: Split = sides_of(split, documents)
        if side not in SIDES:
            raise CoreferenceDataError(f"Unknown side {side!r} of a split; choose train, dev or test.")
        name, documents = f"{name}-{side}", chosen.side(side, documents)
    seen = {mark for model in models for mark in learned_from(model)}
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
    settings, own = read_settings(models[0]), convention_of(kept, convention)
    notes.insert(0, own.line())
    readers = [_Reader(model, own, pick_device(device), base) for model in models]
    kept = readers[0].under_scheme(kept, scheme)
    if len(settings.schemes) > 1:
        notes.insert(1, say(f"표지 방식: {kept[0].scheme}", f"Annotation scheme: {kept[0].scheme}"))
    answers = [reader.answers(name, kept, progress) for reader in readers]
    seeds = tuple(_seed(model) for model in models)
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


class _Reader:
    """One model that answers in a file's convention."""

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
        looked = sorted(range(len(documents)), key=lambda place: len(documents[place].text))[:_LOOKED]

        def agreement(own: tuple[CorefDocument, ...]) -> float:
            few = [own[place] for place in looked]
            pairs = zip(few, self.chains(few, quiet()), strict=True)
            return added(score_document(document.chains, found) for document, (_, found) in pairs)["mention"].f1

        return max(named, key=agreement)

    def chains(self, documents: Sequence[CorefDocument], progress: Progress) -> list[tuple[Chains, Chains]]:
        """(with gold mentions, with found ones) of each document, in the file's convention."""
        from coref_automl.coreference.fit import READ_TOKENS
        from coref_automl.coreference.resolve import resolve_all

        models = Convention(self.model.scheme(documents[0]).convention)
        spans = [[mention.span for mention in document.mentions] for document in documents]
        inner = [moved_spans(document.text, own, self.own, models) for document, own in zip(documents, spans, strict=True)]
        given = [
            replace(
                document, mentions=tuple(replace(m, start=a, end=b) for m, (a, b) in zip(document.mentions, own, strict=True))
            )
            for document, own in zip(documents, inner, strict=True)
        ]
        found = resolve_all(
            self.model, lay(self.model.tokenizer, given), tokens=READ_TOKENS[self.device.split(":")[0]], progress=progress
        )
        answers = []
        for document, there, here, (gold, own) in zip(documents, inner, spans, found, strict=True):
            back = dict(zip(there, here, strict=True))
            chains = tuple(tuple(back[span] for span in chain) for chain in gold.as_spans())
            answers.append((chains, moved_chains(document.text, own.as_spans(), models, self.own)))
        return answers

    def answers(self, name: str, documents: tuple[CorefDocument, ...], progress: Progress) -> list[Answer]:
        kept = self.folder.parent / EVALUATED / f"{name}-{self._key(documents)}.jsonl"
        if kept.is_file():
            held = read_answers(kept)
            if [(one.document, one.key, one.version) for one in held] == [(d.id, d.chains, VERSION) for d in documents]:
                return held
        found = zip(documents, self.chains(documents, progress), strict=True)
        answers = [answer(document, gold, own, self.own) for document, (gold, own) in found]
        if is_done(self.folder.parent):
            write_answers(kept, answers)
        return answers

    def _key(self, documents: tuple[CorefDocument, ...]) -> str:
        """Names texts, chains, what is asked of them, and the model."""
        from coref_automl.coreference.model import head_identity, read_settings

        model = head_identity(self.folder, read_settings(self.folder), self.base)
        return fingerprint(documents_fingerprint(documents), documents[0].scheme, self.own.edges, model)[:12]


def _seed(folder: Path) -> SeedResult:
    path = folder.parent / "result.json"
    return read_stored(path, SeedResult, remedy=AGAIN) if path.is_file() else _UNTRAINED
