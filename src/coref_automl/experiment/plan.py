"""The steps of an experiment. In: an ExperimentRecipe. Out: one step per command of this tool, with what decides its numbers.

OUT/steps/<kind>/<name>/{job.json, log.txt, outcome.json}     outcome.json marks the end of a step
OUT/runs/<method>-<length>-s<seed>                            train
OUT/evaluations, OUT/relation, OUT/coreference                evaluate, re train, coref train
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coref_automl.comparison.scores import is_equal_training
from coref_automl.config import from_mapping, to_mapping
from coref_automl.coreference.recipe import CoreferenceRecipe
from coref_automl.engine.binding import BYTES, check_binding
from coref_automl.engine.job import Job, Outcome, read_outcome
from coref_automl.errors import FolderError, RecipeError
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.evaluation.results import target_of
from coref_automl.evaluation.run import EvaluateRecipe
from coref_automl.experiment.data import datasets, evaluation_sets
from coref_automl.experiment.recipe import BUNDLED, CHOSEN, CoreferenceStage, ExperimentRecipe, Kind, RelationStage
from coref_automl.machine import device_seen
from coref_automl.models.model_files import model_prints
from coref_automl.progress import Progress
from coref_automl.relation.recipe import RelationRecipe
from coref_automl.store import read_json, write_json
from coref_automl.training.folder import binding_of, checkpoint_meant
from coref_automl.training.recipe import TrainRecipe

if TYPE_CHECKING:
    from coref_automl.training.setup import Prepared

TASK = "coref_automl.experiment.work:run_step"
BASE = "base"
_APART = 1_000
"""Between the fine-tuning seeds of one run and the next: seeds that a later call adds are still no other run's."""
RUNS, EVALUATIONS, RELATION, COREFERENCE = "runs", "evaluations", "relation", "coreference"
Recipe = TrainRecipe | EvaluateRecipe | RelationRecipe | CoreferenceRecipe


@dataclass(frozen=True, slots=True)
class Arm:
    """A method at a length."""

    method: str
    length: int

    @property
    def name(self) -> str:
        return f"{self.method}-{self.length}"

    def __str__(self) -> str:
        return f"{self.method} {self.length:,}"


@dataclass(frozen=True, slots=True)
class Step:
    """One command. `run` names the training run that it makes or whose checkpoints it needs; None: it starts from `start`, or
    else from the base.

    `recipe` says what to do, `binding` what decides its numbers: settings by value, data by their bytes. More `seeds` than an
    earlier call asked for are added to those.
    """

    kind: Kind
    name: str
    run: str | None
    recipe: Recipe
    binding: Mapping[str, Any]
    start: str | None = None

    @property
    def label(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def seeds(self) -> int:
        return getattr(self.recipe, "seeds", 1)

    def job(self, out: Path, base: str) -> Job:
        settings = {key: _plain(value) for key, value in to_mapping(self.recipe).items()}
        start = str(out / RUNS / self.run) if self.run else self.start or base
        told = {"kind": self.kind, "start": start, "seeds": self.seeds, "settings": settings, "binding": dict(self.binding)}
        return Job(TASK, self.name, str(out / "steps" / self.kind / self.name), told)

    def outcome(self, out: Path) -> Outcome | None:
        """How the step ended; None if it has not. One that was begun with other settings or data is refused."""
        job = self.job(out, "")
        held = Path(job.folder) / "job.json"
        if not held.is_file():
            return None
        begun, now = Job.from_json(read_json(held)).recipe, job.recipe["binding"]
        check_binding(held.parent, begun["binding"], now)
        found = read_outcome(job)
        return found if found is None or found.facts.get("seeds", begun["seeds"]) >= self.seeds else None


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Path) else value


