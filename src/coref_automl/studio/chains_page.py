"""The Chains page: annotated texts to read, correct and accept. In: a file of `coref annotate`. Out: one file per annotator.

What annotator NAME has accepted of `texts.jsonl` is `texts.NAME.jsonl`, which `coref train` takes as it is; what was begun and
not accepted is `texts.NAME.draft.jsonl`. The file itself is never changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from coref_automl.coreference.data import inspect_coref
from coref_automl.coreference.documents import CorefDocument, Mention, clusters_of, write_documents
from coref_automl.coreference.metrics import conll, score_document, sum_scores
from coref_automl.errors import CorefError, InputError
from coref_automl.fingerprints import fingerprint
from coref_automl.report.page import Cell, Section, Table, row
from coref_automl.report.rendering import for_script
from coref_automl.say import Say
from coref_automl.store import read_jsonl
from coref_automl.studio.kept import own_place
from coref_automl.studio.pages import Address, Download
from coref_automl.studio.shelf import Gone, not_here
from coref_automl.studio.workspace import Workspace

_NAME = re.compile(r"[\w-]{1,40}")
_MINE = re.compile(r"(?P<stem>.+?)\.(?P<by>[\w-]{1,40})(?P<draft>\.draft)?\.jsonl")
_MOST = 20_000
"""Mentions of one document."""
Documents = Mapping[str, CorefDocument]


@dataclass(frozen=True, slots=True)
class Work:
    """What one annotator has done of a file: documents by id."""

    accepted: Documents
    draft: Documents

    def state(self, name: str) -> str:
        return "accepted" if name in self.accepted else "draft" if name in self.draft else ""

    def document(self, name: str) -> CorefDocument | None:
        return self.accepted.get(name) or self.draft.get(name)


def page(ws: Workspace, address: Address) -> str | Download:
    key, by, other = (address.get(name) for name in ("file", "by", "beside"))
    say, title = address.say, address.say("상호참조 사슬", "Chains")
    if not key:
        rows = [_listed(ws, key, path) for key, path in sources(ws).items()]
        table = Table(
            (say("파일", "file"), say("문서", "documents"), say("받아들인 문서", "accepted")), tuple(rows), frozenset({1})
        )
        sections = [Section("texts", say("글", "Texts"), (table,))] if rows else []
        return ws.pages.page("texts.html.j2", address, title=title, sections=sections, files=[line[0].text for line in rows])
    path, documents = _file(ws, key)
    everyone, work, names = _annotators(path), _work(ws, path, by), list(documents)
    doc = address.get("doc") or next((name for name in names if not work.state(name)), names[0])
    if doc not in documents:
        raise not_here(doc)
    shown, at = work.document(doc) or documents[doc], names.index(doc)
    beside = _work(ws, path, other).document(doc) if other else None
    state = {
        "file": key,
        "by": by,
        "doc": doc,
        "text": shown.text,
        "clusters": shown.chains,
        "beside": beside.chains if beside is not None else None,
        "links": _links(path).get(doc, {}),
        "version": version_of(work, doc),
        "accepted": work.state(doc) == "accepted",
        "after": names[at + 1] if at + 1 < len(names) else "",
    }
    agreement = [_agreement({name: _work(ws, path, name).accepted for name in everyone}, say)] if len(everyone) > 1 else []
    place = {"names": names, "at": at, "everyone": everyone, "written": f"{path.stem}.{by}.jsonl" if by else ""}
    more = {"key": key, "by": by, "doc": doc, "work": work, "beside": other, "state": for_script(state)}
    return ws.pages.page("chains.html.j2", address, title=title, sections=agreement, **place, **more)


def _listed(ws: Workspace, key: str, path: Path) -> tuple[Cell, ...]:
    """A file with its documents, and how many each annotator has accepted."""
    try:
        count = len(_file(ws, key)[1])
    except CorefError as error:
        return row(key, "–", str(error))
    done = ", ".join(f"{name} {len(_work(ws, path, name).accepted)}" for name in _annotators(path))
    return row(key, f"{count:,}", done or "–")


def save(ws: Workspace, given: Any, say: Say) -> dict[str, Any]:
    """What a page sends: the chains of one document, its version, whether it is accepted. Returns the new version."""
    if not isinstance(given, dict) or not all(isinstance(given.get(name), str) for name in ("file", "by", "doc", "version")):
        raise InputError("file, by, doc and version are texts.")
    path, documents = _file(ws, given["file"])
    by, doc = given["by"], given["doc"]
    if not _NAME.fullmatch(by) or by == "draft":
        raise InputError(say("이름은 글자와 숫자 40자까지입니다.", "A name has up to 40 letters and digits."))
    if doc not in documents:
        raise not_here(doc)
    mine = _document(documents[doc], given.get("clusters"))
    with ws.lock:
        work = _work(ws, path, by)
        if version_of(work, doc) != given["version"]:
            raise Gone(
                "다른 창에서 이 문서를 저장했습니다. 새로 고친 뒤 이어서 고치세요.",
                "This document was saved in another window; reload it, and go on from there.",
            )
        accepted = {name: one for name, one in work.accepted.items() if name != doc}
        draft = {name: one for name, one in work.draft.items() if name != doc}
        (accepted if given.get("accepted") is True else draft)[doc] = mine
        stem = f"{path.stem}.{by}"
        both = _write(ws, path, f"{stem}.jsonl", accepted, documents), _write(ws, path, f"{stem}.draft.jsonl", draft, documents)
        return {"version": version_of(Work(accepted, draft), doc), "place": str(both[doc not in accepted])}


def _write(ws: Workspace, path: Path, name: str, held: Documents, order: Documents) -> Path | None:
    if not held and ws.kept.find(path.parent, name) is None:
        return None
    ordered = [held[one] for one in order if one in held]
    return ws.kept.write(path.parent, name, lambda at: write_documents(at, ordered))


def sources(ws: Workspace) -> dict[str, Path]:
    """Annotated files that are nobody's corrections of another one."""
    found = ws.folders.now().texts
    stems = {(path.parent, path.stem) for path in found.values()}
    return {
        key: path
        for key, path in found.items()
        if (of := _MINE.fullmatch(path.name)) is None or (path.parent, of["stem"]) not in stems
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
    return ws.folders.once(path, lambda at: {one.id: one for one in inspect_coref(at).documents})


def _work(ws: Workspace, path: Path, by: str) -> Work:
    found = [ws.kept.find(path.parent, f"{path.stem}.{by}{kind}.jsonl") if by else None for kind in ("", ".draft")]
    accepted, draft = (_read(ws, one) if one is not None and one.stat().st_size else {} for one in found)  # drafts empty
    return Work(accepted, draft)


def _annotators(path: Path) -> list[str]:
    files = (one.name for place in (path.parent, own_place(path.parent)) if place.is_dir() for one in place.glob("*.jsonl"))
    found = (of for name in files if (of := _MINE.fullmatch(name)) is not None)
    return sorted({of["by"] for of in found if of["stem"] == path.stem})


def _links(path: Path) -> dict[str, dict[str, float]]:
    """How probable the model holds each mention's link, by document and place, as `coref annotate` wrote it."""
    try:
        rows = [one for one in read_jsonl(path) if isinstance(one, dict)]
        return {
            str(one.get("doc_id", "")): {
                f"{span['start']}-{span['end']}": span["link"]
                for chain in one.get("clusters", [])
                for span in chain
                if isinstance(span.get("link"), float)
            }
            for one in rows
        }
    except (CorefError, OSError, TypeError, KeyError, AttributeError):
        return {}


def version_of(work: Work, doc: str) -> str:
    held = work.document(doc)
    return fingerprint(work.state(doc), clusters_of(held))[:16] if held is not None else ""


def _document(of: CorefDocument, clusters: Any) -> CorefDocument:
    """The document with other chains; what no reader would take back is refused."""
    spans: set[tuple[int, int]] = set()
    mentions: list[Mention] = []
    kinds = {mention.span: mention.kind for mention in of.mentions}
    if not isinstance(clusters, list):
        raise InputError("clusters is a list of chains.")
    for number, chain in enumerate(clusters, 1):
        for span in chain if isinstance(chain, list) else [None]:
            if not (isinstance(span, list) and len(span) == 2 and all(type(edge) is int for edge in span)):
                raise InputError("A mention is [start, end].")
            start, end = span
            if not 0 <= start < end <= len(of.text) or (start, end) in spans or len(spans) >= _MOST:
                raise InputError(f"The mention {start}:{end} lies outside the text, or is there twice.")
            spans.add((start, end))
            mentions.append(Mention(start, end, f"e{number}", kinds.get((start, end), "")))
    return replace(of, mentions=tuple(sorted(mentions, key=lambda one: (one.start, -one.end))))


def _agreement(accepted: Mapping[str, Documents], say: Say) -> Section:
    """Every two annotators on the documents that both have accepted."""
    head = ("A", "B", say("문서", "documents"), say("언급 F1", "mention F1"), "CoNLL F1")
    rows = []
    for (a, one), (b, other) in combinations(accepted.items(), 2):
        both: Sequence[str] = [name for name in one if name in other and one[name].text == other[name].text]
        if not both:
            rows.append(row(a, b, "0", "–", "–"))
            continue
        scores = sum_scores(score_document(one[name].chains, other[name].chains) for name in both)
        rows.append(row(a, b, str(len(both)), f"{100 * scores['mention'].f1:.1f}", f"{100 * conll(scores):.1f}"))
    return Section(
        "agreement", say("주석자 사이의 일치", "Agreement of annotators"), (Table(head, tuple(rows), frozenset({2, 3, 4})),)
    )
