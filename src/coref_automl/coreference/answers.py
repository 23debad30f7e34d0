"""Answers of a coreference model. In: documents and their chains. Out: one DocumentAnswer per document, and a run's result.

RUN/seed-0/answers/<split>.jsonl          one line per document: its chains under both modes, and its sums
RUN/seed-0/evaluated/<name>-<key>.jsonl   the same for documents of `coref evaluate`
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from coref_automl.coreference.conventions import Convention, moved_chains, moved_mentions
from coref_automl.coreference.documents import CorefDocument
from coref_automl.coreference.metrics import METRICS, Ratio, added, difference, estimates, score_document
from coref_automl.coreference.results import (
    AGAIN,
    CONLL,
    COREFERENCE_FILES,
    HEADS,
    MODES,
    STRING,
    WAYS,
    CoreferenceResult,
    CoreferenceSeed,
    DocumentSums,
)
from coref_automl.decoder import read_stored, read_stored_rows
from coref_automl.engine.binding import Binding
from coref_automl.errors import FolderError
from coref_automl.fingerprints import fingerprint
from coref_automl.folders import MANIFEST, is_done
from coref_automl.korean import KINDS, PRONOUN, Tagger
from coref_automl.progress import Progress
from coref_automl.records import Estimate, Provenance, Record
from coref_automl.store import write_jsonl

VERSION = "resolver 3"
"""How chains are made from scores, and scored; answers of another version are made anew."""
KIND = "coreference run"
_NOT_CONDITIONS = ("first_seed", "note")
"""Settings that two runs need not share to be compared: they do not decide what a seed is."""
START = "start.jsonl"
"""Answers of the head that is trained further, to compare with."""
Span = tuple[int, int]
Chains = tuple[tuple[Span, ...], ...]


@dataclass(frozen=True, slots=True)
class DocumentAnswer(Record):
    """One document's chains as character spans, and its sums: way, then metric, then the four numbers of a Ratio."""

    document: str
    mentions: int
    key: Chains
    gold: Chains
    found: Chains
    sums: dict[str, dict[str, Ratio]]
    version: str = VERSION


def answer(document: CorefDocument, gold: Chains, found: Chains, convention: Convention) -> DocumentAnswer:
    """The document's own convention is that of its mentions and of the chains that are given."""
    key, given = document.chains, {"gold": gold, "found": found}
    sums = {name: score_document(key, given[mode], singletons=single) for name, (mode, single) in WAYS.items()}
    sums[HEADS] = score_document(_ends(key), _ends(found))
    sums[STRING["gold"]] = score_document(key, same_string(document.text, [mention.span for mention in document.mentions]))
    if (nouns := same_nouns(document, convention)) is not None:
        sums[STRING["found"]] = score_document(key, nouns)
    return DocumentAnswer(document.id, len(document.mentions), key, gold, found, sums)


def answers_of(
    model: Any,
    documents: Sequence[CorefDocument],
    own: Convention | None = None,
    *,
    precision: str = "auto",
    progress: Progress | None = None,
) -> list[DocumentAnswer]:
    """What a model says of documents, with gold mentions and with its own, in the documents' convention (None: the model's)."""
    from coref_automl.coreference.resolve import resolve_all
    from coref_automl.coreference.tokens import tokenized

    conventions = [Convention(model.scheme(document).convention) for document in documents]
    given = [moved_mentions(document, own or its, its) for document, its in zip(documents, conventions, strict=True)]
    found = resolve_all(model, tokenized(model.tokenizer, given), precision=precision, progress=progress)
    answers = []
    for document, moved, its, (gold, free) in zip(documents, given, conventions, found, strict=True):
        back = {there.span: here.span for there, here in zip(moved.mentions, document.mentions, strict=True)}
        chains = tuple(tuple(back[span] for span in chain) for chain in gold.as_spans())
        answers.append(answer(document, chains, moved_chains(document.text, free.as_spans(), its, own or its), own or its))
    return answers


def _ends(chains: Chains) -> list[list[int]]:
    return [[end for _, end in chain] for chain in chains]


def write_answers(path: Path, answers: Sequence[DocumentAnswer]) -> None:
    write_jsonl(path, (each.to_json() for each in answers))


def read_answers(path: Path) -> list[DocumentAnswer]:
    return list(read_stored_rows(path, DocumentAnswer, remedy=AGAIN))


def summed(seeds: Sequence[Sequence[DocumentAnswer]]) -> dict[str, Any]:
    """Estimates, recall and precision by way and metric; the seeds answer the same documents in the same order."""
    found: dict[str, Any] = {"estimates": {}, "recall": {}, "precision": {}}
    ways = set.intersection(*(set(each.sums) for answers in seeds for each in answers))
    for name in [name for name in seeds[0][0].sums if name in ways]:
        scored = [[each.sums[name] for each in answers] for answers in seeds]
        totals = [added(one) for one in scored]
        found["estimates"][name] = estimates(scored)
        found["recall"][name] = {metric: sum(total[metric].recall for total in totals) / len(totals) for metric in METRICS}
        found["precision"][name] = {metric: sum(total[metric].precision for total in totals) / len(totals) for metric in METRICS}
    return found


