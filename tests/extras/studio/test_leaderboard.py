"""The first page: methods and tasks with the answer's own verdicts, sorted, filtered and taken away by its address alone."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coref_automl.base.store import write_json
from coref_automl.extras.studio import workspace
from coref_automl.report.page import points
from coref_automl.report.printout import recommend
from tests.agreement.studies import Method, small, write
from tests.extras.studio.conftest import Visitor, serving
from tests.extras.studio.test_pages import text_of


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plan = small(tasks=("real", "lambada"), looks=3)
    return write(
        replace(plan, methods=(*plan.methods, Method("copy+link", (-0.4, 0.0), 400_000))),
        tmp_path_factory.mktemp("study") / "runs",
    )


@pytest.fixture(scope="module")
def board(study: Path) -> Iterator[Visitor]:
    with serving(study, lang="en") as visitor:
        yield visitor


def rows(visitor: Visitor, **query: str) -> list[dict[str, object]]:
    return list(json.loads(visitor.ready("/", **query, **{"table": "leaderboard", "as": "json"}).body))


def test_its_verdicts_are_the_answers(board: Visitor, study: Path) -> None:
    it = recommend(study)
    found = {row["method"]: row for row in rows(board)}
    for claim in it.claims:
        if claim.b == "base" and claim.outcome == it.metric and not claim.part and claim.question == "base":
            row = found[claim.a]
            assert row["Real@1 difference (points)"] == pytest.approx(100 * claim.difference.value, abs=0.051)
            assert str(row["Real@1 verdict"]).startswith(claim.verdict)
            assert points(claim.difference) in text_of(board.ready("/").body)
    page = text_of(board.ready("/").body)
    assert f"Use {it.method}" in page
    assert "Judged 3 times" in page  # as compare says where seeds were added


def test_compare_shows_the_claim_of_the_cell(board: Visitor) -> None:
    first = board.ready("/").body
    for link, shown in re.findall(r'<a class="claim" href="([^"]+)"><span class="change [^"]*">([^<]*)</span>', first):
        page = board.ready(html.unescape(link)).body
        assert html.unescape(shown) in " ".join(text_of(page).split())


def test_a_reference_turns_the_verdicts_to_it_and_unequal_training_is_not_judged(board: Visitor, study: Path) -> None:
    it = recommend(study)
    found = {str(row["method"]): row for row in rows(board, ref="mlm 128")}
    claim = it.of_pair("entity 128", "mlm 128", it.metric)
    assert claim is not None
    assert found["entity 128"]["Real@1 difference (points)"] == pytest.approx(100 * claim.difference.value, abs=0.051)
    assert str(found["copy+link 128"]["Real@1 verdict"]).startswith("not judged (unequal training")


def test_against_a_method_the_base_has_its_difference_too_and_no_mean_is_lost(board: Visitor, study: Path) -> None:
    claim = recommend(study).of_pair("entity 128", None, "real1")
    assert claim is not None
    plain, against = ({str(row["method"]): row for row in rows(board, **query)} for query in ({}, {"ref": "entity 128"}))
    assert against["base"]["Real@1 difference (points)"] == pytest.approx(-100 * claim.difference.value, abs=0.051)
    means = [name for name in plain["base"] if str(name).endswith(" %")]
    assert any("micro-F1" in str(name) for name in means)
    for method, row in plain.items():
        assert {name: row[name] for name in means} == {name: against[method][name] for name in means}


def test_a_run_has_the_relation_score_of_what_was_trained_from_it(board: Visitor) -> None:
    found = [row for row in rows(board, open="entity 128") if row["method"] == "entity 128"]
    name = next(name for name in found[0] if "micro-F1" in name and name.endswith(" %"))
    values = [float(str(row[name])) for row in found]
    assert len(set(values)) > 1
    assert values[0] == pytest.approx(sum(values[1:]) / 3, abs=0.02)


def test_a_chosen_metric_leads_before_its_verdicts_are_there(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Event()
    monkeypatch.setattr(workspace, "study_of", lambda *given, **more: held.wait(60))
    with serving(study, lang="en") as visitor:
        first = visitor.get("/", metric="lambada_top1").body
        head = re.findall(r'<th scope="col" class="number ?"[^>]*><a[^>]*>([^<]+)</a>', first)
        held.set()
    assert head[1] == "LAMBADA@1"


def test_it_is_sorted_filtered_unfolded_and_its_columns_are_chosen_by_the_address(board: Visitor) -> None:
    def names(**query: str) -> list[object]:
        return [row["method"] for row in rows(board, **query)]

    assert names(sort="name") == sorted(map(str, names()))
    assert names(sort="-name") == names(sort="name")[::-1]
    values = [row["Real@1 %"] for row in rows(board)]
    assert values == sorted(values, reverse=True)  # type: ignore[type-var]
    assert names(q="entity") == ["entity 128"]
    assert [(row["method"], row["run"]) for row in rows(board, q="ENTITY-128-S2")] == [
        ("entity 128", ""),
        ("entity 128", "entity-128-s2/checkpoint-200"),
    ]  # the run that matches stands under its method
    assert names(since="2999-01-01") == []
    assert "No method or run matches" in board.ready("/", since="2999-01-01").body
    assert len(names(open="entity 128")) == len(names()) + 3
    wide = rows(board, cols="lambada_top1,real5")[0]
    assert "Real@5 %" in wide
    assert "Real@1 %" not in wide
    assert 'class="chip on"' in board.ready("/", cols="real5").body
    assert rows(board, cols="nonsense,<b>", sort="<b>", ref="nobody")


def test_a_table_is_taken_away_as_csv_with_its_intervals(board: Visitor) -> None:
    answer = board.ready("/", **{"table": "leaderboard", "as": "csv"})
    assert answer.headers["content-type"].startswith("text/csv")
    lines = list(csv.DictReader(io.StringIO(answer.body.removeprefix("\ufeff"))))
    row = next(line for line in lines if line["method"] == "entity 128")
    low, value, high = (float(row[f"Real@1 difference (points){part}"]) for part in (" low", "", " high"))
    assert low < value < high
    for path, table in (("/compare", "outcomes"), ("/run?key=runs/entity-128-s0", "checkpoints")):
        name = "&" if "?" in path else "?"
        assert (
            board.ready(f"{path}{name}table={table}&as=csv").headers["content-disposition"]
            == f'attachment; filename="{table}.csv"'
        )


def test_a_name_that_a_spreadsheet_would_run_is_text(tmp_path: Path, study: Path) -> None:
    copy = shutil.copytree(study, tmp_path / "=1+1")
    with serving(copy, lang="en") as visitor:
        body = visitor.ready("/run", **{"key": "=1+1/entity-128-s0", "table": "files", "as": "csv"}).body
        assert body.count("\n") > 1
    assert "\n=" not in body


def test_means_are_there_before_the_verdicts(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held, plain = threading.Event(), workspace.study_of
    monkeypatch.setattr(workspace, "study_of", lambda *given, **more: (held.wait(60), plain(*given, **more))[1])
    with serving(study, lang="en") as visitor:
        first = visitor.get("/")
        assert first.status == 200
        assert "Verdicts are being computed" in first.body
        assert "entity 128" in text_of(first.body)
        held.set()
        assert "Use " in text_of(visitor.ready("/").body)


def test_a_summary_that_lies_about_its_items_is_told_of_and_the_rest_is_shown(tmp_path: Path, study: Path) -> None:
    copy = shutil.copytree(study, tmp_path / "runs")
    (next(copy.glob("entity-128-s0/evaluations/*/checkpoint-200")) / "items.jsonl").write_text("{}\n", "utf-8")
    write_json(copy / "looks.json", [2, 3])
    with serving(copy, lang="en") as visitor:
        page = visitor.ready("/")
        assert page.status == 200
        assert 'role="alert"' in page.body
        assert "mlm 128" in text_of(page.body)


def test_a_run_has_a_page_with_its_checkpoints_against_the_base(board: Visitor, study: Path) -> None:
    key = f"{study.name}/entity-128-s0"
    page = text_of(board.ready("/run", key=key).body)
    assert "paired difference to the base (points)" in page
    assert "Corrected for 24 checkpoints (max-T)" in page
    assert "started from" in page
    assert board.ready("/run", key=f"{study.name}/nothing").status == 404


def test_the_highest_checkpoint_is_named_as_selected_wherever_it_is_compared(board: Visitor) -> None:
    it = board.ready("/").body
    name = re.search(r"Checkpoint: \S*?(entity-128-s\d|combined-128-s\d)/checkpoint-(\d+)", text_of(it))
    assert name is not None
    keys = re.findall(r'<option value="([^":]+/evaluations/[^"]+)"', board.ready("/compare").body)
    mine = next(key for key in keys if name[1] in key and key.endswith(f"checkpoint-{name[2]}"))
    base = next(key for key in keys if "checkpoint" not in key)
    assert re.search(r"came out highest of \d+ checkpoints", text_of(board.ready("/compare", a=mine, b=base).body))
