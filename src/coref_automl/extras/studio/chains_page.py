"""The Chains page: annotated texts to read, correct and accept. In: a file of `coref annotate`. Out: one file per annotator.

What annotator NAME has accepted of `texts.jsonl` is in `texts.NAME.jsonl`, which `coref train` takes as it is; what is not yet
accepted is in `texts.NAME.draft.jsonl`. The file itself is never changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from coref_automl.base.errors import CorefError, InputError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.say import Say
from coref_automl.base.store import read_jsonl
from coref_automl.extras.coreference.data import inspect_coref
from coref_automl.extras.coreference.documents import CorefDocument, Mention, clusters_of, write_documents
from coref_automl.extras.coreference.metrics import conll, score_document, sum_scores
from coref_automl.extras.pages.rendering import for_script
from coref_automl.extras.studio.pages import Address, Download
from coref_automl.extras.studio.user_files import user_path
from coref_automl.extras.studio.workspace import Gone, Workspace, not_here
from coref_automl.report.page import Cell, Section, Table, row

_NAME = re.compile(r"[\w-]{1,40}")
_CORRECTIONS = re.compile(r"(?P<stem>.+?)\.(?P<by>[\w-]{1,40})(?P<draft>\.draft)?\.jsonl")
_MAX_MENTIONS = 20_000
"""In one document."""
Documents = Mapping[str, CorefDocument]


@dataclass(frozen=True, slots=True)
class Work:
    """One annotator's corrections of a file: documents by id."""

    accepted: Documents
    draft: Documents

    def state(self, name: str) -> str:
        return "accepted" if name in self.accepted else "draft" if name in self.draft else ""

    def document(self, name: str) -> CorefDocument | None:
        return self.accepted.get(name) or self.draft.get(name)


def page(ws: Workspace, address: Address) -> str | Download:
    key, by, other = (address.get(name) for name in ("file", "by", "beside"))
    title = address.say("상호참조 사슬", "Chains")
    if not key:
        return _list_files(ws, address, title)
    path, documents = _file(ws, key)
    annotators, work, names = _annotators(path), _work(ws, path, by), list(documents)
    doc = address.get("doc") or next((name for name in names if not work.state(name)), names[0])
    if doc not in documents:
        raise not_here(doc)
    document, at = work.document(doc) or documents[doc], names.index(doc)
    beside = _work(ws, path, other).document(doc) if other else None
    state = {
        "file": key, "by": by, "doc": doc, "text": document.text, "clusters": document.chains,
        "beside": beside.chains if beside is not None else None, "links": _links(path).get(doc, {}),
        "version": version_of(work, doc), "accepted": work.state(doc) == "accepted",
        "after": names[at + 1] if at + 1 < len(names) else "",
    }  # fmt: skip
    accepted = {name: _work(ws, path, name).accepted for name in annotators}
    agreement = [_agreement(accepted, address.say)] if len(annotators) > 1 else []
    position = {"names": names, "at": at, "everyone": annotators, "written": f"{path.stem}.{by}.jsonl" if by else ""}
    values = {"key": key, "by": by, "doc": doc, "work": work, "beside": other, "state": for_script(state)}
    return ws.pages.page("chains.html.j2", address, title=title, sections=agreement, **position, **values)


def _list_files(ws: Workspace, address: Address, title: str) -> str | Download:
    say = address.say
    rows = [_file_row(ws, key, path) for key, path in sources(ws).items()]
    table = Table((say("파일", "file"), say("문서", "documents"), say("받아들인 문서", "accepted")), tuple(rows), frozenset({1}))
    sections = [Section("texts", say("글", "Texts"), (table,))] if rows else []
    return ws.pages.page("texts.html.j2", address, title=title, sections=sections, files=[line[0].text for line in rows])


def _file_row(ws: Workspace, key: str, path: Path) -> tuple[Cell, ...]:
    """A file, how many documents it has, and how many each annotator has accepted."""
    try:
        count = len(_file(ws, key)[1])
    except CorefError as error:
        return row(key, "–", str(error))
    accepted = ", ".join(f"{name} {len(_work(ws, path, name).accepted)}" for name in _annotators(path))
    return row(key, f"{count:,}", accepted or "–")


def save(ws: Workspace, sent: Any, say: Say) -> dict[str, Any]:
    """Save what a page sends: the chains of one document, its version, whether it is accepted. Returns the new version."""
    if not isinstance(sent, dict) or not all(isinstance(sent.get(name), str) for name in ("file", "by", "doc", "version")):
        raise InputError("file, by, doc and version are texts.")
    path, documents = _file(ws, sent["file"])
    by, doc = sent["by"], sent["doc"]
    if not _NAME.fullmatch(by) or by == "draft":
        raise InputError(say("이름은 글자와 숫자 40자까지입니다.", "A name has up to 40 letters and digits."))
    if doc not in documents:
        raise not_here(doc)
    corrected = _corrected(documents[doc], sent.get("clusters"))
    with ws.lock:
        work = _work(ws, path, by)
        if version_of(work, doc) != sent["version"]:
            raise Gone(
                "다른 창에서 이 문서를 저장했습니다. 새로 고친 뒤 이어서 고치세요.",
                "This document was saved in another window; reload it, and go on from there.",
            )
        accepted = {name: document for name, document in work.accepted.items() if name != doc}
        draft = {name: document for name, document in work.draft.items() if name != doc}
        (accepted if sent.get("accepted") is True else draft)[doc] = corrected
        files = [(f"{path.stem}.{by}.jsonl", accepted), (f"{path.stem}.{by}.draft.jsonl", draft)]
        files.sort(key=lambda file: doc not in file[1])  # if the second cannot be written, the document is in both, not in none
        written, _ = (_write(ws, path, name, of_kind, documents) for name, of_kind in files)
        return {"version": version_of(Work(accepted, draft), doc), "place": str(written)}


