"""Runs of different bases side by side: each is judged against its own, and never against another's."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coref_automl.base.say import Lang, Say
from coref_automl.base.store import read_json, write_json
from coref_automl.comparison.power import power, verdicts_of
from coref_automl.comparison.reader import open_results
from coref_automl.comparison.study import Side, claim_of
from coref_automl.evaluation.evalset import EvalSet, bundled_eval_set
from coref_automl.extras.pages.checkpoint_report import results_csv
from coref_automl.extras.pages.sections import Subject, appendix, evidence, read_subject
from coref_automl.report.page import Charts, Section, Table, Text
from coref_automl.report.printout import compare, recommend
from coref_automl.statistics.closed_forms import holm
from tests.comparison.conftest import Model, make_scores, write_evaluation

STRONG, WEAK = Model("strong", 0, 1.0), Model("weak", 0, -1.5, seq_len=256)
STARTS = {"a": "strong", "b": "weak", "c": "lost"}


def write(root: Path, models: Sequence[Model], starts: Mapping[str, str]) -> Path:
    """Evaluations of the models; `starts` is the model that each run began from."""
    for number, model in enumerate(models):
        folder = write_evaluation(root, model, make_scores(model, documents=60, own=number))
        if model.run in starts:
            record = read_json(folder / "result.json")
            record["provenance"]["base"] = f"/elsewhere/{starts[model.run]}"
            write_json(folder / "result.json", record)
    return root


def steps(run: str, skill: float, *, seq_len: int = 128) -> list[Model]:
    return [Model(run, step, skill - 30 / step, seq_len=seq_len) for step in (100, 200)]


def read_study(root: Path, lang: Lang = "en") -> Subject:
    return read_subject(open_results([str(root)]), Say(lang))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs from `strong`, from `weak`, and from a model that was not evaluated. Read only."""
    return write(
        tmp_path_factory.mktemp("two"), [STRONG, WEAK, *steps("a", 2.4), *steps("b", 0.0, seq_len=256), *steps("c", 0.0)], STARTS
    )


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("one"), [STRONG, *steps("a", 2.4), *steps("b", 0.0)], dict.fromkeys("ab", "strong"))


def beside(root: Path, **options: Any) -> dict[str, str | None]:
    return {line.name: line.comparison.reference if line.comparison else None for line in compare(root, **options).rows}


def test_compare_sets_each_beside_its_own_base_and_says_which(two: Path) -> None:
    references = beside(two)
    assert {references[f"a/checkpoint-{step}"] for step in (100, 200)} == {"strong"}
    assert {references[f"b/checkpoint-{step}"] for step in (100, 200)} == {"weak"}
    assert [references[name] for name in ("strong", "weak", "c/checkpoint-100", "c/checkpoint-200")] == [None] * 4
    table = compare(two)
    assert (table.reference, table.references) == ("strong", ("strong", "weak"))
    assert table.unjudged == {"c/checkpoint-100", "c/checkpoint-200"}
    cells = {line[0]: line[1:] for line in table.cells()}
    assert [cells[name][-1] for name in ("strong", "weak", "c/checkpoint-100")] == [
        "reference 1", "reference 2", "its base was not evaluated"
    ]  # fmt: skip
    against = table.titles().index("against") - 1
    assert [cells[f"{run}/checkpoint-100"][against] for run in "abc"] == ["1", "2", ""]
    assert "(1 strong, 2 weak); --reference NAME" in str(table).replace("\n", " ")
    assert "c: no base evaluated in windows of that length" in str(table)
    assert "<th>against</th>" in table._repr_html_()


def test_max_t_is_over_all_bases_at_once(two: Path) -> None:
    answers = [line.comparison for line in compare(two).rows if line.comparison]
    assert len(answers) == 4
    assert {answer.family for answer in answers} == {4}
    assert {answer.correction for answer in answers} == {"max-t"}
    by_holm = holm([answer.p for answer in answers])
    assert all(answer.p <= answer.p_adjusted <= p + 0.01 for answer, p in zip(answers, by_holm, strict=True))
    assert all(answer.p_adjusted == max(other.p_adjusted for other in answers if other.p <= answer.p) for answer in answers)


def test_a_chosen_reference_is_the_one_for_all(two: Path) -> None:
    references = beside(two, reference="weak")
    assert references.pop("weak") is None
    assert set(references.values()) == {"weak"}
    table = compare(two, reference="weak")
    assert (table.references, table.unjudged) == (("weak",), frozenset())
    assert "against" not in table.titles()
    assert {line.comparison.family for line in table.rows if line.comparison} == {len(table.rows) - 1}


