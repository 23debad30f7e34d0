"""Does `tune` win where there is something to win, and say quickly where there is not? Simulated trainings, the real search.

    python benchmarks/tuning_surrogate.py --gain 1.0 --studies 80       # +1.0 point is there to be found
    python benchmarks/tuning_surrogate.py --gain 0 --studies 80         # nothing is
    python benchmarks/tuning_surrogate.py --level 4000                  # the error of the sequential verdict alone

A training is a point of an 8-dimensional quadratic response with the noise of the archived studies: seeds 0.15 points, settings
by documents 8.4 and runs by documents 9.2 over the square root of the items; at a quarter of the budget a gain is 66% of its
final size and off by 0.26 points. Search, promotion, choosing, ceiling and sequential verdict are those of the package.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from coref_automl.base.job import OUTCOME, Job, Outcome
from coref_automl.base.launch import FinishedJob
from coref_automl.base.progress import quiet
from coref_automl.base.records import Half
from coref_automl.base.store import write_json
from coref_automl.extras.tune.choosing import JobRunner
from coref_automl.extras.tune.finish import Final, finish
from coref_automl.extras.tune.problem import Problem, Report, Start, job_key, run_folder
from coref_automl.extras.tune.recipe import REPORTS, TuneRecipe
from coref_automl.extras.tune.run import run_search
from coref_automl.extras.tune.search import Search, origin_of
from coref_automl.extras.tune.space import Dimension, Space
from coref_automl.extras.tune.storage import open_study
from coref_automl.statistics.planning import PAIRS, Paired, judged, looks_of

SEEDS, SETTINGS, RUNS = 0.15, 8.4, 9.2
ITEMS: dict[Half, int] = {"select": 3280, "confirm": 3640}
WEIGHTS = np.array([1, 0.7, 0.3, 0.3, 0.05, 0.05, 0.02, 0.02])
NAMES = ("learning_rate", "weight_decay", "warmup", "layer_decay", "min_prob", "entity_rate", "background", "ratio")


class World:
    """What trainings score, in points above the reference: a best point `gain` above it, and the noise of the archives."""

    def __init__(self, gain: float, seed: int, typical: float = -2.0) -> None:
        self.rng = np.random.default_rng([round(100 * gain), seed])
        best = self.rng.uniform(0.25, 0.75, 8)
        curve = (gain - typical) / ((self.rng.uniform(size=(4000, 8)) - best) ** 2 @ WEIGHTS).mean()
        away = self.rng.normal(size=8)
        self.start = np.clip(best + away / np.sqrt(away**2 @ WEIGHTS) * np.sqrt(gain / curve), 0, 1)
        self._best, self._curve, self._gain = best, curve, gain
        self._held: dict[Any, float] = {}

    def gain(self, x: Any) -> float:
        """The true gain over the reference at the full budget."""
        return self._value(x) - self._value(self.start)

    def _value(self, x: Any) -> float:
        return float(self._gain - self._curve * (np.asarray(x) - self._best) ** 2 @ WEIGHTS)

    def score(self, x: tuple[float, ...], seed: int, half: Half = "select", step: int = REPORTS) -> float:
        share, n = step / REPORTS, np.sqrt(ITEMS[half])
        shrunk = self.gain(x) * (1.0 if share == 1 else 0.55 + 0.45 * share)
        noise = self._noise((x, step), 0.35 * (1 - share)) + self._noise((x, seed, step), SEEDS)
        return shrunk + noise + self._noise((x, seed, step, half), RUNS / n) + self._noise((x, half), SETTINGS / n)

    def _noise(self, key: Any, spread: float) -> float:
        if key not in self._held:
            self._held[key] = float(self.rng.normal(0, spread))
        return self._held[key]


@dataclass(eq=False, kw_only=True)
class SimulatedProblem(Problem):
    """A tuning problem whose trainings are looked up in a World."""

    world: World
    out: Path
    metric: str = "real1"
    label: str = "Real@1 strict"
    space: Space = field(default_factory=lambda: Space(tuple(Dimension(name, float, 0.0, 1.0) for name in NAMES)))

    def starts(self) -> list[Start]:
        return [Start("recommended", "reference", dict(zip(NAMES, map(float, self.world.start), strict=True)))]

    def job(self, params: Mapping[str, Any], seed: int, *, confirm: bool = False) -> Job:  # noqa: ARG002
        point = {name: params[name] for name in NAMES}
        key = job_key("mlm", {**point, "seed": seed}, {})
        recipe = {**point, "seed": seed, "out": str(self.out / key)}
        return Job("mlm", key, str(self.out / key), recipe)

    def reports(self, job: Job, _events: Iterator[dict[str, Any]]) -> Iterator[Report]:
        for step in range(1, REPORTS + 1):
            value = self._score(job, "select", step)
            yield Report(step, value, value)

    def _score(self, job: Job, half: Half, step: int = REPORTS) -> float:
        return 0.5 + self.world.score(tuple(job.recipe[name] for name in NAMES), job.recipe["seed"], half, step) / 100

    def cost(self, _job: Job) -> dict[str, float]:
        return {}

    def drop_weights(self, job: Job, *, keep_last: bool = False) -> None:
        """There are none."""

    def weights(self, job: Job) -> Path:
        return run_folder(job)

    def best_recipe(self, params: Mapping[str, Any], _out: Path) -> Any:
        return dict(params)

    def confirmed(self, jobs: list[Job]) -> list[float]:
        return [self._score(job, "confirm") for job in jobs]

    def paired(self, ours: list[Job], theirs: list[Job], half: Half) -> Paired:
        pairs = tuple(self._score(a, half) - self._score(b, half) for a, b in zip(ours, theirs, strict=True))
        return Paired(pairs, document_error(len(pairs), half), ITEMS[half] // 2, ITEMS[half])


def document_error(pairs: int, half: Half = "confirm") -> float:
    return float(np.sqrt(2 * (SETTINGS**2 + RUNS**2 / pairs) / ITEMS[half])) / 100


@dataclass
class Instant:
    """Trainings that are over at once; `keys` are those with fresh seeds, which are never cut."""

    slots: int = 1
    keys: set[str] = field(default_factory=set)

    def start(self, job: Job, _slot: int) -> FinishedJob:
        self.keys |= {job.key} if job.recipe["seed"] else set()
        run_folder(job).mkdir(parents=True, exist_ok=True)
        write_json(Path(job.folder) / OUTCOME, Outcome(True).to_json())
        return FinishedJob(0)


@dataclass(frozen=True)
class Told:
    """How a simulated study ended. `trainings` counts full ones until the answer; `best` is the truest gain among all tried."""

    decision: str
    trainings: float
    gain: float
    ceiling: float
    best: float


def study(gain: float, seed: int, *, trials: int = 49, worth: float = 0.5) -> Told:
    """One study, by the package's own search and end."""
    with tempfile.TemporaryDirectory() as folder:
        out, world = Path(folder), World(gain, seed)
        problem = SimulatedProblem(world=world, out=out)
        recipe = TuneRecipe(("m",), folder, datasets=("d",), trials=trials, seed=0, ablate=False, worth=worth)
        held = open_study(recipe, out, {"seed": seed}, starts=problem.starts())
        machine = Instant()
        search = Search(held, problem, recipe, machine, quiet(), "here", lambda: None)
        early = run_search(search)
        final = finish(held, recipe, JobRunner(problem, machine, quiet(), lambda: None), early)
        ended = held.get_trials(deepcopy=False)
        searched = sum(max(trial.intermediate_values) / REPORTS for trial in ended)
        drawn = [trial for trial in ended if origin_of(trial) == "drawn"]
        best = max(world.gain([trial.params[name] for name in NAMES]) for trial in drawn)
        return _told(final, problem, searched, machine.keys, best)


