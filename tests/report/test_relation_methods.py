"""Relation extraction by method: which starts count, what is set beside what, and that nothing is lost without a word."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from coref_automl.comparison.archive import archive
from coref_automl.comparison.relation_runs import Pair, alike, find_relation, look_for_relation, over_pairs, paired, shared
from coref_automl.errors import InputError
from coref_automl.report.checkpoint_report import report
from coref_automl.report.page import Text
from coref_automl.report.sections.relation import draw as relation
from coref_automl.statistics.methods import method_verdict
from coref_automl.store import read_json, write_json
from tests.comparison.conftest import Model, make_scores, write_evaluation
from tests.report.test_relation_question import read_study, verdicts, write_relation, write_starts

BETTER: dict[str, tuple[float, ...]] = {"entity": (0.9, 0.88, 0.9), "mlm": (0.6, 0.62, 0.6)}


def models(*, steps: Sequence[int] = (200,)) -> list[Model]:
    return [
        Model(f"{kind}-128-s{seed}", step, 0.0, objective=kind, seed=seed)
        for kind in ("mlm", "entity")
        for seed in range(3)
        for step in steps
    ]


def write(root: Path, found: Sequence[Model]) -> Path:
    for number, model in enumerate([Model("base", 0, -1.0), *found]):
        write_evaluation(root, model, make_scores(model, documents=20, own=number))
    return root


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two objectives with three seeds of pretraining and two checkpoints each, and their base. Read only."""
    return write(tmp_path_factory.mktemp("runs"), models(steps=(20, 200)))


def write_from(root: Path, kind: str, step: int, share: float) -> None:
    for seed in range(3):
        model = f"runs/{kind}-128-s{seed}/checkpoint-{step}"
        write_relation(root, f"{kind}-{seed}-{step}", model, share + 0.01 * seed, 10 * step + len(kind) + seed)


def test_starts_that_are_not_equally_trained_say_nothing_about_methods(runs: Path, tmp_path: Path) -> None:
    write_from(tmp_path, "entity", 200, 0.9)
    write_from(tmp_path, "mlm", 20, 0.6)
    (checkpoints,) = verdicts(read_study(runs, tmp_path))
    assert [line[:2] for line in checkpoints] == [[f"entity-{seed}-200", f"mlm-{seed}-20"] for seed in range(3)]


def test_of_several_starts_of_a_run_the_latest_stands_for_its_method(runs: Path, tmp_path: Path) -> None:
    for step, share in ((20, 0.6), (200, 0.9)):
        write_from(tmp_path, "entity", step, share)
    write_from(tmp_path, "mlm", 200, 0.6)
    methods, checkpoints = verdicts(read_study(runs, tmp_path))
    assert [(*line[:3], line[-1]) for line in methods] == [("entity 128", "mlm 128", "3", "better")]
    assert [line[:2] for line in checkpoints] == [[f"entity-{seed}-20", f"mlm-{seed}-200"] for seed in range(3)]


def test_windows_of_an_evaluation_do_not_part_the_starts(tmp_path: Path) -> None:
    root, longer = tmp_path / "runs", tmp_path / "relation"
    write(root, [*models(), *(replace(model, seq_len=64) for model in models() if model.objective == "entity")])
    for path in root.glob("entity-*/evaluations/a-64/*/result.json"):
        held = read_json(path)
        write_json(path, held | {"provenance": held["provenance"] | {"seq_len": 128}})
    write_starts(longer, BETTER)
    ((line,),) = verdicts(read_study(root, longer))
    assert [*line[:3], line[-1]] == ["entity 128", "mlm 128", "3", "better"]


def test_starts_trained_at_another_length_are_not_compared(tmp_path: Path) -> None:
    root = write(tmp_path / "runs", models())
    for path in root.glob("entity-*/evaluations/*/*/result.json"):
        held = read_json(path)
        write_json(path, held | {"provenance": held["provenance"] | {"seq_len": 64}})
    write_starts(tmp_path / "relation", BETTER)
    question = relation(read_study(root, tmp_path / "relation"))
    assert question is not None
    assert "entity 64" not in question.answer


def test_starts_of_another_base_are_not_compared(tmp_path: Path) -> None:
    root = write(tmp_path / "runs", models())
    for path in root.glob("entity-*/evaluations/*/*/result.json"):
        held = read_json(path)
        write_json(path, held | {"provenance": held["provenance"] | {"base": "other"}})
    write_starts(tmp_path / "relation", BETTER | {"base": (0.6,)})
    methods, _ = verdicts(read_study(root, tmp_path / "relation"))
    assert [line[:2] for line in methods] == [["mlm 128 (base)", "base-0"]]


def test_one_pair_of_starts_is_no_verdict_about_a_method(runs: Path, tmp_path: Path) -> None:
    write_starts(tmp_path, BETTER)
    for name in ("entity-1", "entity-2"):  # seeds 0 and 2 of this method, 1 and 2 of the other
        shutil.rmtree(tmp_path / name)
    write_relation(tmp_path, "entity-2", "runs/entity-128-s2/checkpoint-200", 0.9, 5)
    shutil.rmtree(tmp_path / "mlm-0")
    (checkpoints,) = verdicts(read_study(runs, tmp_path))
    assert [line[:2] for line in checkpoints] == [["entity-2", "mlm-2"]]