def test_a_run_whose_base_is_lost_is_not_judged_against_the_only_other_base(tmp_path: Path) -> None:
    root = write(tmp_path, [STRONG, *steps("a", 2.4), *steps("c", 0.0)], STARTS)
    assert beside(root)["c/checkpoint-200"] is None
    assert compare(root).references == ("strong",)
    assert "its base was not evaluated" in str(compare(root))


def test_where_no_base_was_evaluated_all_stand_beside_one(tmp_path: Path) -> None:
    root = write(tmp_path, [*steps("a", 2.4), *steps("c", 0.0)], STARTS)
    references = beside(root)
    assert references.pop("a/checkpoint-100") is None
    assert set(references.values()) == {"a/checkpoint-100"}
    write(root, [replace(WEAK, run="other")], {})  # nothing began from it: it is no base, and may be compared with
    assert set(beside(root).values()) == {None, "other"}


def test_models_from_elsewhere_stand_beside_their_like_or_the_first(tmp_path: Path) -> None:
    models = [STRONG, WEAK, replace(WEAK, seq_len=512), replace(STRONG, seq_len=512), Model("other", 0, 0.0)]
    root = write(tmp_path, [*models, *steps("a", 2.4), *steps("b", 0.0, seq_len=256)], STARTS)
    references = beside(root)
    assert (references["weak@256"], references["weak@512"], references["b/checkpoint-100"]) == (None, "weak@256", "weak@256")
    assert {references[name] for name in ("strong@512", "other", "a/checkpoint-100")} == {"strong@128"}
    write(root, [*steps("d", 0.0, seq_len=512), *steps("e", 2.0), *steps("f", 2.0)], {"d": "weak", "e": "strong", "f": "strong"})
    references = beside(root)
    assert (references["weak@512"], references["d/checkpoint-100"]) == (None, "weak@512")  # a reference itself by now


def test_a_checkpoint_that_others_began_from_is_judged_and_judges(tmp_path: Path) -> None:
    models = [STRONG, *steps("a", 2.4), *steps("b", 3.0)]
    root = write(tmp_path, models, {"a": "strong", "b": "a/checkpoint-200"})
    references = beside(root)
    assert references["a/checkpoint-200"] == "strong"
    assert {references[f"b/checkpoint-{step}"] for step in (100, 200)} == {"a/checkpoint-200"}
    answers = {line.name: line.comparison for line in compare(root).rows}
    direct = {line.name: line.comparison for line in compare(root, reference="a/checkpoint-200").rows}
    own, other = answers["b/checkpoint-200"], direct["b/checkpoint-200"]
    assert own is not None
    assert other is not None
    assert own.difference.value == other.difference.value
    chosen = recommend(root)
    assert chosen.highest.startswith(("a/", "b/"))
    assert chosen.base == ("a/checkpoint-200" if chosen.highest.startswith("b/") else "strong")


def test_the_recommendation_and_the_table_judge_alike(two: Path) -> None:
    study = read_study(two)
    answers = study.judged
    assert {entry.name: answer.reference for entry, answer in answers.items()} == {
        **{f"a/checkpoint-{step}": "strong" for step in (100, 200)}, **{f"b/checkpoint-{step}": "weak" for step in (100, 200)}
    }  # fmt: skip
    claims = {claim.a: claim.difference for claim in study.answer.questions[0].claims}
    assert claims == {entry.name: answer.difference for entry, answer in answers.items()}
    rows = {line["name"]: line for line in csv.DictReader(io.StringIO(results_csv(study)))}
    assert [rows[f"{run}/checkpoint-200"]["reference"] for run in "abc"] == ["strong", "weak", ""]


def test_another_models_base_is_not_called_the_base(tmp_path: Path) -> None:
    root = write(tmp_path, [WEAK, *steps("b", -1.4), *steps("c", 2.4)], STARTS)
    answer = recommend(root)
    assert answer.highest.startswith("c/")
    assert (answer.base, answer.action) == (None, "no base")


def test_a_base_that_was_not_evaluated_is_not_kept_for_what_was_judged_beside_another(tmp_path: Path) -> None:
    """It was evaluated in windows of another length, and what was judged there gained nothing."""
    root = write(tmp_path, [WEAK, *steps("b", -1.4, seq_len=256), *steps("c", 2.4)], {"b": "weak", "c": "weak"})
    answer = recommend(root)
    assert answer.highest.startswith("c/")
    assert [claim.verdict for claim in answer.questions[0].claims] == ["not shown"] * 2
    assert (answer.base, answer.action) == (None, "no base")
    assert "base not evaluated" in answer.against


