"""The tagger: spans that equal their forms, order kept, each text tagged once, and a cache that processes share."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coref_automl.base import korean
from coref_automl.base.errors import StorageError
from coref_automl.base.korean import KINDS, PRONOUN, Tagger, Tags, ends_in_consonant, is_hangul
from tests.corpus.conftest import korean_text

_ODD = st.text(alphabet=st.sampled_from("서울은김민수가그제널 \n.!?😀한A1ᄒᆞ中〮\u200d"), max_size=40)


@pytest.fixture(scope="module")
def tagger() -> Tagger:
    return Tagger(None, threads=1)


@settings(max_examples=60)
@given(texts=st.lists(_ODD, max_size=4))
def test_nouns_equal_their_spans_in_any_text_and_order_is_kept(tagger: Tagger, texts: list[str]) -> None:
    tagged = list(tagger.tag(texts))
    assert len(tagged) == len(texts)
    for text, tags in zip(texts, tagged, strict=True):
        for (start, end), kind in zip(tags.spans.tolist(), tags.kinds.tolist(), strict=True):
            assert 0 <= start <= end <= len(text)
            assert kind == PRONOUN or text[start:end].strip() == text[start:end] != ""
        assert (np.diff(tags.sentence_ends) >= 0).all()
        assert not len(tags.sentence_ends) or tags.sentence_ends[-1] == len(text)


def test_nouns_names_and_pronouns_are_told_apart(tagger: Tagger) -> None:
    text = "서울은 큰 도시이다. 우리는 그 도시를 좋아한다."
    (tags,) = tagger.tag([text])
    result = {(text[start:end], KINDS[kind]) for (start, end), kind in zip(tags.spans, tags.kinds, strict=True)}
    assert {("서울", "NNP"), ("도시", "NNG"), ("우리", "NP")} <= result
    assert len(tags.sentence_ends) == 2


def test_a_long_text_is_read_in_pieces_and_tagged_the_same(tagger: Tagger, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(korean_text(number) for number in range(3))
    (whole,) = tagger.tag([text])
    monkeypatch.setattr(korean, "_PIECE", len(text) // 4)
    assert "".join(korean._pieces(text)) == text
    assert len(korean._pieces(text)) > 4
    (pieces,) = tagger.tag([text])
    for name in ("spans", "kinds", "sentence_ends"):
        np.testing.assert_array_equal(getattr(pieces, name), getattr(whole, name))
    assert korean._pieces("가" * 10 + " 나") == ["가" * 10 + " 나"]


def test_tags_survive_packing(tagger: Tagger) -> None:
    (tags,) = tagger.tag([korean_text(1)])
    again = Tags.unpack(tags.pack())
    for name in ("spans", "kinds", "sentence_ends"):
        assert (getattr(again, name) == getattr(tags, name)).all()


def test_a_text_is_tagged_once_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [korean_text(1), "짧은 글이다.", korean_text(1)]
    first = [tags.pack() for tags in Tagger(tmp_path, threads=1).tag(texts)]

    def never(*_: object) -> None:
        raise AssertionError("tagged again")

    monkeypatch.setattr(korean, "_kiwi", never)
    assert [tags.pack() for tags in Tagger(tmp_path).tag(texts)] == first
    assert sum(Tagger(tmp_path).fill_cache(texts)) == sum(map(len, texts))
    with pytest.raises(AssertionError, match="tagged again"):
        list(Tagger(tmp_path).tag(["다른 글이다."]))


def test_what_is_remembered_is_found_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [korean_text(seed) for seed in range(3)]
    assert sum(Tagger(tmp_path, threads=1).fill_cache(texts)) == sum(map(len, texts))
    monkeypatch.setattr(korean, "_kiwi", None)
    assert len(list(Tagger(tmp_path).tag(texts))) == 3


def test_a_tagger_without_a_cache_cannot_remember() -> None:
    with pytest.raises(ValueError, match="without a cache"):
        list(Tagger(None).fill_cache(["글"]))


def test_a_cache_on_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    tagger = Tagger(tmp_path, threads=1)
    assert tagger._store is not None
    tagger._store._db.execute("PRAGMA max_page_count = 2")  # as much as there is already
    texts = (f"시민 {number}명은 서울에서 도서관을 찾았다." for number in range(300))
    with pytest.raises(StorageError, match=r"sqlite cannot be used \(database or disk is full\); free some space"):
        list(tagger.tag(texts))


def test_a_cache_that_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / f"tags3-{korean.kiwi_version()}.sqlite").write_bytes(b"no database" * 1_000)
    (tmp_path / "file").touch()
    for cache, why in (
        (tmp_path, "file is not a database"),
        (tmp_path / "file", "File exists"),
        (tmp_path / "file/a", "Not a dir"),
    ):
        with pytest.raises(StorageError, match=f"cannot be used .*{why}.* let COREF_AUTOML_CACHE name another folder"):
            Tagger(cache)


def test_words_that_are_nouns_alone(tagger: Tagger) -> None:
    assert tagger.are_nouns(["서울", "도서관", "먹었다", "물", "abc", "대학교수"]).tolist() == [
        True,
        True,
        False,
        False,
        False,
        True,
    ]


def test_the_cache_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COREF_AUTOML_CACHE", str(tmp_path))
    assert korean.default_cache() == tmp_path
    monkeypatch.delenv("COREF_AUTOML_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert korean.default_cache() == tmp_path / "cache" / "coref-automl"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert korean.default_cache() == Path.home() / ".cache" / "coref-automl"
    (tmp_path / "file").write_text("", "utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # nothing can be kept there
    assert korean.default_cache().parent == Path(tempfile.gettempdir())


def test_hangul_and_final_consonants() -> None:
    assert is_hangul("서울")
    assert not is_hangul("서울A")
    assert ends_in_consonant("서울")
    assert not ends_in_consonant("나라")
    assert not ends_in_consonant("abc")


def test_threads_change_nothing(tmp_path: Path) -> None:
    texts = [korean_text(seed) for seed in range(6)]
    one, two = (list(Tagger(None, threads=count).tag(texts)) for count in (1, 2))
    assert [tags.pack() for tags in one] == [tags.pack() for tags in two]
