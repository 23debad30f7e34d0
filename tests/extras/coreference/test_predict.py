from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import pytest

import coref_automl
from coref_automl.base.errors import InputError
from coref_automl.cli.app import run as command
from coref_automl.extras.coreference.conventions import explore
from coref_automl.extras.coreference.data import read_coref
from coref_automl.extras.coreference.drawing import in_html
from coref_automl.extras.coreference.evaluate import models_of
from coref_automl.extras.coreference.predict import Resolved, in_brackets, in_colour, with_names
from coref_automl.extras.coreference.recipe import BUNDLED
from coref_automl.extras.coreference.resolve import FoundChains, without_aliases

STORY = "영수는 시장에서 어머니를 만났다. 어머니는 영수의 손을 잡았다. 그는 어머니와 함께 집으로 돌아왔다."


@pytest.fixture(scope="module")
def resolved() -> Resolved:
    return coref_automl.coreference(STORY)  # type: ignore[operator]


def test_the_bundled_head_finds_who_is_who(resolved: Resolved) -> None:
    assert resolved.strings == [["영수", "영수", "그"], ["어머니", "어머니", "어머니"]]
    assert all(
        resolved.text[a:b] == form
        for chain, forms in zip(resolved.chains, resolved.strings, strict=True)
        for (a, b), form in zip(chain, forms, strict=True)
    )
    assert "ko-coref, annotated by a language model" in resolved.note


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("한국은행(BOK)이 밝혔다.", False),
        ("한국은행(BOK)이 밝혔다. BOK는 쉰다.", True),
        ("한국은행은 국내외의 여러 기관과 오랫동안 함께 일해 온 곳이고 물가(BOK 집계)를 본다.", True),
        ("한국은행이 BOK로 불린다.", True),
    ],
)
def test_a_form_in_brackets_alone_makes_no_chain(text: str, kept: bool) -> None:
    spans = tuple(match.span() for match in re.finditer("한국은행|BOK", text))
    chain = tuple(range(len(spans)))
    found = FoundChains(spans, (chain,), ())
    assert without_aliases(text, found) == ((chain,) if kept else ((0,), (1,)))


def test_score_tells_two_mentions_of_one_chain_from_two_of_different_ones(resolved: Resolved) -> None:
    assert resolved.score("영수", "그") > 0.5 > resolved.score("그", "어머니")
    assert resolved.score("그", "영수") == resolved.score(resolved.chains[0][0], resolved.chains[0][2])
    with pytest.raises(InputError, match="is not one of the mentions found"):
        resolved.score("시장", "그")


def test_score_knows_that_an_inner_mention_comes_after_its_outer_one() -> None:
    outer, inner, other = (0, 6), (0, 1), (7, 8)
    links = ((inner, outer, 0.75), (other, inner, 0.5), (other, outer, 0.25))
    resolved = Resolved("그의 어머니 그", ((outer, inner), (other,)), (), links, "m", "")
    assert resolved.score(inner, outer) == resolved.score(outer, inner) == 0.75
    assert resolved.score(outer, other) == resolved.score(inner, other) == 0.75
    separate = Resolved("그의 어머니 그", ((outer, other),), (inner,), links, "m", "")
    assert (separate.score(inner, other), separate.score(outer, other)) == (0.5, 0.25)


def test_a_record_shows_itself_and_comes_back_from_json(resolved: Resolved) -> None:
    shown: list[str] = []
    resolved._repr_pretty_(SimpleNamespace(text=shown.append), False)  # as a notebook calls it
    assert shown[0].startswith(f"{resolved.localized_note}\n\x1b[30;46m영수\x1b[0m")
    assert "[영수]1는 시장에서 [어머니]2를" in str(resolved)
    assert Resolved.from_json(json.loads(json.dumps(resolved.to_json()))) == resolved


def test_the_room_stays_callable_after_its_modules_are_imported() -> None:
    code = "import coref_automl.extras.coreference.data, coref_automl; print(callable(coref_automl.coreference))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_nested_mentions_are_shown_inside_each_other() -> None:
    text, chains = "그의 어머니가 <왔다>", (((0, 6),), ((0, 1),))
    assert in_brackets(text, chains) == "[[그]2의 어머니]1가 <왔다>"
    assert "\x1b[30;43m그\x1b[0m" in in_colour(text, chains)
    html = in_html(text, chains)
    assert html.count("<mark") == html.count("</mark>") == 2
    assert "&lt;왔다&gt;" in html


