"""Text sources. In: a name (`kowiki`, `local:PATH`, `bundled:passages`). Out: documents, streamed in the source's own order."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from coref_automl.base.config import nearest
from coref_automl.base.errors import CorefError, MissingExtra, SourceError, first_line
from coref_automl.base.records import Document, Record
from coref_automl.base.say import in_words
from coref_automl.corpus import files as local
from coref_automl.corpus.formats import LINES, opened, stem_of


def passages() -> list[Document]:
    """The bundled Korean passages of 300 to 900 characters; `source` is the genre."""
    return [Document.from_json(row) for row in bundled_rows("passages")]


def bundled_rows(name: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a bundled file: passages, cloze (in Ko-LAMBADA's columns), synthetic, synthetic-short, relations or
    relations-dev."""
    (path,) = Path(str(files("coref_automl"))).glob(f"assets/texts/{name}.jsonl*")
    with opened(path) as stream:
        yield from map(json.loads, stream)


@dataclass(frozen=True, slots=True)
class HubSource:
    """A dataset on the hub; several fields are joined by line breaks into one document.

    `rows` is the size of the split as the dataset's card states it, if it does; `note` is Korean and English.
    """

    hub: str
    config: str | None
    split: str
    fields: tuple[str, ...]
    licence: str
    gated: bool = False
    note: tuple[str, str] = ("", "")
    rows: str = ""


_KLUE = "CC BY-SA 4.0"
_ASK = "not stated; see the dataset's page"

_PAIRS = ("문장 쌍", "sentence pairs")
_CONTEXTS = ("문맥 하나에 질문 여럿", "one context, several questions")
_HEADLINES = ("제목: 긴 행에는 짧음", "headlines: short for long rows")
_CLOZE = ("평가 전용: 빈칸 문항의 열", "evaluation only: columns of cloze items")

SOURCES: dict[str, HubSource] = {
    "kowiki": HubSource("wikimedia/wikipedia", "20231101.ko", "train", ("text",), "CC BY-SA 3.0, GFDL", rows="647,897"),
    "klue-mrc": HubSource("klue/klue", "mrc", "train", ("context",), _KLUE, note=_CONTEXTS, rows="17,554"),
    "klue-ynat": HubSource("klue/klue", "ynat", "train", ("title",), _KLUE, note=_HEADLINES, rows="45,678"),
    "klue-sts": HubSource("klue/klue", "sts", "train", ("sentence1", "sentence2"), _KLUE, note=_PAIRS, rows="11,668"),
    "klue-nli": HubSource("klue/klue", "nli", "train", ("premise", "hypothesis"), _KLUE, note=_PAIRS, rows="24,998"),
    "korquad": HubSource("KorQuAD/squad_kor_v1", None, "train", ("context",), "CC BY-ND 4.0", note=_CONTEXTS, rows="60,407"),
    "kobest-hellaswag": HubSource(
        "skt/kobest_v1", "hellaswag", "train", ("context", "ending_1", "ending_2", "ending_3", "ending_4"), "CC BY-SA 4.0"
    ),
    "hplt": HubSource("HPLT/HPLT2.0_cleaned", "kor_Hang", "train", ("text",), "CC0 1.0", note=("웹 문서", "web text")),
    "us-news-ko": HubSource(
        "nmixx-fin/ko-trans-us_news_retrieval", None, "train", ("trans_text",), _ASK, note=("번역문", "translated")
    ),
    "finance-news-summ": HubSource("nmixx-fin/twice_kr_finance_news_summ", None, "train", ("text",), _ASK),
    "news-bqa": HubSource("nmixx-fin/twice_kr_news_bqa_cls", None, "train", ("text",), _ASK),
    "finance-news-sent": HubSource("nmixx-fin/twice_kr_fin_news_sent_cls", None, "train", ("text",), _ASK),
    "naver-news-gen": HubSource("dev7halo/naver-news-summarization-ko-with-gen", None, "train", ("document",), _ASK),
    "naver-news": HubSource("daekeun-ml/naver-news-summarization-ko", None, "train", ("document",), "Apache-2.0", rows="22.2k"),
    "qa-news-ko": HubSource("AIR-Bench/qa_news_ko", None, "corpus_default", ("text",), _ASK),
    "ko-lambada": HubSource("thunder-research-group/SNU_Ko-LAMBADA", None, "test", ("text",), _ASK, gated=True, note=_CLOZE),
}
"""Every named source; to add one, add a line."""

BUNDLED = {
    "bundled:passages": "written for this project, MIT",
    "bundled:synthetic": "generated, MIT",
    "bundled:synthetic-short": "generated, MIT",
}

