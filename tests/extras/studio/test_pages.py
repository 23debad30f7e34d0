"""The pages over runs made by commands: what they show is what the commands say, and an address is all their state."""

from __future__ import annotations

import csv
import html
import io
import json
import os
import re
import shlex
import shutil
import threading
import time
from contextlib import chdir
from functools import reduce
from pathlib import Path
from urllib.parse import quote

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForMaskedLM

from coref_automl.base.records import Estimate
from coref_automl.base.store import read_json, write_json
from coref_automl.cli.app import run as command
from coref_automl.extras.pages.checkpoint_report import report
from coref_automl.extras.studio import workspace
from coref_automl.extras.studio.items_page import _cropped
from coref_automl.report.page import points
from coref_automl.report.printout import recommend
from tests.agreement.studies import small, write
from tests.extras.studio.conftest import MARKUP, RUN, Visitor, last_of, serving
from tests.printed import made_by, printed_in, wrong_with


def text_of(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", page))


def key(made: Path, run: str, *, evalset: str = "mine") -> str:
    """What addresses call the evaluation of a run's last checkpoint."""
    return f"{made.name}/runs/{run}/evaluations/{evalset}-64/{last_of(made / 'runs' / run).name}"


def count_of(page: str) -> int:
    return int(re.search(r'id="count"[^>]*>([\d,]+)', page).group(1).replace(",", ""))  # type: ignore[union-attr]


def marks_of(visit: Visitor) -> list[str]:
    """The sets that the first page lets choose, as addresses name them."""
    found = re.search(r'<select name="set">(.*?)</select>', visit.get("/").body, re.S)
    assert found is not None
    return re.findall(r'value="([^"]+)"', found[1])


def test_the_runs_page_lists_every_kind_of_run(visit: Visitor, made: Path) -> None:
    page = text_of(visit.get("/runs", lang="en").body)
    assert RUN in page
    assert "finished" in page
    assert "micro-F1" in page
    assert f"{made.name}/runs/relation" in page
    rows = json.loads(visit.ready("/runs", **{"table": "relation", "as": "json", "lang": "en"}).body)
    assert [row["run"] for row in rows] == [f"{made.name}/runs/relation"]


def test_every_command_on_a_page_runs_as_printed(visit: Visitor, made: Path, tmp_path: Path) -> None:
    pages = [visit.ready("/run", key=f"{made.name}/runs/{name}").body for name in ("mlm", "relation")]
    pages += [visit.ready(path).body for path in ("/", "/runs", "/compare", "/items", "/chains", "/play?kind=relation")]
    with serving(tmp_path) as empty:
        pages += [empty.ready(path).body for path in ("/", "/runs", "/items", "/chains", "/play?kind=relation")]
    lines = {html.unescape(line) for page in pages for line in printed_in(re.sub(r"<[^>]+>", "\n", page))}
    printed = {command for line in lines for command in line.split(" && ")}
    assert {line.split()[1] for line in printed} >= {"evaluate", "compare", "report", "re", "coref", "demo"}
    assert {line: wrong for line in printed if (wrong := wrong_with(line, made_by(printed)))} == {}


def test_compare_says_what_the_command_says(visit: Visitor, made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = key(made, RUN), key(made, "mlm")
    page = visit.ready("/compare", a=a, b=b, lang="en")
    folders = [str(made / name.removeprefix(f"{made.name}/")) for name in (a, b)]
    capsys.readouterr()
    assert command(["compare", *folders, "--reference", str(last_of(made / "runs/mlm")), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    row = next(row for row in said["rows"] if row["comparison"])
    assert points(Estimate.from_json(row["comparison"]["difference"])) in text_of(page.body)
    assert f"{said['documents']:,} documents held back from choosing" in text_of(page.body)


def test_the_counts_under_a_verdict_say_of_which_items_they_are(visit: Visitor, made: Path) -> None:
    body = visit.ready("/compare", a=key(made, RUN), b=key(made, "mlm"), lang="en").body
    found = re.search(r'id="counts"><span>All (\d+) items, of all documents:</span>(.*?)</p>', body)
    assert found
    counts = [int(number) for number in re.findall(r"(\d+)</a>", found[2])]
    assert int(found[1]) == sum(counts) > 20
    for link, count in zip(re.findall(r'href="([^"]+)"', found[2]), counts, strict=True):
        assert count_of(visit.ready(html.unescape(link)).body) == count


def test_a_pair_of_checkpoints_has_the_values_of_both_on_the_documents_that_judge(visit: Visitor, made: Path) -> None:
    rows = json.loads(
        visit.ready(
            "/compare", **{"a": key(made, RUN), "b": key(made, "mlm"), "table": "outcomes", "as": "json", "lang": "en"}
        ).body
    )
    assert rows
    for row in rows:
        assert row["a %"] - row["b %"] == pytest.approx(row["difference (points)"], abs=0.11)


def test_only_a_curve_with_a_base_explains_the_dashed_line(visit: Visitor, made: Path, copied: Path) -> None:
    page = visit.ready("/compare", a=key(made, RUN), b=key(made, "mlm"), lang="en").body
    assert "Bands are 95% intervals of the values; the verdict is about the paired difference." in page
    base = last_of(copied / "runs/mlm").rename(copied / "base")
    (base / "training.json").unlink()  # a model that no run of ours trained
    with chdir(copied):
        assert command(["evaluate", "base", "--eval-set", "evalsets/mine", "--seq-len", "64", "--device", "cpu"]) == 0
    with serving(copied) as other:
        keys = re.findall(r'<option value="([^"]+evaluations[^"]+)"', other.ready("/compare", lang="en").body)
        asked = {"a": key(copied, RUN), "b": next(name for name in keys if f"evaluations/{base.name}" in name)}
        assert "dashed: an untrained model" in other.ready("/compare", **asked, lang="en").body


def test_one_run_in_windows_of_two_lengths_has_two_curves(copied: Path) -> None:
    with chdir(copied):
        assert command(["evaluate", "runs/mlm", "--eval-set", "evalsets/mine", "--seq-len", "32", "--device", "cpu"]) == 0
    with serving(copied) as visitor:
        a, b = key(copied, "mlm"), key(copied, "mlm").replace("mine-64", "mine-32")
        page = visitor.ready("/compare", a=a, b=b, lang="en").body
    assert {"mlm @64", "mlm @32"} <= set(re.findall(r'"run":"([^"]+)"', page))


def test_different_sets_are_refused_with_the_reason(visit: Visitor, made: Path) -> None:
    page = visit.ready("/compare", a=key(made, RUN), b=key(made, "mlm", evalset="other"), lang="en")
    assert page.status == 404
    assert "differ in items" in text_of(page.body)


def test_another_set_shows_its_own_models(visit: Visitor, made: Path) -> None:
    """As the form sends it: the set has been changed, A and B still name evaluations of the one before."""
    marks = marks_of(visit)
    pages = [visit.ready("/items", set=mark, a=key(made, RUN), b=key(made, "mlm"), lang="en").body for mark in marks]
    assert {count_of(page) for page in pages} == {72, 24}
    other = next(page for page in pages if count_of(page) == 24)
    same = re.findall(r'<option value="([^"]+)" selected>', other)[-2:]
    assert same == [key(made, "mlm", evalset="other")] * 2  # of B the same weights; A is not there, and that is said
    assert "was not evaluated on this set" in other
    assert all(visit.ready("/compare", set=mark, a=key(made, RUN), b=key(made, "mlm")).status == 200 for mark in marks)


def test_links_to_other_pages_keep_the_set_and_the_pair(visit: Visitor, made: Path) -> None:
    mark, a = marks_of(visit)[-1], key(made, "mlm", evalset="other")
    page = visit.ready("/items", set=mark, a=a).body
    links = {link.partition("?")[0]: html.unescape(link) for link in re.findall(r'<a href="(/[^"]*)"', page.split("</nav>")[0])}
    assert f"set={mark}" in links["/"]
    assert f"set={mark}&a={quote(a, safe='')}" in links["/compare"]


def test_a_method_has_one_colour_on_every_set(visit: Visitor) -> None:
    def colour(mark: str) -> str:
        page = visit.ready("/", set=mark, lang="en").body
        return re.search(r'fill="(#\w+)"/></svg><a[^>]*>mlm', page).group(1)  # type: ignore[union-attr]

    assert len({colour(mark) for mark in marks_of(visit)}) == 1


def test_new_evaluations_arrive_in_what_was_computed_while_they_were_read(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page goes on with the board from before; what it computes of that is not kept for the new one."""
    (copied / "runs" / RUN).rename(copied.parent / "aside")
    with serving(copied) as visitor:
        while not (before := methods(visitor)):
            time.sleep(0.05)
        plain, read = workspace.load, threading.Event()
        monkeypatch.setattr(workspace, "load", lambda *given: (read.wait(60), plain(*given))[1])
        (copied.parent / "aside").rename(copied / "runs" / RUN)
        visitor.studio.folders.scan()
        assert methods(visitor) == before
        read.set()
        until = time.monotonic() + 30
        while methods(visitor) == before and time.monotonic() < until:
            time.sleep(0.05)
        while not (after := methods(visitor)):
            time.sleep(0.05)
        assert len(after) == 2 * len(before)


def methods(visitor: Visitor) -> list[str]:
    """The methods to choose from; none while they are computed."""
    return re.findall(r'value="(method:[^"]+)"', visitor.ready("/compare").body)


def test_methods_of_one_seed_show_nothing(visit: Visitor) -> None:
    visit.ready("/")
    found = re.findall(r'value="(method:[^"]+)"', visit.ready("/compare").body)
    page = visit.ready("/compare", a=found[0], b=found[1], lang="en")
    assert "not judged (one seed)" in text_of(page.body)
    assert "Compare two methods" in visit.ready("/compare", a=found[0], lang="en").body


def test_every_item_can_be_filtered_and_each_filter_counts_as_the_files_do(visit: Visitor, made: Path) -> None:
    a, b = key(made, RUN), key(made, "mlm")
    files = [made / name.removeprefix(f"{made.name}/") / "items.jsonl" for name in (a, b)]
    rows = [{row["item"]: row for row in map(json.loads, path.read_text("utf-8").splitlines())} for path in files]
    right = [{item for item, row in side.items() if row["rank"] == 1} for side in rows]
    wanted = {
        "": len(rows[0]),
        "a-not-b": len(right[0] - right[1]),
        "b-not-a": len(right[1] - right[0]),
        "both-right": len(right[0] & right[1]),
        "both-wrong": sum(rows[0][name]["rank"] > 1 and rows[1][name]["rank"] > 1 for name in rows[0]),
    }
    assert {which: count_of(visit.ready("/items", a=a, b=b, which=which).body) for which in wanted} == wanted
    table = list(csv.DictReader(io.StringIO(visit.ready("/items", a=a, b=b, **{"as": "csv"}).body.lstrip("\ufeff"))))
    assert [{row["item"] for row in table if row[f"{side} right"] == "right"} for side in "ab"] == right
    assert {row["item"] for row in table if not row["a right"]} == {name for name, row in rows[0].items() if not row["rank"]}
    for name in ("task", "source", "tag"):
        value = next(iter(rows[0].values()))[name]
        assert count_of(visit.ready("/items", a=a, b=b, **{name: value}).body) == sum(
            row[name] == value for row in rows[0].values()
        )


def test_search_finds_texts_and_answers_and_pages_hold_twenty(visit: Visitor) -> None:
    page = visit.ready("/items", q="도서관")
    assert page.body.count('<article class="item"') == count_of(page.body) == 18
    assert visit.ready("/items").body.count('<article class="item"') == 20
    assert visit.ready("/items", q="없는 낱말이다").body.count('<article class="item"') == 0
    first = re.findall(r"id=([0-9a-f]+)", visit.ready("/items", page="2").body)
    assert first
    assert not set(first) & set(re.findall(r"id=([0-9a-f]+)", visit.ready("/items").body))


def test_an_item_has_an_address_with_its_document_and_every_model(visit: Visitor) -> None:
    page = visit.ready("/items", q="window.hacked", lang="en")
    link = html.unescape(re.search(r'href="(/item\?[^"]+)"', page.body).group(1))  # type: ignore[union-attr]
    item = visit.get(link)
    assert html.escape(MARKUP) in item.body
    assert MARKUP not in item.body
    assert 'class="gap"' in item.body
    assert 'class="antecedent"' in item.body
    assert len(re.findall('class="(?:answer|filled) ', item.body)) == 4
    assert item.body == visit.get(link).body


def test_a_passage_is_cropped_around_its_gap_and_its_antecedent() -> None:
    pieces = [["text", "가" * 500], ["antecedent", "도서관"], ["text", "나" * 900], ["gap", "도서관"], ["text", "다" * 10]]
    found = _cropped(pieces)
    assert [kind for kind, _ in found] == ["cut", "text", "antecedent", "text", "cut", "text", "gap", "text"]
    assert [len(text) for kind, text in found if kind == "text"] == [70, 70, 150, 10]


def test_the_export_is_the_report_that_the_command_writes(visit: Visitor, made: Path, tmp_path: Path) -> None:
    mark = marks_of(visit)[0]
    page = visit.ready("/export", set=mark, lang="en")
    assert page.headers["content-disposition"] == 'attachment; filename="report.html"'
    assert page.body == Path(report(made.resolve(), tmp_path / "out", lang="en")).read_text("utf-8")
    a, b = key(made, RUN), key(made, "mlm")
    pair = visit.ready("/export", set=mark, a=a, b=b, lang="ko")
    folders = [str(made.resolve() / name.removeprefix(f"{made.name}/")) for name in (a, b)]
    assert pair.body == Path(report(*folders, tmp_path / "pair", lang="ko")).read_text("utf-8")


def test_every_note_of_the_export_is_in_its_language(copied: Path) -> None:
    assert command(["archive", str(copied / "runs"), "--out", str(copied / "kept")]) == 0
    with serving(copied) as visitor:
        korean, english = (visitor.ready("/export", lang=lang).body for lang in ("ko", "en"))
    assert "두 번 나온 결과" in korean
    assert "results that were found twice" not in korean
    assert "두 번 나온 결과" not in english


def test_the_export_holds_a_relation_run_that_has_come_since(copied: Path) -> None:
    (copied / "runs/relation").rename(copied.parent / "aside")
    with serving(copied, lang="en") as visitor:
        assert "micro-F1" not in visitor.ready("/export").body
        (copied.parent / "aside").rename(copied / "runs/relation")
        visitor.studio.folders.scan()
        assert "micro-F1" in visitor.ready("/export").body


def test_after_its_process_was_killed_the_export_says_so_and_works_again(made: Path) -> None:
    with serving(made, lang="en") as visitor:
        assert visitor.get("/export").status == 202
        pools, until = visitor.studio.workspace.boards._pools, time.monotonic() + 60
        while not (False in pools and pools[False]._processes) and time.monotonic() < until:
            time.sleep(0.01)
        for process in list(pools[False]._processes.values()):
            process.kill()
            process.join(30)
        said = visitor.ready("/export")
        assert said.status == 404
        assert "The process that did this ended (out of memory, or no answer in 5 minutes)" in text_of(said.body)
        assert visitor.ready("/export").status == 200


def test_a_model_that_does_not_answer_is_ended_and_the_next_text_is_answered(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = "/play/run?kind=fill&a=bundled:ko-mini&text=" + quote("서울은 [MASK]의 수도이다.")
    with serving(made, lang="en") as visitor:
        monkeypatch.setattr("coref_automl.extras.studio.play_page.PATIENCE", 0.05)
        assert "no answer in 5 minutes" in text_of(visitor.ready(asked).body)
        monkeypatch.undo()
        assert "no answer" not in (told := visitor.ready(asked).body)
        assert "bundled:ko-mini" in told


def test_pages_speak_the_language_of_their_address(visit: Visitor) -> None:
    for path in ("/", "/compare", "/items", "/play", "/runs", "/chains"):
        korean, english = (visit.ready(path, lang=lang).body.split("<footer>")[0] for lang in ("ko", "en"))
        assert "실행" in text_of(korean)
        own = re.sub(r"<textarea.*?</textarea>", "", english.split('<div id="items">')[0])
        foreign = (RUN, shlex.quote(RUN)[1:-1], "한국어")
        assert not re.search("[가-힣]", reduce(lambda text, name: text.replace(name, ""), foreign, text_of(own))), path


def test_a_query_may_name_anything(visit: Visitor) -> None:
    assert visit.get("/play?text=x&path=1&self=2").status == 200


def test_an_archive_shows_ranks_and_says_that_it_has_no_text(made: Path, tmp_path: Path) -> None:
    assert command(["archive", str(made / "runs"), "--out", str(tmp_path / "kept")]) == 0
    with serving(tmp_path / "kept") as visitor:
        page = visitor.ready("/items", lang="en")
        assert "An archive holds no text" in page.body
        assert "rank " in page.body
        assert visitor.ready("/compare").status == 200


def test_the_leaderboard_opens_with_the_answer_and_compare_with_its_method_against_the_base() -> None:
    kept = Path(__file__).parents[3] / "results" / "portfolio"
    it = recommend(kept)
    lead, pair = it.questions[0].lead, it.of_pair("light 2,048", "entity 2,048", it.metric)
    assert pair is not None
    with serving(kept) as visitor:
        first = text_of(visitor.ready("/", lang="en").body)
        page = text_of(visitor.ready("/compare", lang="en").body)
        other = visitor.ready("/compare", a=f"method:{pair.a}", b=f"method:{pair.b}", lang="en").body
    assert f"Use {it.method}" in first
    assert f"A - B: Real@1 {points(lead.difference)}, {lead.verdict}." in page
    assert points(pair.difference) in text_of(other)  # one claim has one number everywhere


def test_compare_holds_a_relation_run_that_has_come_since(tmp_path: Path) -> None:
    assert command(["archive", str(write(small(), tmp_path / "runs")), "--out", str(tmp_path / "kept")]) == 0
    (tmp_path / "kept/relation").rename(tmp_path / "aside")
    pair = {"a": "method:entity 128", "b": "method:mlm 128"}
    with serving(tmp_path / "kept", lang="en") as visitor:
        assert "micro-F1" not in text_of(visitor.ready("/compare", **pair).body)
        (tmp_path / "aside").rename(tmp_path / "kept/relation")
        visitor.studio.folders.scan()
        assert "micro-F1" in text_of(visitor.ready("/compare", **pair).body)


def test_a_run_of_a_longer_name_is_no_descendant_and_the_size_of_a_folder_is_that_of_all_files(copied: Path) -> None:
    shutil.copytree(copied / "runs/relation", copied / "more/relation")
    manifest = copied / "more/relation/manifest.json"
    write_json(manifest, {**read_json(manifest), "model": "old-runs/mlm/checkpoint-4", "fingerprints": {}})
    with serving(copied, lang="en") as visitor:
        page = text_of(visitor.ready("/run", key=f"{copied.name}/runs/mlm").body)
        files = json.loads(visitor.ready("/run", **{"key": f"{copied.name}/runs/relation", "table": "files", "as": "json"}).body)
    assert f"started from it {copied.name}/runs/relation" in " ".join(page.split())
    assert f"{copied.name}/more/relation" not in page.partition("Lineage")[2].partition("Files")[0]
    seed = copied / "runs/relation/seed-0"
    sizes = {row["file"]: row["bytes"] for row in files}
    assert sizes["seed-0/"] == sum(file.stat().st_size for file in seed.rglob("*") if file.is_file())


def test_a_model_that_was_trained_anew_in_its_folder_answers_with_its_new_weights(copied: Path) -> None:
    folder = last_of(copied / "runs/mlm")
    name = f"{copied.name}/runs/mlm/{folder.name}"
    asked = {"kind": "fill", "a": name, "text": "사람들은 [MASK]에 모였다.", "words": "all"}
    with serving(copied, lang="en") as visitor:
        before = visitor.ready("/play/run", **asked).body
        model = AutoModelForMaskedLM.from_pretrained(folder)
        torch.nn.init.normal_(model.get_input_embeddings().weight)
        model.save_pretrained(folder)
        assert visitor.ready("/play/run", **asked).body != before


def test_a_run_whose_weights_were_overwritten_answers_with_the_new_ones(copied: Path) -> None:
    asked = {"kind": "relation", "a": f"{copied.name}/runs/relation", "text": "사람들은 시장에 모였다."}
    asked |= {"subject": "사람들", "subject_start": "0", "subject_type": "PER"}
    asked |= {"object": "시장", "object_start": "5", "object_type": "LOC"}
    head = copied / "runs/relation/seed-0/model/head.safetensors"
    with serving(copied, lang="en") as visitor:
        before = visitor.ready("/play/run", **asked).body
        times = head.stat()
        save_file({name: -3 * value for name, value in load_file(head).items()}, head)
        os.utime(head, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert visitor.ready("/play/run", **asked).body != before
