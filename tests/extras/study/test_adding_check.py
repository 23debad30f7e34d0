"""A new outside check is one class and one line of the table: claims, report, archive, studio and a study's plan follow.

The class here is a whole check from nothing: how many words of a list a model is right about, by document and seed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.progress import Progress, quiet
from coref_automl.base.records import Estimate, Record
from coref_automl.comparison.archive import archive
from coref_automl.comparison.claims import Claim
from coref_automl.comparison.judging import UncorrectedClaim, why_unjudged
from coref_automl.comparison.outside_checks import CHECKS, CheckStage, OutsideCheck, TaskData
from coref_automl.comparison.runs import RunOf, Starts, TaskFiles
from coref_automl.extras.pages.checkpoint_report import report
from coref_automl.extras.study.estimate import tokens_of
from coref_automl.extras.study.plan import open_plan
from coref_automl.extras.study.recipe import ExperimentRecipe
from coref_automl.statistics.crossed import crossed_verdict
from tests.comparison.test_carry_over import BETTER, claims, models, verdicts, write
from tests.extras.studio.conftest import serving
from tests.extras.study.conftest import Bench


@dataclass(frozen=True)
class ToySeed(Record):
    seed: int


@dataclass(frozen=True)
class ToyResult(Record):
    """What every task's results have, and the score."""

    run: str
    model: str
    fingerprints: dict[str, str]
    seeds: tuple[ToySeed, ...]
    split: str
    score: Estimate

    def measures(self) -> dict[str, Estimate]:
        return {"toys": self.score}


@dataclass(frozen=True)
class ToyFacts:
    """What runs are compared by: right or wrong, one row per document and one column per seed."""

    right: NDArray[np.bool_]

    @property
    def count(self) -> int:
        return int(self.right.shape[1])

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"right": self.right}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> ToyFacts:
        return cls(arrays["right"])


FILES = TaskFiles("toy", "toy_results.json", "toy.npz", ToyResult, ToyFacts)
Run = RunOf[ToyResult, ToyFacts]
Sides = Starts[ToyResult, ToyFacts]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyStage(CheckStage):
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyRecipe:
    model: str
    words: str
    out: str
    seeds: int = 1
    first_seed: int = 0
    device: str = "cpu"


class ToyCheck(OutsideCheck[ToyResult, ToyFacts, ToyStage]):
    title = ("장난감 과제", "the toy task")
    metric = ("장난감 점수", "Toy score")
    short_metric = "toys"
    outcome = "toy_score"
    documents = "texts"
    test = "crossed"
    files = FILES
    folder_kind = "toy run"
    recipe = ToyRecipe
    stage = ToyStage
    next_command = "toys {}"
    set_by_stage = ("words",)

    def comparable(self, runs: Sequence[Run]) -> list[list[Run]]:
        return [list(runs)]

    def judge(self, claim: Claim, ours: Sides, theirs: Sides, seed: int) -> UncorrectedClaim:
        a, b = (
            np.stack([run.facts.right[:, column] for start in side.values() for run, column in start.values()])
            for side in (ours, theirs)
        )
        verdict = crossed_verdict(a, b, np.arange(a.shape[1]))
        against = (*claim.against, *why_unjudged(verdict))
        claim = replace(claim, count=a.shape[1], seeds=verdict.seeds, difference=verdict.interval, against=against)
        return UncorrectedClaim(claim, None if verdict.reason else verdict.p, verdict.interval_at)

    def estimate(self, result: ToyResult) -> Estimate:
        return result.score

    def open(self, stage: ToyStage, out: Path) -> TaskData:
        words = Path(stage.words).read_text("utf-8").split()
        return TaskData({"words": stage.words}, {"words": len(words)}, {"words": fingerprint(words)})

    def train(self, recipe: ToyRecipe, progress: Progress) -> ToyResult:
        return write_toy(Path(recipe.out), recipe.model, 0.5, range(recipe.first_seed, recipe.first_seed + recipe.seeds))

    def tokens(self, recipe: ToyRecipe, sizes: Mapping[str, int], forward: float) -> float:
        return float(recipe.seeds * sizes["words"])


def write_toy(folder: Path, model: str, share: float, seeds: Sequence[int]) -> ToyResult:
    """A run of so many seeds that are right about such a share of the words."""
    rng = np.random.default_rng([*folder.name.encode(), *seeds])
    facts = ToyFacts(rng.random((200, len(seeds))) < share)
    score = float(facts.right.mean())
    result = ToyResult(folder.name, model, {}, tuple(map(ToySeed, seeds)), "test", Estimate(score, score - 0.1, score + 0.1, 200))
    FILES.write(folder, result, facts)
    return result


@pytest.fixture(autouse=True)
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHECKS.loaded, "toy", ToyCheck())


def test_a_check_that_was_added_is_claimed_reported_archived_and_in_the_studio(tmp_path: Path) -> None:
    runs, toys = write(tmp_path / "runs", models()), tmp_path / "toys"
    for kind, shares in {**BETTER, "base": (0.6,)}.items():
        for seed, share in enumerate(shares):
            model = "base" if kind == "base" else f"runs/{kind}-128-s{seed}/checkpoint-200"
            write_toy(toys / f"{kind}-{seed}", model, share, range(4))
    judged = claims(runs, toys, "toy")
    assert verdicts(judged)["entity 128", "base"] == "better"
    assert {claim.outcome for claim in judged} == {"toy_score"}
    page = Path(report(runs, toys, out=tmp_path / "page", lang="en").markdown).read_text("utf-8")
    assert "Does it carry over to the toy task?" in page
    assert archive(runs, toys, out=tmp_path / "kept").runs["toy"] == 7
    with serving(tmp_path / "runs", toys, lang="en") as visitor:
        rows = json.loads(visitor.ready("/", table="leaderboard", **{"as": "json"}).body)
        assert next(row for row in rows if row["method"] == "entity 128")["Toy score verdict"].startswith("better")
        shown = visitor.ready("/runs").body
        assert "The toy task" in shown
        assert "toys " in shown


def test_a_check_that_was_added_has_a_section_of_a_recipe_and_steps(
    bench: Bench, recipe: Callable[..., ExperimentRecipe], tmp_path: Path
) -> None:
    (tmp_path / "words.txt").write_text("공장 도서관 기차", "utf-8")
    section = {"words": str(tmp_path / "words.txt"), "seeds": 2}
    plan = open_plan(recipe(seeds=1, methods={"mlm": {}}, toy=section), tmp_path / "study", quiet())
    steps = [step for step in plan.steps if step.kind == "toy"]
    assert [step.name for step in steps] == ["base-s0", "mlm-64-s0"]
    assert {Path(step.recipe.out).parent.name for step in steps} == {"toy"}
    assert [tokens_of(plan, step) for step in steps] == [6, 6]
    assert CHECKS["toy"].train(steps[0].recipe, quiet()).run == "base-s0"


def test_a_check_that_lacks_an_attribute_is_refused_where_it_is_defined() -> None:
    with pytest.raises(TypeError, match="HalfCheck lacks title, metric, outcome, "):

        class HalfCheck(OutsideCheck[ToyResult, ToyFacts, ToyStage]):
            short_metric = "toys"
