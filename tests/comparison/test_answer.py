"""The one answer: each rule of docs/statistics.md on a small study, and what the archives of results/ must say."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from coref_automl.base.records import Estimate
from coref_automl.base.say import Say
from coref_automl.base.store import read_json, write_json
from coref_automl.comparison.archive import archive
from coref_automl.comparison.claims import ALPHA, BASE, Answer, Claim
from coref_automl.comparison.groups import read_groups
from coref_automl.comparison.reader import open_results
from coref_automl.comparison.study import study_at
from coref_automl.evaluation.results import find_evaluations
from coref_automl.models.model_files import weights_fingerprint
from coref_automl.report.answer_wording import answer_lines
from coref_automl.report.printout import recommend
from tests.comparison.conftest import Maker, Model, make_scores, write_evaluation
from tests.evaluation.tiny import save_checkpoint

RESULTS = Path(__file__).parents[2] / "results"
TASKS = ("real", "lambada", "real-far")


def answer(*paths: Path | str, margin: float = 0.02) -> Answer:
    results = open_results([str(path) for path in paths])
    return study_at(results, read_groups(results)[0], margin=margin, seed=0).answer


def study(
    root: Path,
    skills: Mapping[str, Sequence[float]],
    *,
    seeds: int = 3,
    documents: int = 120,
    tokens: Mapping[str, int] | None = None,
    base: float | None = -1.0,
    lengths: Sequence[int] = (128,),
) -> Path:
    """Methods with the skill of each of their checkpoints, every seed a little apart; runs as `study` names them."""
    models = [Model("base", 0, base, seq_len=length) for length in lengths if base is not None]
    for length in lengths:
        for name, curve in skills.items():
            for seed in range(seeds):
                for step, skill in enumerate(curve, 1):
                    seen = (tokens or {}).get(name, 100_000) * step // len(curve)
                    models.append(
                        Model(
                            f"{name}-{length}-s{seed}",
                            100 * step,
                            skill + 0.02 * seed,
                            tokens=seen,
                            objective=_objective(name),
                            seq_len=length,
                            seed=seed,
                        )
                    )
    for number, model in enumerate(models):
        scores = make_scores(model, documents=documents, tasks=TASKS, own=number if model.step else 0)
        write_evaluation(root, model, scores)
    return root


def _objective(name: str) -> str:
    return next((kind for kind in ("copy+link", "combined", "entity", "mlm") if name.startswith(kind)), "mlm")


def agree(claim: Claim) -> bool:
    """Does the interval say what the verdict says?"""
    difference = claim.difference
    outside = difference.low > 0 or difference.high < 0
    if claim.verdict in ("better", "worse"):
        return outside and (difference.value > 0) == (claim.verdict == "better") and claim.p is not None and claim.p < ALPHA
    return claim.verdict in ("not judged", "same") or (not outside and claim.p is not None and claim.p >= ALPHA)


def test_a_method_is_used_where_it_beats_the_base_and_its_ties_are_named(tmp_path: Path) -> None:
    it = answer(study(tmp_path, {"mlm": (-1.0,), "combined": (0.4,), "entity": (0.4,)}))
    assert it.action == "use method"
    assert {it.method, *it.ties} == {"combined 128", "entity 128"}
    assert it.beats == ("mlm 128",)
    lead = it.questions[0].lead
    assert (lead.a, lead.b, lead.verdict, lead.correction, lead.family) == (it.method, BASE, "better", "holm", 3)
    assert lead.documents == "all"  # every run ends at the same epoch: nothing was chosen
    assert "chosen" in lead.against
    assert lead.expected is not None
    assert lead.expected < lead.difference.value
    assert it.keep is not None
    assert it.keep.expected is not None
    assert it.keep.expected == lead.expected  # one expected gain, of the method and of its checkpoint
    assert it.step is not None
    assert it.step.do == "carry over"
    assert it.keep.path.startswith(str(tmp_path / it.method.replace(" ", "-")))
    assert it.keep.there


def test_where_nothing_beats_the_base_it_is_kept_without_a_checkpoint_or_a_next_time(tmp_path: Path) -> None:
    it = answer(study(tmp_path, {"mlm": (-1.1, -1.0), "entity": (-1.0, -1.0)}))
    assert it.action == "keep base"
    assert (it.keep, it.next_time, it.ties) == (None, None, ())
    assert it.power is not None
    assert it.power.detectable is not None
    assert (it.power.documents, it.power.seeds) == (120, 3)
    text = "\n".join(answer_lines(it, Say("en")))
    assert text.startswith("Keep the base: nothing here is shown to beat it.")
    assert "80% power" in text
    assert "Next time" not in text
    assert "Checkpoint" not in text
    assert it.step is not None
    assert it.step.command.startswith(f"coref-automl power {tmp_path} --difference ")
    assert it.step.runs


def test_one_seed_says_nothing_about_a_method_and_a_shown_checkpoint_may_be_used(tmp_path: Path) -> None:
    it = answer(study(tmp_path, {"mlm": (-1.0, -0.9), "entity": (0.2, 0.5)}, seeds=1))
    assert (it.action, it.method) == ("use checkpoint", None)
    assert it.highest == "entity-128-s0/checkpoint-200"
    base, method = it.question("base"), it.question("method")
    assert base is not None
    assert method is not None
    assert (base.lead.a, base.lead.test, base.lead.correction, base.lead.family) == (it.highest, "sign flips", "max-t", 4)
    assert base.lead.documents == "confirm"  # a checkpoint was chosen among several of its run
    assert all(claim.verdict == "not judged" and "one seed" in claim.against for claim in method.claims)
    assert it.next_time is None or it.next_time.how != "longer"
    assert it.step is not None
    assert it.step.do == "add seeds"
    assert "--seed 1 " in it.step.command
    assert "evaluate" not in it.step.command  # its set is not on this disk
    assert it.power is not None
    assert (it.power.needed_seeds or 0) > 1


def test_a_seed_to_add_is_evaluated_on_the_same_set(tmp_path: Path) -> None:
    root, evalset = study(tmp_path / "runs", {"entity": (0.5,)}, seeds=1), tmp_path / "my set"
    evalset.mkdir()
    for path in root.rglob("result.json"):
        write_json(path, read_json(path) | {"evalset_path": str(evalset)})
    step = answer(root).step
    assert step is not None
    train, _, evaluate = step.command.partition(" && coref-automl evaluate ")
    assert train.endswith(f" --out {evaluate.split(' --')[0]}")
    assert f" --eval-set '{evalset}' --seq-len 128" in evaluate


def test_one_seed_does_not_say_how_many_would_show_a_gain(tmp_path: Path) -> None:
    it = answer(study(tmp_path, {"entity": (-0.95,)}, seeds=1, documents=40))
    assert (it.action, it.power and it.power.needed) == ("keep base", None)
    assert it.step is not None
    assert it.step.do == "plan"


def test_one_source_with_enough_items_is_not_every_source(tmp_path: Path) -> None:
    few, more = (study(tmp_path / str(count), {"entity": (0.5,)}, documents=count) for count in (60, 120))
    assert answer(few).question("sources") is None
    assert answer(more).question("sources") is not None


def test_unequal_training_is_no_verdict_about_methods_and_curves_are_compared_at_equal_tokens(tmp_path: Path) -> None:
    skills = {"mlm": (-1.0,), "entity": (0.2, 0.4, 0.6, 0.8)}
    it = answer(study(tmp_path, skills, tokens={"mlm": 100_000, "entity": 400_000}))
    claims = {claim.part: claim for claim in it.claims if claim.question == "method" and not claim.outcome.endswith("mrr")}
    assert claims[""].verdict == "not judged"
    assert "unequal training" in claims[""].against
    assert claims["equal tokens"].tokens == (100_000, 100_000)
    assert claims["equal tokens"].verdict == "better"
    assert "unequal training" in it.against
    assert it.beats == ("mlm 128",)  # at equal tokens, and said so
    assert "Shown better at equal tokens (training was unequal) than mlm 128 (+22.8 [" in "\n".join(answer_lines(it, Say("en")))
    flat = answer(study(tmp_path / "b", {"mlm": (-1.0,), "entity": (0.8,)}, tokens={"mlm": 100_000, "entity": 400_000}))
    assert [claim.verdict for claim in flat.claims if claim.question == "method"] == ["not judged"]
    assert (flat.ties, flat.beats, flat.unjudged) == ((), (), ("mlm 128",))


def test_a_tie_after_unequal_training_stands_in_the_headline(tmp_path: Path) -> None:
    skills = {"mlm": (0.2, 0.4), "entity": (0.4, 0.4, 0.4, 0.4)}
    it = answer(study(tmp_path, skills, tokens={"mlm": 100_000, "entity": 200_000}))
    assert {it.method, *it.ties} == {"mlm 128", "entity 128"}
    lines = answer_lines(it, Say("en"))
    assert lines[0] == f"Use {it.method} or {it.ties[0]}."
    assert any("Not distinguishable from it at equal tokens (training was unequal):" in line for line in lines)


@pytest.mark.parametrize(("last", "how"), [(1.2, "longer"), (0.2, ("less", "as long"))])
def test_training_longer_is_advised_only_where_the_last_step_is_shown(
    tmp_path: Path, last: float, how: str | tuple[str, ...]
) -> None:
    it = answer(study(tmp_path, {"entity": (0.2, 0.2, last)}, documents=200))
    rising = next(claim for claim in it.claims if claim.part == "last step")
    assert (rising.verdict == "better") is (how == "longer")
    assert it.next_time is not None
    assert it.next_time.how in how
    if how == "longer":
        assert it.step is not None
        assert it.step.do == "train longer"
        assert "--max-tokens 200000 " in it.step.command


def test_only_what_the_set_chose_is_judged_on_confirm(tmp_path: Path) -> None:
    root = study(tmp_path, {"entity": (0.4,)})
    assert answer(root).questions[0].lead.count == 120
    for path in root.rglob("result.json"):
        record = read_json(path)
        if record["provenance"]:
            write_json(path, record | {"provenance": record["provenance"] | {"planned_end": False}})
    watched = answer(root).questions[0].lead
    assert watched.documents == "confirm"
    assert watched.count < 120


def test_without_its_base_nothing_is_advised(tmp_path: Path) -> None:
    it = answer(study(tmp_path, {"mlm": (-1.0,), "entity": (0.6,)}, base=None))
    assert (it.action, it.keep, it.power, it.question("base")) == ("no base", None, None, None)
    assert "base not evaluated" in it.against
    method = it.question("method")
    assert method is not None
    assert method.lead.verdict == "better"


def test_a_base_that_documents_could_not_judge_was_evaluated_all_the_same(tmp_path: Path) -> None:
    """A checkpoint chosen on the only documents there are has none left that judge it."""
    root = study(tmp_path, {"entity": (0.6,)}, seeds=1)
    for path in root.rglob("result.json"):
        record = read_json(path)
        provenance = record["provenance"] and record["provenance"] | {"planned_end": False}
        write_json(path, record | {"half": "select", "provenance": provenance})
    it = answer(root)
    assert it.action == "undecided"
    assert "base not evaluated" not in it.against
    assert it.step is None or it.step.do != "evaluate"


def test_the_expected_gain_is_of_items_that_checkpoint_and_base_both_count(tmp_path: Path) -> None:
    """The base counts all items, the checkpoint a sample; the others are easy for the base."""
    for model in (Model("base", 0, -1.0), Model("entity-128-s0", 100, 0.4, objective="entity")):
        scores = make_scores(model, documents=120, tasks=("real",))
        sampled = [score.cluster.endswith(tuple("01234")) for score in scores]
        elsewhere = 0 if model.step else 1
        by_sample = zip(scores, sampled, strict=True)
        scores = [score if inside else replace(score, rank=elsewhere) for score, inside in by_sample]
        write_evaluation(tmp_path, model, scores)
    it = answer(tmp_path)
    assert it.keep is not None
    assert it.keep.expected is not None
    gain = it.questions[0].lead.difference.value
    assert it.keep.expected == pytest.approx(gain, abs=0.1)
    assert gain > 0.1


def test_weights_that_are_gone_are_made_again_by_a_command(tmp_path: Path) -> None:
    root = study(tmp_path, {"entity": (0.5,)})
    before = answer(root).keep
    assert before is not None
    shutil.rmtree(before.path)
    gone = answer(root).keep
    assert gone is not None
    assert not gone.there
    assert "weights gone" in answer(root).against
    assert gone.again.startswith("coref-automl train --model base ")
    assert "--seed " in gone.again
    light = study(tmp_path / "light", {"entity+light": (0.5,)})
    for checkpoint in light.glob("*/checkpoint-*"):
        shutil.rmtree(checkpoint)
    keep = answer(light).keep
    assert keep is not None
    assert "study --recipe STUDY.yaml --method entity+light " in keep.again  # its settings are not in its record


def test_weights_of_an_archived_checkpoint_are_there_by_their_bytes_and_not_by_its_path(tmp_path: Path) -> None:
    root = study(tmp_path, {"entity": (0.5,)}, documents=60)
    keep = answer(root).keep
    assert keep is not None
    result = find_evaluations([keep.path])[0].folder / "result.json"
    record, weights = read_json(result), weights_fingerprint(str(save_checkpoint(Path(keep.path))))
    write_json(result, record | {"fingerprints": record["fingerprints"] | {"weights": weights}})
    archive(root, out=tmp_path / "kept")
    found = answer(tmp_path / "kept").keep
    assert found is not None
    assert (found.path, found.there, found.again) == (keep.path, True, "")
    save_checkpoint(Path(keep.path), seed=1)  # another model in its place
    other = answer(tmp_path / "kept")
    assert other.keep is not None
    assert (other.keep.there, other.keep.again != "") == (False, True)
    assert "weights gone" in other.against


def test_a_method_keeps_the_name_of_its_owner(tmp_path: Path) -> None:
    it = answer(study(tmp_path, {"mlm": (-1.0,), "copy+link+light": (0.5,)}))
    assert it.method == "copy+link+light 128"
    assert {arm.objective for arm in _arms(tmp_path)} == {"mlm", "copy+link"}


def _arms(root: Path) -> list[object]:
    results = open_results([str(root)])
    return list(study_at(results, read_groups(results)[0], margin=0.02, seed=0).arms)


@pytest.mark.parametrize(("every", "warned"), [(1, False), (3, True)])
def test_a_model_that_counts_few_items_is_warned_of(tmp_path: Path, every: int, warned: bool) -> None:
    for number, model in enumerate((Model("base", 0, -1.0), Model("entity-128-s0", 100, 0.4))):
        scores = make_scores(model, documents=60, own=number, tasks=("real", "new"))
        kept = [replace(score, rank=score.rank * (at % every == 0)) for at, score in enumerate(scores)]
        write_evaluation(tmp_path, model, kept)
    it = answer(tmp_path)
    assert ("few counted" in it.against) == warned
    assert ("--task real-choice" in "\n".join(answer_lines(it, Say("en")))) == warned


def test_few_documents_and_a_floor_are_named(tmp_path: Path) -> None:
    few = answer(study(tmp_path / "few", {"entity": (0.4,)}, documents=12))
    assert "few documents" in few.against
    floor = answer(study(tmp_path / "floor", {"entity": (-12.0,)}, base=-12.0))
    assert "floor" in floor.against
    assert floor.action != "use method"


def test_a_composite_is_judged_between_methods(tmp_path: Path) -> None:
    results = open_results([str(study(tmp_path, {"mlm": (-1.0,), "entity": (0.6,)}))])
    it = study_at(results, read_groups(results)[0], metric="score", margin=0.02, seed=0).answer
    method = it.question("method")
    assert method is not None
    assert (method.lead.outcome, method.lead.verdict) == ("score", "better")


def test_runs_that_are_copies_are_undecided(evaluated: Maker) -> None:
    models = [Model("base", 0, -1.0), *(Model(f"entity-128-s{seed}", 100, 0.5, seed=seed) for seed in range(3))]
    root = evaluated(models, documents=30)
    scores = find_evaluations([root / "entity-128-s0"])[0].scores()
    for model in models[1:]:
        write_evaluation(root, model, scores)
    assert answer(root).action == "undecided"


def test_a_seed_to_add_is_one_that_the_method_does_not_have(evaluated: Maker) -> None:
    models = [Model("base", 0, -1.0), *(Model(f"entity-128-s{seed}", 100, 0.5, seed=seed) for seed in range(3))]
    root = evaluated(models, documents=30)
    scores = find_evaluations([root / "entity-128-s0"])[0].scores()
    for model in models[1:]:
        write_evaluation(root, model, scores)
    step = answer(root).step
    assert step is not None
    assert step.do == "add seeds"
    assert " --seed 3 " in step.command


def test_of_methods_trained_unequally_the_shortest_run_is_trained_longer(tmp_path: Path) -> None:
    """Here it is one of the method that has the longest run, too."""
    root = study(tmp_path, {"mlm": (-1.0,), "entity": (0.8,)})
    for path in (root / "entity-128-s2").rglob("result.json"):
        record = read_json(path)
        write_json(path, record | {"provenance": record["provenance"] | {"tokens": 50_000}})
    for path in (root / "entity-128-s1").rglob("result.json"):
        record = read_json(path)
        write_json(path, record | {"provenance": record["provenance"] | {"tokens": 110_000}})
    it = answer(root)
    assert (it.method, it.unjudged) == ("entity 128", ("mlm 128",))
    assert it.step is not None
    assert it.step.do == "train equally"
    assert "--max-tokens 110000 " in it.step.command
    assert it.step.command.endswith("entity-128-s2-longer")


def test_the_gain_where_the_base_is_kept_is_one_that_was_judged(tmp_path: Path) -> None:
    it = answer(study(tmp_path, {"mlm": (-1.0,), "entity": (-1.0,)}))
    assert it.action == "keep base"
    (base,) = (question for question in it.questions if question.id == "base")
    high = replace(base.lead, a="combined 128", verdict="not judged", difference=Estimate(0.5, 0.1, 0.9, 9))
    gain = replace(it, questions=(replace(base, others=(*base.others, high)),)).gain
    assert gain is not None
    assert gain.difference.value == max(claim.difference.value for claim in base.claims)


def test_every_claim_agrees_with_its_interval_and_turns_round(tmp_path: Path) -> None:
    skills = {"mlm": (-1.0, -0.9), "combined": (-0.7, -0.6), "entity": (-0.3, 0.1)}
    it = answer(study(tmp_path, skills, lengths=(128, 256), documents=80))
    assert len(it.claims) > 40
    assert [claim for claim in it.claims if not agree(claim)] == []
    assert [claim for claim in it.claims if not agree(claim.reversed())] == []
    assert Answer.from_json(it.to_json()) == it
    for question in it.questions:
        assert it.method in (question.lead.a, question.lead.b)
    pair = it.of_pair("mlm 128", "entity 128", "real1")
    assert pair is not None
    assert pair.reversed() == it.of_pair("entity 128", "mlm 128", "real1")


def test_what_was_trained_from_scratch_has_no_base_to_evaluate(tmp_path: Path) -> None:
    root = study(tmp_path, {"entity": (0.4,)}, base=None)
    assert "evaluate" in str(answer(root).step)
    for path in root.rglob("result.json"):
        record = read_json(path)
        write_json(path, record | {"provenance": record["provenance"] | {"base": "new:tiny"}})
    assert answer(root).action == "no base"
    assert "evaluate" not in str(answer(root).step)


def test_the_checkpoint_to_use_is_of_the_window_that_the_answer_names(tmp_path: Path) -> None:
    for length, skill in ((128, 0.1), (256, 0.6)):
        for model in (Model("base", 0, -1.0, seq_len=length), Model("entity", 100, skill, seq_len=length)):
            write_evaluation(tmp_path, model, make_scores(model, documents=200, tasks=("real",)))
    results = open_results([str(tmp_path)])
    judged = study_at(results, read_groups(results)[0], margin=0.02, seed=0)
    assert judged.chosen.evaluation.seq_len == 256
    assert judged.chosen.name == judged.answer.highest


def test_looks_are_counted_as_a_study_wrote_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = study(tmp_path, {"entity": (0.4,)})
    assert answer(root).looks == 1
    write_json(root / "looks.json", [2, 3, 4])
    assert answer(root).looks == 3
    monkeypatch.chdir(root / "entity-128-s0")
    assert answer(".").looks == 3


def kept(folder: str, *runs: str) -> list[Path]:
    return [RESULTS / folder / run for run in (*runs, "evaluations")]


def test_the_archives_are_told_as_the_audit_asked() -> None:
    """What was wrong: advice where nothing differs, on one seed, and on unequal training; another method's pair on relations."""
    nothing = recommend(*kept("portfolio", *(f"mlm-2048-s{seed}" for seed in (41, 42, 43))))
    assert (nothing.action, nothing.keep, nothing.next_time) == ("keep base", None, None)
    single = recommend(*kept("portfolio", "mlm-2048-s41", "entity-2048-s41"))
    assert (single.action, single.method) == ("use checkpoint", None)
    assert single.next_time is None or single.next_time.how != "longer"
    runs = [f"{name}-2048-s{seed}" for name in ("mlm", "entity", "near") for seed in (41, 42, 43)]
    unequal = recommend(*kept("portfolio", *runs), RESULTS / "portfolio-sixty")
    beaten = {claim.b for claim in unequal.claims if claim.question == "method" and claim.a == unequal.method and claim.shown}
    assert beaten <= {"mlm 2,048", "entity 2,048", "near 2,048"} or beaten <= {"sixty 2,048", "nearsixty 2,048"}
    assert {*unequal.beats} <= {name for claim in unequal.claims if claim.shown for name in (claim.a, claim.b)}


