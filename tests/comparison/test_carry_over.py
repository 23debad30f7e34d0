"""Outside checks by method: which starts count, what is compared with what, and that nothing is lost without a word."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coref_automl.base.errors import InputError
from coref_automl.base.store import read_json, write_json
from coref_automl.comparison.archive import archive
from coref_automl.comparison.carry_over import start_of
from coref_automl.comparison.claims import BASE, Answer, Claim, QuestionId
from coref_automl.comparison.groups import read_groups
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.comparison.reader import find_runs, open_results
from coref_automl.comparison.runs import TaskFiles
from coref_automl.comparison.study import study_at
from coref_automl.extras.coreference.results import COREFERENCE_FILES, MODES, DocumentSums
from coref_automl.extras.pages.checkpoint_report import report
from coref_automl.extras.relation.check import paired
from coref_automl.extras.relation.metrics import Scored, SeedPairs, over_pairs
from coref_automl.extras.relation.metrics import method_verdict as relation_verdict
from coref_automl.extras.relation.results import RELATION_FILES, RowFacts
from coref_automl.extras.relation.rows import LABELS, NO_RELATION
from coref_automl.statistics.methods import method_verdict
from tests.comparison.conftest import Model, coreference_result, make_scores, mention_sums, relation_result, write_evaluation

BETTER: dict[str, tuple[float, ...]] = {"entity": (0.9, 0.88, 0.9), "mlm": (0.6, 0.62, 0.6)}


def models(*, steps: Sequence[int] = (200,)) -> list[Model]:
    return [
        Model(f"{kind}-128-s{seed}", step, 0.0, objective=kind, seed=seed)
        for kind in ("mlm", "entity")
        for seed in range(3)
        for step in steps
    ]


def write(root: Path, trained: Sequence[Model]) -> Path:
    for number, model in enumerate([Model("base", 0, -1.0), *trained]):
        write_evaluation(root, model, make_scores(model, documents=20, own=number))
    return root


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two objectives with three seeds of pretraining and two checkpoints each, and their base. Read only."""
    return write(tmp_path_factory.mktemp("runs"), models(steps=(20, 200)))


def answer(*paths: Path) -> Answer:
    results = open_results([str(path) for path in paths])
    return study_at(results, read_groups(results)[0], margin=0.02, seed=0).answer


def claims(root: Path, checked: Path, question: QuestionId = "relation") -> list[Claim]:
    asked = answer(root, checked).question(question)
    return list(asked.claims) if asked else []


def verdicts(judged: Sequence[Claim]) -> dict[tuple[str, str], str]:
    return {(claim.a, claim.b): claim.verdict for claim in judged}


def write_relation(root: Path, name: str, model: str, right: float, seed: int, *, marks: bool = True) -> Scored:
    """Three relation seeds that get a share of rows right; returns what the relation room makes of them."""
    rng = np.random.default_rng(seed)
    gold = np.random.default_rng(9).integers(0, 6, size=400)
    sentences = np.arange(400) // (2 if marks else 1)
    probabilities = np.zeros((3, 400, len(LABELS)), np.float32)
    predicted = np.stack([np.where(rng.random(400) < right, gold, rng.integers(0, 6, size=400)) for _ in range(3)], axis=1)
    for number in range(3):
        probabilities[number, np.arange(400), predicted[:, number]] = 1
    relation = gold != NO_RELATION
    rows = RowFacts(relation, (predicted == gold[:, None]) & relation[:, None], predicted != NO_RELATION, sentences)
    RELATION_FILES.write(root / name, relation_result(model, run=str(root)), rows)
    return Scored(gold, probabilities, sentences)


def rewrite(folder: Path, *, columns: Sequence[int] = (0, 1, 2), **changed: Any) -> None:
    """The run with another result, perhaps with some of its seeds alone."""
    run = RELATION_FILES.read(folder)
    RELATION_FILES.write(folder, replace(run.result, **changed), run.facts.of(columns))