def _write(ws: Workspace, path: Path, name: str, documents: Documents, order: Iterable[str]) -> Path | None:
    """Write documents in the order of the original file. An empty file is written only over an existing one."""
    if not documents and ws.user_files.find(path.parent, name) is None:
        return None
    ordered = [documents[doc] for doc in order if doc in documents]
    return ws.user_files.write(path.parent, name, lambda target: write_documents(target, ordered))


def sources(ws: Workspace) -> dict[str, Path]:
    """Return the annotated files that are not somebody's corrections of another one."""
    texts = ws.folders.contents().texts
    stems = {(path.parent, path.stem) for path in texts.values()}
    return {
        key: path
        for key, path in texts.items()
        if (match := _CORRECTIONS.fullmatch(path.name)) is None or (path.parent, match["stem"]) not in stems
    }


def _file(ws: Workspace, key: str) -> tuple[Path, Documents]:
    path = sources(ws).get(key)
    if path is None:
        raise not_here(key)
    documents = _read(ws, path)
    if not documents:
        raise InputError(f"{path.name} has no readable document.")
    return path, documents


def _read(ws: Workspace, path: Path) -> Documents:
    return ws.folders.read_once(path, lambda file: {document.id: document for document in inspect_coref(file).documents})


def _work(ws: Workspace, path: Path, by: str) -> Work:
    files = [ws.user_files.find(path.parent, f"{path.stem}.{by}{kind}.jsonl") if by else None for kind in ("", ".draft")]
    accepted, draft = (_read(ws, file) if file is not None and file.stat().st_size else {} for file in files)
    return Work(accepted, draft)


def _annotators(path: Path) -> list[str]:
    folders = (folder for folder in (path.parent, user_path(path.parent)) if folder.is_dir())
    matches = [_CORRECTIONS.fullmatch(file.name) for folder in folders for file in folder.glob("*.jsonl")]
    return sorted({match["by"] for match in matches if match is not None and match["stem"] == path.stem})


def _links(path: Path) -> dict[str, dict[str, float]]:
    """Return the probability of each mention's link, by document and span, as `coref annotate` wrote it."""
    try:
        rows = [row for row in read_jsonl(path) if isinstance(row, dict)]
        return {
            str(row.get("doc_id", "")): {
                f"{span['start']}-{span['end']}": span["link"]
                for chain in row.get("clusters", [])
                for span in chain
                if isinstance(span.get("link"), float)
            }
            for row in rows
        }
    except (CorefError, OSError, TypeError, KeyError, AttributeError):
        return {}


def version_of(work: Work, doc: str) -> str:
    document = work.document(doc)
    return fingerprint(work.state(doc), clusters_of(document))[:16] if document is not None else ""


def _corrected(document: CorefDocument, clusters: Any) -> CorefDocument:
    """Return the document with other chains; chains that no reader would accept are refused."""
    spans: set[tuple[int, int]] = set()
    mentions: list[Mention] = []
    kinds = {mention.span: mention.kind for mention in document.mentions}
    if not isinstance(clusters, list):
        raise InputError("clusters is a list of chains.")
    for number, chain in enumerate(clusters, 1):
        for span in chain if isinstance(chain, list) else [None]:
            if not (isinstance(span, list) and len(span) == 2 and all(type(edge) is int for edge in span)):
                raise InputError("A mention is [start, end].")
            start, end = span
            if not 0 <= start < end <= len(document.text) or (start, end) in spans or len(spans) >= _MAX_MENTIONS:
                raise InputError(f"The mention {start}:{end} lies outside the text, or is there twice.")
            spans.add((start, end))
            mentions.append(Mention(start, end, f"e{number}", kinds.get((start, end), "")))
    return replace(document, mentions=tuple(sorted(mentions, key=lambda mention: (mention.start, -mention.end))))


def _agreement(accepted: Mapping[str, Documents], say: Say) -> Section:
    """Compare every two annotators on the documents that both have accepted."""
    head = ("A", "B", say("문서", "documents"), say("언급 F1", "mention F1"), "CoNLL F1")
    rows = []
    for (a, by_a), (b, by_b) in combinations(accepted.items(), 2):
        shared = [doc for doc in by_a if doc in by_b and by_a[doc].text == by_b[doc].text]
        if not shared:
            rows.append(row(a, b, "0", "–", "–"))
            continue
        scores = sum_scores(score_document(by_a[doc].chains, by_b[doc].chains) for doc in shared)
        rows.append(row(a, b, str(len(shared)), f"{100 * scores['mention'].f1:.1f}", f"{100 * conll(scores):.1f}"))
    return Section(
        "agreement", say("주석자 사이의 일치", "Agreement of annotators"), (Table(head, tuple(rows), frozenset({2, 3, 4})),)
    )
