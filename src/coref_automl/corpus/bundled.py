"""The bundled texts. In: nothing. Out: passages as documents, and short passages with one hidden word."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from coref_automl.records import Document


def passages() -> list[Document]:
    """Original Korean passages of 300 to 900 characters; `source` is the genre."""
    return [Document.from_json(row) for row in _rows("passages.jsonl")]


def cloze_passages() -> list[dict[str, Any]]:
    """Short passages in Ko-LAMBADA's columns (index, text with one "_", answer, candidate), with a title."""
    return _rows("cloze.jsonl")


def _rows(name: str) -> list[dict[str, Any]]:
    text = files("coref_automl").joinpath("assets", "texts", name).read_text("utf-8")
    return [json.loads(line) for line in text.split("\n") if line]