@dataclass(frozen=True)
class Plan:
    """A recipe with what it names opened. `sets` are evaluation sets, `datasets` folders by length."""

    recipe: ExperimentRecipe
    out: Path
    sets: tuple[Path, ...]
    datasets: Mapping[int, Path]

    @property
    def arms(self) -> list[Arm]:
        return [Arm(method, length) for length in self.recipe.lengths for method in self.recipe.methods]

    @property
    def seeds(self) -> range:
        return range(self.recipe.first_seed, self.recipe.first_seed + self.recipe.seeds)

    def run_name(self, arm: Arm | None, seed: int) -> str:
        """The name of an arm's run. The base (None) is one encoder, tuned for each task as often as an arm has runs."""
        return f"{arm.name if arm else BASE}-s{seed}"

    @cached_property
    def steps(self) -> list[Step]:
        """Seed by seed, the base first, all that belongs to a run together: a study that is cut short has whole seeds."""
        found = [self._evaluation(f"{BASE}-{length}", None, seq_len=length) for length in self.recipe.lengths]
        if (stage := self.recipe.coreference) and stage.start == CHOSEN:
            found.append(self._coreference(stage, BASE, None, self.recipe.first_seed))
        for number, seed in enumerate(self.seeds):
            found += self._tasks(self.run_name(None, seed), None, number)
            for arm in self.arms:
                found += self._of_run(arm, number, seed)
        return found

    def _of_run(self, arm: Arm, number: int, seed: int) -> Iterator[Step]:
        name = self.run_name(arm, seed)
        work = self.works[arm]
        yield Step("train", name, name, self.training(arm, seed), binding_of(work.recipe, work.prints) | {"seed": seed})
        yield self._evaluation(name, name, seq_len=None)
        yield from self._tasks(name, name, number)

    def _tasks(self, name: str, run: str | None, number: int) -> Iterator[Step]:
        if (stage := self.recipe.relation) and stage.start == "every":
            yield from self._relation(stage, name, run, number * _APART)
        if (texts := self.recipe.coreference) and texts.start == "every":
            yield self._coreference(texts, name, run, number * _APART)

    @property
    def waits_for_choice(self) -> bool:
        return any(stage and stage.start == CHOSEN for stage in (self.recipe.relation, self.recipe.coreference))

    def after_choice(self, model: str) -> list[Step]:
        """What starts from the model that the evaluations recommend, in folders named by it: another choice lies beside it."""
        at = Path(model)
        name = at.name if at.parent.name in ("", ".") else f"{at.resolve().parent.name}-{at.name}"
        found: list[Step] = []
        if (stage := self.recipe.relation) and stage.start == CHOSEN:
            found += self._relation(stage, re.sub(r"[^\w.+-]", "-", name), None, self.recipe.first_seed)
        if (texts := self.recipe.coreference) and texts.start == CHOSEN and model != self.recipe.model:
            found.append(self._coreference(texts, name, None, self.recipe.first_seed))
        prints = start_bytes(model)
        return [replace(step, start=model, binding={**step.binding, **prints}) for step in found]

    def training(self, arm: Arm, seed: int) -> TrainRecipe:
        decided = {
            "model": self.recipe.model,
            "dataset": str(self.datasets[arm.length]),
            "out": str(self.out / RUNS / self.run_name(arm, seed)),
            "seed": seed,
            "seq_len": arm.length,
            "device": self.recipe.device,
        }
        return from_mapping(TrainRecipe, {**self.recipe.settings(arm.method), **decided}, f"methods: {arm.method}")

    @cached_property
    def works(self) -> dict[Arm, Prepared]:
        """What a run of each arm needs, opened; arms that would see different numbers of tokens are refused."""
        from coref_automl.training.setup import prepare_run

        found = {arm: prepare_run(self.training(arm, self.recipe.first_seed)) for arm in self.arms}
        _refuse_unequal({arm: work.plan.tokens_after(work.last) for arm, work in found.items()})
        self._refuse_namesake(found)
        return found

    def _refuse_namesake(self, works: Mapping[Arm, Prepared]) -> None:
        """Tables know a checkpoint by run and step: a base with those of a run of the study would take its place."""
        made = target_of(self.recipe.model).provenance()
        names = {Path(made.run).name, Path(self.recipe.model).resolve().parent.name} if made else set()
        for arm, seed in product(works, self.seeds):
            if made and self.run_name(arm, seed) in names and made.step in works[arm].saves():
                raise RecipeError(
                    f"The base {self.recipe.model} is step {made.step} of a run named {self.run_name(arm, seed)}, and this study "
                    "would have one, too; pass another --first-seed, or name the method otherwise."
                )

    def _evaluation(self, name: str, run: str | None, *, seq_len: int | None) -> Step:
        stage = self.recipe.evaluate
        recipe = EvaluateRecipe(
            eval_sets=self.sets,
            seq_len=seq_len,
            out=self.out / EVALUATIONS,
            device=self.recipe.device,
            words=stage.words,
            base=False,
        )
        binding = {"eval_sets": self._set_prints, "words": stage.words}
        return Step("evaluate", name, run, recipe, binding | self._start(run))

    def _start(self, run: str | None) -> dict[str, str]:
        """The bytes that a step starts from: the base's; a run's own are bound by its training."""
        return {} if run else self._base_bytes

    @cached_property
    def _base_bytes(self) -> dict[str, str]:
        return start_bytes(self.recipe.model)

    @cached_property
    def _set_prints(self) -> list[str]:
        return [EvalSet.open(folder).fingerprint for folder in self.sets]

    def _relation(self, stage: RelationStage, name: str, run: str | None, first_seed: int) -> Iterator[Step]:
        """The k-th run of every method and the k-th tuning of the base have the same relation seeds, which no other k has."""
        for share in stage.shares:
            mark = f"{100 * share:g}pct-{name}"
            decided = {
                "model": self.recipe.model,
                "train": self._row_files[0],
                "dev": self._row_files[1],
                "out": str(self.out / RELATION / mark),
                "seeds": stage.seeds,
                "first_seed": first_seed,
                "max_rows": None if share == 1 else max(2, round(share * self.rows[0])),
                "device": self.recipe.device,
            }
            settings = {"keep_weights": False, **stage.settings}
            recipe = from_mapping(RelationRecipe, {**settings, **decided}, "relation: settings")
            yield Step("relation", mark, run, recipe, _bound(recipe, ("train", "dev"), self.rows[2] | self._start(run)))

    @cached_property
    def _row_files(self) -> tuple[str, str | None]:
        """The relation rows to train on and to score; the first of the bundled ones are written to OUT/relation-rows."""
        from coref_automl.corpus.sources import bundled_rows

        stage = self.recipe.relation
        assert stage is not None
        if stage.train != BUNDLED:
            return stage.train, stage.dev
        folder = self.out / "relation-rows" / f"{stage.rows}"
        train, dev = folder / "train.json", folder / "dev.json"
        for path, name, count in ((train, "relations", stage.rows), (dev, "relations-dev", max(200, stage.rows // 4))):
            if not path.is_file():
                write_json(path, list(islice(bundled_rows(name), count)))
        return str(train), str(dev)

    @cached_property
    def rows(self) -> tuple[int, int, dict[str, str]]:
        """How many rows there are to train on and to score, and the bytes of both files."""
        from coref_automl.relation.data import read_relations
        from coref_automl.relation.scoring import rows_fingerprint

        stage = self.recipe.relation
        assert stage is not None
        skip = bool(stage.settings.get("skip_bad", False))
        files = {name: path for name, path in zip(("train", "dev"), self._row_files, strict=True) if path}
        read = {name: read_relations(path, skip_bad=skip).rows for name, path in files.items()}
        return len(read["train"]), len(read.get("dev", ())), {name: rows_fingerprint(rows) for name, rows in read.items()}

    def _coreference(self, stage: CoreferenceStage, name: str, run: str | None, first_seed: int) -> Step:
        """Seeds as for relation extraction."""
        data, split, folds, prints = self._annotated
        decided = {
            "model": self.recipe.model,
            "data": data,
            "out": str(self.out / COREFERENCE / name),
            "split": split,
            "folds": folds,
            "seeds": stage.seeds,
            "first_seed": first_seed,
            "device": self.recipe.device,
        }
        recipe = from_mapping(CoreferenceRecipe, {**stage.settings, **decided}, "coreference: settings")
        return Step("coreference", name, run, recipe, _bound(recipe, ("data", "split"), prints | self._start(run)))

    @cached_property
    def _annotated(self) -> tuple[str, str | None, int, dict[str, str]]:
        """The file, the split or folds that a head is trained with, and their bytes; for dev documents both files are written to
        OUT/data."""
        from coref_automl.coreference.data import read_schemes, write_documents
        from coref_automl.coreference.split import Split, documents_fingerprint, sides_of

        stage = self.recipe.coreference
        assert stage is not None
        more = tuple(stage.settings.get("more", ()))
        read = read_schemes((stage.data, *more), skip_bad=bool(stage.settings.get("skip_bad", False)))
        if len(read.documents) < 2:
            raise RecipeError(
                f"{stage.data} has {len(read.documents)} documents; coreference needs two: one to train on, one to test."
            )
        if stage.documents == "all":
            folds = min(stage.folds, len(read.documents))
            return stage.data, None, folds, {"documents": documents_fingerprint(read.documents)}
        if more:
            raise RecipeError(f"coreference: settings: more goes with documents: all, not {stage.documents}; join the files.")
        sides = sides_of(stage.split, read.documents)
        without = "test" if stage.documents == "dev" else "dev"
        kept = [document for document in read.documents if document.id not in getattr(sides, without)]
        path = self.out / "data" / f"{read.name}-{stage.documents}.jsonl"
        write_documents(path, kept)
        prints = {"documents": documents_fingerprint(kept)}
        if stage.documents == "not-dev":
            return str(path), None, min(stage.folds, len(kept)), prints
        write_json(path.with_suffix(".split.json"), Split(sides.train, (), sides.dev).to_json())
        return str(path), str(path.with_suffix(".split.json")), 0, prints


def start_bytes(model: str) -> dict[str, str]:
    """A base in a step's binding."""
    return {f"{BYTES}{name}": value for name, value in model_prints(model).items()}


def _bound(recipe: Any, named: tuple[str, ...], prints: Mapping[str, str]) -> dict[str, Any]:
    free = ("out", "device", "model", "seeds", *named)
    return {key: value for key, value in to_mapping(recipe).items() if key not in free} | dict(prints)


def _refuse_unequal(tokens: Mapping[Arm, int]) -> None:
    least, most = min(tokens, key=lambda arm: tokens[arm]), max(tokens, key=lambda arm: tokens[arm])
    if not is_equal_training(tokens[least], tokens[most]):
        raise RecipeError(
            f"The methods are not trained alike: {least} would see {tokens[least]:,} tokens and {most} {tokens[most]:,}, so a "
            "difference could come from the training alone; give all of them the same max_tokens or epochs, under train."
        )


def _refuse_other_first_seed(recipe: ExperimentRecipe, out: Path) -> None:
    """Fine-tuning seeds count from the first seed: counted from another one, two runs would share theirs."""
    kinds = [kind for kind in ("relation", "coreference") if (stage := getattr(recipe, kind)) and stage.start == "every"]
    begun = set()
    for held in (path for kind in kinds for path in (out / "steps" / kind).glob("*/job.json")):
        job = Job.from_json(read_json(held))
        begun.add(int(job.key.rpartition("-s")[2]) - job.recipe["settings"]["first_seed"] // _APART)
    if begun and recipe.first_seed not in begun:
        raise FolderError(
            f"{out} was begun with first_seed {min(begun)}, and this command has first_seed {recipe.first_seed}; "
            "pass the same first seed with more seeds, or choose another --out."
        )


def open_plan(recipe: ExperimentRecipe, out: Path, progress: Progress) -> Plan:
    """Open what the recipe names, or prepare it; nothing is trained. A run's folder as the base means one checkpoint of it."""
    recipe = replace(recipe, model=checkpoint_meant(recipe.model, "--model") or recipe.model)
    _refuse_other_first_seed(recipe, out)
    sets = evaluation_sets(recipe, out, progress)
    return Plan(replace(recipe, device=device_seen(recipe.device)), out, sets, datasets(recipe, out, sets, progress))