def test_where_the_base_has_fewer_relation_seeds_those_that_it_has_count(runs: Path, tmp_path: Path) -> None:
    write_starts(tmp_path, {"entity": (0.9, 0.88, 0.5), "base": (0.6,)})
    shutil.rmtree(tmp_path / "base-0" / "seed-2")
    held = read_json(tmp_path / "base-0" / "re_results.json")
    write_json(tmp_path / "base-0" / "re_results.json", held | {"seeds": [{}, {}]})
    ((line,),) = verdicts(read_study(runs, tmp_path))
    assert line[:3] == ["entity 128", "base-0", "3"]
    found = {run.name: run for run in find_relation([str(tmp_path)])}
    values = [rows.of([0, 1]).f1().mean() for name in ("entity-0", "entity-1", "entity-2") if (rows := found[name].rows)]
    assert line[3] == f"{100 * float(np.mean(values)):.1f}"


def test_a_method_one_of_whose_starts_shares_no_relation_seed_with_the_base_is_not_judged(runs: Path, tmp_path: Path) -> None:
    write_starts(tmp_path, {"entity": (0.9, 0.88, 0.5), "base": (0.6,)})
    for name, first in (("entity-0", 0), ("entity-1", 3), ("entity-2", 0), ("base-0", 0)):
        path = tmp_path / name / "re_results.json"
        write_json(path, read_json(path) | {"seeds": [{"seed": first + number} for number in range(3)]})
    (checkpoints,) = verdicts(read_study(runs, tmp_path))
    assert [line[:3] for line in checkpoints] == [["entity-0", "base-0", "3"], ["entity-2", "base-0", "3"]]


def test_the_seeds_of_the_base_may_lie_in_runs_of_their_own_and_each_counts_once(runs: Path, tmp_path: Path) -> None:
    write_starts(tmp_path / "one", {"entity": (0.9, 0.88, 0.5), "base": (0.6,)})
    write_starts(tmp_path / "own", {"entity": (0.9, 0.88, 0.5), "base": (0.6, 0.6, 0.6)})
    for number in range(3):  # each run of the base keeps one of the three seeds that the other folder has in one run
        shutil.rmtree(tmp_path / "own" / f"base-{number}")
        shutil.copytree(tmp_path / "one" / "base-0", tmp_path / "own" / f"base-{number}")
        for seed in {0, 1, 2} - {number}:
            shutil.rmtree(tmp_path / "own" / f"base-{number}" / f"seed-{seed}")
        path = tmp_path / "own" / f"base-{number}" / "re_results.json"
        write_json(path, read_json(path) | {"seeds": [{"seed": number}]})
    shutil.copytree(tmp_path / "own" / "base-0", tmp_path / "own" / "base-again")
    one, own = (verdicts(read_study(runs, tmp_path / name)) for name in ("one", "own"))
    ((before,),), ((line,),) = one, own  # a verdict about the method, and none about single checkpoints
    assert line[:3] == ["entity 128", "base", "3"]
    assert line[3:] == before[3:]


def test_every_setting_has_its_own_verdict_and_its_name(runs: Path, tmp_path: Path) -> None:
    write_starts(tmp_path / "plain", {"entity": (0.6, 0.62, 0.6), "mlm": (0.6, 0.6, 0.62)})
    write_starts(tmp_path / "typed", BETTER)
    for path in tmp_path.glob("*/*/re_results.json"):
        write_json(path, read_json(path) | {"fingerprints": {"settings": path.parents[1].name}})
    study = read_study(runs, tmp_path)
    (methods,) = verdicts(study)
    assert [(line[0], line[-1].split(" (")[0]) for line in methods] == [
        ("entity 128 (plain-entity-0)", "not shown"), ("entity 128 (typed-entity-0)", "better"),
    ]  # fmt: skip
    question = relation(study)
    assert question is not None
    assert question.answer.startswith("In part. ")