def write_starts(root: Path, shares: dict[str, tuple[float, ...]]) -> None:
    """A relation run from each seed of pretraining, getting such a share of rows right; one share is the base."""
    for kind, of_seeds in shares.items():
        for seed, share in enumerate(of_seeds):
            model = "base" if kind == "base" else f"runs/{kind}-128-s{seed}/checkpoint-200"
            write_relation(root, f"{kind}-{seed}", model, share, 10 * len(kind) + seed)


def write_from(root: Path, kind: str, step: int, share: float) -> None:
    for seed in range(3):
        model = f"runs/{kind}-128-s{seed}/checkpoint-{step}"
        write_relation(root, f"{kind}-{seed}-{step}", model, share + 0.01 * seed, 10 * step + len(kind) + seed)


def test_relation_runs_are_judged_as_the_relation_room_judges_them(tmp_path: Path) -> None:
    assert LABELS[NO_RELATION] == "no_relation"
    ours = write_relation(tmp_path, "re-entity", "runs/entity-128-s0/checkpoint-200", 0.9, 1)
    theirs = write_relation(tmp_path, "re-mlm", "runs/mlm-128-s0/checkpoint-200", 0.6, 2)
    by_name = {run.name: run for run in find_runs([str(tmp_path)]).checks["relation"]}
    pair = paired(*(start_of([by_name[name]]) for name in ("re-entity", "re-mlm")))
    assert pair is not None
    (count, verdict), expected = over_pairs([pair.of([seed]) for seed in pair.seeds], seed=0), relation_verdict(ours, theirs)
    assert count == 3
    assert verdict.difference == pytest.approx(expected.difference)
    assert verdict.over_documents.low == pytest.approx(expected.over_documents.low)
    assert verdict.p_seeds == pytest.approx(expected.p_seeds)


def test_a_method_is_judged_over_the_seeds_of_pretraining(runs: Path, tmp_path: Path) -> None:
    write_starts(tmp_path, {**BETTER, "base": (0.6,)})
    judged = claims(runs, tmp_path)
    assert verdicts(judged) == {
        ("entity 128", "mlm 128"): "better", ("entity 128", BASE): "better", ("mlm 128", BASE): "not shown",
    }  # fmt: skip
    assert {(claim.seeds, claim.documents, claim.count, claim.family, claim.correction) for claim in judged} == {
        ((3, 3), "rows", 400, 3, "bh")
    }


def test_luck_in_pretraining_is_not_shown_as_a_better_method(runs: Path, tmp_path: Path) -> None:
    """One start of three is far better, the relation seeds agree with each other: a checkpoint's verdict, no method's."""
    write_starts(tmp_path, {"entity": (0.9, 0.6, 0.62), "mlm": (0.6, 0.62, 0.6)})
    by_name = {run.name: run for run in find_runs([str(tmp_path)]).checks["relation"]}
    alone = paired(*(start_of([by_name[name]]) for name in ("entity-0", "mlm-0")))
    assert alone is not None
    assert over_pairs([alone.of([seed]) for seed in alone.seeds], seed=0)[1].shown
    assert verdicts(claims(runs, tmp_path)) == {("entity 128", "mlm 128"): "not shown"}


def test_single_starts_are_claims_about_checkpoints(runs: Path, tmp_path: Path) -> None:
    write_starts(tmp_path, {"entity": (0.9,), "mlm": (0.6,), "base": (0.6,)})
    judged = claims(runs, tmp_path)
    entity, mlm = (f"{kind}-128-s0/checkpoint-200" for kind in ("entity", "mlm"))
    assert verdicts(judged) == {(entity, mlm): "better", (entity, BASE): "better", (mlm, BASE): "not shown"}
    assert all("checkpoint" in claim.against for claim in judged)


@pytest.mark.parametrize(("alone", "used"), [("entity", "entity-128-s0/checkpoint-200"), ("mlm", "entity 128")])
def test_the_method_to_use_counts_as_tested_by_one_start_or_by_several(tmp_path: Path, alone: str, used: str) -> None:
    """Claims about a single start name its checkpoint, those beside them a method."""
    trained = [replace(model, skill=0.8 if model.objective == "entity" else 0.0) for model in models()]
    shares = {"entity": (0.9, 0.88, 0.9), "mlm": (0.6, 0.62, 0.6)}
    write_starts(tmp_path / "relation", shares | {alone: shares[alone][:1], "base": (0.6,)})
    it = answer(write(tmp_path / "runs", trained), tmp_path / "relation")
    question = it.question("relation")
    assert it.method == "entity 128"
    assert question is not None
    assert (question.lead.a, question.lead.b, question.tested) == (used, BASE, True)


