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
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from coref_automl.base.binding import Binding
from coref_automl.base.decoder import read_stored, read_stored_rows
from coref_automl.base.errors import FolderError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.folders import MANIFEST, is_done, natural_order
from coref_automl.base.korean import KINDS, PRONOUN, Tagger
from coref_automl.base.progress import Progress
from coref_automl.base.records import Estimate, Provenance, Record, grouped
from coref_automl.base.store import write_jsonl
from coref_automl.extras.coreference.conventions import Convention, convert_chains, convert_mentions
from coref_automl.extras.coreference.documents import CorefDocument, Span, SpanChains
from coref_automl.extras.coreference.metrics import METRICS, Ratio, difference, estimates, score_document, sum_scores
from coref_automl.extras.coreference.results import (
    CONLL,
    COREFERENCE_FILES,
    HEAD_MATCH,
    MODES,
    RETRAIN,
    SAME_STRING,
    VARIANTS,
    CoreferenceResult,
    CoreferenceSeed,
    DocumentSums,
)

if TYPE_CHECKING:
    from coref_automl.extras.coreference.model import CoreferenceModel

VERSION = "resolver 4"
"""Of how chains are made from logits, and scored; answers of another version are recomputed."""
KIND = "coreference run"
_NOT_CONDITIONS = ("first_seed", "note")
"""Settings in which comparable runs may differ."""
START = "start.jsonl"
"""Answers of the starting head, to compare with."""


@dataclass(frozen=True, slots=True)
class DocumentAnswer(Record):
    """One document's chains as character spans, and its sums by variant and metric."""

    document: str
    mentions: int
    key: SpanChains
    gold: SpanChains
    found: SpanChains
    sums: dict[str, dict[str, Ratio]]
    version: str = VERSION

    @staticmethod
    def read(path: Path) -> list[DocumentAnswer]:
        return list(read_stored_rows(path, DocumentAnswer, remedy=RETRAIN))

    @staticmethod
    def write(path: Path, answers: Sequence[DocumentAnswer]) -> None:
        write_jsonl(path, (answer.to_json() for answer in answers))


def score_answer(document: CorefDocument, gold: SpanChains, found: SpanChains, convention: Convention) -> DocumentAnswer:
    """Score chains of a document; `convention` is that of its mentions and of the chains."""
    key, chains = document.chains, {"gold": gold, "found": found}
    sums = {name: score_document(key, chains[mode], singletons=single) for name, (mode, single) in VARIANTS.items()}
    sums[HEAD_MATCH] = score_document(*([[end for _, end in chain] for chain in chains] for chains in (key, found)))
    sums[SAME_STRING["gold"]] = score_document(key, same_string_chains(document.text, [m.span for m in document.mentions]))
    if (nouns := same_noun_chains(document, convention)) is not None:
        sums[SAME_STRING["found"]] = score_document(key, nouns)
    return DocumentAnswer(document.id, len(document.mentions), key, gold, found, sums)


def answer_documents(
    model: CoreferenceModel,
    documents: Sequence[CorefDocument],
    convention: Convention | None = None,
    *,
    precision: str = "auto",
    progress: Progress | None = None,
) -> list[DocumentAnswer]:
    """Resolve and score documents with gold and with found mentions. Documents are converted to the model's conventions and its
    chains back; `convention` is that of the documents, None if it is the model's."""
    from coref_automl.extras.coreference.resolve import resolve_all
    from coref_automl.extras.coreference.tokens import tokenize_documents

    targets = [Convention(model.scheme(document).convention) for document in documents]
    inputs = [convert_mentions(doc, convention or target, target) for doc, target in zip(documents, targets, strict=True)]
    resolved = resolve_all(model, tokenize_documents(model.tokenizer, inputs), precision=precision, progress=progress)
    answers = []
    for document, target, (gold, found) in zip(documents, targets, resolved, strict=True):
        source = convention or target
        gold_chains = tuple(tuple(document.mentions[index].span for index in chain) for chain in gold.chains)
        found_chains = convert_chains(document.text, found.as_spans(), target, source)
        answers.append(score_answer(document, gold_chains, found_chains, source))
    return answers


def aggregate(seeds: Sequence[Sequence[DocumentAnswer]]) -> dict[str, Any]:
    """Compute estimates, recall and precision by variant and metric; all seeds answer the same documents in the same order."""
    scores: dict[str, Any] = {"estimates": {}, "recall": {}, "precision": {}}
    shared = set.intersection(*(set(answer.sums) for answers in seeds for answer in answers))
    for name in [name for name in seeds[0][0].sums if name in shared]:
        by_seed = [[answer.sums[name] for answer in answers] for answers in seeds]
        totals = [sum_scores(documents) for documents in by_seed]
        scores["estimates"][name] = estimates(by_seed)
        for part in ("recall", "precision"):
            scores[part][name] = {metric: sum(getattr(seed[metric], part) for seed in totals) / len(totals) for metric in METRICS}
    return scores