_HEAD = 4 << 20
"""Bytes of a remote file that are fetched to check whether it can be read."""

_ATTEMPTS = 3
"""Retries of a read from the hub; each waits up to half a minute, and the library's own default is twenty."""


@dataclass(frozen=True, slots=True)
class Input:
    """One part of a source: a file or a span of it, a hub dataset or a bundled text.

    `label` is the same on every machine. `revision` pins a hub dataset, so that a preparation resumes with the same rows.
    """

    name: str
    label: str
    path: Path | None = None
    url: str = ""
    span: local.ByteRange | None = None
    revision: str | None = None

    @property
    def is_file(self) -> bool:
        return self.path is not None or bool(self.url)

    @property
    def place(self) -> str:
        """The location, for people."""
        source = self.url or (f"local:{self.path}" if self.path else self.name)
        return f"{source}, bytes {self.span.start:,} to {self.span.end:,}" if self.span else source


def inputs_of(name: str) -> list[Input]:
    """The parts of a source, in order: one per file of a glob or folder. An unknown name is an error."""
    if name.startswith("local:"):
        return [Input(name, path.name, path) for path in local.files_of(name.removeprefix("local:"))]
    if local.is_url(name):
        return [Input(name, PurePosixPath(url).name, url=url) for url in local.urls_of(name)]
    if name in SOURCES or name in BUNDLED:
        return [Input(name, name)]
    is_path = os.path.exists(name)  # noqa: PTH110 - False for a name that is too long
    hint = f"Did you mean local:{name}?" if is_path else nearest(name, [*SOURCES, *BUNDLED])
    raise SourceError(f"Unknown source {name!r}. {hint} A file or folder is local:PATH, or a URL (s3://, gs://, hf://).")


def read_input(part: Input, *, field: str | None = None, broken_ok: bool = False) -> Iterator[Document | local.Flaw]:
    if part.path is not None:
        name = local.name_of(part.name.removeprefix("local:"))
        return local.read_file(part.path, name=name, field=field, broken_ok=broken_ok, span=part.span)
    if part.url:
        return _read_url(part, field, broken_ok)
    if part.name in BUNDLED:
        return map(Document.from_json, bundled_rows(part.name.removeprefix("bundled:")))
    return _hub(part.name, field, part.revision)


def _read_url(part: Input, field: str | None, broken_ok: bool) -> Iterator[Document | local.Flaw]:
    """Read a local copy, so that any format can be read and network errors are not taken for errors of the file."""
    place = PurePosixPath(part.name.partition("://")[2])
    is_glob = glob.has_magic(str(place))
    name = next(up.name for up in [place, *place.parents][is_glob:] if not glob.has_magic(up.name))
    name = stem_of(Path(name)) if name == part.label and not is_glob else name
    with local.local_copy(part.url, part.span) as path:
        span = part.span and local.ByteRange(0, part.span.end - part.span.start, part.span.lines)
        yield from local.read_file(path, name=name, field=field, broken_ok=broken_ok, span=span, shown=part.url)


def open_source(name: str, *, on_flaw: Callable[[local.Flaw], None] | None = None) -> Iterator[Document]:
    """Yield the documents of a source. Rows that are not documents go to `on_flaw`; without it they are an error."""
    for part in inputs_of(name):
        for entry in read_input(part):
            if isinstance(entry, Document):
                yield entry
            elif on_flaw is not None:
                on_flaw(entry)
            else:
                raise SourceError(f"{entry.where}: {entry.reason}; fix or remove the row.")


def licence_of(name: str) -> str:
    if name in SOURCES:
        return SOURCES[name].licence
    return BUNDLED.get(name, "not stated by a local file")


def licence_in_words(licence: str) -> str:
    """A licence in the language of results; names of licences are not translated."""
    return ", ".join(map(in_words, licence.split(", ")))


def licence_of_bundled(kind: str, names: Collection[str]) -> str | None:
    """The licence of a kind of text if one of the named bundled sources has documents of that kind."""
    if "bundled:passages" in names and any(document.source == kind for document in passages()):
        return BUNDLED["bundled:passages"]
    generated = [BUNDLED[name] for name in BUNDLED if name in names and name != "bundled:passages"]
    return generated[0] if generated and kind.startswith("synthetic-") else None


@dataclass(frozen=True, slots=True)
class SourceCheck(Record):
    """Whether a source can be read now, and has rows. `message` is the beginning of its first document, or what to do."""

    name: str
    readable: bool
    field: str
    message: str
    empty: bool = False

    @property
    def usable(self) -> bool:
        return self.readable and not self.empty