def test_starts_that_are_not_trained_alike_are_not_compared_as_methods(runs: Path, tmp_path: Path) -> None:
    write_from(tmp_path / "a", "entity", 200, 0.9)
    write_from(tmp_path / "a", "mlm", 20, 0.6)
    assert ("entity 128", "mlm 128") not in verdicts(claims(runs, tmp_path / "a"))
    root = write(tmp_path / "runs", models())
    for path in root.glob("entity-*/evaluations/*/*/result.json"):
        record = read_json(path)
        write_json(path, record | {"provenance": record["provenance"] | {"base": "other"}})
    write_starts(tmp_path / "b", BETTER | {"base": (0.6,)})
    assert ("entity 128 (other)", BASE) not in verdicts(claims(root, tmp_path / "b"))


def test_of_several_starts_of_a_run_the_latest_stands_for_its_method(runs: Path, tmp_path: Path) -> None:
    for step, share in ((20, 0.6), (200, 0.9)):
        write_from(tmp_path, "entity", step, share)
    write_from(tmp_path, "mlm", 200, 0.6)
    assert verdicts(claims(runs, tmp_path))["entity 128", "mlm 128"] == "better"


def test_the_model_to_use_counts_as_tested_by_its_bytes_and_not_by_its_path(runs: Path, tmp_path: Path) -> None:
    path = Path(answer(runs).highest_path)
    own_weights = f"w{path.parent.name}{path.name.removeprefix('checkpoint-')}"
    for name, model, weights in (("namesake", str(path), "other"), ("renamed", "runs/again/checkpoint-1", own_weights)):
        write_relation(tmp_path / name, "re", model, 0.9, 1)
        rewrite(tmp_path / name / "re", fingerprints={"weights": weights})
    assert "relation" in answer(runs, tmp_path / "namesake").untested
    assert "relation" not in answer(runs, tmp_path / "renamed").untested


def test_a_model_that_was_tried_without_anything_beside_it_is_not_to_be_tried_again(tmp_path: Path) -> None:
    root = write(tmp_path / "runs", [replace(model, skill=0.8 if model.objective == "entity" else 0.0) for model in models()])
    write_starts(tmp_path / "relation", {"entity": (0.9, 0.88, 0.9)})
    for paths, tried in (((root,), False), ((root, tmp_path / "relation"), True)):
        it = answer(*paths)
        assert it.step is not None
        assert ("relation" not in it.untested, it.step.do != "carry over") == (tried, tried)


def test_windows_of_an_evaluation_do_not_part_the_starts(tmp_path: Path) -> None:
    shorter = [replace(model, seq_len=64) for model in models() if model.objective == "entity"]
    root = write(tmp_path / "runs", [*models(), *shorter])
    for path in root.glob("entity-*/evaluations/a-64/*/result.json"):
        record = read_json(path)
        write_json(path, record | {"provenance": record["provenance"] | {"seq_len": 128}})
    write_starts(tmp_path / "relation", BETTER)
    assert verdicts(claims(root, tmp_path / "relation")) == {("entity 128", "mlm 128"): "better"}


def test_a_start_that_shares_no_relation_seed_with_the_base_leaves_no_verdict(runs: Path, tmp_path: Path) -> None:
    write_starts(tmp_path, {"entity": (0.9, 0.88, 0.5), "base": (0.6,)})
    for name, first in (("entity-0", 0), ("entity-1", 3), ("entity-2", 0), ("base-0", 0)):
        rewrite(tmp_path / name, seeds=relation_result("", range(first, first + 3)).seeds)
    assert claims(runs, tmp_path) == []