def document_sums(seeds: Sequence[Sequence[DocumentAnswer]]) -> DocumentSums:
    """Collect what comparisons need of every document, without its name; all seeds answer the same ones."""
    by_mark = [{fingerprint("document", answer.document)[:12]: answer for answer in answers} for answers in seeds]
    marks = tuple(sorted(by_mark[0]))

    def numbers(answer: DocumentAnswer, mode: str) -> list[list[float]]:
        return [[sums.hit, sums.gold, sums.right, sums.given] for sums in (answer.sums[mode][metric] for metric in CONLL)]

    sums = {mode: np.array([[numbers(answers[mark], mode) for mark in marks] for answers in by_mark]) for mode in MODES}
    return DocumentSums(marks, np.array([by_mark[0][mark].mentions for mark in marks], np.int64), sums)


def same_string_chains(text: str, spans: Iterable[Span]) -> SpanChains:
    return tuple(map(tuple, grouped(spans, lambda span: " ".join(text[slice(*span)].split())).values()))


def same_noun_chains(document: CorefDocument, convention: Convention) -> SpanChains | None:
    """Chain recurring nouns and names, in the convention of the document; None if no tagger is installed."""
    if (tags := tag_nominals(document.text)) is None:
        return None
    nouns: list[Span] = []
    for start, end, kind in tags:
        if kind == KINDS[PRONOUN]:
            continue
        if nouns and nouns[-1][1] == start:  # a compound is one name
            start = nouns.pop()[0]
        nouns.append((start, end))
    chains = same_string_chains(document.text, (span for span in nouns if span[1] - span[0] > 1))
    repeated = tuple(chain for chain in chains if len(chain) > 1)
    return tuple(convert_chains(document.text, repeated, Convention(), convention))


@lru_cache(maxsize=1024)
def tag_nominals(text: str) -> tuple[tuple[int, int, str], ...] | None:
    """Tag a text's nouns and pronouns: (start, end, tag) of each; None if no tagger is installed."""
    if find_spec("kiwipiepy") is None:
        return None
    tags = next(iter(Tagger().tag([text])))
    return tuple((int(a), int(b), KINDS[int(k)]) for (a, b), k in zip(tags.spans, tags.kinds, strict=True))


class CoreferenceManifest(TypedDict):
    model: str
    scored: str
    scored_documents: str
    notes: list[str]
    pretraining: Provenance | None
    binding: Binding


def summarize(run: Path, tested: Sequence[CorefDocument]) -> CoreferenceResult:
    """Read the answers of a run's finished seeds to its own test documents, and write their scores beside them."""
    manifest = read_stored(run / MANIFEST, CoreferenceManifest)
    expected = sorted((document.id, document.chains) for document in tested)
    seeds, answers = [], []
    for folder in finished_seeds(run):
        parts = sorted(folder.glob("fold-*"), key=natural_order) or [folder]
        seeds.append(_merge_folds([read_stored(part / "result.json", CoreferenceSeed, remedy=RETRAIN) for part in parts]))
        answers.append(
            [answer for part in parts for answer in DocumentAnswer.read(part / "answers" / f"{manifest['scored']}.jsonl")]
        )
        if sorted((answer.document, answer.key) for answer in answers[-1]) != expected:
            raise FolderError(
                f"{folder} has answers to other documents than its run is tested on; "
                f"remove {folder} and run the same command again."
            )
    if len(versions := {answer.version for seed in answers for answer in seed}) > 1:
        raise FolderError(f"{run} has answers of several versions; remove its seeds and run the same command again.")
    settings, fingerprints = manifest["binding"]["settings"], manifest["binding"]["fingerprints"]
    result = CoreferenceResult(
        run=str(run),
        model=manifest["model"],
        split=manifest["scored"],
        documents=len(answers[0]),
        mentions=sum(answer.mentions for answer in answers[0]),
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
        **aggregate(answers),
    )
    COREFERENCE_FILES.write(run, result, document_sums(answers))
    return result


def _gain(run: Path, seeds: Sequence[Sequence[DocumentAnswer]]) -> dict[str, Estimate]:
    """Estimate the gain over the starting head, on documents that neither had seen."""
    if not (run / START).is_file():
        return {}
    start = {answer.document: answer for answer in DocumentAnswer.read(run / START)}
    shared = [[answer for answer in answers if answer.document in start] for answers in seeds]
    if not shared[0]:
        return {}
    gains = {}
    for mode in MODES:
        trained = [[answer.sums[mode] for answer in answers] for answers in shared]
        gains[mode] = difference(trained, [start[answer.document].sums[mode] for answer in shared[0]])["conll"]
    return gains


def finished_seeds(run: Path) -> list[Path]:
    """The folders of a run's finished seeds; a cross-fitted seed is finished once all its folds are."""
    seeds = sorted(run.glob("seed-*"), key=natural_order)
    return [seed for seed in seeds if is_done(seed) or ((parts := list(seed.glob("fold-*"))) and all(map(is_done, parts)))]


def _merge_folds(parts: Sequence[CoreferenceSeed]) -> CoreferenceSeed:
    """Merge the folds of one seed: times add up, the rest is the mean, the maximum or the first."""
    if len(parts) == 1:
        return parts[0]
    seconds = sum(part.seconds for part in parts)
    return replace(
        parts[0],
        seconds=round(seconds, 2),
        tokens_per_second=round(sum(part.tokens_per_second * part.seconds for part in parts) / max(seconds, 1e-9), 1),
        peak_gigabytes=max(part.peak_gigabytes for part in parts),
    )
