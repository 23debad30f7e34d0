"""Coreference as an outside check. In: starts of two methods. Out: a claim about CoNLL with gold mentions.

Runs are crossed with documents, because other novels would move a difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from coref_automl.base.config import Setting
from coref_automl.base.errors import RecipeError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.progress import Progress
from coref_automl.base.records import Estimate, grouped
from coref_automl.base.store import write_json
from coref_automl.comparison.claims import Claim
from coref_automl.comparison.judging import UncorrectedClaim, few_documents, why_unjudged
from coref_automl.comparison.outside_checks import CHARACTERS_PER_TOKEN, CHOSEN, CheckStage, OutsideCheck, TaskData
from coref_automl.comparison.runs import RunOf, Starts
from coref_automl.extras.coreference.recipe import CoreferenceRecipe
from coref_automl.extras.coreference.results import COREFERENCE_FILES, CoreferenceResult, DocumentSums
from coref_automl.statistics.methods import ratio_verdict
from coref_automl.statistics.resampling import Floats

Run = RunOf[CoreferenceResult, DocumentSums]
_Starts = Starts[CoreferenceResult, DocumentSums]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreferenceStage(CheckStage):
    """Annotated texts; the last epoch is used, nothing is selected.

    `documents` are the tested ones: `all` of them or all but the split's dev documents (`not-dev`), each tested once in `folds`
    folds (at most as many as documents); or the `dev` documents only, tested by a head trained on the train documents, to screen
    methods.
    """

    data: Annotated[str, Setting("Annotated texts.", flags=("--coref",))]
    documents: Annotated[
        Literal["all", "dev", "not-dev"],
        Setting("Documents that judge: all, not-dev, or dev to screen methods.", flags=("--coref-documents",)),
    ] = "all"
    split: str = "koconovel"
    folds: int = 5
    seeds: Annotated[int, Setting("Seeds of the coreference runs.", 1, 1_000, flags=("--coref-seeds",))] = 1


class CoreferenceCheck(OutsideCheck[CoreferenceResult, DocumentSums, CoreferenceStage]):
    title = ("상호참조 해결", "coreference")
    metric = ("상호참조, 정답 언급의 CoNLL", "Coreference, CoNLL with gold mentions")
    short_metric = "CoNLL"
    outcome = "coreference_conll"
    documents = "texts"
    test = "crossed"
    files = COREFERENCE_FILES
    folder_kind = "coreference run"
    next_command = "coref-automl coref annotate TEXTS --model {} --out chains.jsonl"
    recipe = CoreferenceRecipe
    stage = CoreferenceStage
    set_by_stage = ("data", "split", "folds")
    adapt_defaults: ClassVar[Mapping[str, Any]] = {"start": CHOSEN, "seeds": 2, "settings": {"epochs": 8}}
    with_base = True
    weight_folders = "seed-*/**/model"

    def comparable(self, runs: Sequence[Run]) -> list[list[Run]]:
        """Return the largest group on the same documents and folds with the same settings."""
        groups = grouped(runs, lambda run: fingerprint(run.result.conditions, run.facts.marks))
        return sorted(groups.values(), key=len, reverse=True)[:1]

    def estimate(self, result: CoreferenceResult) -> Estimate | None:
        return result.estimates["gold"]["conll"]

    def judge(self, claim: Claim, ours: _Starts, theirs: _Starts, seed: int) -> UncorrectedClaim:  # noqa: ARG002
        """Cross the starts of a method, or the fine-tuning seeds of a single one, with documents."""
        facts = next(iter(next(iter(ours.values())).values()))[0].facts
        a, b = _by_document(ours), _by_document(theirs)
        means = [float(np.mean([np.average(run, weights=facts.sizes) for run in runs])) for runs in (a, b)]
        verdict, count = ratio_verdict(a, b, facts.sizes), len(facts.marks)
        claim = replace(
            claim,
            count=count,
            seeds=verdict.seeds,
            difference=verdict.interval,
            verdict="same" if verdict.reason == "same" else "not judged",
            values=(means[0], means[1]),
            detectable=verdict.detectable,
            against=(*claim.against, *why_unjudged(verdict), *few_documents(count)),
        )
        return UncorrectedClaim(claim, None if verdict.reason else verdict.p, verdict.interval_at)

    def open(self, stage: CoreferenceStage, out: Path) -> TaskData:
        """Read the documents of a stage. A part of them (`dev`, `not-dev`) is written to OUT/data, with its split."""
        from coref_automl.extras.coreference.data import read_schemes
        from coref_automl.extras.coreference.documents import write_documents
        from coref_automl.extras.coreference.split import Split, documents_fingerprint, sides_of

        more = tuple(stage.settings.get("more", ()))
        data = read_schemes((stage.data, *more), skip_bad=bool(stage.settings.get("skip_bad", False)))
        documents, path, split, folds = list(data.documents), stage.data, None, stage.folds
        if len(documents) < 2:
            raise RecipeError(f"{stage.data} has {len(documents)} documents; coreference needs one to train on and one to test.")
        if stage.documents != "all":
            if more:
                raise RecipeError(f"coreference: settings: more goes with documents: all, not {stage.documents}; join the files.")
            sides = sides_of(stage.split, documents)
            excluded = sides.test if stage.documents == "dev" else sides.dev
            documents = [document for document in documents if document.id not in excluded]
            path = str(out / "data" / f"{data.name}-{stage.documents}.jsonl")
            write_documents(Path(path), documents)
            if stage.documents == "dev":
                split, folds = str(Path(path).with_suffix(".split.json")), 0
                write_json(Path(split), Split(sides.train, (), sides.dev).to_json())
        characters = {"characters": sum(len(document.text) for document in documents)}
        fingerprints = {"documents": documents_fingerprint(documents)}
        return TaskData({"data": path, "split": split}, characters, fingerprints, {"folds": min(folds, len(documents))})

    def train(self, recipe: Any, progress: Progress) -> CoreferenceResult:
        from coref_automl.extras.coreference.train import train_coreference

        return train_coreference(recipe, progress=progress)

    def tokens(self, recipe: Any, sizes: Mapping[str, int], forward: float) -> float:
        passes = recipe.epochs * max(1, recipe.folds - 1) + forward
        return float(recipe.seeds * passes * sizes["characters"] / CHARACTERS_PER_TOKEN)


def _by_document(starts: _Starts) -> list[Floats]:
    values = [[run.facts.values("gold", column) for run, column in start.values()] for start in starts.values()]
    return [np.mean(seeds, axis=0) for seeds in values] if len(values) > 1 else values[0]


CHECK = CoreferenceCheck()
