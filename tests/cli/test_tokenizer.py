"""coref-automl tokenizer: learn under its old and new name, and inspect any number of tokenizers on any kind of texts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from coref_automl.cli.app import run
from coref_automl.evaluation.evalset import EvalSet, bundled_eval_set
from coref_automl.models.load import load_tokenizer
from coref_automl.models.vocabulary import entry_words
from tests.cli.test_prepare import rows
from tests.relation.conftest import make_raw_rows

KINDS = {
    "wordpiece": ("WordPiece", ["--kind", "wordpiece"]),
    "bpe": ("BPE", ["--kind", "bpe"]),
    "bytes": ("byte-level BPE", ["--kind", "byte-bpe"]),
    "unigram": ("Unigram with bytes", ["--kind", "unigram", "--byte-fallback"]),
}
CHAIN = {
    "doc_id": "a",
    "text": "민수는 집에 갔다. 그는 쉬었다.",
    "clusters": [[{"start": 0, "end": 2}, {"start": 11, "end": 12}]],
}
CLOZE = {"text": "시민은 _을 찾았다.", "answer": "도서관", "candidate": "공장"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts of every kind, and a tokenizer of every kind that the command learns from them."""
    made = tmp_path_factory.mktemp("tokenizers")
    lines = rows(30)
    (made / "texts.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in lines), "utf-8")
    (made / "rows.json").write_text(json.dumps(make_raw_rows(24), ensure_ascii=False), "utf-8")
    (made / "chains.jsonl").write_text(json.dumps(CHAIN, ensure_ascii=False) + "\n", "utf-8")
    (made / "cloze.jsonl").write_text(json.dumps(CLOZE, ensure_ascii=False) + "\n", "utf-8")
    (made / "plain.txt").write_text("시민은 도서관을 찾았다.\n", "utf-8")
    for name, (_, options) in KINDS.items():
        source = ["--source", f"local:{made / 'texts.jsonl'}", "--vocab-size", "1000", "--no-nouns", "--holdout", "0"]
        assert run(["tokenizer", "learn", *source, *options, "--out", str(made / name)]) == 0
    return made


def inspected(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str, models: tuple[str, ...] = ()) -> dict[str, Any]:
    capsys.readouterr()
    names = models or tuple(str(folder / name) for name in KINDS)
    assert run(["tokenizer", "inspect", *names, *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_learning_without_the_verb_is_learning(folder: Path, tmp_path: Path) -> None:
    source = ["--source", f"local:{folder / 'texts.jsonl'}", "--vocab-size", "1000", "--no-nouns", "--holdout", "0"]
    assert run(["tokenizer", *source, "--out", str(tmp_path / "old")]) == 0
    names = [
        json.loads((place / "manifest.json").read_text("utf-8"))["fingerprint"]
        for place in (tmp_path / "old", folder / "wordpiece")
    ]
    assert names[0] == names[1]


@pytest.mark.parametrize("name", KINDS)
def test_a_card_says_of_which_kind_a_tokenizer_is(folder: Path, name: str) -> None:
    card = json.loads((folder / name / "manifest.json").read_text("utf-8"))
    assert card["kind"] == KINDS[name][1][1]
    assert card["byte_fallback"] == ("--byte-fallback" in KINDS[name][1])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--byte-fallback"], "WordPiece cannot fall back on bytes"),
        (["--kind", "bpe", "--tails", "9"], "tails belong to WordPiece"),
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


@pytest.mark.parametrize(
    ("file", "kind", "texts", "entities"),
    [
        ("rows.json", "relation rows", 24, 48),
        ("chains.jsonl", "annotated chains", 1, 2),
        ("cloze.jsonl", "cloze items", 1, 1),
        ("plain.txt", "plain text", 1, 0),
        ("texts.jsonl", "plain text", 30, 0),
    ],
)
def test_every_kind_of_text_is_known_by_its_rows(
    folder: Path, capsys: pytest.CaptureFixture[str], file: str, kind: str, texts: int, entities: int
) -> None:
    (data,) = inspected(folder, capsys, "--data", str(folder / file))["data"]
    assert (data["kind"], data["texts"], data["entities"]) == (kind, texts, entities)
    assert [(one["model"], one["kind"]) for one in data["tokenizers"]] == [(name, kind) for name, (kind, _) in KINDS.items()]
    assert all((one["entities"] is None) == (entities == 0) for one in data["tokenizers"])
    assert all(len(one["cuts"]) == len(KINDS) for one in data["examples"])
    assert bool(data["examples"]) == bool(entities)


def test_sources_and_evaluation_sets_stand_beside_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ("--source", f"local:{folder / 'texts.jsonl'}", "--limit", "5", "--eval-set", str(bundled_eval_set()))
    data = inspected(folder, capsys, "--data", str(folder / "rows.json"), *more)["data"]
    assert [one["kind"] for one in data] == ["relation rows", "plain text", "cloze items"]
    assert [one["texts"] for one in data] == [5, 5, 5]
    assert {one["kind"] for one in data[2]["tokenizers"][0]["by_kind"]} <= {"real", "lambada"}


def test_the_ceiling_of_strict_is_the_share_of_answers_that_are_one_entry(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data,) = inspected(folder, capsys, "--eval-set", str(bundled_eval_set()), models=("bundled:ko-mini",))["data"]
    real = next(one for one in data["tokenizers"][0]["by_kind"] if one["kind"] == "real")
    words = set(entry_words(load_tokenizer("bundled:ko-mini")))
    items = EvalSet.open(bundled_eval_set()).items["real"]
    assert real["one_entry"] == pytest.approx(sum(item.answer in words for item in items) / len(items))
    assert 0 < real["one_entry"] < 1


def test_unknown_tokens_are_counted_with_the_characters_behind_them(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rare.txt").write_text("시민은 뷁을 찾았다. 뷁뷁\n", "utf-8")
    (data,) = inspected(folder, capsys, "--data", str(tmp_path / "rare.txt"))["data"]
    found = {one["model"]: (one["unknown_tokens"], one["causes"]) for one in data["tokenizers"]}
    assert found["wordpiece"] == (2, {"뷁": 3})
    assert found["bytes"] == found["unigram"] == (0, {})


def test_two_models_with_one_tokenizer_are_said_and_shown_once(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folder / "bpe", tmp_path / "copy")
    found = inspected(folder, capsys, "--data", str(folder / "rows.json"), models=(str(folder / "bpe"), str(tmp_path / "copy")))
    assert [one["model"] for one in found["data"][0]["tokenizers"]] == ["bpe"]
    assert found["same"] == {"copy": "bpe"}
    assert run(["tokenizer", "inspect", str(folder / "bpe"), str(tmp_path / "copy"), "--lang", "en"]) == 0
    assert "copy has the same tokenizer as bpe" in capsys.readouterr().out


@pytest.mark.parametrize(("lang", "word"), [("en", "particle glued %"), ("ko", "조사 붙음 %")])
def test_the_page_and_the_tables_speak_both_languages(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], lang: str, word: str
) -> None:
    models = [str(folder / name) for name in KINDS]
    out = tmp_path / lang
    assert run(["tokenizer", "inspect", *models, "--data", str(folder / "rows.json"), "--lang", lang, "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert word in told
    assert str(out / "tokenizers.html") in told
    for name in ("tokenizers.html", "tokenizers.md"):
        text = (out / name).read_text("utf-8")
        assert word in text
        assert all(name in text for name in KINDS)
    assert json.loads((out / "tokenizers.json").read_text("utf-8"))["data"][0]["texts"] == 24


def test_weights_are_not_needed(folder: Path) -> None:
    assert not list((folder / "bpe").glob("*.safetensors"))


def test_bad_rows_are_left_out_and_counted(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = make_raw_rows(4)
    made[1]["subject_entity"]["start_idx"] += 1
    (tmp_path / "rows.json").write_text(json.dumps(made, ensure_ascii=False), "utf-8")
    (data,) = inspected(folder, capsys, "--data", str(tmp_path / "rows.json"))["data"]
    assert (data["texts"], data["bad"]) == (3, 1)


BAD = {
    "empty.jsonl": ("", "no text in it"),
    "blank.txt": (" \n", "no text in it"),
    "fields.jsonl": ('{"body": "글"}\n', "name the field with the text `text`"),
    "broken.json": ("[{", "is not JSON"),
    "texts.docx": ("x", "unknown file type"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_without_texts_is_one_sentence(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / name).write_text(BAD[name][0], "utf-8")
    assert run(["tokenizer", "inspect", str(folder / "bpe"), "--data", str(tmp_path / name)]) == 2
    assert BAD[name][1] in capsys.readouterr().err


def test_a_missing_file_a_folder_without_tokenizer_and_a_slow_one_are_one_sentence(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tokenizer", "inspect", str(folder / "bpe"), "--data", str(tmp_path / "none.json")]) == 2
    assert "does not exist" in capsys.readouterr().err
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
    assert (
        run(["tokenizer", "inspect", "bundled:ko-mini", "--data", str(tmp_path / "rows.txt"), "--out", str(tmp_path / "out")])
        == 0
    )
    assert "<script>alert" not in (tmp_path / "out" / name).read_text("utf-8")
