"""Relation extraction as an outside check. In: starts of two methods. Out: a claim about micro-F1, runs paired by seed.

Runs share their fine-tuning seeds, so starts of one pretraining seed are paired, and every start is paired with the base.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np

from coref_automl.base.config import Setting
from coref_automl.base.errors import RecipeError
from coref_automl.base.progress import Progress
from coref_automl.base.records import Estimate, grouped
from coref_automl.base.store import write_json
from coref_automl.comparison.claims import Caveat, Claim
from coref_automl.comparison.judging import UncorrectedClaim
from coref_automl.comparison.outside_checks import CHOSEN, CheckStage, OutsideCheck, TaskData
from coref_automl.comparison.runs import RunOf, Start, Starts
from coref_automl.extras.relation.metrics import SeedPairs, over_pairs
from coref_automl.extras.relation.recipe import RelationRecipe
from coref_automl.extras.relation.results import RELATION_FILES, RelationResult, RowFacts

Run = RunOf[RelationResult, RowFacts]
_Start = Start[RelationResult, RowFacts]
_Starts = Starts[RelationResult, RowFacts]
_Settings = Mapping[str, Any]
BUNDLED = "bundled"
_CONDITIONS = ("data", "train", "settings")
_ROW_TOKENS = 64
"""Tokens per row, markers included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationStage(CheckStage):
    """One run per share of `train`: a file, or "bundled" for a number of generated `rows`."""

    train: Annotated[str, Setting("Relation rows to fine-tune on.", flags=("--re-train",))] = BUNDLED
    dev: Annotated[str | None, Setting("Relation rows to score; never used for selection.", flags=("--re-dev",))] = None
    rows: int = 1_000
    shares: Annotated[tuple[float, ...], Setting("Fraction of relation rows; repeatable.", flags=("--re-share",))] = (0.1, 1.0)

    def __post_init__(self) -> None:
        CheckStage.__post_init__(self)
        if not self.shares or any(not 0 < share <= 1 for share in self.shares) or len(set(self.shares)) < len(self.shares):
            raise RecipeError(f"relation: shares are different numbers above 0 and up to 1, not {list(self.shares)}.")
        if self.dev is not None and self.train == BUNDLED:
            raise RecipeError("relation: dev (--re-dev) needs rows to train on; name them with --re-train, or leave it out.")