def check_source(name: str, *, field: str | None = None) -> list[SourceCheck]:
    """Read the first row of every part of a source."""
    try:
        parts = inputs_of(name)
    except CorefError as error:
        return [SourceCheck(name, False, field or "", str(error))]
    return [_check(part, field) for part in parts]


def _check(part: Input, field: str | None) -> SourceCheck:
    label = part.place
    shown = field or (" + ".join(SOURCES[part.name].fields) if part.name in SOURCES else "text")
    try:
        if part.url:  # fetch only the head of a file of lines; of other formats check the size
            size = local.size_of(part.url)
            if size and Path(part.label).suffix.lower() not in LINES:
                return SourceCheck(label, True, shown, f"{size:,} bytes")
            part = replace(part, span=local.ByteRange(0, min(size, _HEAD), 0))
        for entry in islice(read_input(part, field=field), 1):
            if isinstance(entry, local.Flaw) and entry.reason != "an empty file":
                return SourceCheck(label, True, shown, f"{entry.where}: {entry.reason} (the first row; it will be counted)")
            if isinstance(entry, Document):
                return SourceCheck(label, True, shown, local.writable(" ".join(entry.text[:1_000].split())[:60]))
    except CorefError as error:
        return SourceCheck(label, False, shown, str(error))
    return SourceCheck(label, True, shown, "no rows; prepare refuses it without --allow-empty", empty=True)


def _hub(name: str, field: str | None, revision: str | None) -> Iterator[Document | local.Flaw]:
    fields = (field,) if field else SOURCES[name].fields
    for number, row in enumerate(hub_rows(name, revision)):
        if number == 0 and (missing := [entry for entry in fields if entry not in row]):
            hub, columns = SOURCES[name].hub, ", ".join(row)
            raise SourceError(f"{name} ({hub}) has no field {missing[0]!r}; its rows hold {columns}. Pass --field.")
        yield _hub_document(name, number, row, fields)


def hub_rows(name: str, revision: str | None = None) -> Iterator[dict[str, Any]]:
    """Stream the rows of a named source; any error of the hub's libraries becomes one sentence."""
    source = SOURCES[name]
    try:
        from datasets import config, load_dataset
    except ImportError as error:
        raise MissingExtra("datasets", "hub", f"The source {name} ({source.hub})") from error
    config.STREAMING_READ_MAX_RETRIES = _ATTEMPTS
    config.TORCH_AVAILABLE = False  # otherwise it imports torch (350 MB) to stream rows
    if not _hub_answers():
        raise SourceError(f"{name} ({source.hub}) cannot be reached; check the network, or download it and pass local:PATH.")
    try:
        options = {"split": source.split, "streaming": True, "token": os.environ.get("HF_TOKEN"), "revision": revision or None}
        yield from map(dict, load_dataset(source.hub, source.config, **options))
    except Exception as error:  # the hub's libraries raise many kinds
        raise _explained(name, source, error) from error


def hub_revision(name: str) -> str:
    """The current commit of a hub source; empty if unknown."""
    from huggingface_hub import HfApi

    if not _hub_answers():
        return ""
    with suppress(Exception):  # the source can be read unpinned
        return str(HfApi().dataset_info(SOURCES[name].hub, timeout=10, token=os.environ.get("HF_TOKEN")).sha or "")
    return ""


@cache
def _hub_answers() -> bool:
    """Ask once, with a short timeout: the hub's own library retries for minutes."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=5)
    except Exception:  # any network error
        return False
    return True


def _hub_document(name: str, number: int, row: Mapping[str, Any], fields: tuple[str, ...]) -> Document | local.Flaw:
    if missing := [entry for entry in fields if not isinstance(row.get(entry), str)]:
        return local.Flaw(name, f"{name}, row {number}", f"no field {missing[0]!r}")
    title = row.get("title")
    # Number rows instead of using their ids: several sources repeat ids.
    return Document(f"{name}-{number}", name, "\n".join(row[entry] for entry in fields), title if isinstance(title, str) else "")


def _explained(name: str, source: HubSource, error: Exception) -> SourceError:
    message = f"{type(error).__name__} {error}".lower()
    if source.gated or "gated" in message or "401" in message or "403" in message:
        return SourceError(f"{name} ({source.hub}) is gated: accept its terms on the hub and set HF_TOKEN, or pass local:PATH.")
    if re.search("connect|offline|resolve|timeout|timed out|network|max retries|unreachable", message):
        return SourceError(f"{name} ({source.hub}) cannot be reached; check the network, or download it and pass local:PATH.")
    return SourceError(f"{name} ({source.hub}) cannot be read: {first_line(error)[:200]}")