def test_the_seeds_of_the_base_may_lie_in_runs_of_their_own_and_each_counts_once(runs: Path, tmp_path: Path) -> None:
    write_starts(tmp_path / "one", {"entity": (0.9, 0.88, 0.5), "base": (0.6,)})
    write_starts(tmp_path / "own", {"entity": (0.9, 0.88, 0.5), "base": (0.6, 0.6, 0.6)})
    for number in range(3):  # each run of the base keeps one of the three seeds that the other folder has in one run
        shutil.rmtree(tmp_path / "own" / f"base-{number}")
        shutil.copytree(tmp_path / "one" / "base-0", tmp_path / "own" / f"base-{number}")
        rewrite(tmp_path / "own" / f"base-{number}", columns=[number], seeds=relation_result("", [number]).seeds)
    shutil.copytree(tmp_path / "own" / "base-0", tmp_path / "own" / "base-again")
    assert claims(runs, tmp_path / "own") == claims(runs, tmp_path / "one")


def test_every_setting_has_its_own_family_and_shares_are_numbers(runs: Path, tmp_path: Path) -> None:
    for mark, shares, rows in (("10pct", {"entity": (0.6, 0.62, 0.6), "mlm": (0.6, 0.6, 0.62)}, 40), ("100pct", BETTER, 400)):
        write_starts(tmp_path / mark, shares)
        for folder in list((tmp_path / mark).iterdir()):
            rewrite(folder, fingerprints={"train": mark}, train_rows=rows, validation_rows=0)
            folder.rename(tmp_path / f"{mark}-{folder.name}")
    judged = claims(runs, tmp_path)
    assert [(claim.share, claim.rows, claim.verdict) for claim in judged] == [(1.0, 400, "better"), (0.1, 40, "not shown")]
    assert {claim.family for claim in judged} == {1}
    for folder in tmp_path.glob("10pct-*"):  # what the record says counts, not what its owner calls the run
        rewrite(folder, share=1.0)
    assert {claim.share for claim in claims(runs, tmp_path)} == {1.0}


