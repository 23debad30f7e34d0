"""report: every section computed, everything escaped, both languages, and whatever state the folder is in."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from coref_automl.cli.app import run as command
from coref_automl.errors import ComparisonError, FolderError, RecipeError
from coref_automl.report import charts
from coref_automl.report.checkpoint_report import Report, checkpoint_page, report
from coref_automl.report.language import Say
from coref_automl.report.page import Table
from coref_automl.report.printout import recommend
from coref_automl.report.subject import read_subject
from coref_automl.store import mark_done, read_json, write_json
from tests.comparison.conftest import Maker, Model, make_scores, write_evaluation
from tests.evaluation.tiny import freeze_tiny

SECTIONS = {"evidence", "next", "claims", "arms", "curves", "differences", "rating", "checkpoints", "data", "reading"}


@pytest.fixture(autouse=True, scope="module")
def _light_runtime() -> Iterator[None]:
    """The drawing library takes seconds to bundle; the browser test uses the real one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charts, "runtime", lambda: "window.vegaEmbed = undefined;")
        yield


@pytest.fixture(scope="module")
def made(study_source: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The Korean report of the study, made once."""
    return report(study_source, tmp_path_factory.mktemp("made"), target="real1=0.68,real5=83", lang="ko")


def page_data(page: Path) -> dict:
    found = re.search(r'<script type="application/json" id="page-data">(.*?)</script>', page.read_text("utf-8"), re.DOTALL)
    assert found
    return json.loads(found.group(1))


def test_a_report_has_every_section_and_opens_with_the_answers(made: Report) -> None:
    text = Path(made.page).read_text("utf-8")
    assert made.answer is not None
    asked = {question.id for question in made.answer.questions}
    assert set(re.findall(r'<section id="([\w-]+)"', text)) == SECTIONS | asked | {"explorer"}
    order = ("hero", "answer-table", "keep", "limits")
    places = [*(text.index(f'class="{name}"') for name in order), text.index('id="evidence"'), text.index('id="next"')]
    assert places == sorted(places)
    assert places[-1] < text.index('id="part-questions"') < text.index('id="part-appendix"')
    assert made.answer.highest in Path(made.markdown).read_text("utf-8")
    assert '<html lang="ko">' in text
    assert "외부 확인은 관계 추출과 상호참조 해결" in text
    assert text.count('id="chart-') == len(page_data(Path(made))["charts"]) >= 8


def test_the_contents_have_five_entries_and_every_question_of_the_answer_table_has_its_section(made: Report) -> None:
    text = Path(made.page).read_text("utf-8")
    contents = re.search(r"<nav.*?</nav>", text, re.DOTALL)
    assert contents
    parts = re.findall(r'href="#([\w-]+)"', contents.group())
    assert parts == ["answer", "part-evidence", "part-next", "part-questions", "part-appendix"]
    asked = re.findall(r'<th scope="row"><a href="#([\w-]+)"', text)
    assert made.answer is not None
    assert asked == [question.id for question in made.answer.questions]
    for name in asked:
        assert f'<section id="{name}" class="fold"><details><summary>' in text


def test_every_table_of_results_says_which_documents_it_shows(study_source: Path) -> None:
    subject = read_subject([str(study_source)], Say("en"))
    bare = {section.id for section in checkpoint_page(subject).sections for block in section.blocks
            if isinstance(block, Table) and not block.shows}  # fmt: skip
    assert bare <= {"data", "relation", "coreference"}  # counts, and numbers with a split of their own


def test_where_nothing_beats_the_base_the_headline_says_so_and_what_it_would_take(evaluated: Maker, tmp_path: Path) -> None:
    root = evaluated([Model("base", 0, 0.0), Model("run", 100, 0.02), Model("run", 200, 0.03)])
    for lang, headline, takes in (
        ("en", "Keep the base: nothing here is shown to beat it", r"This study detects a gain of [\d.]+ points with 80% power"),
        ("ko", "원래 모델 유지: 더 나은 것이 확인되지 않았습니다", r"이 실험으로 검출되는 향상: [\d.]+점"),
    ):
        text = Path(report(root, tmp_path / lang, lang=lang).page).read_text("utf-8")
        assert f'<h1 class="headline">{headline}</h1>' in text
        assert re.search(takes, text)
        assert re.findall(r'data-copy="([\w-]+)"', text) == ["keep-command"]
        assert "tune-smoke" not in text


@pytest.mark.parametrize(
    ("metric", "inputs"),
    [
        ("real1_strict", "--source kowiki( --per-source \\d+)?"),
        ("lambada_top1_strict", "--lambada FILE"),
        ("gold_word", "--gold FILE"),
        ("score_strict", "--source kowiki( --per-source \\d+)? --lambada FILE"),
    ],
)
def test_the_next_command_builds_items_of_the_metric(evaluated: Maker, tmp_path: Path, metric: str, inputs: str) -> None:
    root = evaluated([Model("base", 0, 0.0), Model("run", 100, 0.02)], documents=16, tasks=("real", "lambada", "gold"))
    text = Path(report(root, tmp_path / "out", lang="en", metric=metric).markdown).read_text("utf-8")
    assert re.search(f"coref-automl prepare eval {inputs} --model", text)


def test_a_floor_and_identical_answers_are_told_in_words(evaluated: Maker, tmp_path: Path) -> None:
    root = evaluated([Model("base", 0, -20.0), Model("run", 100, -20.0), Model("run", 200, -20.0)])
    text = Path(report(root, tmp_path / "page", lang="en").markdown).read_text("utf-8").split("## ")[0]
    assert "Floor effect: scores are too low for a difference to show." in text
    assert "[+0.0, +0.0]" not in text
    assert "the same on every item" in text


def test_what_to_keep_can_be_copied_with_its_next_command(made: Report) -> None:
    text = Path(made.page).read_text("utf-8")
    path = re.search(r'<code id="keep-path">(.*?)</code>', text)
    command_ = re.search(r'<code id="keep-command">(.*?)</code>', text)
    assert path
    assert command_
    assert Path(path[1]).name.startswith("checkpoint-")
    assert command_[1].startswith(f"coref-automl re train --model {path[1]} ")
    assert re.findall(r'data-copy="([\w-]+)"', text) == ["keep-path", "keep-command"]


def test_a_korean_report_names_baselines_and_columns_in_korean(made: Report) -> None:
    text = Path(made.markdown).read_text("utf-8")
    assert "| 최빈 명사 복사 |" in text
    assert "copy-most-frequent" not in text
    assert "| seed |" not in text


def test_english_and_korean_say_the_same_numbers(study_folder: Path, tmp_path: Path) -> None:
    korean, english = (
        Path(report(study_folder, tmp_path / lang, lang=lang).markdown).read_text("utf-8") for lang in ("ko", "en")
    )
    interval = re.compile(r"[\d.]+ \[[-+\d.]+, [-+\d.]+\]")
    assert interval.findall(korean) == interval.findall(english)
    assert len(interval.findall(korean)) > 50
    body = re.sub(r"```.*?```", "", english, flags=re.DOTALL)
    assert not re.search(r"[가-힣]", body)


def test_the_same_inputs_give_the_same_bytes(made: Report, study_source: Path, tmp_path: Path) -> None:
    again = report(study_source, tmp_path, target="real1=0.68,real5=83", lang="ko")
    assert Path(made).read_bytes() == Path(again).read_bytes()


def test_nothing_from_the_data_becomes_markup(study_folder: Path, tmp_path: Path) -> None:
    shutil.move(study_folder / "mlm_a", study_folder / "<img src=x onerror=alert(1)>")
    made = report(study_folder, tmp_path / "out")
    text = Path(made.page).read_text("utf-8")
    assert "<img" not in text
    assert "<script>window.hacked" not in text
    assert "&lt;img src=x" in text
    assert "<img" not in re.sub(r"```.*?```", "", Path(made.markdown).read_text("utf-8"), flags=re.DOTALL)
    explorer = page_data(Path(made))["explorer"]
    assert any(name.startswith("<img") for name in explorer["models"])


def test_the_page_allows_no_request_and_names_its_scripts(made: Report) -> None:
    text = Path(made).read_text("utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy
    assert "default-src &#39;none&#39;" in policy.group(1)
    assert policy.group(1).count("sha256-") == 2
    assert "unsafe-eval" not in policy.group(1)
    assert not re.findall(r'(?:src|href)="(?!#|data:,)', text)


def test_the_explorer_keeps_the_items_that_part_the_models(made: Report) -> None:
    explorer = page_data(Path(made))["explorer"]
    assert len(explorer["items"]) == 300
    assert explorer["models"][explorer["b"]] == "base"
    a, b = explorer["a"], explorer["b"]
    parted = [item for item in explorer["items"] if item["hits"][a] != item["hits"][b]]
    assert len(parted) > 100


def reported(lang: str = "en", *paths: str) -> tuple[str, dict]:
    """The report that the command writes of the working folder: its page, and what its explorer holds."""
    assert command(["report", *(paths or ("runs/a", "base")), "--out", "out", "--lang", lang]) == 0
    page = Path("out/report.html")
    return page.read_text("utf-8"), page_data(page)["explorer"]


def test_the_explorer_shows_the_passages_of_what_was_evaluated(scored: Path) -> None:
    page, explorer = reported()
    assert len(explorer["items"]) == 5
    assert explorer["fault"] == ""
    assert 'id="fault"' not in page
    assert {piece[0] for item in explorer["items"] for piece in item["text"]} == {"text", "gap", "antecedent", "cut"}
    for item in explorer["items"]:
        assert [piece[1] for piece in item["text"] if piece[0] == "gap"] == [item["answer"]]
        assert sum(len(piece[1]) for piece in item["text"]) < 700
    assert "<script>window.hacked" not in page
    assert f"--eval-set {scored / 'evalsets/mine'}" in page


@pytest.mark.parametrize("lang", ["ko", "en"])
def test_a_set_that_moved_is_told_of_and_found_again(scored: Path, lang: str) -> None:
    Path("evalsets/mine").rename("evalsets/yours")
    page, explorer = reported(lang)
    assert not any("text" in item for item in explorer["items"])
    assert str(scored / "evalsets/mine") in explorer["fault"]
    assert "coref-automl evaluate" in explorer["fault"]
    assert '<p id="fault">' in page
    assert "--eval-set EVALSET" in page
    before = sorted(Path().rglob("items.jsonl"))
    assert command(["evaluate", "runs/a", "base", "--eval-set", "evalsets/yours", "--device", "cpu"]) == 0
    page, explorer = reported(lang)
    assert all(item["text"] for item in explorer["items"])
    assert f"--eval-set {scored / 'evalsets/yours'}" in page
    assert sorted(Path().rglob("items.jsonl")) == before  # no second copy under the new name


def test_another_set_in_its_place_lends_no_passage(scored: Path) -> None:
    shutil.rmtree("evalsets/mine")
    freeze_tiny(Path("evalsets/mine"))
    _, explorer = reported()
    assert not any("text" in item for item in explorer["items"])
    assert "no longer at" in explorer["fault"]


def test_an_archive_says_that_it_holds_no_text(scored: Path) -> None:
    assert command(["archive", "runs/a", "base", "--out", "kept"]) == 0
    page, explorer = reported("en", "kept")
    assert explorer["items"] == []
    assert (
        explorer["fault"]
        == "An archive holds no text, so there are no items to explore; make the report from the evaluations themselves."
    )
    assert explorer["fault"] in page
    assert 'id="filters"' not in page


def test_plans_that_would_start_from_one_checkpoint_are_one_plan(scored: Path, study_source: Path, tmp_path: Path) -> None:
    plans = re.compile(r"coref-automl train --model (\S+)")
    page, _ = reported("en", "runs/a/checkpoint-2", "base")
    assert plans.findall(page) == ["runs/a/checkpoint-2"]
    assert "A: the highest checkpoint; the checkpoint named above; the highest at the longest length" in page
    several = Path(report(study_source, tmp_path / "several", lang="en")).read_text("utf-8")
    started = plans.findall(several)
    assert len(set(started)) == len(started) == 2


def test_results_csv_holds_every_checkpoint_and_metric(made: Report) -> None:
    with Path(made.results).open(encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    assert len(rows) == 8
    assert {row["finding"] for row in rows} >= {"", "better"}
    for row in rows:
        assert float(row["real1_low"]) <= float(row["real1"]) <= float(row["real1_high"])


def test_one_checkpoint_alone_makes_a_report_without_comparisons(evaluated: Maker, tmp_path: Path) -> None:
    made = report(evaluated([Model("run", 100, 0.5)]), tmp_path / "out")
    text = Path(made.page).read_text("utf-8")
    assert 'class="answer-table"' not in text
    assert 'id="differences"' not in text
    assert 'id="checkpoints"' in text


def test_where_no_base_was_evaluated_none_is_spoken_of(evaluated: Maker, tmp_path: Path) -> None:
    text = Path(
        report(evaluated([Model("run", 100, 0.2), Model("run", 200, 0.6)]), tmp_path / "out", lang="en").markdown
    ).read_text("utf-8")
    assert "No base to compare with" in text.split("\n## ")[0]


def test_other_sets_are_listed_and_never_pooled(evaluated: Maker, tmp_path: Path) -> None:
    evaluated([Model("base", 0, -1), Model("run", 100, 0.5), Model("run", 200, 0.6)])
    root = evaluated([Model("base", 0, -1), Model("run", 100, 0.5)], set_name="b")
    made = report(root, tmp_path / "out", lang="en")
    text = Path(made.markdown).read_text("utf-8")
    assert "## Other evaluation sets" in text
    assert "| b | items-b |" in text
    assert "on 2 sets" not in text
    assert (
        Path(report(root, tmp_path / "b", eval_set="b", lang="en").markdown).read_text("utf-8").splitlines()[2].startswith("b ·")
    )
    with pytest.raises(ComparisonError, match="No evaluation on the set 'c'"):
        report(root, tmp_path / "c", eval_set="c")


def test_a_run_still_training_is_reported_as_it_stands(evaluated: Maker, tmp_path: Path) -> None:
    root = evaluated([Model("run", 100, 0.5), Model("run", 200, 0.6)])
    (root / "run" / "events.ndjson").write_text("", "utf-8")
    assert "Still training: run" in Path(report(root, tmp_path / "out", lang="en").markdown).read_text("utf-8")
    mark_done(root / "run")
    assert "Still training" not in Path(report(root, tmp_path / "out", lang="en").markdown).read_text("utf-8")


def test_a_half_written_file_is_reported_on_what_is_whole(study_folder: Path, tmp_path: Path) -> None:
    path = next(study_folder.rglob("checkpoint-195/items.jsonl"))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 8])
    text = Path(report(study_folder, tmp_path / "out", lang="en").markdown).read_text("utf-8")
    assert "items are missing from some evaluations" in text


def test_a_path_without_evaluations_is_named(evaluated: Maker, tmp_path: Path) -> None:
    root = evaluated([Model("run", 100, 0.5), Model("run", 200, 0.6)])
    (tmp_path / "new").mkdir()
    for lang, told in (("en", f"No finished evaluation under {tmp_path / 'new'}"), ("ko", f"{tmp_path / 'new'}에는 끝난 평가가")):
        text = Path(report(root / "run", tmp_path / "new", out=tmp_path / "out", lang=lang).page).read_text("utf-8")
        assert told in text
        assert f"coref-automl evaluate {tmp_path / 'new'}" in text


def test_relation_runs_alone_are_no_report(tmp_path: Path) -> None:
    write_json(tmp_path / "re" / "re_results.json", {"micro_f1": 60.0})
    with pytest.raises(
        ComparisonError, match=r"re there are relation or coreference runs alone; name at least one evaluated checkpoint"
    ):
        report(tmp_path / "re", out=tmp_path / "out")
    (tmp_path / "new").mkdir()
    with pytest.raises(ComparisonError, match=f"No finished evaluation under {tmp_path / 'new'}; run: coref-automl evaluate"):
        report(tmp_path / "re", tmp_path / "new", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_relation_results_are_shown_with_their_split(study_source: Path, tmp_path: Path) -> None:
    results = {"micro_f1": 66.12, "auprc": 65.5, "accuracy": 70.0, "split": "official dev", "seeds": [{}, {}, {}], "model": "m"}
    write_json(tmp_path / "re" / "re_results.json", results)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "re_results.json").write_text("{", "utf-8")
    text = Path(report([study_source, tmp_path / "re", tmp_path / "broken"], tmp_path / "out", lang="en").markdown).read_text(
        "utf-8"
    )
    assert "| re | m | 3 | 66.12 | 65.50 | 70.00 | official dev |" in text
    assert "No relation-extraction result" not in text


def test_without_the_drawing_library_tables_stay_and_the_page_says_how(
    study_source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charts, "runtime", lambda: None)
    text = Path(report(study_source, tmp_path / "out")).read_text("utf-8")
    assert "pip install &#39;coref-automl[report]&#39;" in text
    assert 'id="chart-' not in text
    assert text.count("<table>") >= 10


def test_plan_commands_name_the_chosen_checkpoints(made: Report, study_source: Path) -> None:
    text = Path(made.markdown).read_text("utf-8")
    commands = [line for line in text.splitlines() if line.startswith("coref-automl train")]
    assert len(commands) == 2
    assert f"--model {study_source}/mlm_a/checkpoint-" in commands[0]
    assert f"--model {recommend(study_source).highest_path} " in commands[1]
    assert "--objective entity" in commands[1]


def test_a_plan_names_the_dataset_of_its_own_length(tmp_path: Path) -> None:
    """Also one of longer rows that can be cut; rows that cannot be are no help."""
    models = [Model("base", 0, -1.0), Model("mlm", 100, 0.1, objective="mlm", seq_len=128), Model("long", 100, 0.2, seq_len=384)]
    for number, model in enumerate([*models, Model("longest", 100, 0.9, seq_len=512)]):
        result = write_evaluation(tmp_path / "runs", model, make_scores(model, documents=30, own=number)) / "result.json"
        held = read_json(result)
        if model.step:
            held["provenance"]["dataset"] = f"data-{model.seq_len}"
        write_json(result, held)
    text = Path(report(tmp_path / "runs", tmp_path / "out", lang="en").markdown).read_text("utf-8")
    assert re.findall(r"--dataset (.*) --objective .* --out (\S+)", text) == [
        ("data-384 --seq-len 128", "runs/plan_a_entity_128"),
        ("data-512 --seq-len 512", "runs/plan_b_entity_512"),
    ]


def test_bad_requests_are_one_sentence(study_source: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="ko and en"):
        report(study_source, tmp_path / "out", lang="fr")
    with pytest.raises(RecipeError, match="METRIC=NUMBER"):
        report(study_source, tmp_path / "out", target="real1")
    with pytest.raises(RecipeError, match="Did you mean 'real1'"):
        report(study_source, tmp_path / "out", target="real11=0.5")
    with pytest.raises(FolderError):
        report(study_source, study_source)
    with pytest.raises(RecipeError, match="Name the folder"):
        report()


def test_the_record_prints_its_path_and_links_to_it(made: Report) -> None:
    assert str(made) == made.page
    assert Path(made).name == "report.html"
    assert "file://" in made._repr_html_()


def test_every_chart_is_vega_lite_that_compiles(made: Report) -> None:
    vl_convert = pytest.importorskip("vl_convert")
    specs = page_data(Path(made))["charts"]
    assert len(specs) >= 8
    for spec in specs:
        assert vl_convert.vegalite_to_vega(spec)["marks"]
