"""report: every section computed, everything escaped, both languages, and whatever state the folder is in."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from coref_automl.base.errors import ComparisonError, FolderError, RecipeError
from coref_automl.base.folders import mark_done
from coref_automl.base.say import Say
from coref_automl.comparison.reader import open_results
from coref_automl.extras.pages import charts
from coref_automl.extras.pages.checkpoint_report import WrittenReport, checkpoint_page, report
from coref_automl.extras.pages.sections import read_subject
from coref_automl.report.page import Table
from coref_automl.report.printout import compare
from tests.comparison.conftest import Maker, Model, make_scores, write_evaluation, write_relation_run

SECTIONS = {"evidence", "target", "arms", "curves", "aspects", "checkpoints", "data", "reading"}


@pytest.fixture(autouse=True, scope="module")
def _light_runtime() -> Iterator[None]:
    """The drawing library takes seconds to bundle; the browser test uses the real one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charts, "runtime", lambda: "window.vegaEmbed = undefined;")
        yield


@pytest.fixture(scope="module")
def written(study_source: Path, tmp_path_factory: pytest.TempPathFactory) -> WrittenReport:
    """The Korean report of the study, written once."""
    return report(study_source, tmp_path_factory.mktemp("report"), target="real1=0.68,real5=83", lang="ko")


def page_data(page: Path) -> dict:
    match = re.search(r'<script type="application/json" id="page-data">(.*?)</script>', page.read_text("utf-8"), re.DOTALL)
    assert match
    return json.loads(match.group(1))


def test_a_report_has_every_section_and_opens_with_the_answers(written: WrittenReport) -> None:
    text = Path(written.page).read_text("utf-8")
    questions = {question.id for question in written.answer.questions}
    assert set(re.findall(r'<section id="([\w-]+)"', text)) == SECTIONS | questions
    order = ("hero", "answer-table", "keep", "limits")
    positions = [*(text.index(f'class="{name}"') for name in order), text.index('id="evidence"'), text.index('id="target"')]
    assert positions == sorted(positions)
    assert positions[-1] < text.index('id="part-questions"') < text.index('id="part-appendix"')
    assert written.answer.highest in Path(written.markdown).read_text("utf-8")
    assert '<html lang="ko">' in text
    assert "외부 검증은 관계 추출과 상호참조 해결" in text
    assert text.count('id="chart-') == len(page_data(Path(written))["charts"]) >= 7


def test_the_contents_have_five_entries_and_every_question_of_the_answer_table_has_its_section(written: WrittenReport) -> None:
    text = Path(written.page).read_text("utf-8")
    contents = re.search(r"<nav.*?</nav>", text, re.DOTALL)
    assert contents
    parts = re.findall(r'href="#([\w-]+)"', contents.group())
    assert parts == ["answer", "part-evidence", "part-target", "part-questions", "part-appendix"]
    questions = re.findall(r'<th scope="row"><a href="#([\w-]+)"', text)
    assert questions == [question.id for question in written.answer.questions]
    for name in questions:
        assert f'<section id="{name}" class="fold"><details><summary>' in text


def test_every_table_of_results_says_which_documents_it_shows(study_source: Path) -> None:
    subject = read_subject(open_results([str(study_source)]), Say("en"))
    bare = {section.id for section in checkpoint_page(subject).sections for block in section.blocks
            if isinstance(block, Table) and not block.shows}  # fmt: skip
    assert bare <= {"data", "relation", "coreference"}  # counts, and numbers with a split of their own


def test_where_nothing_beats_the_base_the_headline_says_so_and_what_it_would_take(evaluated: Maker, tmp_path: Path) -> None:
    root = evaluated([Model("base", 0, 0.0), Model("run", 100, 0.02), Model("run", 200, 0.03)])
    for lang, headline, takes in (
        ("en", "Keep the base: nothing here is shown to beat it", r"a gain of [\d.]+ points is detected \(80% power"),
        ("ko", "베이스 모델 유지: 더 나은 것이 확인되지 않았습니다", r"[\d.]+점 향상이면 검출됩니다"),
    ):
        text = Path(report(root, tmp_path / lang, lang=lang).page).read_text("utf-8")
        assert f'<h1 class="headline">{headline}</h1>' in text
        assert re.search(takes, text)
        assert re.findall(r'data-copy="([\w-]+)"', text) == ["keep-command"]
        assert "tune-smoke" not in text


