"""The questions of a report: planted effects are found, absent ones are not, one seed decides nothing."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coref_automl.comparison.archive import archive
from coref_automl.comparison.arms import OBJECTIVES, arms, versus
from coref_automl.comparison.corrections import corrected, corrected_columns
from coref_automl.comparison.differences import in_words, lost_to_family
from coref_automl.comparison.groups import read_groups
from coref_automl.comparison.relation_methods import PAIRS
from coref_automl.comparison.speaking import CONFIRM, Speaking
from coref_automl.evaluation.metrics import halves, hits
from coref_automl.evaluation.results import find_evaluations
from coref_automl.records import Comparison, Estimate, Half, Task
from coref_automl.report import charts
from coref_automl.report.checkpoint_report import checkpoint_page, report
from coref_automl.report.language import Lang, Say
from coref_automl.report.page import Charts, Page, Section, Table, Text
from coref_automl.report.printout import compare
from coref_automl.report.sections import (
    draw_sections,
    entity_or_mlm,
    evidence,
    lengths,
    mixes,
    over_fitting,
    peaks,
    ranks,
    rating,
    side_by_side,
    transfer,
)
from coref_automl.report.sentences import recommendation_sentence, verdict
from coref_automl.report.subject import Subject, subject_of
from coref_automl.report.verdicts import lead, short_cell
from coref_automl.statistics.crossed import CrossedVerdict, crossed_verdict
from coref_automl.store import read_json, write_json, write_jsonl
from coref_automl.training.masking import OBJECTIVES as TRAINED
from tests.comparison.conftest import Model, make_scores, write_evaluation
from tests.report.tables import silent_tables

TASKS: tuple[Task, ...] = ("real", "lambada", "gold", "real-far")
SKILLS = {"mlm": -0.9, "combined": -0.9, "entity": 0.2}


def experiment() -> list[Model]:
    """Three objectives at two lengths with three seeds, a second ratio and a third length with one; entity is far better."""
    models = [Model("base", 0, -1.0), Model("base", 0, -1.0, seq_len=1024)]
    for length in (128, 1024):
        for objective, skill in SKILLS.items():
            for seed in range(3):
                for step, less in ((100, 0.25), (200, 0.0)):
                    run = f"{objective}-{length}-s{seed}"
                    models.append(Model(run, step, skill - less + 0.02 * seed, objective=objective, seq_len=length, seed=seed))
    models.append(Model("combined80-1024-s0", 200, 1.5, objective="combined", seq_len=1024))
    models += [
        Model(f"{objective}-512-s0", 200, SKILLS[objective], objective=objective, seq_len=512) for objective in ("mlm", "entity")
    ]
    return models


def write(root: Path, models: Sequence[Model], *, documents: int = 90) -> Path:
    for number, model in enumerate(models):
        scores = make_scores(model, documents=documents, tasks=TASKS, own=number)
        worse = [
            replace(score, strict_rank=50, lenient_rank=50, word_rank=9)
            if score.task == "real-far" and score.out_of_reach
            else score
            for score in scores
        ]
        write_evaluation(root, model, worse)
    return root


def read_study(root: Path, lang: Lang = "en") -> Subject:
    return subject_of(read_groups([str(root)])[0], say=Say(lang), margin=0.02, seed=0, target={})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("runs"), experiment())


@pytest.fixture(scope="module")
def study(runs: Path) -> Subject:
    return read_study(runs)


def cells(question: Section | None, at: int = 0) -> list[list[str]]:
    assert question is not None
    tables = [block for block in question.blocks if isinstance(block, Table)]
    return [[cell.text for cell in line] for line in tables[at].rows]


def blocks_of(question: Section | None) -> list[Table]:
    return [block for block in question.blocks if isinstance(block, Table)] if question else []


def test_every_table_of_every_question_says_which_documents_it_shows(study: Subject) -> None:
    assert silent_tables(draw_sections(study)) == []


def test_a_second_ratio_is_an_arm_of_its_own(study: Subject) -> None:
    found = {arm.name: arm.seeds for arm in arms(study)}
    assert found == {
        "mlm 128": 3, "combined 128": 3, "entity 128": 3, "mlm 512": 1, "entity 512": 1,
        "mlm 1,024": 3, "combined 1,024": 3, "combined80 1,024": 1, "entity 1,024": 3,
    }  # fmt: skip


def hits_of(runs: Path, objective: str, half: Half | None) -> tuple[list[np.ndarray], np.ndarray]:
    """Hits of the last checkpoints of a method, read back from its stored items."""
    values = []
    for seed in range(3):
        (stored,) = find_evaluations([runs / f"{objective}-128-s{seed}" / "checkpoint-200"])
        scores = stored.scores()
        spoken = [score for score, of in zip(scores, halves(scores), strict=True) if half in (None, of)]
        _, hit, clusters = hits(spoken, "real1_strict")
        values.append(hit)
    return values, clusters


def test_last_checkpoints_are_judged_on_all_documents_if_nothing_was_chosen(study: Subject, runs: Path) -> None:
    by_name = {arm.name: arm for arm in arms(study)}
    found = versus(study, [(by_name["entity 128"], by_name["mlm 128"])], "real1_strict")[0]
    sides = [hits_of(runs, objective, None) for objective in ("entity", "mlm")]
    assert found is not None
    assert found.speaking == Speaking(None, "same end")
    assert found.answer == crossed_verdict(sides[0][0], sides[1][0], sides[0][1])
    assert found.values == pytest.approx([np.mean(side) for side, _ in sides])
    section = entity_or_mlm.draw(study)
    assert section is not None
    assert blocks_of(section)[0].caption.startswith("Real@1 strict, all documents (")
    assert any("all runs of a method end at the same epoch" in block.text for block in section.blocks if isinstance(block, Text))


@pytest.mark.parametrize("ends", ["watched", "unlike"])
def test_runs_that_the_set_may_have_stopped_are_judged_on_confirm(runs: Path, tmp_path: Path, ends: str) -> None:
    copy = shutil.copytree(runs, tmp_path / "copy")
    for seed in range(3):
        path = copy / f"entity-128-s{seed}" / "evaluations" / "a-128" / "checkpoint-200" / "result.json"
        held = read_json(path)
        held["provenance"] |= {"planned_end": False} if ends == "watched" else {"epoch": 2 + seed / 4}
        write_json(path, held)
    study = read_study(copy)
    by_name = {arm.name: arm for arm in arms(study)}
    found, other = (
        versus(study, [(by_name[f"entity {length}"], by_name[f"mlm {length}"])], "real1_strict")[0] for length in ("128", "1,024")
    )
    sides = [hits_of(copy, objective, "confirm") for objective in ("entity", "mlm")]
    assert found is not None
    assert other is not None
    assert (found.speaking, other.speaking) == (CONFIRM, Speaking(None, "same end"))
    assert found.answer == crossed_verdict(sides[0][0], sides[1][0], sides[0][1])
    tables = [table for section in (entity_or_mlm.draw(study), transfer.draw(study)) for table in blocks_of(section)]
    assert {table.shows for table in tables} == {"confirm"}


def test_planned_ends_are_judged_on_all_documents_wherever_they_are(runs: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(runs, tmp_path / "copy")
    for number, path in enumerate(sorted(copy.glob("*-128-s*/evaluations/a-128/checkpoint-200/result.json"))):
        held = read_json(path)
        held["provenance"] |= {"planned_end": True, "epoch": 2 + number / 4}
        write_json(path, held)
    study = read_study(copy)
    by_name = {arm.name: arm for arm in arms(study)}
    found = versus(study, [(by_name["entity 128"], by_name["mlm 128"])], "real1_strict")[0]
    assert found is not None
    assert found.speaking == Speaking(None, "planned")


def test_methods_need_not_have_the_same_seeds(tmp_path: Path) -> None:
    models = [Model(f"mlm-s{seed}", 100, -0.9, objective="mlm", seed=seed) for seed in (0, 1)]
    models += [Model(f"entity-s{seed}", 100, 0.4, seed=seed) for seed in (1, 2, 3)]
    study = read_study(write(tmp_path, [Model("base", 0, -1.0), *models]))
    question = entity_or_mlm.draw(study)
    assert question is not None
    assert question.answer.startswith("Yes.")
    assert cells(question)[0][3] == "2"


def test_entity_is_shown_better_and_one_seed_decides_nothing(study: Subject) -> None:
    question = entity_or_mlm.draw(study)
    assert question is not None
    assert question.answer.startswith("Yes. Real@1 strict, entity - mlm")
    assert [line[-1] for line in cells(question)] == ["better", "one seed", "better"]
    assert all(line[2] == "equal, 200k" for line in cells(question))


def test_unequal_training_and_other_data_have_no_say(tmp_path: Path) -> None:
    models = [Model("base", 0, -1.0)]
    for seed in range(2):
        models.append(Model(f"mlm-s{seed}", 100, -1.0, objective="mlm", seed=seed, tokens=1000))
        models.append(Model(f"entity-s{seed}", 100, 1.5, seed=seed, tokens=1000 + 900 * seed))
        models.append(Model(f"entity-big-s{seed + 2}", 100, 1.5, seed=seed + 2, tokens=1000))
    write(tmp_path, models)
    for path in tmp_path.glob("entity-big-*/evaluations/*/*/result.json"):
        held = read_json(path)
        held["provenance"]["dataset"] = "big"
        write_json(path, held)
    study = read_study(tmp_path)
    assert {arm.name: arm.seeds for arm in arms(study)} == {"mlm 128": 2, "entity 128": 2, "entity-big 128": 2}
    question = entity_or_mlm.draw(study)
    assert question is not None
    assert question.answer.startswith("Not trained equally, so no verdict.")
    assert [line[2] for line in cells(question)] == ["unequal, 1.9k / 1k"]
    assert not any("entity 128 - mlm" in block.head for block in blocks_of(transfer.draw(study)))


def test_seeds_belong_together_by_the_bytes_of_their_data_wherever_it_lay(tmp_path: Path) -> None:
    write(tmp_path, [Model("base", 0, -1.0), *(Model(f"entity-s{seed}", 100, 0.5, seed=seed) for seed in range(3))])
    for number, path in enumerate(sorted(tmp_path.glob("entity-*/evaluations/*/*/result.json"))):
        held = read_json(path)
        held["provenance"] |= {"dataset": f"/moved/{number}", "dataset_bytes": "abc"}
        write_json(path, held)
    study = read_study(tmp_path)
    assert {arm.name: arm.seeds for arm in arms(study)} == {"entity 128": 3}


def test_curves_are_of_the_seeds_that_have_one_and_pair_equal_checkpoints(tmp_path: Path) -> None:
    """Of two seeds the first has every checkpoint, the second all but one, the third only its end."""
    steps = {0: (100, 200, 300), 1: (100, 300), 2: (300,)}
    models = [Model(f"entity-s{seed}", step, 0.1, seed=seed) for seed, held in steps.items() for step in held]
    study = read_study(write(tmp_path, [Model("base", 0, -1.0), *models]))
    (arm,) = arms(study)
    assert [{seed: entry.step for seed, entry in step.items()} for step in arm.steps()] == [{0: 300, 1: 300, 2: 300}]
    assert [{seed: entry.step for seed, entry in step.items()} for step in arm.with_curve().steps()] == [
        {0: 100, 1: 100},
        {0: 300, 1: 300},
    ]
    question = over_fitting.draw(study)
    assert question is not None
    assert [line[1] for line in cells(question, 1)] == ["2"]


def test_one_seed_has_no_verdict_in_any_question(tmp_path: Path) -> None:
    models = [Model("base", 0, -1.0), Model("base", 0, -1.0, seq_len=1024)]
    for length in (128, 1024):
        for objective, skill in SKILLS.items():
            run = f"{objective}-{length}-s0"
            models += [Model(run, step, skill + 0.5 * (step == 100), objective=objective, seq_len=length) for step in (100, 200)]
    write(tmp_path, models, documents=60)
    for lang, told in (("en", "One seed only, so no verdict."), ("ko", "시드가 하나뿐이라 판정할 수 없습니다.")):
        study = read_study(tmp_path, lang)
        asked = (entity_or_mlm.draw, mixes.draw, lengths.draw, over_fitting.draw, transfer.draw)
        assert all((question := ask(study)) is not None and question.answer.startswith(told) for ask in asked)
        assert study.table is not None
        count = len(study.table.rows) - 1
        assert count == 12  # the base in windows of another length is no checkpoint
        assert study.recommendation.over_base is not None
        assert study.recommendation.over_base.family == count


def test_a_mix_that_is_no_better_is_not_called_so(study: Subject) -> None:
    question = mixes.draw(study)
    assert question is not None
    assert question.answer.startswith("At no length is combined shown better than both.")
    told = {(line[0], line[1]): line[-1] for line in cells(question)}
    assert told["combined 128", "entity 128"] == "worse"
    assert told["combined 128", "mlm 128"].startswith("not shown (detectable: ")
    assert told["combined80 1,024", "entity 1,024"] == told["combined80 1,024", "combined 1,024"] == "one seed"


def test_length_helps_beyond_the_reach_of_the_shorter_and_not_within(study: Subject) -> None:
    question = lengths.draw(study)
    assert question is not None
    assert question.answer.startswith("Real-far@1 strict: Yes. entity 1,024 - 128")
    line = {row[0]: row[1:] for row in cells(question)}["entity 1,024 - 128"]
    assert "shown" not in line[0]
    assert "shown" in line[1]
    assert "shown" not in line[2]
    assert "shown" in line[3]
    within, beyond, contrast = (float(cell.split()[0]) for cell in line[2:])
    assert contrast == pytest.approx(beyond - within, abs=0.11)
    assert "shown" not in line[4]  # shown beyond and not shown within is no evidence for the contrast
    assert f"; beyond minus within reach {line[4]}, not shown." in question.answer
    notes = " ".join(block.text for block in question.blocks if isinstance(block, Text))
    assert re.search(r"Benjamini-Hochberg over the \d+ verdicts of this question", notes)
    near = {row[0]: row[1] for row in cells(question, 1)}["entity 1,024 - 128"]
    assert "shown" not in near
    assert "one seed" in {row[0]: row[1] for row in cells(question)}["mlm 1,024 - 512"]


def test_what_stands_only_alone_is_marked_and_counts_for_nothing(study: Subject) -> None:
    by_name = {arm.name: arm for arm in arms(study)}
    pairs = [(by_name["entity 128"], by_name["mlm 128"]), (by_name["combined 128"], by_name["mlm 128"])]
    sure, unsure = versus(study, pairs, "real1_strict")
    assert sure is not None
    assert unsure is not None
    assert isinstance(unsure.answer, CrossedVerdict)
    near = replace(unsure, answer=replace(unsure.answer, p=0.04, shown=True))
    assert [one.shown for one in corrected([near]) if one] == [True]
    found = [one for one in corrected([near, *[unsure] * 9]) if one]
    assert [one.family for one in found] == [10] * 10
    assert (found[0].shown, found[0].alone) == (False, True)
    assert short_cell(found[0], Say("en")).text.endswith(" before correction only")
    assert lead(found, Say("en")) == "No difference shown."
    beside = [one for one in corrected([near, sure], primary=True) if one]
    assert [one.shown for one in beside] == [True, True]  # Holm's second step asks for no more than 0.05
    columns = corrected_columns({"a": [near, None], "b": [unsure] * 9})
    assert columns["a"] == [found[0], None]


def test_every_question_has_its_sentence_badge_and_bar(study: Subject) -> None:
    found = {section.id: section.verdict for section in draw_sections(study) if section.verdict is not None}
    assert {name: verdict.badge for name, verdict in found.items()} == {
        "base": "part", "entity-or-mlm": "shown", "mix": "part", "lengths": "part", "over-fitting": "open",
    }  # fmt: skip
    assert found["entity-or-mlm"].sentence == "entity is better at 128, 1,024 tokens."
    assert found["mix"].sentence == "No difference from mlm shown, worse than entity."
    assert found["lengths"].sentence == "1,024 tokens are better on Real-far@1 strict. No difference shown on Real@1 strict."
    assert found["base"].sentence.startswith("3 of 6 methods beat it: combined 128, entity 128, entity 1,024")
    assert all(verdict.estimate is not None for name, verdict in found.items() if name != "over-fitting")
    checks = [check.label for section in draw_sections(study) for check in section.checks]
    assert checks == ["LAMBADA@1 strict"]  # gold is descriptive


def test_the_answer_says_why_this_length_and_counts_its_methods(study: Subject) -> None:
    page = checkpoint_page(study)
    assert page.headline == "Use entity at 1,024 tokens"
    assert "1,024 and 128 tokens cannot be told apart (difference " in page.sentence
    assert "128 is cheaper; on far mentions 1,024 are better (Real-far@1 strict +" in page.sentence
    assert "6 methods with several seeds · " in page.subtitle
    assert page.keep is not None
    assert re.search(r"better than \d of the 5 others with several seeds", page.keep.status)
    assert dict(page.axis())[0.0] != "0"
    curve = next(spec for title, spec in _charts(page) if "gained over training" in title)
    assert curve["data"]["values"][0]["run"] == "entity"  # the recommended method first


def _charts(page: Page) -> list[tuple[str, dict[str, Any]]]:
    return [one for section in page.sections for block in section.blocks if isinstance(block, Charts) for one in block.charts]


def test_the_evidence_is_one_forest_and_one_curve_over_the_base(study: Subject) -> None:
    section = evidence.draw(study)
    assert section is not None
    (charts_,) = (block for block in section.blocks if isinstance(block, Charts))
    forest, curve = (spec for _, spec in charts_.charts)
    rows = forest["data"]["values"]
    assert {row["task"] for row in rows} == {"Real@1 strict", "Real-far@1 strict", "LAMBADA@1 strict"}
    assert {row["name"] for row in rows} == {"128", "1,024"}
    assert {row["finding"] for row in rows if row["task"] == "Real@1 strict"} == {"better"}
    length = study.chosen.evaluation.seq_len
    assert {row["run"] for row in curve["data"]["values"]} == {"mlm", "combined", "entity"}
    entity = [row["value"] for row in curve["data"]["values"] if row["run"] == "entity"]
    assert len(entity) == 2
    assert entity[0] < entity[1]
    assert f"{length:,}" in charts_.charts[1][0]


def test_ranks_have_a_verdict_of_their_own_and_say_that_they_are_exploratory(study: Subject, runs: Path, tmp_path: Path) -> None:
    question = ranks.draw(study)
    assert question is not None
    lines = {(line[0], line[1]): line[2:] for line in cells(question)}
    hit, mrr, lower, beside = lines["Real@1 strict", "entity 128 - mlm"]
    change = [float(cell.split()[0]) for cell in (hit, mrr, lower)]
    assert change[1] == pytest.approx(change[0] + change[2], abs=0.11)
    assert (hit.split()[-1], mrr.split()[-1], beside) == ("shown", "shown", "agree")
    assert "(exploratory)" in question.answer
    copy = shutil.copytree(runs, tmp_path / "copy")
    for path in copy.rglob("result.json"):
        write_json(path, read_json(path) | {"evaluated_at": f"{ranks.DECLARED}T12:00:00+00:00"})
    later = ranks.draw(read_study(copy))
    assert later is not None
    assert "exploratory" not in later.answer


def test_what_carries_over_is_asked_of_every_task_and_source(study: Subject) -> None:
    question = transfer.draw(study)
    assert question is not None
    counted = blocks_of(question)[0].head[1:]
    assert all(re.search(r" \(\d+ items, \d+ documents(, descriptive)?\)$", label) for label in counted)
    labels = [label.partition(" (")[0] for label in counted]
    assert labels[0] == "Real@1 strict"
    assert {"Real-far@1 strict", "LAMBADA@1 strict", "Gold"} <= set(labels)
    assert re.search(r"LAMBADA@1 strict: (Yes|No|In part)[^(]* \(at 128 tokens", question.answer)
    assert "Gold" not in question.answer  # descriptive
    assert not any("shown" in line[1 + labels.index("Gold")] for line in cells(question))
    assert any("Gold cloze is descriptive" in block.text for block in question.blocks if isinstance(block, Text))
    assert "wiki" not in question.answer  # sources are in the table
    assert sum(label.startswith("Real@1 strict wiki") for label in labels) == 1
    assert len(cells(question, 1)) == 7  # 512 was evaluated without its base


def test_what_a_mix_is_shown_to_lose_is_said(tmp_path: Path) -> None:
    skills = {"mlm": 0.8, "entity": 0.8, "combined": -1.2}
    models = [
        Model(f"{name}-s{seed}", 100, skill, objective=name, seed=seed) for name, skill in skills.items() for seed in range(3)
    ]
    question = transfer.draw(read_study(write(tmp_path, [Model("base", 0, 0.5), *models])))
    assert question is not None
    assert re.search(r"Shown worse: .*LAMBADA@1 strict, combined 128 - mlm -\d", question.answer)


def test_a_fall_after_the_peak_is_found_and_a_rise_is_none(tmp_path: Path, study: Subject) -> None:
    rising = over_fitting.draw(study)
    assert rising is not None
    assert "shown in none" in rising.answer
    models = [Model("base", 0, -1.0)]
    for seed in range(3):
        models += [Model(f"entity-s{seed}", step, skill, seed=seed) for step, skill in ((100, 0.0), (200, 0.9), (300, -1.2))]
    fallen = over_fitting.draw(read_study(write(tmp_path, models)))
    assert fallen is not None
    assert "A fall from the peak is shown in entity 128 (peak at epoch 2" in fallen.answer
    assert cells(fallen, 1)[0][-1] == "over-fitting: the fall is shown"


def test_a_checkpoint_that_all_began_from_is_their_base(tmp_path: Path) -> None:
    models = [Model("start", 50, 3.0), *(Model(f"entity-s{seed}", 100, 0.1, seed=seed) for seed in range(2))]
    write(tmp_path, models)
    for path in tmp_path.glob("entity-*/evaluations/*/*/result.json"):
        held = read_json(path)
        held["provenance"]["base"] = "/elsewhere/runs/start/checkpoint-50"
        write_json(path, held)
    study = read_study(tmp_path)
    assert study.base is not None
    assert study.base.evaluation.checkpoint == "start/checkpoint-50"
    assert study.recommendation.name.startswith("entity-s")
    assert [arm.base for arm in arms(study)] == ["start/checkpoint-50"]


def test_two_bases_in_folders_of_their_own_are_both_bases(tmp_path: Path) -> None:
    models = [Model("k2", 0, 0.5), Model("deb", 0, 0.5), Model("entity-s0", 100, 0.1), Model("other-s0", 100, 2.0, seed=1)]
    write(tmp_path, models)
    for name, base in (("entity-s0", "/elsewhere/k2"), ("other-s0", "/elsewhere/deb")):
        path = next(tmp_path.glob(f"{name}/evaluations/*/*/result.json"))
        held = read_json(path)
        held["provenance"]["base"] = base
        write_json(path, held)
        path = tmp_path / "evaluations" / Path(base).name / "a-128" / "result.json"
        held = read_json(path)
        held["provenance"] = {"run": "pretraining", "step": 9, "epoch": 1.0, "tokens": 5, "objective": "mlm", "base": "new:tiny",
                              "seq_len": 128, "seed": 0, "dataset": ""}  # fmt: skip
        write_json(path, held)
    study = read_study(tmp_path)
    assert {entry.name for entry in study.entries if not entry.trained} == {"k2", "deb"}
    assert sorted(arm.base for arm in arms(study)) == ["deb", "k2"]
    assert (study.recommendation.name, study.recommendation.base) == ("other-s0/checkpoint-100", "deb")  # it began from that one


def two_bases(root: Path) -> Subject:
    """A run from `weak` (evaluated at 256), a better one from `strong`, and one from a model that was not evaluated."""
    models = [Model("strong", 0, 1.0), Model("weak", 0, -1.5, seq_len=256), Model("a", 100, 2.0), Model("b", 100, 0.0),
              Model("c", 100, 0.0)]  # fmt: skip
    write(root, models)
    for run, base in (("a", "strong"), ("b", "weak"), ("c", "lost")):
        path = next(root.glob(f"{run}/evaluations/*/*/result.json"))
        held = read_json(path)
        held["provenance"]["base"] = f"/elsewhere/{base}"
        write_json(path, held)
    return read_study(root)


def test_each_run_is_judged_against_the_model_it_began_from(tmp_path: Path) -> None:
    study = two_bases(tmp_path)
    assert study.base is not None
    assert study.base.name == "strong"
    section = peaks.draw(study)
    assert section is not None
    table, note = section.blocks
    assert isinstance(table, Table)
    assert isinstance(note, Text)
    changes = {line[0].text: (line[5].text, line[6].text) for line in table.rows}
    assert changes["a"][1] == changes["b"][1] == "better"  # beside `strong`, b would be worse
    assert changes["c"] == ("–", "–")
    assert "max-T over 2 runs" in note.text
    assert "The base of b is weak (windows of 256 tokens)." in note.text
    assert "The base of c was not evaluated on these items" in note.text
    judged = study.over_own_base([entries[0] for _, entries in sorted(study.runs().items())])
    assert [one.family if one else None for one in judged] == [2, 2, None]


def test_grades_are_given_against_the_model_a_run_began_from(tmp_path: Path) -> None:
    section = rating.draw(two_bases(tmp_path))
    assert section is not None
    table = section.blocks[0]
    assert isinstance(table, Table)
    grades = {line[0].text: (line[1].text, line[6].text) for line in table.rows}
    assert grades["b"][0].startswith("A · +")
    assert "+" in grades["b"][1]
    assert grades["c"] == ("– · no base", "– · no base")


def test_with_one_base_every_run_is_judged_as_the_table_judges_it(study: Subject) -> None:
    trained = [entry for entry in study.entries if entry.trained]
    found = dict(zip(trained, study.over_own_base(trained), strict=True))
    assert found == study.against_base()


def test_a_last_checkpoint_as_high_as_the_peak_is_the_highest(tmp_path: Path) -> None:
    write(tmp_path, [Model("base", 0, -1.0), Model("entity-s0", 100, -0.5), Model("entity-s0", 200, 0.5)])
    folder = tmp_path / "entity-s0" / "evaluations" / "a-128"
    shutil.copytree(folder / "checkpoint-200", folder / "checkpoint-300")
    (tmp_path / "entity-s0" / "checkpoint-300").mkdir()
    held = read_json(folder / "checkpoint-300" / "result.json")
    held["provenance"] |= {"step": 300, "epoch": 3.0, "tokens": 300_000}
    write_json(folder / "checkpoint-300" / "result.json", held | {"checkpoint": "entity-s0/checkpoint-300"})
    question = over_fitting.draw(read_study(tmp_path))
    assert question is not None
    assert "the last checkpoint of the one method is the highest (as high as an earlier one)." in question.answer
    assert "Run by run (Holm over 1 test), over-fitting is shown in none." in question.answer


@pytest.mark.parametrize("lang", [pytest.param("ko", marks=pytest.mark.journey), "en"])
def test_every_question_is_in_the_report_and_its_archive_says_the_same(
    runs: Path, tmp_path: Path, lang: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charts, "runtime", lambda: None)
    archive(runs, out=tmp_path / "kept")
    made = [report(root, tmp_path / f"out-{root.name}", lang=lang) for root in (runs, tmp_path / "kept")]
    pages = [Path(one.page).read_text("utf-8") for one in made]
    ids = [re.findall(r'<section id="([\w-]+)"', page) for page in pages]
    assert ids[1][3:9] == ["base", "entity-or-mlm", "mix", "lengths", "over-fitting", "transfer"]
    numbers = [re.findall(r"[-+\d.]+ \[[-+\d.]+, [-+\d.]+\]", re.sub(r"<[^>]*>", "", page)) for page in pages]
    assert len(numbers[0]) > 200
    assert numbers[0] == numbers[1]


def test_checkpoints_of_seeds_meet_by_epoch_though_rows_hold_unlike_tokens(tmp_path: Path) -> None:
    models = [Model("base", 0, -1.0)]
    for seed in range(2):
        for step, tokens in ((50, 51_000 + 300 * seed), (100, 100_000), (150, 149_000 - 200 * seed), (200, 200_000)):
            models.append(Model(f"entity-s{seed}", step, 0.1, tokens=tokens, seed=seed))
    found = read_study(write(tmp_path, models))
    (arm,) = arms(found)
    assert [[entry.step for entry in step.values()] for step in arm.steps()] == [[50, 50], [100, 100], [150, 150], [200, 200]]
    (curve,) = cells(over_fitting.draw(found))
    assert [cell.split(":")[0] for cell in curve[1:]] == ["0.5", "1", "1.5", "2"]


def test_runs_that_end_at_moments_of_their_own_meet_at_their_ends(tmp_path: Path) -> None:
    """As --max-minutes and --stop-when-flat leave them: without their ends, a fall after the last shared epoch is not seen."""
    models = [Model("base", 0, -1.0)]
    for seed in range(3):
        for step, skill in ((50, 0.1), (100, 0.5), (150 + 10 * seed, -1.5)):
            models.append(Model(f"entity-s{seed}", step, skill, seed=seed))
    found = read_study(write(tmp_path, models))
    (arm,) = arms(found)
    assert [[entry.step for entry in step.values()] for step in arm.steps()] == [[50] * 3, [100] * 3, [150, 160, 170]]
    question = over_fitting.draw(found)
    assert question is not None
    assert "A fall from the peak is shown in entity 128 (peak at epoch 1" in question.answer


def test_methods_trained_at_other_lengths_are_not_set_beside_each_other(tmp_path: Path) -> None:
    models = [Model("base", 0, -1.0)]
    models += [
        Model(f"{kind}-s{seed}", 100, SKILLS[kind], objective=kind, seed=seed) for kind in ("mlm", "entity") for seed in (0, 1)
    ]
    write(tmp_path, models)
    assert entity_or_mlm.draw(read_study(tmp_path)) is not None
    for path in tmp_path.glob("entity-*/evaluations/*/*/result.json"):
        held = read_json(path)
        write_json(path, held | {"provenance": held["provenance"] | {"seq_len": 64}})
    found = read_study(tmp_path)
    assert [arm.name for arm in arms(found)] == ["mlm 128", "entity 64 @128"]
    assert entity_or_mlm.draw(found) is None
    question = transfer.draw(found)
    assert question is None or "No run to pair with as much mlm" in question.answer


def test_a_second_base_is_named_and_does_not_change_the_first_answer(tmp_path: Path) -> None:
    models = [Model("base", 0, -1.0), Model("small", 0, -1.0, seq_len=64)]
    for kind, skill, other in (("mlm", -0.9, 0.2), ("entity", 0.2, -0.9)):
        for seed in range(3):
            models.append(Model(f"{kind}-s{seed}", 100, skill + 0.02 * seed, objective=kind, seed=seed))
            models.append(Model(f"other-{kind}-s{seed}", 100, other + 0.02 * seed, objective=kind, seed=seed))
    write(tmp_path, models)
    for path in tmp_path.glob("other-*/evaluations/*/*/result.json"):
        held = read_json(path)
        write_json(path, held | {"provenance": held["provenance"] | {"base": "small"}})
    found = read_study(tmp_path)
    shown = side_by_side.draw(found)
    assert shown is not None
    (table,) = (block for block in shown.blocks if isinstance(block, Table))
    assert [line[0].text for line in table.rows][:2] == ["base @128", "small @64"]
    first, second = entity_or_mlm.draw(found), transfer.draw(found)
    assert first is not None
    assert second is not None
    assert re.match(r"Yes\. .*: at 128 tokens \+[^;]*, better, from small at 128 tokens -.*, worse\.", first.answer)
    assert re.search(r"LAMBADA@1 strict: Yes \(at 128 tokens \+.*, better; from small at 128 tokens -.*, worse\)", second.answer)


def test_a_comparison_that_is_lost_among_many_says_so(runs: Path, study: Subject) -> None:
    wide, narrow = Estimate(0.02, 0.001, 0.04, 100), Estimate(0.02, -0.01, 0.05, 100)
    one = Comparison("a", "b", "real1_strict", wide, 0.03, 0.3, None, 0.05, "", family=10, correction="max-t")
    assert in_words(one) == "no difference shown after the max-T adjustment for 10 comparisons; detectable difference 5.0 points"
    limit = "detectable difference 5.0 points"
    assert verdict(one, "en") == f"no difference shown after the max-T adjustment for 10 comparisons; {limit}"
    assert verdict(one, "ko") == "유의한 차이 미확인, 비교 10개의 max-T 보정 후 (검출 가능 차이 5.0점)"
    assert not lost_to_family(replace(one, difference=narrow, p=0.2))
    assert not lost_to_family(replace(one, p_adjusted=0.01))
    assert not lost_to_family(replace(one, family=1, p_adjusted=0.06))
    assert "after Holm's adjustment for 10" in in_words(replace(one, correction="holm"))
    use = replace(study.recommendation.use, seeds=1, over_base=wide, status="not better than the base")
    told = replace(study.recommendation, use=use, over_base=one, beaten_base=False)
    assert "10 were made (max-T)" in recommendation_sentence(told, "en")
    assert "비교를 10개" in recommendation_sentence(told, "ko")
    rows = compare(runs).rows
    assert {line.comparison.family for line in rows if line.comparison} == {len(rows) - 1}


def test_an_evaluation_without_words_is_left_out_of_gold_alone(runs: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(runs, tmp_path / "copy")
    path = next(copy.glob("mlm-128-s0/evaluations/*/checkpoint-200/items.jsonl"))
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    write_jsonl(path, [{**row, "word_rank": None} for row in rows])
    study = read_study(copy)
    (table, *_) = blocks_of(transfer.draw(study))
    columns = dict(zip((name.partition(" (")[0] for name in table.head), zip(*table.rows, strict=True), strict=True))
    texts = {name: [cell.text for cell in column] for name, column in columns.items()}
    assert texts["Gold"].count("–") == 2
    assert texts["Real@1 strict"].count("–") == 0


def test_every_objective_is_compared_with_mlm(tmp_path: Path) -> None:
    assert set(OBJECTIVES) == set(TRAINED) == {first for first, _ in PAIRS} | {"mlm"}
    models = [Model("base", 0, -0.5)]
    for objective, skill in (("mlm", 0.0), ("entity", 0.3), ("copy+link", 1.2)):
        models += [Model(f"{objective}-s{seed}", 200, skill, objective=objective, seed=seed) for seed in range(3)]
    study = read_study(write(tmp_path, models, documents=40))
    asked = [line[:2] for line in cells(entity_or_mlm.draw(study))]
    assert asked == [["entity 128", "mlm 128"], ["copy+link 128", "mlm 128"]]
    told = transfer.draw(study)
    assert told is not None
    assert any("copy+link 128" in cell for line in cells(told) for cell in line)