DAMAGES = {
    "result": ("re_results.json", '{"micro_f1": 5'),
    "cut": ("seed-0/predictions/dev.jsonl", '{"guid": "g0", "gold"'),
    "other": ("seed-0/predictions/dev.jsonl", '{"guid": "g0"}\n'),
    "rows": ("seed-1/predictions/dev.jsonl", '{"guid": "g0", "gold": "no_relation", "pred": "no_relation"}\n'),
    "number": ("seed-0/predictions/dev.jsonl", "1\n"),
    "archived": ("rows.npz", "PK broken"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_relation_run_is_named_and_never_archived(runs: Path, tmp_path: Path, damage: str) -> None:
    """Without it the verdict is another: here the start that did badly is the one that cannot be read."""
    write_starts(tmp_path / "re", {"entity": (0.9, 0.88, 0.5), "mlm": (0.6, 0.62, 0.6)})
    name, text = DAMAGES[damage]
    (tmp_path / "re" / "entity-2" / name).write_text(text, "utf-8")
    found, (told,) = look_for_relation([str(tmp_path / "re")])
    assert str(tmp_path / "re" / "entity-2") in told
    assert [run.name for run in found if run.rows is None] == ([] if damage == "result" else ["entity-2"])
    made = report(runs, tmp_path / "re", out=tmp_path / "report", lang="en")
    page = Path(made.markdown).read_text("utf-8").replace("\\", "")
    assert re.search(f"Left out: {re.escape(str(tmp_path / 're' / 'entity-2'))}", page)
    with pytest.raises(InputError, match="entity-2"):
        archive(runs, tmp_path / "re", out=tmp_path / "kept")


def test_runs_of_one_name_under_folders_of_one_name_are_both_kept(runs: Path, tmp_path: Path) -> None:
    for place, kind, share in (("a", "entity", 0.9), ("b", "mlm", 0.6)):
        write_relation(tmp_path / place / "typed", "run", f"runs/{kind}-128-s0/checkpoint-200", share, len(kind))
    assert [run.name for run in find_relation([str(tmp_path)])] == ["a-typed-run", "b-typed-run"]
    archive(runs, tmp_path / "a", tmp_path / "b", out=tmp_path / "kept")
    assert len(find_relation([str(tmp_path / "kept")])) == 2


def pairs_of(folder: Path) -> list[Pair]:
    write_starts(folder, {"entity": (0.9, 0.88), "mlm": (0.6, 0.62)})
    by_name = {run.name: run for run in find_relation([str(folder)])}
    return [pair for seed in (0, 1) if (pair := shared(by_name[f"entity-{seed}"], by_name[f"mlm-{seed}"]))]


def test_pairs_of_unlike_numbers_of_relation_seeds_weigh_the_same(tmp_path: Path) -> None:
    first, second = pairs_of(tmp_path)
    answer = over_pairs([first.of([0, 1]), second.of([2])], seed=0).answer
    assert answer.difference == pytest.approx((first.differences()[:2].mean() + second.differences()[2]) / 2)
    assert answer.over_documents.low < answer.difference < answer.over_documents.high


def test_relation_seeds_that_pairs_share_are_crossed_with_them(tmp_path: Path) -> None:
    """Their luck is in every pair: seeds of their own could not tell it, and one seed for all tells nothing."""
    pairs = pairs_of(tmp_path)
    answer = over_pairs(pairs, seed=0).answer
    table = np.stack([pair.differences() for pair in pairs])
    assert answer.difference == pytest.approx(table.mean())
    assert answer.over_seeds == method_verdict(table, answer.over_documents, 0.0).over_seeds
    apart = over_pairs([pairs[0], replace(pairs[1], seeds=(3, 4, 5))], seed=0).answer
    assert apart.over_seeds == method_verdict(table.mean(axis=1), answer.over_documents, 0.0).over_seeds
    for some in ([pair.of([0]) for pair in pairs], [pairs[0], replace(pairs[1], seeds=(2, 4, 5))]):
        assert over_pairs(some, seed=0).seeds == 1
        assert over_pairs(some, seed=0).answer.over_seeds is None
        assert not over_pairs(some, seed=0).answer.shown


@pytest.mark.parametrize("name", ["data", "train", "settings", "split", "gold"])
def test_runs_of_other_rows_data_or_settings_are_never_paired(tmp_path: Path, name: str) -> None:
    write_starts(tmp_path, {"entity": (0.9,), "mlm": (0.6,)})
    one, other = (
        replace(run, result=run.result | {"fingerprints": {"data": "d", "train": "t", "settings": "s"}})
        for run in find_relation([str(tmp_path)])
    )
    assert paired(one, other, seed=0) is not None
    assert len(alike([one, other])) == 1
    assert other.rows is not None
    if name == "gold":
        changed = replace(other, rows=replace(other.rows, gold=~other.rows.gold))
    elif name == "split":
        changed = replace(other, result=other.result | {"split": "test"})
    else:
        changed = replace(other, result=other.result | {"fingerprints": other.result["fingerprints"] | {name: "other"}})
    assert paired(one, changed, seed=0) is None
    assert len(alike([one, changed])) == (1 if name == "gold" else 2)


def test_runs_whose_start_was_not_evaluated_are_named(tmp_path: Path) -> None:
    root = write(tmp_path / "runs", [model for model in models() if model.seed < 2])
    write_starts(tmp_path / "re", BETTER)
    question = relation(read_study(root, tmp_path / "re"))
    assert question is not None
    told = " ".join(block.text for block in question.blocks if isinstance(block, Text))
    assert "Not counted for any method, because the checkpoints they began from were not evaluated here: entity-2, mlm-2." in told
    write(root, models())
    whole = relation(read_study(root, tmp_path / "re"))
    assert whole is not None
    assert not any("Not counted" in block.text for block in whole.blocks if isinstance(block, Text))