def test_a_floor_and_identical_answers_are_told_in_words(evaluated: Maker, tmp_path: Path) -> None:
    root = evaluated([Model("base", 0, -20.0), Model("run", 100, -20.0), Model("run", 200, -20.0)])
    text = Path(report(root, tmp_path / "page", lang="en").markdown).read_text("utf-8").split("## ")[0]
    assert "Floor effect: scores are too low for a difference to show." in text
    assert "[+0.0, +0.0]" not in text
    assert "the same on every item" in text


def test_what_to_keep_can_be_copied_with_its_next_command(written: WrittenReport) -> None:
    text = Path(written.page).read_text("utf-8")
    path = re.search(r'<code id="keep-path">(.*?)</code>', text)
    command_ = re.search(r'<code id="keep-command">(.*?)</code>', text)
    assert path
    assert command_
    assert Path(path[1]).name.startswith("checkpoint-")
    assert written.answer.step is not None
    assert command_[1] == written.answer.step.command
    assert re.findall(r'data-copy="([\w-]+)"', text) == ["keep-path", *(["keep-command"] if written.answer.step.runs else [])]


def test_a_korean_report_names_baselines_and_columns_in_korean(written: WrittenReport) -> None:
    text = Path(written.markdown).read_text("utf-8")
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


def test_the_same_inputs_give_the_same_bytes(written: WrittenReport, study_source: Path, tmp_path: Path) -> None:
    again = report(study_source, tmp_path, target="real1=0.68,real5=83", lang="ko")
    assert Path(written).read_bytes() == Path(again).read_bytes()


def test_nothing_from_the_data_becomes_markup(study_folder: Path, tmp_path: Path) -> None:
    shutil.move(study_folder / "mlm_a", study_folder / "<img src=x onerror=alert(1)>")
    written = report(study_folder, tmp_path / "out")
    text = Path(written.page).read_text("utf-8")
    assert "<img" not in text
    assert "<script>window.hacked" not in text
    assert "&lt;img src=x" in text
    assert "<img" not in re.sub(r"```.*?```", "", Path(written.markdown).read_text("utf-8"), flags=re.DOTALL)