def _told(final: Final, problem: SimulatedProblem, searched: float, keys: set[str], best: float) -> Told:
    """Trainings that only describe a winner without an opponent come after the answer."""
    world = problem.world
    after = {job.key for job in final.best.jobs(problem, final.judging)} if final.comparison is None else set()
    trainings = searched + len(keys - after)
    decision = "nothing to win" if final.comparison is None else final.comparison.verdict.decision
    gain = world.gain([final.best.params[name] for name in NAMES])
    return Told(decision, trainings, gain, 100 * (final.ceiling or 0.0), best)


def level(studies: int, gain: float = 0.0) -> tuple[float, float]:
    """How often two settings that differ by `gain` points are called better by the sequential verdict, and the mean pairs."""
    rng, looks = np.random.default_rng(5), looks_of(PAIRS)
    better, pairs = 0, 0
    for _ in range(studies):
        fixed = rng.normal(0, SETTINGS * np.sqrt(2 / ITEMS["confirm"]))
        each = rng.normal(0, np.sqrt(2 * (SEEDS**2 + RUNS**2 / ITEMS["confirm"])), PAIRS)
        for look in looks:
            values = (gain + fixed + each[: look.pairs]) / 100
            error = document_error(look.pairs)
            found = judged(values, error, look.level, min_effect=0.005, last=look is looks[-1], items=ITEMS["confirm"])
            if found.decision != "open":
                break
        better += found.decision == "better"
        pairs += look.pairs
    return better / studies, pairs / studies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gain", type=float, default=1.0)
    parser.add_argument("--studies", type=int, default=80)
    parser.add_argument("--first", type=int, default=0, help="number of the first study: parts can be run side by side")
    parser.add_argument("--trials", type=int, default=49)
    parser.add_argument("--level", type=int, default=0, metavar="STUDIES")
    given = parser.parse_args()
    if given.level:
        for gain in (0.0, 0.5, 0.75, 1.0):
            share, pairs = level(given.level, gain)
            print(f"true gain {gain:+.2f}: called better {100 * share:.1f}%, {pairs:.1f} pairs", flush=True)
        return
    told = [study(given.gain, seed, trials=given.trials) for seed in range(given.first, given.first + given.studies)]
    trainings = np.array([one.trainings for one in told])
    shown = 100 * np.mean([one.decision == "better" for one in told])
    low = 100 * np.mean([one.ceiling < one.best for one in told])
    print(
        f"+{given.gain:g} available, {given.studies} studies: shown {shown:.1f}%, {dict(Counter(one.decision for one in told))}"
    )
    print(f"trainings {trainings.mean():.0f} (90%: {np.quantile(trainings, 0.9):.0f}), ceiling too low in {low:.1f}%, ", end="")
    print(f"true gain of the choice {np.mean([one.gain for one in told]):+.2f}")


if __name__ == "__main__":
    main()