def sums_of(seeds: Sequence[Sequence[DocumentAnswer]]) -> DocumentSums:
    """What a comparison needs of every document, without its name: the seeds answer the same ones."""
    by_mark = [{fingerprint("document", one.document)[:12]: one for one in answers} for answers in seeds]
    marks = tuple(sorted(by_mark[0]))

    def numbers(one: DocumentAnswer, mode: str) -> list[list[float]]:
        return [[sums.hit, sums.gold, sums.right, sums.given] for sums in (one.sums[mode][metric] for metric in CONLL)]

    sums = {mode: np.array([[numbers(rows[mark], mode) for mark in marks] for rows in by_mark]) for mode in MODES}
    return DocumentSums(marks, np.array([by_mark[0][mark].mentions for mark in marks], np.int64), sums)


def same_string(text: str, spans: Iterable[Span]) -> Chains:
    found: dict[str, list[Span]] = {}
    for start, end in spans:
        found.setdefault(" ".join(text[start:end].split()), []).append((start, end))
    return tuple(map(tuple, found.values()))


def same_nouns(document: CorefDocument, convention: Convention) -> Chains | None:
    """Chains of nouns and names that occur again, in the convention of the document; None where no tagger is installed."""
    if (tags := tagged(document.text)) is None:
        return None
    nouns: list[Span] = []
    for start, end, kind in tags:
        if kind == KINDS[PRONOUN]:
            continue
        if nouns and nouns[-1][1] == start:  # a compound is one name
            start = nouns.pop()[0]
        nouns.append((start, end))
    chains = same_string(document.text, (span for span in nouns if span[1] - span[0] > 1))
    repeated = tuple(chain for chain in chains if len(chain) > 1)
    return tuple(moved_chains(document.text, repeated, Convention(), convention))


@lru_cache(maxsize=1024)
def tagged(text: str) -> tuple[tuple[int, int, str], ...] | None:
    """(start, end, tag) of a text's nouns and pronouns; None where no tagger is installed."""
    if find_spec("kiwipiepy") is None:
        return None
    found = next(iter(Tagger().tag([text])))
    return tuple((int(a), int(b), KINDS[int(k)]) for (a, b), k in zip(found.spans, found.kinds, strict=True))


class CoreferenceManifest(TypedDict):
    model: str
    scored: str
    scored_documents: str
    notes: list[str]
    pretraining: Provenance | None
    binding: Binding


def summarise(run: Path, tested: Sequence[CorefDocument]) -> CoreferenceResult:
    """What the finished seeds of a run score on its own test documents, read from their answers and kept beside them."""
    manifest = read_stored(run / MANIFEST, CoreferenceManifest)
    asked = sorted((document.id, document.chains) for document in tested)
    seeds, answers = [], []
    for folder in finished_seeds(run):
        parts = sorted(folder.glob("fold-*"), key=lambda path: int(path.name.partition("-")[2])) or [folder]
        own = [read_stored(part / "result.json", CoreferenceSeed, remedy=AGAIN) for part in parts]
        seeds.append(_joined(own))
        answers.append([one for part in parts for one in read_answers(part / "answers" / f"{manifest['scored']}.jsonl")])
        if sorted((one.document, one.key) for one in answers[-1]) != asked:
            raise FolderError(
                f"{folder} has answers to other documents than its run is tested on; "
                f"remove {folder} and run the same command again."
            )
    if len(versions := {one.version for own in answers for one in own}) > 1:
        raise FolderError(f"{run} has answers of several versions; remove its seeds and run the same command again.")
    settings, fingerprints = manifest["binding"]["settings"], manifest["binding"]["fingerprints"]
    result = CoreferenceResult(
        run=str(run),
        model=manifest["model"],
        split=manifest["scored"],
        documents=len(answers[0]),
        mentions=sum(each.mentions for each in answers[0]),
        seeds=tuple(seeds),
        fingerprints={"weights": fingerprints.get("weights", ""), "documents": manifest["scored_documents"]},
        notes=tuple(manifest["notes"]),
        gain=_gain(run, answers),
        conditions={
            **{name: value for name, value in settings.items() if name not in _NOT_CONDITIONS},
            "documents": manifest["scored_documents"],
            "resolver": versions.pop(),
            "split": fingerprints["split"],
        },
        pretraining=manifest["pretraining"],
        **summed(answers),
    )
    COREFERENCE_FILES.write(run, result, sums_of(answers))
    return result


def _gain(run: Path, seeds: Sequence[Sequence[DocumentAnswer]]) -> dict[str, Estimate]:
    """How far a head that was trained further lies above the one it began from, on documents that both were not shown."""
    if not (run / START).is_file():
        return {}
    before = {one.document: one for one in read_answers(run / START)}
    own = [[one for one in answers if one.document in before] for answers in seeds]
    if not own[0]:
        return {}
    return {
        mode: difference(
            [[one.sums[mode] for one in answers] for answers in own], [before[one.document].sums[mode] for one in own[0]]
        )["conll"]
        for mode in MODES
    }


def finished_seeds(run: Path) -> list[Path]:
    found = sorted(run.glob("seed-*"), key=lambda path: int(path.name.partition("-")[2]))
    return [seed for seed in found if is_done(seed) or ((parts := list(seed.glob("fold-*"))) and all(map(is_done, parts)))]


def _joined(parts: Sequence[CoreferenceSeed]) -> CoreferenceSeed:
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
