"""Overlap: runs of thirteen words are found again, with the documents on both sides named."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coref_automl.base.errors import EvalSetError
from coref_automl.base.records import Document
from coref_automl.base.store import read_jsonl
from coref_automl.corpus.choice import WORDS, among, grams, overlap_of, write_grams
from coref_automl.corpus.inputs import eval_documents
from coref_automl.corpus.prepare import prepare
from coref_automl.corpus.recipe import PrepareRecipe
from coref_automl.corpus.sources import passages
from coref_automl.evaluation.prepare import prepare_eval
from coref_automl.evaluation.recipe import EvalRecipe
from tests.corpus.conftest import WriteRows, korean_text, rows


def test_a_run_of_thirteen_words_is_found_and_twelve_are_not(tmp_path: Path) -> None:
    words = korean_text(1).split()
    write_grams([Document("e", "s", " ".join(words))], tmp_path / "g.npy")
    known = np.load(tmp_path / "g.npy")
    around = ["앞말"] * 20
    assert np.flatnonzero(among(known, grams(" ".join([*around, *words[5 : 5 + WORDS], *around])))).tolist() == [20]
    assert np.flatnonzero(among(known, grams(" ".join([*around, *words[5 : 4 + WORDS], *around])))).tolist() == []


def test_the_report_counts_documents_and_names_examples() -> None:
    documents = [Document("e1", "s", korean_text(1)), Document("e2", "s", korean_text(2))]
    runs = grams(korean_text(1))
    overlap = overlap_of(documents, np.unique(runs[:3]), [(int(runs[0]), "train", "t9", "낱말")])
    assert (overlap.documents, overlap.documents_touched, overlap.runs_found) == (2, 1, 3)
    (example,) = overlap.examples
    assert (example.evaluation_document, example.training_document) == ("e1", "t9")


def test_word_order_matters() -> None:
    words = korean_text(1).split()[:WORDS]
    assert grams(" ".join(words)) != grams(" ".join(reversed(words)))


def test_a_short_or_empty_text_is_no_trouble() -> None:
    assert len(grams("두 낱말")) == 1
    assert len(grams("")) == 0
    assert not among(np.empty(0, np.uint64), grams("두 낱말")).any()


def test_documents_are_read_from_the_set_on_disk(tmp_path: Path) -> None:
    (tmp_path / "documents.jsonl").write_text(json.dumps({"id": "e", "source": "s", "text": "글", "title": "t"}) + "\n", "utf-8")
    assert eval_documents([tmp_path]) == [Document("e", "s", "글", "t")]
    with pytest.raises(EvalSetError, match="prepare eval"):
        eval_documents([tmp_path / "%s"])


def test_documents_of_which_an_evaluation_set_has_a_passage_are_left_out(tmp_path: Path, tokenizer_folder: Path) -> None:
    texts, path = [document.text for document in passages()], tmp_path / "a.jsonl"
    long = ({"id": f"d{n}", "source": "s", "text": "\n".join(texts[6 * n : 6 * n + 6])} for n in range(len(texts) // 6))
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in long), "utf-8")
    copies = path.read_text("utf-8").replace('"id": "d', '"id": "c').replace('"source": "s"', '"source": "t"')
    near = copies.replace('"id": "c', '"id": "e').replace('"text": "', '"text": "덧붙임. ')
    (tmp_path / "b.jsonl").write_text(copies + near, "utf-8")
    wanted: dict[str, Any] = {"sources": (f"local:{path}",)}
    prepare_eval(EvalRecipe(models=("bundled:ko-mini",), tasks=("real",), **wanted), tmp_path / "set")
    wanted |= {"model": str(tokenizer_folder), "seq_len": 128, "holdout": 0.0, "eval_sets": (str(tmp_path / "set"),)}
    wanted |= {"sources": (*wanted["sources"], f"local:{tmp_path / 'b.jsonl'}"), "allow_empty": True}
    prepare(PrepareRecipe(mode="mlm", workers=1, **wanted), tmp_path / "out")
    asked = {row["id"].rpartition(":")[0] for row in read_jsonl(tmp_path / "set" / "documents.jsonl")}
    assert asked
    trained = {row["id"] for row in read_jsonl(tmp_path / "out" / "documents.jsonl")}
    assert not trained & {f"{letter}{document[1:]}" for document in asked for letter in "dce"}  # nor copies from another source


def test_evaluation_documents_of_another_form_are_found_in_the_training_text(
    tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path
) -> None:
    decomposed = unicodedata.normalize("NFD", f"{korean_text(3)} 덧붙인 말.")
    write_rows("documents.jsonl", [{"id": "e", "source": "other", "text": decomposed}])
    (tmp_path / "manifest.json").write_text("{}", "utf-8")
    settings: dict[str, Any] = {"holdout": 0.0, "eval_sets": (str(tmp_path),), "model": str(tokenizer_folder), "seq_len": 64}
    chosen = PrepareRecipe(mode="mlm", workers=1, sources=(f"local:{write_rows('a.jsonl', rows(6))}",), **settings)
    assert prepare(chosen, tmp_path / "near")["sources"][0]["dropped"] == {"nearly repeats an evaluation document": 1}
    assert prepare(replace(chosen, near_duplicates=False), tmp_path / "exact")["overlap"]["documents_touched"] == 1
