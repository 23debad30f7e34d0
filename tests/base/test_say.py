"""The language of results: one decision, the same for progress, tables, verdicts and reports."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import coref_automl
from coref_automl.base.errors import RecipeError
from coref_automl.base.progress import Progress
from coref_automl.base.say import VARIABLE, catalogue, in_korean, in_words, language, speaking
from coref_automl.cli.app import run
from coref_automl.corpus import choice, encode
from coref_automl.corpus.batch import RowProblem
from coref_automl.corpus.clean import Filters, reason_to_drop
from coref_automl.extras.study.recipe import kind_name, step_kinds
from tests.comparison.conftest import Maker, Model, evaluated
from tests.extras.coreference.conftest import encoder_folder, tales, tales_file

__all__ = ["encoder_folder", "evaluated", "tales", "tales_file"]

LOCALE = ("LC_ALL", "LC_MESSAGES", "LANG")


@pytest.mark.parametrize(
    ("given", "variable", "locale", "decided"),
    [
        ("ko", "en", {"LANG": "en_US.UTF-8"}, "ko"),
        (None, "ko", {"LANG": "en_US.UTF-8"}, "ko"),
        (None, None, {"LANG": "ko_KR.UTF-8"}, "ko"),
        (None, None, {"LANG": "ko_KR.UTF-8", "LC_ALL": "C"}, "en"),
        (None, None, {"LANG": "de_DE.UTF-8"}, "en"),
        (None, None, {"LANG": "kok_IN.UTF-8"}, "en"),
        (None, None, {"LANG": "ko"}, "ko"),
        (None, None, {}, "en"),
        (None, "", {"LC_MESSAGES": "ko"}, "ko"),
    ],
)
def test_option_then_variable_then_locale_decide(
    given: str | None, variable: str | None, locale: dict[str, str], decided: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (VARIABLE, *LOCALE):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({VARIABLE: variable} | locale).items():
        if value is not None:
            monkeypatch.setenv(name, value)
    assert language(given) == decided


def test_another_language_is_refused_by_the_name_of_what_asked_for_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compare", "runs", "--lang", "fr"]) == 2
    assert "told in ko and en, not 'fr'; correct --lang." in capsys.readouterr().err
    monkeypatch.setenv(VARIABLE, "fr")
    with pytest.raises(RecipeError, match=f"not 'fr'; correct {VARIABLE}"):
        language()


def test_lang_speaks_for_one_command_alone(evaluated: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    root = str(evaluated([Model("base", 0, -1.0), Model("run", 100, 0.8)]))
    assert run(["compare", root, "--lang", "ko"]) == 0
    korean = capsys.readouterr().out
    assert "체크포인트" in korean
    assert "더 좋음" in korean
    assert run(["compare", root]) == 0
    english = capsys.readouterr().out
    assert "checkpoint" in english
    assert "better" in english


ENGLISH = re.compile(r"[A-Za-z]{2,}(?: [a-z]{2,}){2}")
"""Three words in a row: a name of a metric or of an option has fewer."""


def test_what_is_told_in_korean_holds_no_english_sentence(
    evaluated: Maker,
    encoder_folder: Path,
    tales_file: Path,
    tmp_path_factory: pytest.TempPathFactory,
    capfd: pytest.CaptureFixture[str],
) -> None:
    runs, out = evaluated([Model("base", 0, -1.0), Model("run", 100, 0.8)]), tmp_path_factory.mktemp("told")
    lines = f"""
        compare {runs}
        report {runs} --out {out}/report
        archive {runs} --out {out}/kept
        sources
        re explore bundled:relations
        coref explore {tales_file}
        coref train --model {encoder_folder} --data {tales_file} --folds 2 --epochs 1 --device cpu --out {out}/coref
        coref predict 민수는.그는.
    """
    for line in lines.strip().splitlines():
        assert run([*line.split(), "--lang", "ko"]) == 0, line
        text = "".join(capfd.readouterr())
        assert re.search("[가-힣]", text), line
        assert not ENGLISH.findall(text), line
        assert run([*line.split(), "--lang", "en"]) == 0
        assert "니다" not in "".join(capfd.readouterr()), line


def test_progress_is_in_the_same_language(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "ko")
    with Progress(shown=False).stage("scoring runs/a/checkpoint-65", 200, "items") as stage:
        stage.skip(50)
        assert stage.line() == "채점 runs/a/checkpoint-65: 문항 50/200"
    with Progress(shown=False, lang="en").stage("scoring", 200, "items") as stage:
        assert stage.line() == "scoring: 0 of 200 items"
    with Progress(shown=False, lang="en").stage("Finding items in texts", 1, "documents") as stage:
        stage.advance()
        assert stage.line() == "Finding items in texts: 1 of 1 document"
        assert stage.end().startswith("Finding items in texts: 1 document in ")


def test_a_stage_is_named_in_korean_as_a_whole() -> None:
    assert in_korean("Finding items in texts") == "텍스트에서 문항 찾기"
    assert in_korean("Finding lambada items in bundled:cloze") == "bundled:cloze에서 lambada 문항 찾기"
    assert in_korean("reading list") == "reading list"
    with speaking("ko"):
        assert [kind_name(kind) for kind in step_kinds()] == ["학습", "평가", "관계 추출", "상호참조 해결"]
    with Progress(shown=False, lang="ko").stage("study", 21, "steps") as stage:
        stage.skip(2)
        assert stage.line() == "비교 실험: 단계 2/21"


def _filled(words: ast.JoinedStr) -> str:
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in words.values)


def test_every_stage_and_unit_of_the_package_has_a_korean_name() -> None:
    result = set()
    for path in Path(coref_automl.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("stage", "track"):
                words = [*node.args, *(keyword.value for keyword in node.keywords)]
                result |= {word.value for word in words if isinstance(word, ast.Constant) and isinstance(word.value, str)}
                result |= {_filled(word) for word in words if isinstance(word, ast.JoinedStr)}
    assert len(result) > 20
    assert {name for name in result if in_korean(name) == name} == set()
    assert set(catalogue().values()).isdisjoint(catalogue())


def test_reasons_for_dropped_rows_follow_the_language() -> None:
    filtered = reason_to_drop("가", Filters(min_characters=400)), reason_to_drop("a", Filters(0, 0.5))
    known = (*choice.REASONS[1:], *encode.REASONS[1:], "begins inside a word", *filtered)
    with speaking("ko"):
        translated = [in_words(reason) for reason in known if reason]
        assert all(re.search("[가-힣]", item) for item in translated)
        assert in_words("under 400 characters") == "400자 미만"
        reason = "the subject '물' does not occur in the sentence; characters 0..1 are '불은'"
        korean = "3행 (a-1): 주체 '물'이(가) 문장에 없음; 글자 0..1 위치는 '불은'임"
        assert RowProblem(3, "a-1", reason).in_words() == korean
        assert in_words("something new") == "something new"
    with speaking("en"):
        assert RowProblem(3, "", "the label is missing").in_words() == "row 3: the label is missing"
