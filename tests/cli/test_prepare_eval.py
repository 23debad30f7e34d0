"""coref-automl prepare eval: what it prints, and how it says no."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coref_automl.cli.app import run
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.evaluation.recipe import EvalRecipe
from coref_automl.models.vocabulary import entry_words
from tests.evaluation.test_prepare import text_of, write
from tests.evaluation.tiny import tokenizer_of


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    tokenizer_of("wordpiece").save_pretrained(tmp_path / "model")
    source = write(tmp_path / "news.jsonl", [{"id": f"n{number}", "text": text_of(number)} for number in range(4)])
    return ["prepare", "eval", "--source", source, "--model", str(tmp_path / "model"), "--all-documents"]


def test_counts_drops_and_the_fingerprint_are_printed(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, "--out", str(tmp_path / "set")]) == 0
    shown = capsys.readouterr().out
    evalset = EvalSet.open(tmp_path / "set")
    assert evalset.fingerprint in shown
    assert f"real: {len(evalset.items['real'])} items of 4 documents" in shown
    assert "dropped: " in shown


def test_json_is_the_manifest_and_nothing_else(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*arguments, "--task", "real", "--output-dir", str(tmp_path / "set"), "--json"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out) == EvalSet.open(tmp_path / "set").manifest
    assert output.err == ""


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["--task", "reel"], "Did you mean 'real'"),
        (["--task", "lambada"], "--lambada"),
        (["--holdout", "3"], "holdout should be"),
    ],
)
def test_a_wrong_request_ends_with_status_2(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], extra: list[str], words: str
) -> None:
    assert run([*arguments, "--out", str(tmp_path / "set"), *extra]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "set").exists()


def test_the_tasks_are_those_that_the_inputs_allow_and_help_names_no_other_default(capsys: pytest.CaptureFixture[str]) -> None:
    recipes = {name: EvalRecipe(models=("m",), **{name: ("x",)}).tasks for name in ("sources", "lambada")}  # type: ignore[arg-type]
    assert recipes == {"sources": ("real", "new", "real-far"), "lambada": ("lambada",)}
    assert run(["prepare", "eval", "--help"]) == 0
    of_task = capsys.readouterr().out.split("--task ")[1].split(" --")[0]
    assert of_task.lower().count("default:") == 1


def test_noun_tables_alone_need_a_set_that_stands(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = arguments[arguments.index("--model") + 1]
    assert run(["prepare", "eval", "--model", model, "--out", str(tmp_path / "none")]) == 2
    assert f"{tmp_path / 'none'} does not exist; check the path" in capsys.readouterr().err
    (tmp_path / "none").mkdir()
    assert run(["prepare", "eval", "--model", model, "--out", str(tmp_path / "none")]) == 2
    advice = capsys.readouterr().err.strip().partition("build one with: coref-automl ")[2]
    named = {"SOURCE": arguments[arguments.index("--source") + 1], "MODEL": model}
    assert run([*(named.get(word, word) for word in advice.split()), "--all-documents"]) == 0


def test_answers_of_one_vocabulary_entry_and_more_nouns_a_document_can_be_asked_for(arguments: list[str], tmp_path: Path) -> None:
    def items(name: str, *extra: str) -> list[tuple[str, str]]:
        assert run([*arguments, "--task", "real", "--out", str(tmp_path / name), *extra]) == 0
        return [(item.document, item.answer) for item in EvalSet.open(tmp_path / name).items["real"]]

    words = set(entry_words(tokenizer_of("wordpiece")))
    every, single, one = (
        items("every", "--per-document", "99"),
        items("single", "--per-document", "99", "--single-entry"),
        items("one", "--per-document", "1"),
    )
    assert any(answer not in words for _, answer in every)
    assert single == [(document, answer) for document, answer in every if answer in words]
    assert len({document for document, _ in one}) == len(one) < len(every)
    dropped = EvalSet.open(tmp_path / "single").manifest["tasks"]["real"]["drops"]
    assert dropped["not one vocabulary entry"] == len(every) - len(single)


def test_a_set_of_another_version_is_refused_with_the_command_that_makes_a_new_one(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "set"
    assert run([*arguments, "--out", str(out)]) == 0
    manifest = json.loads((out / "manifest.json").read_text("utf-8"))
    (out / "manifest.json").write_text(json.dumps({**manifest, "version": 3}), "utf-8")
    assert run(["evaluate", "bundled:ko-mini", "--eval-set", str(out)]) == 2
    assert "make a new set: coref-automl prepare eval" in capsys.readouterr().err