def test_equivalence_is_about_ties_within_half_the_gain_and_a_gain_is_never_equivalent() -> None:
    """Over the base, and on other tasks, the plain answer is that no gain is shown, or none above the upper limit."""
    it = recommend(RESULTS / "fresh")
    gain = it.questions[0].lead.expected or 0.0
    for claim in it.claims:
        difference = claim.difference
        if claim.verdict == "equivalent":
            assert (claim.question in ("method", "length"), claim.outcome, BASE in (claim.a, claim.b)) == (True, it.metric, False)
            assert claim.within == pytest.approx(min(it.margin, gain / 2))
            assert -claim.within < difference.low <= difference.high < claim.within
        if claim.verdict == "no gain":
            assert claim.b == BASE
            assert difference.low < 0 < difference.high < min(it.margin, gain)
        if "before correction" in claim.against:
            assert claim.verdict == "not shown"
    assert {"equivalent", "no gain"} <= {claim.verdict for claim in it.claims}
    it = recommend(RESULTS / "carry-over")
    lines = answer_lines(it, Say("en"))
    lambada, relation = (it.question(name) for name in ("lambada", "relation"))
    assert lambada is not None
    assert relation is not None
    high = f"{100 * lambada.lead.difference.high:.1f}"
    assert any(line.startswith(f"Does it carry over to LAMBADA? No gain above {high} points. ") for line in lines)
    high, low = f"{100 * relation.lead.difference.high:.1f}", f"{-100 * relation.lead.difference.low:.1f}"
    begin = "Does it carry over to relation extraction?"
    assert any(line.startswith(f"{begin} No gain above {high} points (a loss of up to {low} not excluded). ") for line in lines)


