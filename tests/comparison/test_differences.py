"""compare: only what may be compared is, and the verdict is in words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from coref_automl.base.errors import ComparisonError, InputError, RecipeError
from coref_automl.base.folders import claim_folder
from coref_automl.base.records import Estimate
from coref_automl.base.store import read_json, write_json
from coref_automl.comparison.groups import read_groups
from coref_automl.comparison.reader import open_results
from coref_automl.evaluation.metrics import METRICS, halves, hits, summarise_all
from coref_automl.evaluation.results import find_evaluations
from coref_automl.report.page import points
from coref_automl.report.printout import compare
from tests.comparison.conftest import Maker, Model, make_scores, write_evaluation, write_relation_run

BASE = Model("base", 0, -1.0)
GOOD = Model("run", 100, 0.5)
LATER = Model("run", 200, 0.55)


def test_a_better_checkpoint_is_called_better_than_the_base(evaluated: Maker) -> None:
    table = compare(evaluated([BASE, GOOD]))
    assert table.reference == "base"
    answer = {row.name: row.comparison for row in table.rows}["checkpoint-100"]
    assert answer is not None
    assert answer.verdict == "better"
    assert answer.difference.low > 0
    assert answer.p_adjusted < 0.05


def test_the_base_is_found_where_evaluate_put_it(evaluated: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    root = evaluated([BASE, GOOD, LATER])
    monkeypatch.chdir(root)
    table = compare("run")
    assert table.reference == "base"
    monkeypatch.chdir(root.parent)
    assert compare(root / "run").reference != "base"


def test_the_same_weights_evaluated_twice_are_called_the_same(evaluated: Maker, tmp_path: Path) -> None:
    root = evaluated([GOOD])
    scores = find_evaluations([root])[0].scores()
    write_evaluation(root, Model("again", 100, 0.5), scores)
    answer = compare(root).rows[1].comparison
    assert answer is not None
    assert (answer.p, answer.detectable) == (1.0, None)
    assert answer.verdict == "same"


def test_no_difference_shown_says_what_could_have_been(evaluated: Maker) -> None:
    answer = compare(evaluated([GOOD, LATER]), reference="checkpoint-100").rows[1].comparison
    assert answer is not None
    assert answer.verdict == "not shown"
    assert answer.difference.low < 0 < answer.difference.high  # the interval is that of the verdict


def test_values_come_from_the_confirm_half_and_agree_with_the_metric(evaluated: Maker) -> None:
    root = evaluated([BASE, GOOD])
    table = compare(root, metric="score")
    for row, stored in zip(table.rows, read_groups(open_results([str(root)]))[0].entries, strict=True):
        scores = find_evaluations([stored.folder])[0].scores()
        half = [score for score, of in zip(scores, halves(scores), strict=True) if of == "confirm"]
        assert row.value.value == pytest.approx(summarise_all([half], draws=50)[0]["score"].value)


@pytest.mark.parametrize("metric", [name for name in METRICS if not METRICS[name].parts])
def test_array_hits_are_the_metrics_own_hits(evaluated: Maker, metric: str) -> None:
    root = evaluated([GOOD], tasks=("real", "new", "lambada", "real-far"), documents=20)
    group = read_groups(open_results([str(root)]))[0]
    _, expected, clusters = hits(find_evaluations([root])[0].scores(), metric)
    part = group.columns(metric).parts[0]
    assert np.asarray(part.values)[:, 0].tolist() == expected.astype(float).tolist()
    assert np.asarray(part.clusters).tolist() == clusters.tolist()


def test_unlike_items_are_refused_by_name_and_common_compares_the_shared_ones(tmp_path: Path) -> None:
    a = make_scores(GOOD, documents=40, own=1)
    b = make_scores(LATER, documents=40, own=2)[10:]
    write_evaluation(tmp_path, GOOD, a, set_name="a")
    folder = write_evaluation(tmp_path, LATER, b, set_name="b")
    paths = [tmp_path / "run" / "checkpoint-100", tmp_path / "run" / "checkpoint-200"]
    with pytest.raises(ComparisonError, match=r"items-a of a.*items-b of b"):
        compare(paths)
    table = compare(paths, common=True)
    shared = {s.item for s in a} & {s.item for s in b}
    confirm = [s for s, of in zip(a, halves(a), strict=True) if s.item in shared and of == "confirm" and s.task == "real"]
    assert table.items == len(confirm)
    assert f"the {len(confirm):,} items that all have" in table.notes[0]
    assert folder.exists()


def test_common_names_what_it_leaves_out_for_its_dtype(tmp_path: Path) -> None:
    """Of one model, a set in float32 and another in bfloat16: alone each counts, together one does."""
    for name, models in (("a", (BASE, GOOD)), ("b", (BASE, GOOD))):
        for number, model in enumerate(models):
            folder = write_evaluation(tmp_path, model, make_scores(model, documents=40, own=number, set_name=name), set_name=name)
            if (name, model) == ("b", GOOD):
                record = read_json(folder / "result.json")
                write_json(folder / "result.json", record | {"dtype": "bfloat16"})
    assert not [note for note in compare(tmp_path).notes if "bfloat16" in note]
    (left_out,) = [note for note in compare(tmp_path, common=True).notes if "bfloat16" in note]
    assert left_out.startswith(f"Left out: {folder} is in bfloat16; run/checkpoint-100 is shown in float32 ")


def test_unlike_scorer_versions_are_refused_even_with_common(tmp_path: Path) -> None:
    scores = make_scores(GOOD, documents=20)
    write_evaluation(tmp_path, GOOD, scores)
    write_evaluation(tmp_path, LATER, scores, scorer="2")
    paths = [tmp_path / "run" / "checkpoint-100", tmp_path / "run" / "checkpoint-200"]
    for common in (False, True):
        with pytest.raises(ComparisonError, match=r"do not share their scorer \(.*scorer 1.*scorer 2\)\. Evaluate them again"):
            compare(paths, common=common)


def test_a_half_written_file_is_noticed(evaluated: Maker) -> None:
    root = evaluated([BASE, GOOD])
    path = root / "run" / "evaluations" / "a-128" / "checkpoint-100" / "items.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 3])
    with pytest.raises(ComparisonError, match="evaluate again, or pass --common"):
        compare(root)
    assert compare(root, common=True).items < 60
    path.write_bytes(b'{"item": "x"}\n')
    with pytest.raises(InputError, match="the key 'task' is missing"):
        compare(root)


def test_other_lengths_are_allowed_and_named(evaluated: Maker) -> None:
    table = compare(evaluated([GOOD, replace(GOOD, seq_len=256)]))
    assert [row.name for row in table.rows] == ["checkpoint-100@128", "checkpoint-100@256"]
    assert "Window lengths differ: 128, 256 tokens." in table.notes


def test_other_tokenizers_have_tables_of_their_own(evaluated: Maker) -> None:
    """Their vocabularies cannot be read here, so that the pair is named and not measured."""
    table = compare(evaluated([BASE, GOOD, replace(LATER, tokenizer="other")]))
    assert [row.name for row in table.rows] == ["base", "checkpoint-100"]
    assert [[row.name for row in other.rows] for other in table.others] == [["checkpoint-200"]]
    (pair,) = table.pairs
    assert ({pair.a, pair.b}, pair.why, pair.claims) == ({"checkpoint-100", "checkpoint-200"}, "no tokenizer", ())
    assert "different tokenizers: not measured" in str(table)


def test_sets_are_never_pooled(evaluated: Maker) -> None:
    evaluated([BASE, GOOD, LATER])
    root = evaluated([BASE, GOOD], set_name="b")
    table = compare(root)
    assert table.evalset == "a"
    assert table.notes == ("2 evaluations on b (items items-b) are left out (--eval-set).",)
    assert compare(root, eval_set="b").evalset == "b"
    with pytest.raises(ComparisonError, match="No evaluation on the set 'c'"):
        compare(root, eval_set="c")


def test_wrong_names_are_errors_with_the_next_step(evaluated: Maker, tmp_path: Path) -> None:
    root = evaluated([BASE, GOOD])
    with pytest.raises(RecipeError, match="Did you mean 'real1'"):
        compare(root, metric="real11")
    with pytest.raises(ComparisonError, match="Did you mean 'checkpoint-100'"):
        compare(root, reference="checkpoint-10")
    with pytest.raises(ComparisonError, match="was not run"):
        compare(root, metric="real_far1")
    with pytest.raises(InputError, match="does not exist"):
        compare(tmp_path / "nothing")
    with pytest.raises(ComparisonError, match="give a second one"):
        compare(root / "run")


def test_a_path_that_was_never_evaluated_is_named(evaluated: Maker, tmp_path: Path) -> None:
    root = evaluated([BASE, GOOD, replace(GOOD, step=200)])
    (tmp_path / "new").mkdir()
    with pytest.raises(ComparisonError, match=f"No finished evaluation under {tmp_path / 'new'}; run: coref-automl evaluate"):
        compare(root / "run", tmp_path / "new")
    claim_folder(tmp_path / "study", "experiment")
    (tmp_path / "study" / "runs").mkdir()
    with pytest.raises(ComparisonError, match=f"pass {tmp_path / 'study'}"):
        compare(tmp_path / "study" / "runs")
    for paths in ((tmp_path / "typo",), (root / "run", tmp_path / "typo")):
        with pytest.raises(InputError, match=f"{tmp_path / 'typo'} does not exist"):
            compare(*paths)
    write_relation_run(tmp_path / "new")
    assert len(compare(root / "run", tmp_path / "new").rows) == 2  # a relation run has nothing to compare here


def test_the_table_prints_and_goes_to_json_and_html(evaluated: Maker) -> None:
    table = compare(evaluated([BASE, GOOD, replace(LATER, run="<b>한국어")]))
    text = str(table)
    assert "verdict" in text
    assert "the reference" in text
    assert "한국어" in text
    assert "<b>한" not in table._repr_html_()
    assert json.loads(json.dumps(table.to_json()))["rows"][0]["name"] == table.rows[0].name


def test_the_same_seed_gives_the_same_table(evaluated: Maker) -> None:
    root = evaluated([BASE, GOOD])
    assert compare(root, seed=3) == compare(root, seed=3)
    assert compare(root, seed=3) != compare(root, seed=4)


def test_an_end_that_rounds_to_nothing_keeps_the_side_of_zero_it_lies_on() -> None:
    assert points(Estimate(-0.008, -0.016, -0.0002, 9)) == "-0.8 [-1.6, -0.02]"
    assert points(Estimate(-0.0, 0.0002, 0.01, 9)) == "+0.0 [+0.02, +1.0]"
    assert points(Estimate(0.0625, -6.3e-11, 0.125, 9)) == "+6.2 [+0.0, +12.5]"  # what rounding errors leave of zero


def test_where_what_is_under_a_path_does_not_count_the_reason_is_told(tmp_path: Path) -> None:
    """The later checkpoint was trained anew in its folder, and evaluated on another set alone."""
    for model in (GOOD, LATER):
        write_evaluation(tmp_path, model, make_scores(model, documents=20))
    folder = write_evaluation(tmp_path, LATER, make_scores(LATER, documents=20, set_name="b"), set_name="b")
    record = read_json(folder / "result.json")
    record["fingerprints"]["weights"] = "anew"
    write_json(folder / "result.json", record | {"evaluated_at": "2026-02-01T00:00:00+00:00"})
    paths = [tmp_path / "run" / "checkpoint-100", tmp_path / "run" / "checkpoint-200"]
    with pytest.raises(ComparisonError, match=r"Only .*checkpoint-100 can be compared here: .* was scored with other weights"):
        compare(paths, eval_set="a")