class RelationCheck(OutsideCheck[RelationResult, RowFacts, RelationStage]):
    title = ("관계 추출", "relation extraction")
    metric = ("관계 추출 micro-F1", "Relation extraction, micro-F1")
    short_metric = "micro-F1"
    outcome = "relation_f1"
    documents = "rows"
    test = "paired"
    files = RELATION_FILES
    folder_kind = "relation run"
    next_command = "coref-automl re evaluate {} --data bundled:relations-dev"
    recipe = RelationRecipe
    stage = RelationStage
    set_by_stage = ("train", "dev", "max_rows")
    defaults: ClassVar[_Settings] = {"keep_weights": False}
    adapt_defaults: ClassVar[_Settings] = {
        "start": CHOSEN, "shares": [1.0], "seeds": 1, "settings": {"epochs": 3, "batch_size": 16},
    }  # fmt: skip

    def comparable(self, runs: Sequence[Run]) -> list[list[Run]]:
        """Group runs by split, data and settings, those with the most training rows first."""
        groups = grouped(runs, lambda run: (run.result.split, *map(run.result.fingerprints.get, _CONDITIONS)))
        return sorted(groups.values(), key=lambda group: -self.rows(group[0]))

    def rows(self, run: Run) -> int:
        return (run.result.train_rows or 0) + (run.result.validation_rows or 0)

    def estimate(self, result: RelationResult) -> Estimate | None:
        return result.estimates.get("micro_f1")

    def judge(self, claim: Claim, ours: _Starts, theirs: _Starts, seed: int) -> UncorrectedClaim | None:
        pairs = seed_pairs(ours, theirs)
        if not pairs:
            return None
        count, verdict = over_pairs(pairs, seed=seed)
        judged = count > 1 and verdict.p_seeds is not None
        same = verdict.difference == 0 and verdict.interval.low == verdict.interval.high
        caveats: tuple[Caveat, ...] = () if judged or same else ("one seed" if count < 2 else "copies",)
        run, _ = next(iter(next(iter(ours.values())).values()))  # all are comparable: any of them has the facts of the claim
        claim = replace(
            claim,
            count=run.result.n,
            seeds=(count, count),
            difference=verdict.interval,
            verdict="same" if same else "not judged",
            values=(_mean_f1(pair.a for pair in pairs), _mean_f1(pair.b for pair in pairs)),
            detectable=verdict.detectable,
            rows=self.rows(run) or None,
            share=run.result.share or _share_of_name(run.name),
            against=(*claim.against, *caveats),
        )
        return UncorrectedClaim(claim, verdict.p if judged else None, verdict.interval_at)

    def open(self, stage: RelationStage, out: Path) -> TaskData:
        """Read the rows of a stage; bundled ones are first written to OUT/relation-rows."""
        from coref_automl.corpus.sources import bundled_rows
        from coref_automl.extras.relation.data import read_relations
        from coref_automl.extras.relation.scoring import rows_fingerprint

        files = {"train": stage.train, "dev": stage.dev}
        if stage.train == BUNDLED:
            folder = out / "relation-rows" / f"{stage.rows}"
            files = {name: str(folder / f"{name}.json") for name in files}
            for file, name, count in (("train", "relations", stage.rows), ("dev", "relations-dev", max(200, stage.rows // 4))):
                if not Path(str(files[file])).is_file():
                    write_json(Path(str(files[file])), list(islice(bundled_rows(name), count)))
        skip = bool(stage.settings.get("skip_bad", False))
        data = {name: read_relations(path, skip_bad=skip).rows for name, path in files.items() if path}
        fingerprints = {name: rows_fingerprint(rows) for name, rows in data.items()}
        return TaskData(files, {name: len(rows) for name, rows in data.items()}, fingerprints)

    def variants(self, stage: RelationStage, data: TaskData) -> Iterator[tuple[str, dict[str, Any]]]:
        for share in stage.shares:
            yield f"{100 * share:g}pct-", {"max_rows": None if share == 1 else max(2, round(share * data.sizes["train"]))}

    def train(self, recipe: Any, progress: Progress) -> RelationResult:
        from coref_automl.extras.relation.train import train_relation

        return train_relation(recipe, progress=progress)

    def tokens(self, recipe: Any, sizes: Mapping[str, int], forward: float) -> float:
        rows = (recipe.max_rows or sizes["train"]) * recipe.epochs + forward * sizes.get("dev", 0)
        return float(recipe.seeds * rows * _ROW_TOKENS)


def seed_pairs(ours: _Starts, theirs: _Starts) -> list[SeedPairs]:
    """Pair the runs that a claim compares; empty if too few seeds are shared. Two methods: the starts of each pretraining seed,
    at least two. A method and a base: every start with the base's only one. A single checkpoint: one pair per fine-tuning
    seed."""
    against_method = len(theirs) > 1
    same_seed = [(start, theirs[seed]) for seed, start in ours.items() if seed in theirs]
    sides = same_seed if against_method else [*product(ours.values(), theirs.values())]
    pairs = [pair for a, b in sides if (pair := paired(a, b)) is not None]
    if len(pairs) < (2 if against_method else len(ours)):
        return []
    return [pairs[0].of([seed]) for seed in pairs[0].seeds] if len(ours) == 1 else pairs


def paired(a: _Start, b: _Start) -> SeedPairs | None:
    """Align two starts by their shared fine-tuning seeds; None if there are none, or if the rows differ."""
    seeds = tuple(seed for seed in a if seed in b)
    ours, theirs = ([run.facts.of([column]) for run, column in (side[seed] for seed in seeds)] for side in (a, b))
    if not seeds or not all(np.array_equal(rows.gold, ours[0].gold) for rows in (*ours, *theirs)):
        return None
    return SeedPairs(_stack_seeds(ours), _stack_seeds(theirs), seeds)


def _stack_seeds(seeds: Sequence[RowFacts]) -> RowFacts:
    """Stack the answers of seeds, one column each."""
    columns = {name: np.hstack([getattr(facts, name) for facts in seeds]) for name in ("right", "given")}
    return replace(seeds[0], **columns)


def _mean_f1(sides: Iterable[RowFacts]) -> float:
    return float(np.mean([rows.f1().mean() for rows in sides]))


def _share_of_name(name: str) -> float | None:
    """Read the share from a study's run name (10pct-entity-512-s0): results of versions up to 0.2.0 do not record it."""
    match = re.match(r"(\d+(?:\.\d+)?)pct-", name)
    return float(match[1]) / 100 if match else None


CHECK = RelationCheck()