def test_methods_that_are_tied_are_told_by_task_in_the_first_lines() -> None:
    it = recommend(RESULTS / "fresh")
    lines = answer_lines(it, Say("en"))
    assert lines[:2] == [
        "Use near 2,048, entity 2,048 or combined 2,048.",
        "Choose by task (beside near 2,048): entity 2,048 better on Real-far, worse on LAMBADA; "
        "combined 2,048 better on Real-far, worse on LAMBADA.",
    ]
    assert answer_lines(it, Say("ko"))[1].startswith("과제별 선택 (near 2,048 대비): entity 2,048 Real-far에서 더 좋음")
    far = next(line for line in lines if line.startswith("Does it carry over to LAMBADA?"))
    assert "entity 2,048 - base: " in far  # of each method that is not beaten
    assert any(line.startswith("Next: what telling them apart takes") for line in lines)


def test_without_a_base_carry_over_is_told_beside_the_other_method() -> None:
    it = recommend(RESULTS / "deberta")
    text = "\n".join(answer_lines(it, Say("en")))
    assert "Does it carry over to LAMBADA? Better than mlm 2,048. " in text
    assert "Does it carry over to far mentions? No difference shown (detectable: 2.2 points). " in text
    assert it.step is not None
    assert [part.rpartition(" ")[2] for part in it.step.command.split(" && ")] == ["2048", "1536"]  # every length that lacks it


def test_fourteen_seeds_lead_with_the_method_that_is_used() -> None:
    it = recommend(RESULTS / "carry-over", metric="lambada_top1")
    assert it.method == "copy+link+light 2,048"
    assert it.ties == ()
    assert {question.lead.a for question in it.questions} == {it.method}
    assert all(agree(claim) for claim in it.claims)
    assert it.keep is not None
    assert not it.keep.there
    relation = it.question("relation")
    assert relation is not None
    assert (relation.lead.b, relation.lead.share, relation.lead.seeds) == (BASE, 1.0, (14, 14))
    light = [claim for claim in relation.claims if (claim.a, claim.b) == ("copy+link+light 2,048", "mlm 2,048")]
    assert {claim.share: claim.verdict for claim in light} == {0.1: "better", 1.0: "better"}
    assert "copy+link+light 2,048 - mlm 2,048" in str(replace(it, lang="en"))