def test_methods_that_began_from_a_checkpoint_of_a_run_are_judged_against_it(tmp_path: Path) -> None:
    """The run has another checkpoint, so that this one was chosen among several; it is their base all the same."""
    runs = [Model(f"b-128-s{seed}", 200, 3.6, seed=seed) for seed in range(3)]
    root = write(tmp_path, [STRONG, *steps("a", 1.4), *runs], {"a": "strong"} | {run.run: "a/checkpoint-200" for run in runs})
    study = read_study(root)
    gains = {claim.a: (claim.verdict, claim.seeds) for claim in study.answer.questions[0].claims}
    assert gains["b 128"] == ("better", (3, 1))
    assert (study.answer.action, study.answer.method, study.answer.base) == ("use method", "b 128", "a/checkpoint-200")
    method = next(arm for arm in study.arms if arm.name == "b 128")
    base = next(entry for entry in study.entries if entry.name == "a/checkpoint-200")
    sides = Side("b 128", tuple(method.ends), method), Side(base.name, (base,))
    assert claim_of(study.group, study, *sides, "real1") == study.answer.questions[0].lead
    assert claim_of(study.group, study, *sides[::-1], "real5").verdict == "worse"


def test_a_base_that_only_another_bases_run_beats_is_not_beaten(tmp_path: Path) -> None:
    root = write(tmp_path, [STRONG, WEAK, *steps("a", 1.3), *steps("b", 0.3, seq_len=256)], STARTS)
    answer = recommend(root)
    assert (answer.base, answer.highest) == ("weak", "b/checkpoint-200")
    assert beside(root)["b/checkpoint-200"] == "weak"
    assert [line.comparison.verdict for line in compare(root).rows if line.name == "b/checkpoint-200" and line.comparison] == [
        "better"
    ]
    lost = [claim.verdict for claim in answer.questions[0].claims if claim.a.startswith("a/")]
    assert "better" not in lost


def texts(section: Section | None) -> str:
    assert section is not None
    return " ".join(block.text for block in section.blocks if isinstance(block, Text))


def test_differences_name_the_reference_of_each(two: Path) -> None:
    table = appendix.checkpoints(read_study(two)).blocks[0]
    assert isinstance(table, Table)
    assert {(line[0].text[0], line[1].text) for line in table.rows} == {("a", "strong"), ("b", "weak")}
    assert "corrected for 4 (max-T)" in table.caption


def test_random_weights_are_no_base_that_could_be_evaluated(tmp_path: Path) -> None:
    root = write(tmp_path, [STRONG, *steps("a", 2.4), *steps("n", 0.0)], {"a": "strong"})
    for path in (root / "n").rglob("result.json"):
        record = read_json(path)
        record["provenance"]["base"] = "new:tiny+words-1a2b3c"
        write_json(path, record)
    table = compare(root)
    assert table.unjudged == {"n/checkpoint-100", "n/checkpoint-200"}
    assert "n: no base evaluated in windows of that length; evaluate it, or pass --reference NAME." in table.notes
    assert "no base: a new model" in str(table)


def dashed(section: Section | None) -> dict[str, list[tuple[float, str]]]:
    """By metric: height and tooltip of the dashed lines."""
    assert section is not None
    block = section.blocks[0]
    assert isinstance(block, Charts)
    return {
        title: [
            (layer["data"]["values"][0]["y"], layer["data"]["values"][0]["label"])
            for layer in spec["layer"]
            if layer["mark"]["type"] == "rule" and layer["mark"].get("strokeDash") == [5, 4]
        ]
        for title, spec in block.charts
    }


def test_curves_have_a_line_for_each_base(two: Path) -> None:
    study = read_study(two)
    section = evidence.learning_curves(study)
    values_of = {entry.name: entry.evaluation.estimates["real1"].value for entry in study.entries}
    values = [100 * values_of[name] for name in ("strong", "weak")]
    assert dashed(section)["Real@1"] == [(values[0], "base model strong"), (values[1], "base model weak")]
    assert "Dashed: the base model." in texts(section)


def test_curves_of_one_base_have_one_line_without_a_name(one: Path) -> None:
    study = read_study(one)
    assert [label for _, label in dashed(evidence.learning_curves(study))["Real@1"]] == ["base model"]