def test_an_empty_text_has_no_chains() -> None:
    resolved = coref_automl.coreference(" \n ")  # type: ignore[operator]
    assert resolved.chains == ()
    assert resolved.lines()[-1] == "No chains found."
    with pytest.raises(InputError, match="pass a string"):
        coref_automl.coreference(None)  # type: ignore[operator]


def test_a_long_text_is_read_with_progress_and_equal_chains(capsys: pytest.CaptureFixture[str]) -> None:
    long = "\n".join([STORY] * 30)
    resolved = coref_automl.coreference(long)  # type: ignore[operator]
    chains = {frozenset(forms): len(forms) for forms in resolved.strings}
    assert chains[frozenset({"영수", "그"})] > 60
    assert chains[frozenset({"어머니"})] > 60


def test_the_head_is_small_and_carries_what_it_learned_from() -> None:
    (folder,) = models_of(BUNDLED)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 4_000_000
    assert len(json.loads((folder / "learned_from.json").read_text("utf-8"))) == 4_772


def test_commands_end_to_end(
    tmp_path: Path, tales_file: Path, encoder_folder: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["coref", "predict", STORY, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["strings"][0] == ["영수", "영수", "그"]
    (tmp_path / "story.txt").write_text(STORY, "utf-8")
    assert command(["coref", "predict", "--file", str(tmp_path / "story.txt"), "--html", str(tmp_path / "a.html")]) == 0
    assert "[영수]1는" in capsys.readouterr().out
    assert "<mark" in (tmp_path / "a.html").read_text("utf-8")
    assert command(["coref", "predict", "민수는 노인을 만났다. 그는 웃었다.", "--model", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == str(run)
    assert command(["coref", "evaluate", str(run), "--data", str(tales_file)]) == 0
    assert "CoNLL, found mentions" in capsys.readouterr().out
    assert command(["coref", "explore", str(tales_file), "--json", "--write", str(tmp_path / "a.jsonl")]) == 0
    facts = json.loads(capsys.readouterr().out)[0]
    assert facts["mentions"] == read_coref(tmp_path / "a.jsonl").mentions


def test_the_name_of_a_file_is_not_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("긴 글.txt").write_text(STORY, "utf-8")
    Path("rows.jsonl").write_text("{}\n", "utf-8")
    advice_for = {
        ("긴 글.txt",): "--file '긴 글.txt'",
        ("--file", "rows.jsonl"): "--data rows.jsonl",
        ("rows.jsonl",): "--data rows.jsonl",
    }
    for line, advice in advice_for.items():
        assert command(["coref", "predict", *line]) == 2
        assert f"is a file, not a text; run: coref-automl coref predict {advice}" in capsys.readouterr().err


def test_an_empty_text_is_refused_wherever_it_is_read_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "zero.txt").write_bytes(b"\xef\xbb\xbf\n")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    for source in ([""], [" "], ["--file", str(tmp_path / "zero.txt")], []):
        assert command(["coref", "predict", *source]) == 2
        shown = capsys.readouterr()
        assert "The text is empty" in shown.err
        assert not shown.out


def test_a_text_that_is_hardly_korean_says_so_in_python() -> None:
    resolved = coref_automl.coreference("Obama was born in Hawaii. He was elected president.")  # type: ignore[operator]
    assert str(resolved).endswith("pass a Korean text.")


def test_links_have_a_probability_and_pronouns_become_names(
    tmp_path: Path, resolved: Resolved, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [len(chain) for chain in resolved.confidence] == [len(chain) for chain in resolved.chains]
    assert resolved.confidence[0][0] is None
    assert resolved.confidence[0][2] == pytest.approx(resolved.score("영수", "그"), abs=1e-3)
    assert resolved.named.endswith("영수는 어머니와 함께 집으로 돌아왔다.")
    assert command(["coref", "predict", STORY, "--resolve"]) == 0
    shown = capsys.readouterr()
    assert shown.out.strip() == resolved.named
    assert "annotated by a language model" in shown.err
    apart = unicodedata.normalize("NFD", STORY)
    assert [[unicodedata.normalize("NFC", form) for form in forms] for forms in coref_automl.coreference(apart).strings] == (  # type: ignore[operator]
        resolved.strings
    )


def test_a_pronoun_takes_the_name_and_its_particle_fits() -> None:
    text = "민준은 갔다. 그는 내 손을 잡았다. 난 그로 알았다. 그녀를 봤다."
    starts = {form: text.index(form) for form in ("민준", "그는", "내", "난", "그로", "그녀")}
    chain = [(starts["민준"], starts["민준"] + 2), *((starts[form], starts[form] + 1) for form in ("그는", "내", "난", "그로"))]
    alone = [(starts["그녀"], starts["그녀"] + 2)]
    assert with_names(text, [chain, alone]) == "민준은 갔다. 민준은 민준의 손을 잡았다. 민준은 민준으로 알았다. 그녀를 봤다."


def test_annotate_writes_data_to_correct_and_never_over_corrections(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.txt").write_text(STORY, "utf-8")
    (tmp_path / "empty.txt").touch()
    out = tmp_path / "c.jsonl"
    assert command(["coref", "annotate", str(tmp_path), "--out", str(out)]) == 0
    assert [document.id for document in read_coref(out).documents] == ["a", "b", "empty"]
    assert [len(chain) for chain in read_coref(out).documents[0].chains] == [3, 3]
    assert json.loads(out.read_text("utf-8").split("\n")[0])["clusters"][0][1]["link"] > 0.5
    assert command(["coref", "annotate", str(tmp_path), "--out", str(out)]) == 2
    assert "would be lost" in capsys.readouterr().err


def test_wrong_commands_say_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, reason in (
        (["coref", "predict", "x", "--file", "y"], "not both"),
        (["coref", "predict", "x", "--model", str(tmp_path)], "make one with: coref-automl coref train"),
        (["coref", "predict", "--file", str(tmp_path / "none.txt")], "Cannot read"),
        (["coref", "train", "--model", "m", "--data", "d.jsonl", "--out", "o", "--folds", "1"], "at least 2"),
        (["coref", "evaluate", BUNDLED, "--data", str(tmp_path / "none.jsonl")], "Cannot read"),
    ):
        assert command(words) == 2
        assert reason in capsys.readouterr().err


def test_explore_says_whether_particles_are_counted_in(tales_file: Path) -> None:
    facts = explore(read_coref(tales_file))
    assert facts.convention.edges == "bare"
    assert "Convention: bare (without particles)" in "\n".join(facts.lines())


def test_no_two_found_mentions_cross_or_end_on_one_token() -> None:
    text = "사냥꾼이 떠나자 사슴은 그에게 절을 했다. 그의 늙은 어머니가 기다리고 있었다. 아버님이 선생님께 큰 힘이 되셨겠군요."
    resolved = coref_automl.coreference(text)  # type: ignore[operator]
    spans = sorted({*(span for chain in resolved.chains for span in chain), *resolved.singles})
    assert len(spans) >= 4
    assert len({end for _, end in spans}) == len(spans)
    assert not [(a, b) for a in spans for b in spans if a[0] < b[0] < a[1] < b[1]]


def test_a_list_of_texts_and_a_file_of_rows_are_resolved_as_each_text(
    tmp_path: Path, resolved: Resolved, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [STORY, "비가 왔다."]
    first, second = coref_automl.coreference(texts)  # type: ignore[operator]
    assert first == resolved
    data = tmp_path / "in.jsonl"
    data.write_text("".join(json.dumps({"id": at, "text": text}) + "\n" for at, text in enumerate(texts)), "utf-8")
    line = ["coref", "predict", "--data", str(data), "--out", str(tmp_path / "out"), "--resolve"]
    assert command(line) == 0
    rows = [json.loads(line) for line in Path(capsys.readouterr().out.split(": ")[0]).read_text("utf-8").splitlines()]
    assert [row["strings"] for row in rows] == [first.strings, second.strings]
    assert rows[0] == {
        "id": 0, "text": STORY, "chains": [[list(span) for span in chain] for chain in first.chains],
        "strings": first.strings, "resolved": first.named,
    }  # fmt: skip
    assert command([*line, STORY]) == 2
    assert "--data is for a file of rows and TEXT for one text" in capsys.readouterr().err
