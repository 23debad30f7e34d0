"""coref-automl tokenizer: learn one, and inspect any number of them on any kind of texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coref_automl.cli.app import run
from coref_automl.evaluation.evalset import EvalSet, bundled_eval_set
from coref_automl.models.load import load_tokenizer
from coref_automl.models.vocabulary import entry_words
from tests.cli.test_prepare import rows
from tests.evaluation.tiny import tokenizer_of
from tests.extras.relation.conftest import make_raw_rows

LEARNED = ("wordpiece", "unigram")
KINDS = {
    "wordpiece": ("WordPiece", ["--kind", "wordpiece"]),
    "bytes": ("byte-level BPE", []),
    "unigram": ("Unigram with bytes", ["--kind", "unigram"]),
}
CHAIN = {
    "doc_id": "a",
    "text": "민수는 집에 갔다. 그는 쉬었다.",
    "clusters": [[{"start": 0, "end": 2}, {"start": 11, "end": 12}]],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts of every kind, and a tokenizer of every kind that the command learns from them."""
    folder = tmp_path_factory.mktemp("tokenizers")
    lines = rows(30)
    (folder / "texts.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in lines), "utf-8")
    (folder / "rows.json").write_text(json.dumps(make_raw_rows(24), ensure_ascii=False), "utf-8")
    (folder / "rows.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in make_raw_rows(24)), "utf-8")
    (folder / "chains.jsonl").write_text(json.dumps(CHAIN, ensure_ascii=False) + "\n", "utf-8")
    tokenizer_of("bytes").save_pretrained(folder / "bytes")  # of another tool
    for name in LEARNED:
        source = ["--source", f"local:{folder / 'texts.jsonl'}", "--vocab-size", "1000", "--no-nouns", "--holdout", "0"]
        assert run(["tokenizer", "learn", *source, *KINDS[name][1], "--out", str(folder / name)]) == 0
    return folder


def inspected(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str, models: tuple[str, ...] = ()) -> dict[str, Any]:
    capsys.readouterr()
    names = models or tuple(str(folder / name) for name in KINDS)
    assert run(["tokenizer", "inspect", *names, *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", LEARNED)
def test_a_card_says_of_which_kind_a_tokenizer_is(folder: Path, name: str) -> None:
    card = json.loads((folder / name / "manifest.json").read_text("utf-8"))
    assert card["kind"] == KINDS[name][1][1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--kind", "sentencepiece"], "kind"),
    ],
)
def test_what_a_kind_cannot_do_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    out = ["--out", str(tmp_path / "new")]
    assert run(["tokenizer", "learn", "--source", f"local:{folder / 'texts.jsonl'}", *options, *out]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("file", "texts", "entities"), [("rows.json", 24, 48), ("chains.jsonl", 1, 2), ("rows.jsonl", 24, 48)])
def test_relation_rows_and_chains_are_known_by_their_rows(
    folder: Path, capsys: pytest.CaptureFixture[str], file: str, texts: int, entities: int
) -> None:
    (data,) = inspected(folder, capsys, "--data", str(folder / file))["data"]
    assert (data["texts"], data["entities"]) == (texts, entities)
    assert [(item["model"], item["kind"]) for item in data["tokenizers"]] == [(name, kind) for name, (kind, _) in KINDS.items()]
    assert all(entry["entities"]["entities"] == entities for entry in data["tokenizers"])


def test_sources_and_evaluation_sets_stand_beside_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ("--source", f"local:{folder / 'texts.jsonl'}", "--limit", "5", "--eval-set", str(bundled_eval_set()))
    data = inspected(folder, capsys, "--data", str(folder / "rows.json"), *more)["data"]
    assert [item["texts"] for item in data] == [5, 5, 5]
    assert [bool(entry["entities"]) for entry in data] == [True, False, True]
    assert data[1]["tokenizers"][0]["entities"] is None


def test_the_ceiling_of_strict_is_the_share_of_answers_that_are_one_entry(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data,) = inspected(folder, capsys, "--eval-set", str(bundled_eval_set()), models=("bundled:ko-mini",))["data"]
    share = data["tokenizers"][0]["entities"]["one_entry"]
    words = set(entry_words(load_tokenizer("bundled:ko-mini")))
    items = EvalSet.open(bundled_eval_set()).select()
    assert share == pytest.approx(sum(item.answer in words for item in items) / len(items))
    assert 0 < share < 1


def test_unknown_tokens_are_counted_with_the_characters_behind_them(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rare.txt").write_text("시민은 뷁을 찾았다. 뷁뷁\n", "utf-8")
    (data,) = inspected(folder, capsys, "--source", f"local:{tmp_path / 'rare.txt'}")["data"]
    result = {item["model"]: (item["unknown_tokens"], item["causes"]) for item in data["tokenizers"]}
    assert result["wordpiece"] == (2, {"뷁": 3})
    assert result["bytes"] == result["unigram"] == (0, {})


@pytest.mark.parametrize(("lang", "word"), [("en", "particle glued %"), ("ko", "조사 붙음 %")])
def test_the_page_and_the_tables_speak_both_languages(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], lang: str, word: str
) -> None:
    models = [str(folder / name) for name in KINDS]
    out = tmp_path / lang
    assert run(["tokenizer", "inspect", *models, "--data", str(folder / "rows.json"), "--lang", lang, "--out", str(out)]) == 0
    message = capsys.readouterr().out
    assert word in message
    assert str(out / "tokenizers.html") in message
    for name in ("tokenizers.html", "tokenizers.md"):
        text = (out / name).read_text("utf-8")
        assert word in text
        assert all(name in text for name in KINDS)
    assert json.loads((out / "tokenizers.json").read_text("utf-8"))["data"][0]["texts"] == 24


def test_weights_are_not_needed(folder: Path) -> None:
    assert not list((folder / "unigram").glob("*.safetensors"))


def test_bad_rows_are_left_out_and_counted(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = make_raw_rows(4)
    rows[1]["subject_entity"]["start_idx"] += 1
    (tmp_path / "rows.json").write_text(json.dumps(rows, ensure_ascii=False), "utf-8")
    (data,) = inspected(folder, capsys, "--data", str(tmp_path / "rows.json"))["data"]
    assert (data["texts"], data["bad"]) == (3, 1)


BAD = {
    "empty.jsonl": ("", "has no rows"),
    "fields.jsonl": ('{"body": "글"}\n', "no usable text (1 bad rows)"),
    "broken.json": ("[{", "broken.json"),
    "texts.docx": ("x", "texts.docx"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_without_texts_is_one_sentence(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / name).write_text(BAD[name][0], "utf-8")
    assert run(["tokenizer", "inspect", str(folder / "unigram"), "--data", str(tmp_path / name)]) == 2
    assert BAD[name][1] in capsys.readouterr().err


def test_a_missing_file_a_folder_without_tokenizer_and_a_slow_one_are_one_sentence(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tokenizer", "inspect", str(folder / "unigram"), "--data", str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.json").write_text('{"model_type": "bert"}', "utf-8")
    assert run(["tokenizer", "inspect", str(tmp_path / "bare")]) == 2
    assert "has no tokenizer" in capsys.readouterr().err
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "vocab.json").write_text('{"<unk>": 0, "a": 1}', "utf-8")
    (slow / "merges.txt").write_text("#version: 0.2\n", "utf-8")
    (slow / "tokenizer_config.json").write_text('{"tokenizer_class": "CTRLTokenizer", "unk_token": "<unk>"}', "utf-8")
    (slow / "config.json").write_text('{"model_type": "ctrl"}', "utf-8")
    assert run(["tokenizer", "inspect", str(slow)]) == 2
    assert "without character offsets" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["tokenizers.html", "tokenizers.md"])
def test_text_from_the_data_stays_text(tmp_path: Path, name: str) -> None:
    (tmp_path / "rows.txt").write_text("서울 <b>굵게</b> & <script>alert(1)</script>", "utf-8")
    source = f"local:{tmp_path / 'rows.txt'}"
    assert run(["tokenizer", "inspect", "bundled:ko-mini", "--source", source, "--out", str(tmp_path / "out")]) == 0
    assert "<script>alert" not in (tmp_path / "out" / name).read_text("utf-8")