def test_a_base_without_a_curve_has_no_line(tmp_path: Path) -> None:
    root = write(tmp_path, [STRONG, WEAK, *steps("a", 2.4)[1:], *steps("b", 0.0, seq_len=256)], STARTS)
    study = read_study(root)
    assert study.choice.base is not None
    assert study.choice.base.name == "strong"
    weak = next(entry for entry in study.entries if entry.name == "weak").evaluation.estimates["real1"]
    assert dashed(evidence.learning_curves(study))["Real@1"] == [(100 * weak.value, "base model")]


def test_without_a_base_no_dashed_line_is_spoken_of(tmp_path: Path) -> None:
    section = evidence.learning_curves(read_study(write(tmp_path, steps("c", 0.0), STARTS)))
    assert dashed(section)["Real@1"] == []
    assert "Dashed" not in texts(section)


def test_models_of_two_owners_and_one_name_are_two_models(tmp_path: Path) -> None:
    models = [Model("aaa--roberta", 0, -2.0), Model("klue--roberta", 0, 1.0), *steps("run", 0.0)]
    root = write(tmp_path, models, {})
    for path in root.glob("run/evaluations/*/*/result.json"):
        record = read_json(path)
        write_json(path, record | {"provenance": record["provenance"] | {"base": "klue/roberta"}})
    assert set(beside(root).values()) == {None, "klue--roberta"}
    answer = recommend(root)
    assert (answer.base, answer.action) == ("klue--roberta", "keep base")
    study = read_study(root)
    assert [base.name for arm in study.arms if (base := study.own_base(arm.ends[0]))] == ["klue--roberta"]


def test_power_takes_the_spread_of_runs_from_their_own_base(tmp_path: Path) -> None:
    runs = [Model(f"entity-128-s{seed}", 200, 2.4, seed=seed) for seed in (0, 1)]
    root = write(tmp_path, [STRONG, replace(WEAK, seq_len=128), *runs], {run.run: "weak" for run in runs})
    group = read_study(root).group
    (verdict,) = verdicts_of(group, "real1", against_base=True)
    value = {entry.name: entry.evaluation.estimates["real1"].value for entry in group.entries}
    mean = sum(gain for name, gain in value.items() if name.startswith("entity")) / 2
    assert verdict.difference == pytest.approx(mean - value["weak"])


def test_power_lists_the_set_of_the_runs_once(tmp_path: Path) -> None:
    runs = [Model(f"entity-128-s{seed}", 200, 2.4, seed=seed) for seed in (0, 1)]
    root, bundled = write(tmp_path, [replace(WEAK, seq_len=128), *runs], {run.run: "weak" for run in runs}), bundled_eval_set()
    for items, sets in ("items-a", 2), (EvalSet.open(bundled).fingerprint, 1):
        for path in root.rglob("result.json"):
            record = read_json(path)
            write_json(path, record | {"fingerprints": record["fingerprints"] | {"items": items}})
        assert len(power([str(root)], eval_set=bundled, seeds=[3], against_base=True).able) == sets


def test_compare_and_recommend_take_the_base_in_windows_as_long(tmp_path: Path) -> None:
    models = [replace(STRONG, skill=-3.0), replace(STRONG, seq_len=512), *steps("a", 1.0, seq_len=512)]
    root = write(tmp_path, models, STARTS)
    assert recommend(root).base == "strong@512"
    assert beside(root) == {"strong@512": None, **dict.fromkeys(("strong@128", "checkpoint-100", "checkpoint-200"), "strong@512")}
    write(root, [*steps("b", 1.0), *steps("c", 1.0)], dict.fromkeys("bc", "strong"))  # by now most are in windows of 128
    references = beside(root)
    assert {references[f"a/checkpoint-{step}"] for step in (100, 200)} == {"strong@512"}
    assert {references[f"{run}/checkpoint-{step}"] for run in "bc" for step in (100, 200)} == {"strong@128"}
    study = read_study(root)
    lines = list(csv.DictReader(io.StringIO(results_csv(study))))
    assert {line["reference"] for line in lines if line["run"] == "a"} == {"strong@512"}
    assert {base.evaluation.seq_len for entry in study.runs()["a"] if (base := study.own_base(entry))} == {512}


def test_a_base_in_windows_of_another_length_is_no_base(tmp_path: Path) -> None:
    root = write(tmp_path, [STRONG, *steps("a", 1.0, seq_len=512)], STARTS)
    answer = recommend(root)
    assert (answer.action, answer.question("base")) == ("no base", None)
    assert answer.step is not None
    assert answer.step.command.endswith(" --seq-len 512")
    assert compare(root).unjudged == {"checkpoint-100", "checkpoint-200"}
