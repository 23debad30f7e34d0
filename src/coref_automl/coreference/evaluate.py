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

import numpy as np

from coref_automl.comparison.coreference_results import MODES, CoreferenceResult, CoreferenceSeed
from coref_automl.coreference.answers import (
    AGAIN,
    KIND,
    VERSION,
    DocumentAnswer,
    answers_of,
    finished_seeds,
    read_answers,
    summed,
    tagged,
    write_answers,
)
from coref_automl.coreference.conventions import Asked, Convention, convention_of
from coref_automl.coreference.data import CorefDocument, read_coref
from coref_automl.coreference.metrics import added
from coref_automl.coreference.show import is_pronoun
from coref_automl.coreference.split import SIDES, documents_fingerprint, sides_of
from coref_automl.coreference.train import learned_from, text_mark
from coref_automl.decoder import read_stored
from coref_automl.errors import CoreferenceDataError, ModelError
from coref_automl.machine import pick_device
from coref_automl.progress import Progress, quiet
from coref_automl.records import Record
from coref_automl.say import align, say, skipped
from coref_automl.store import fingerprint, is_done, kind_of_folder

Span = tuple[int, int]
DISTANCES = (50, 200, 1_000)
"""Where a distance in characters counts as longer."""
NOMINAL = "name or noun"
EVALUATED = "evaluated"
"""Holds `<name>-<key>.jsonl`, answers beside a model; those of its run to its own test documents are in `answers`."""
_SHORTEST = 12
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
class MentionGroup(Record):
    """How many gold mentions, how many of them were found, and the mean share of their chains."""

    mentions: int
    found: float
    recovered: float


def by_group(documents: Sequence[CorefDocument], chains: Sequence[Iterable[Iterable[Span]]]) -> dict[str, MentionGroup]:
    """Groups under `kind: ...` and `last mentioned: ...`."""
    rows: dict[str, list[tuple[bool, float]]] = {}
    for document, given in zip(documents, chains, strict=True):
        owner = {span: number for number, chain in enumerate(given) for span in chain}
        entities: dict[str, list[Span]] = {}
        for mention in document.mentions:
            entities.setdefault(mention.entity, []).append(mention.span)
        last: dict[str, int] = {}
        tags = None if all(mention.kind for mention in document.mentions) else tagged(document.text)
        for mention in document.mentions:
            own, place = entities[mention.entity], owner.get(mention.span)
            share = sum(owner.get(span) == place for span in own) / len(own) if place is not None else 0.0
            kind = mention.kind or _kind(document.text[mention.start : mention.end], tags, mention.span)
            for group in (f"kind: {kind}", f"last mentioned: {_distance(last.get(mention.entity), mention.start)}"):
                rows.setdefault(group, []).append((place is not None, share))
            last[mention.entity] = mention.end
    return {name: MentionGroup(len(group), *np.mean(group, axis=0).tolist()) for name, group in sorted(rows.items())}


def _kind(form: str, tags: tuple[tuple[int, int, str], ...] | None, span: Span) -> str:
    """Where the data say nothing: a closed list of pronouns, and the tagger's word for the rest where it is installed."""
    if is_pronoun(form):
        return "pronoun"
    inside = [tag for start, end, tag in tags or () if span[0] <= start and end <= span[1]]
    return {"NNP": "name", "NNG": "noun", "NP": "pronoun"}.get(inside[-1] if inside else "", NOMINAL)


def _distance(before: int | None, start: int) -> str:
    if before is None:
        return "never"
    edge = next((edge for edge in DISTANCES if start - before < edge), None)
    return f"under {edge:,} characters before" if edge else f"{DISTANCES[-1]:,} characters before or more"


BUNDLED = "bundled:ko-mini-coref"
_UNTRAINED = CoreferenceSeed(0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, "")


@dataclass(frozen=True, slots=True)
class Evaluated(Record):
    """The scores, and where they come from: groups of mentions under both modes, of the first seed."""

    result: CoreferenceResult
    groups: dict[str, dict[str, MentionGroup]]


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
        if side not in SIDES:
            raise CoreferenceDataError(f"Unknown side {side!r} of a split; choose train, dev or test.")
        name, documents = f"{name}-{side}", sides_of(split, documents).side(side, documents)
    seen = {mark for model in models for mark in learned_from(model)}
    kept = tuple(document for document in documents if text_mark(document.text) not in seen)
    if not kept:
        raise CoreferenceDataError(
            f"No document of {name} is left to score: {run} learned from all of them; pass other documents."
        )
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
    by_mode = {mode: by_group(kept, [getattr(one, mode) for one in answers[0]]) for mode in MODES} if groups else {}
    return Evaluated(result, by_mode)


def group_lines(groups: dict[str, dict[str, MentionGroup]]) -> list[str]:
    """One row per group: gold mentions, found, share of the chain recovered under both modes."""
    recovered = (
        say("사슬 복원 % (정답 언급)", "chain recovered %, gold"),
        say("사슬 복원 % (찾은 언급)", "chain recovered %, found"),
    )
    rows: list[tuple[str, ...]] = [(say("정답 언급의 종류", "gold mentions"), "n", say("찾음 %", "found %"), *recovered)]
    for name, gold in groups["gold"].items():
        found = groups["found"][name]
        group = ": ".join(say(_KOREAN.get(part, part), part) for part in name.split(": ", 1))
        shares = (found.found, gold.recovered, found.recovered)
        rows.append((group, f"{gold.mentions:,}", *(f"{100 * share:.1f}" for share in shares)))
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
