"""Small Korean texts, a tokenizer for them, and a way to write them to files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

_PLACES = ("서울", "부산", "대구", "광주", "대전", "인천", "전주", "청주")
_PEOPLE = ("김민수", "이영희", "박철수", "최지우", "정하나", "강바다")
_THINGS = ("도서관", "박물관", "신문사", "연구소", "대학교", "시장", "병원", "극장")
_DEEDS = ("세웠다", "찾아갔다", "떠났다", "소개했다", "기억했다", "옮겼다", "바라보았다", "고쳤다")


def korean_text(seed: int, sentences: int = 12) -> str:
    """A text of its own for every seed, in which a person, a place and a thing come back."""
    random = Random(seed)
    person, place, thing = random.choice(_PEOPLE), random.choice(_PLACES), random.choice(_THINGS)
    lines = []
    for number in range(sentences):
        other = random.choice(_THINGS)
        deed, last = random.choice(_DEEDS), random.choice(_DEEDS)
        year = random.randint(1900, 2020)
        lines.append(f"{person}은 {year}년에 {place}에서 {thing}을 {deed}. 그 {other}은 {place}의 {seed}번째 건물이라 {last}.")
        if number % 4 == 3:
            lines[-1] += "\n"
    return " ".join(lines)


def rows(count: int, *, first: int = 0, source: str | None = None, sentences: int = 12) -> list[dict[str, Any]]:
    name = {"source": source} if source else {}
    return [
        {"id": f"d{first + n}", "title": f"제목 {n}", **name, "text": korean_text(first + n, sentences)} for n in range(count)
    ]


WriteRows = Callable[..., Path]


@pytest.fixture
def write_rows(tmp_path: Path) -> WriteRows:
    def write(name: str, entries: Sequence[Any]) -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in entries), "utf-8")
        return path

    return write


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from coref_automl.models.build import train_tokenizer

    folder = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer([korean_text(seed) for seed in range(40)], vocab_size=600).save_pretrained(str(folder))
    return folder
