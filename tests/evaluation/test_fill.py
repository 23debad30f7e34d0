"""A sentence with one gap is filled by several models side by side."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest

import coref_automl as ca
from coref_automl.base.errors import EvaluationError, InputError, RecipeError
from coref_automl.cli.app import run
from coref_automl.evaluation import fill as module
from coref_automl.evaluation.fill import fill, fill_all, find_gap
from coref_automl.models.vocabulary import entry_words
from tests.evaluation.tiny import NOUNS, loaded, noun_table, save_checkpoint


@pytest.fixture(autouse=True)
def _nouns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "noun_table", lambda ready: noun_table())


def test_the_probabilities_are_those_of_the_full_model() -> None:
    import torch

    ready = loaded(seed=2)
    filled = fill(ready, "시민은 [MASK]을 찾았다.", nouns_only=False, top=5)
    pieces = ["[CLS]", "시민", "##은", "[MASK]", "##을", "찾", "##았", "##다", ".", "[SEP]"]
    row = torch.tensor([ready.tokenizer.convert_tokens_to_ids(pieces)])
    with torch.inference_mode():
        chances = ready.model(input_ids=row).logits[0, 3].softmax(-1).numpy()
    words = entry_words(ready.tokenizer)
    order = [at for at in np.argsort(-chances) if words[at]][:5]
    assert filled.words == tuple(words[at] for at in order)
    assert filled.probabilities == pytest.approx([chances[at] for at in order], rel=1e-4)


def test_the_noun_filter_leaves_only_nouns() -> None:
    filled = fill(loaded(), "시민은 [MASK]을 찾았다.")
    assert set(filled.words) <= {*NOUNS, "한빛"}
    assert filled.probabilities == tuple(sorted(filled.probabilities, reverse=True))


@pytest.mark.parametrize("gap", ["[MASK]", "<mask>", "_", "____"])
def test_a_gap_can_be_written_in_several_ways(gap: str) -> None:
    assert find_gap(f"시민은 {gap}을 찾았다.") == (4, 4 + len(gap))


@pytest.mark.parametrize("sentence", ["", "시민은 도서관을 찾았다.", "[MASK]은 [MASK]을 찾았다."])
def test_a_sentence_needs_exactly_one_gap(sentence: str) -> None:
    with pytest.raises(InputError, match="once"):
        find_gap(sentence)


def test_decomposed_hangul_is_filled_as_composed() -> None:
    sentence = "강변의 시민은 [MASK]을 찾았다."
    assert fill(loaded(seed=2), unicodedata.normalize("NFD", sentence)) == fill(loaded(seed=2), sentence)


def test_half_a_surrogate_pair_is_no_text() -> None:
    with pytest.raises(RecipeError, match="A sentence is text"):
        fill(loaded(), "시민은 [MASK]을 \ud800찾았다.")


def test_a_model_whose_weights_are_not_numbers_fills_nothing() -> None:
    ready = loaded(seed=2)
    for weights in ready.model.parameters():
        weights.data.fill_(float("nan"))
    with pytest.raises(EvaluationError, match="not numbers"):
        fill(ready, SENTENCES[0])


SENTENCES = ["시민은 [MASK]을 찾았다.", "[MASK]을 찾았다.", "한빛은 [MASK]을 찾았다."]


def test_a_tokenizer_that_drops_every_word_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save_checkpoint(tmp_path / "model")
    stored = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    stored["pre_tokenizer"] = {"type": "Split", "pattern": {"String": ""}, "behavior": "Removed", "invert": True}
    (folder / "tokenizer.json").write_text(json.dumps(stored), "utf-8")
    assert run(["fill", "시민은 [MASK]을 찾았다.", "--model", str(folder)]) == 2
    assert "makes no token of" in capsys.readouterr().err


def test_sentences_together_are_filled_as_each_alone() -> None:
    ready = loaded(seed=2)
    for filled, alone in zip(fill_all(ready, SENTENCES), [fill(ready, sentence) for sentence in SENTENCES], strict=True):
        assert filled.words == alone.words
        assert filled.probabilities == pytest.approx(alone.probabilities, rel=1e-5)


def test_a_file_of_sentences_is_filled_as_python_fills_a_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, data = str(save_checkpoint(tmp_path / "model", seed=2)), tmp_path / "in.csv"
    data.write_text("body\n" + "\n".join([*SENTENCES, "틈이 없다."]) + "\n", "utf-8")
    command = ["fill", "--model", model, "--data", str(data), "--out", str(tmp_path / "out"), "--top", "3", "--json"]
    assert run([*command, "--column", "body"]) == 2
    assert "row 4: The sentence has no gap" in capsys.readouterr().err
    assert run(command) == 2
    assert "The columns are 'body', and none is 'text'" in capsys.readouterr().err
    assert run([*command, "--column", "body", "--skip-bad"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["rows"], printed["skipped"]) == (3, 1)
    listed = ca.fill(SENTENCES, model, top=3)
    assert [line.split(",")[1] for line in Path(printed["path"]).read_text("utf-8").splitlines()[1:]] == [
        filled[0].words[0] for filled in listed
    ]
    assert listed[0][0].words == ca.fill(SENTENCES[0], model, top=3)[0].words