DAMAGES = {
    "cut": ("re_results.json", '{"micro_f1": 5'),
    "other": ("re_results.json", '{"micro_f1": 5}'),
    "rows": ("rows.npz", "PK broken"),
    "none": ("rows.npz", None),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_relation_run_is_named_and_never_archived(runs: Path, tmp_path: Path, damage: str) -> None:
    """Without it the verdict is another: here the start that did badly is the one that cannot be read."""
    write_starts(tmp_path / "re", {"entity": (0.9, 0.88, 0.5), "mlm": (0.6, 0.62, 0.6)})
    name, text = DAMAGES[damage]
    damaged = tmp_path / "re" / "entity-2" / name
    damaged.write_text(text, "utf-8") if text else damaged.unlink()
    runs_found = find_runs([str(tmp_path / "re")])
    (wrong,) = runs_found.unread
    assert str(tmp_path / "re" / "entity-2") in wrong
    assert "entity-2" not in {run.name for run in runs_found.checks["relation"]}
    assert wrong in answer(runs, tmp_path / "re").unread
    with pytest.raises(InputError, match="entity-2"):
        archive(runs, tmp_path / "re", out=tmp_path / "kept")


def test_relation_extraction_is_answered_and_archived_without_its_rows(runs: Path, tmp_path: Path) -> None:
    write_relation(tmp_path / "re", "re-entity", "/else/runs/entity-128-s0/checkpoint-200", 0.9, 1)
    write_relation(tmp_path / "re", "re-mlm", "/else/runs/mlm-128-s0/checkpoint-200", 0.6, 2)
    write_relation(tmp_path / "re", "re-base", "/else/base", 0.6, 3, marks=False)
    write_relation(tmp_path / "re", "re-lost", "/else/runs/lost/checkpoint-9", 0.6, 4)
    assert archive(runs, tmp_path / "re", out=tmp_path / "kept").runs == {"relation": 4, "coreference": 0}
    texts = [Path(report(*paths, out=tmp_path / name, lang="en").markdown).read_text("utf-8")
             for name, paths in (("a", (runs, tmp_path / "re")), ("b", (tmp_path / "kept",)))]  # fmt: skip
    part = [re.search(r"## Does it carry over to relation extraction\?.*?(?=\n## )", text, re.DOTALL) for text in texts]
    assert part[0] is not None
    assert part[1] is not None
    assert part[0].group() == part[1].group()
    assert "| re-base | base |" in part[0].group()
    assert "were not evaluated here: re-lost." in part[0].group()
    kept = b"".join(path.read_bytes() for path in (tmp_path / "kept" / "relation").rglob("*") if path.is_file())
    assert b"/else" not in kept
    assert b"g399" not in kept
    assert not any(label.encode() in kept for label in LABELS)


def test_runs_of_one_name_under_folders_of_one_name_are_both_kept(runs: Path, tmp_path: Path) -> None:
    for folder, kind, share in (("a", "entity", 0.9), ("b", "mlm", 0.6)):
        write_relation(tmp_path / folder / "typed", "run", f"runs/{kind}-128-s0/checkpoint-200", share, len(kind))
    assert [run.name for run in find_runs([str(tmp_path)]).checks["relation"]] == ["a-typed-run", "b-typed-run"]
    archive(runs, tmp_path / "a", tmp_path / "b", out=tmp_path / "kept")
    assert len(find_runs([str(tmp_path / "kept")]).checks["relation"]) == 2


def pairs_of(folder: Path) -> list[SeedPairs]:
    write_starts(folder, {"entity": (0.9, 0.88), "mlm": (0.6, 0.62)})
    by_name = {run.name: run for run in find_runs([str(folder)]).checks["relation"]}
    starts = {name: start_of([run]) for name, run in by_name.items()}
    return [pair for seed in (0, 1) if (pair := paired(starts[f"entity-{seed}"], starts[f"mlm-{seed}"]))]


def test_pairs_of_unlike_numbers_of_relation_seeds_weigh_the_same(tmp_path: Path) -> None:
    first, second = pairs_of(tmp_path)
    _, answer = over_pairs([first.of([0, 1]), second.of([2])], seed=0)
    assert answer.difference == pytest.approx((first.differences()[:2].mean() + second.differences()[2]) / 2)
    assert answer.over_documents.low < answer.difference < answer.over_documents.high


def test_relation_seeds_that_pairs_share_are_crossed_with_them(tmp_path: Path) -> None:
    """Their luck is in every pair: seeds of their own could not tell it, and one seed for all tells nothing."""
    pairs = pairs_of(tmp_path)
    _, answer = over_pairs(pairs, seed=0)
    table = np.stack([pair.differences() for pair in pairs])
    assert answer.difference == pytest.approx(table.mean())
    assert answer.over_seeds == method_verdict(table, answer.over_documents, 0.0).over_seeds
    _, apart = over_pairs([pairs[0], replace(pairs[1], seeds=(3, 4, 5))], seed=0)
    assert apart.over_seeds == method_verdict(table.mean(axis=1), answer.over_documents, 0.0).over_seeds
    for few in ([pair.of([0]) for pair in pairs], [pairs[0], replace(pairs[1], seeds=(2, 4, 5))]):
        count, answer = over_pairs(few, seed=0)
        assert count == 1
        assert not answer.shown


@pytest.mark.parametrize("name", ["data", "train", "settings", "split", "gold"])
def test_runs_of_other_rows_data_or_settings_are_never_paired(tmp_path: Path, name: str) -> None:
    write_starts(tmp_path, {"entity": (0.9,), "mlm": (0.6,)})
    first, other = (
        replace(run, result=replace(run.result, fingerprints={"data": "d", "train": "t", "settings": "s"}))
        for run in find_runs([str(tmp_path)]).checks["relation"]
    )
    assert len(CHECKS["relation"].comparable([first, other])) == 1
    if name == "gold":
        changed = replace(other, facts=replace(other.facts, gold=~other.facts.gold))
    elif name == "split":
        changed = replace(other, result=replace(other.result, split="test"))
    else:
        changed = replace(other, result=replace(other.result, fingerprints=other.result.fingerprints | {name: "other"}))
    if name == "gold":
        assert paired(start_of([first]), start_of([other])) is not None
        assert paired(start_of([first]), start_of([changed])) is None
    else:
        assert len(CHECKS["relation"].comparable([first, changed])) == 2


def write_coreference(
    root: Path, shares: dict[str, tuple[float, ...]], *, files: TaskFiles = COREFERENCE_FILES, **changed: Any
) -> Path:
    """A coreference run of two seeds from each seed of pretraining, with such a share of links right; one share is the base."""
    mentions = np.arange(20, 50)
    for kind, of_seeds in shares.items():
        for seed, share in enumerate(of_seeds):
            run = "base" if kind == "base" else f"{kind}-128-s{seed}"
            rng = np.random.default_rng((len(kind), seed))
            result = coreference_result("base" if kind == "base" else f"runs/{run}/checkpoint-200", **changed)
            sums = {mode: mention_sums(mentions, share, rng) for mode in MODES}
            facts = DocumentSums(tuple(f"text-{n}" for n in range(len(mentions))), mentions, sums)
            files.write(root / f"{kind}-{seed}", result, facts)
    return root


def test_coreference_is_judged_over_seeds_of_pretraining_crossed_with_documents(runs: Path, tmp_path: Path) -> None:
    judged = claims(runs, write_coreference(tmp_path, {**BETTER, "base": (0.6,)}), "coreference")
    assert verdicts(judged) == {
        ("entity 128", "mlm 128"): "better", ("entity 128", BASE): "better", ("mlm 128", BASE): "not shown",
    }  # fmt: skip
    assert {(claim.test, claim.documents, claim.count, claim.against) for claim in judged} == {("crossed", "texts", 30, ())}
    assert {claim.seeds for claim in judged} == {(3, 3), (3, 2)}


def test_a_single_coreference_start_is_a_checkpoint_and_one_seed_each_shows_nothing(runs: Path, tmp_path: Path) -> None:
    judged = claims(runs, write_coreference(tmp_path / "two", {"entity": (0.9,), "base": (0.6,)}), "coreference")
    assert verdicts(judged) == {("entity-128-s0/checkpoint-200", BASE): "better"}
    assert judged[0].against == ("checkpoint",)
    single = write_coreference(tmp_path / "one", {"entity": (0.9,), "base": (0.6,)})
    for folder in single.iterdir():
        run = COREFERENCE_FILES.read(folder)
        facts = replace(run.facts, sums={mode: sums[:1] for mode, sums in run.facts.sums.items()})
        COREFERENCE_FILES.write(folder, replace(run.result, seeds=run.result.seeds[:1]), facts)
    (alone,) = claims(runs, single, "coreference")
    assert (alone.verdict, alone.against) == ("not judged", ("checkpoint", "one seed"))


def test_coreference_runs_of_other_documents_or_settings_are_named_and_not_compared(runs: Path, tmp_path: Path) -> None:
    write_coreference(tmp_path / "coref", BETTER)
    write_coreference(tmp_path / "other", {"base": (0.6,)}, conditions={"folds": 3})
    write_coreference(tmp_path / "lost", {"lost": (0.6,)})
    paths = (runs, tmp_path / "coref", tmp_path / "other", tmp_path / "lost")
    page = Path(report(*paths, out=tmp_path / "page", lang="en").markdown).read_text("utf-8")
    assert "Not compared, because data or settings differ: base-0." in page
    assert "were not evaluated here: lost-0." in page
    assert "| entity 128 | mlm 128 |" in page
    alone = Path(report(runs, out=tmp_path / "alone", lang="en").markdown).read_text("utf-8")
    assert re.search(r"^Not tested for (entity|mlm) 128: .*relation extraction, coreference\.$", alone, re.M)


def test_an_archive_keeps_the_verdicts_of_coreference(runs: Path, tmp_path: Path) -> None:
    before = claims(runs, write_coreference(tmp_path / "coref", {**BETTER, "base": (0.6,)}), "coreference")
    archive(runs, tmp_path / "coref", out=tmp_path / "kept")
    assert claims(tmp_path / "kept", tmp_path / "kept", "coreference") == before