def test_the_page_allows_no_request_and_names_its_scripts(written: WrittenReport) -> None:
    text = Path(written).read_text("utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy
    assert "default-src &#39;none&#39;" in policy.group(1)
    assert policy.group(1).count("sha256-") == 2
    assert "unsafe-eval" not in policy.group(1)
    assert not re.findall(r'(?:src|href)="(?!#|data:,)', text)


def test_results_csv_holds_every_checkpoint_and_metric(written: WrittenReport) -> None:
    with Path(written.results).open(encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    assert len(rows) == 8
    assert {row["finding"] for row in rows} >= {"", "better"}
    for row in rows:
        assert float(row["real1_low"]) <= float(row["real1"]) <= float(row["real1_high"])


def test_one_checkpoint_alone_makes_a_report_without_comparisons(evaluated: Maker, tmp_path: Path) -> None:
    written = report(evaluated([Model("run", 100, 0.5)]), tmp_path / "out")
    text = Path(written.page).read_text("utf-8")
    assert 'class="answer-table"' not in text
    assert 'class="number">p</th>' not in text
    assert 'id="checkpoints"' in text


def test_where_no_base_was_evaluated_none_is_spoken_of(evaluated: Maker, tmp_path: Path) -> None:
    text = Path(
        report(evaluated([Model("run", 100, 0.2), Model("run", 200, 0.6)]), tmp_path / "out", lang="en").markdown
    ).read_text("utf-8")
    assert "No base to compare with" in text.split("\n## ")[0]


def test_other_sets_are_listed_and_never_pooled(evaluated: Maker, tmp_path: Path) -> None:
    evaluated([Model("base", 0, -1), Model("run", 100, 0.5), Model("run", 200, 0.6)])
    root = evaluated([Model("base", 0, -1), Model("run", 100, 0.5)], set_name="b")
    written = report(root, tmp_path / "out", lang="en")
    text = Path(written.markdown).read_text("utf-8")
    assert "2 evaluations on b (items items-b) are left out (--eval-set)." in text
    assert "on 2 sets" not in text
    assert (
        Path(report(root, tmp_path / "b", eval_set="b", lang="en").markdown).read_text("utf-8").splitlines()[2].startswith("b ·")
    )
    with pytest.raises(ComparisonError, match="No evaluation on the set 'c'"):
        report(root, tmp_path / "c", eval_set="c")


def test_results_of_another_scorer_are_left_out_for_that_reason(evaluated: Maker, tmp_path: Path) -> None:
    root = evaluated([Model("base", 0, -1), Model("run", 100, 0.5), Model("run", 200, 0.6)])
    for step in (100, 200):
        model = Model("old", step, 0.5)
        write_evaluation(root, model, make_scores(model, documents=60), scorer="0")
    text = Path(report(root, tmp_path / "out", lang="en").markdown).read_text("utf-8")
    assert "2 evaluations on a are of another scorer (0) and are left out; use one version for all." in text
    assert "--eval-set" not in text.split("\n## ")[0]


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
    for lang, note in (("en", f"No finished evaluation under {tmp_path / 'new'}"), ("ko", f"{tmp_path / 'new'}에는 끝난 평가가")):
        text = Path(report(root / "run", tmp_path / "new", out=tmp_path / "out", lang=lang).page).read_text("utf-8")
        assert note in text
        assert f"coref-automl evaluate {tmp_path / 'new'}" in text


def test_relation_runs_alone_are_no_report(tmp_path: Path) -> None:
    write_relation_run(tmp_path / "re")
    with pytest.raises(
        ComparisonError, match=r"re there are runs of outside checks alone; name at least one evaluated checkpoint"
    ):
        report(tmp_path / "re", out=tmp_path / "out")
    (tmp_path / "new").mkdir()
    with pytest.raises(ComparisonError, match=f"No finished evaluation under {tmp_path / 'new'}; run: coref-automl evaluate"):
        report(tmp_path / "re", tmp_path / "new", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_relation_results_are_shown_with_their_split(study_source: Path, tmp_path: Path) -> None:
    write_relation_run(tmp_path / "re", micro_f1=66.12, auprc=65.5, accuracy=70.0, split="official dev")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "re_results.json").write_text("{", "utf-8")
    text = Path(report([study_source, tmp_path / "re", tmp_path / "broken"], tmp_path / "out", lang="en").markdown).read_text(
        "utf-8"
    )
    assert "| re | m | 3 | 66.1 [56.1, 76.1] | 65.5 [55.5, 75.5] | 70.0 [60.0, 80.0] | official dev |" in text
    assert "No relation-extraction result" not in text


def test_without_the_drawing_library_tables_stay_and_the_page_says_how(
    study_source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charts, "runtime", lambda: None)
    text = Path(report(study_source, tmp_path / "out")).read_text("utf-8")
    assert "pip install &#39;coref-automl[report]&#39;" in text
    assert 'id="chart-' not in text
    assert text.count("<table>") >= 10


def test_a_command_with_a_placeholder_cannot_be_copied_and_none_is_printed_twice(evaluated: Maker, tmp_path: Path) -> None:
    root = evaluated([Model("base", 0, -1.0), Model("run", 100, 0.5)])
    text = Path(report(root, tmp_path / "out", lang="en").page).read_text("utf-8")
    shown = re.search(r'<code id="keep-command">(.*?)</code>', text)
    assert shown
    assert "--dataset DATASET" in shown[1]
    assert "--seed 1 " in shown[1]  # one seed: the next step is another
    assert text.count(shown[1]) == 1
    assert re.findall(r'data-copy="([\w-]+)"', text) == ["keep-path"]


def test_bad_requests_are_one_sentence(study_source: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="ko and en"):
        report(study_source, tmp_path / "out", lang="fr")
    with pytest.raises(RecipeError, match="METRIC=NUMBER"):
        report(study_source, tmp_path / "out", target="real1")
    with pytest.raises(RecipeError, match="Did you mean 'real1'"):
        report(study_source, tmp_path / "out", target="real11=0.5")
    with pytest.raises(RecipeError, match="Did you mean 'real1'"):
        report(study_source, tmp_path / "out", target={"real11": 0.5})
    with pytest.raises(RecipeError, match="between 0 and 1"):
        report(study_source, tmp_path / "out", target={"real1": 101})
    with pytest.raises(FolderError):
        report(study_source, study_source)
    with pytest.raises(RecipeError, match="Name the folder"):
        report()
    with pytest.raises(RecipeError, match="Name evaluated checkpoints or runs to report on, before the folder"):
        report(study_source)  # the only path is the folder
    with pytest.raises(RecipeError, match="Name evaluated checkpoints or runs"):
        report(out=tmp_path / "out")
    with pytest.raises(ComparisonError, match="Name at least one evaluated checkpoint"):
        compare()


def test_the_record_prints_its_path_and_links_to_it(written: WrittenReport) -> None:
    assert str(written) == written.page
    assert Path(written).name == "report.html"
    assert "file://" in written._repr_html_()


def test_every_chart_is_vega_lite_that_compiles(written: WrittenReport) -> None:
    vl_convert = pytest.importorskip("vl_convert")
    specs = page_data(Path(written))["charts"]
    assert len(specs) >= 7
    for spec in specs:
        assert vl_convert.vegalite_to_vega(spec)["marks"]
