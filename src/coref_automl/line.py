"""The whole line. In: a model and texts. Out: runs, evaluations, a recommendation with its report, and relation extraction.

Every stage recognises what it finished before, so the same call again goes on where it stopped and redoes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coref_automl.errors import RecipeError
from coref_automl.line_recipe import LineRecipe, RelationStage
from coref_automl.locks import claimed
from coref_automl.progress import Progress, quiet
from coref_automl.records import Record
from coref_automl.store import write_json

if TYPE_CHECKING:
    from coref_automl.comparison.recommend import Recommendation


@dataclass(frozen=True, slots=True)
class LineResult(Record):
    """What a person wants to know at the end."""

    recommendation: str
    chosen: str
    report: str
    relation: dict[str, Any] | None
    next_steps: tuple[str, ...]

    def __str__(self) -> str:
        lines = [self.recommendation, "", f"Report: {self.report}", f"Checkpoint: {self.chosen}"]
        if self.relation:
            f1 = self.relation["micro_f1"]
            lines.append(f"Relation extraction from it: micro-F1 {f1:.1f} on {self.relation['split']} (n = {self.relation['n']})")
        return "\n".join([*lines, "", "Next:", *(f"  {step}" for step in self.next_steps)])


def run_line(recipe: LineRecipe, out: Path, *, progress: Progress | None = None) -> LineResult:
    """Prepare, train, evaluate, recommend, report, and carry the chosen checkpoint into relation extraction."""
    with claimed(out, "line"):
        return _run(recipe, out, progress or quiet())


def _run(recipe: LineRecipe, out: Path, progress: Progress) -> LineResult:
    evalset = _eval_set(recipe, out, progress)
    dataset = _dataset(recipe, evalset, out, progress)
    runs = _train(recipe, dataset, out, progress)
    _evaluate(recipe, runs, evalset, progress)
    recommendation = _recommend(recipe, runs, evalset)
    progress.note(recommendation.sentence)
    relation = _relation(recipe, recommendation.chosen, out, progress) if recipe.relation else None
    report = _report(recipe, runs, evalset, out, progress)
    result = LineResult(
        recommendation=recommendation.sentence,
        chosen=recommendation.chosen,
        report=str(report),
        relation=relation,
        next_steps=_next_steps(recipe, runs, recommendation.chosen),
    )
    write_json(out / "result.json", result.to_json())
    return result


def _eval_set(recipe: LineRecipe, out: Path, progress: Progress) -> Path:
    from coref_automl.evaluation.items import EvalRecipe, bundled_eval_set, prepare_eval

    stage = recipe.evaluate
    if stage.set == "bundled":
        return bundled_eval_set()
    if stage.set is not None:
        return Path(stage.set)
    wanted = EvalRecipe(
        models=(recipe.tokenizer or recipe.model,),
        tasks=stage.tasks,
        sources=recipe.prepare.sources,
        lambada=("bundled:cloze",) if "lambada" in stage.tasks else (),
        holdout=recipe.prepare.holdout,
        limit=recipe.prepare.limit,
        per_source=stage.per_source,
        per_document=stage.per_document,
        single_entry=stage.single_entry,
        seed=recipe.seed,
    )
    prepare_eval(wanted, out / "evalset", progress=progress)
    return out / "evalset"


def _dataset(recipe: LineRecipe, evalset: Path, out: Path, progress: Progress) -> Path:
    """One dataset for all objectives: blocks with noun chains. The runs differ in what they hide, and in nothing else."""
    from coref_automl.corpus.prepare import prepare
    from coref_automl.corpus.recipe import PrepareRecipe

    stage = recipe.prepare
    wanted = PrepareRecipe(
        mode="combined",
        sources=stage.sources,
        model=recipe.tokenizer or recipe.model,
        seq_len=stage.seq_len,
        eval_sets=(str(evalset),),
        holdout=stage.holdout,
        limit=stage.limit,
        near_duplicates=stage.near_duplicates,
    )
    folder = out / "dataset"
    prepare(wanted, folder, progress=progress)
    return folder


def _train(recipe: LineRecipe, dataset: Path, out: Path, progress: Progress) -> list[Path]:
    from coref_automl.training.recipe import TrainRecipe
    from coref_automl.training.run import train

    stage, runs = recipe.train, []
    if not stage.objectives:
        raise RecipeError("train: objectives is empty; name at least one of mlm, combined, entity.")
    common = TrainRecipe(
        model=recipe.model,
        tokenizer=recipe.tokenizer,
        dataset=str(dataset),
        out="",
        epochs=stage.epochs,
        batch=stage.batch,
        micro_batch=stage.micro_batch,
        learning_rate=stage.learning_rate,
        weight_decay=stage.weight_decay,
        warmup=stage.warmup,
        min_prob=stage.min_prob,
        max_prob=stage.max_prob,
        save_every=stage.save_every,
        seed=recipe.seed,
    )
    for objective in stage.objectives:
        run = out / "runs" / objective
        progress.note(f"Training {objective}")
        train(replace(common, objective=objective, out=str(run)), progress=progress)
        runs.append(run)
    return runs


def _evaluate(recipe: LineRecipe, runs: Sequence[Path], evalset: Path, progress: Progress) -> None:
    from coref_automl.evaluation.run import EvaluateRecipe, evaluate

    wanted = EvaluateRecipe(eval_sets=(evalset,), seq_len=recipe.prepare.seq_len, words=recipe.evaluate.words, seed=recipe.seed)
    evaluate(list(runs), wanted, progress=progress)


def _recommend(recipe: LineRecipe, runs: Sequence[Path], evalset: Path) -> Recommendation:
    from coref_automl.comparison.recommend import recommend

    stage = recipe.evaluate
    return recommend(*runs, metric=stage.metric, margin=stage.margin, evalset=evalset.name, seed=recipe.seed)


def _report(recipe: LineRecipe, runs: Sequence[Path], evalset: Path, out: Path, progress: Progress) -> Path:
    """Written last, so that it holds the relation extraction too."""
    from coref_automl.comparison.report import report

    stage = recipe.evaluate
    progress.note("Writing the report")
    shown = [*runs, out / "relation"] if recipe.relation else list(runs)
    options: dict[str, Any] = {"metric": stage.metric, "margin": stage.margin, "lang": recipe.lang, "seed": recipe.seed}
    return Path(report(*shown, out=out / "report", evalset=evalset.name, **options))


def _relation(recipe: LineRecipe, chosen: str, out: Path, progress: Progress) -> dict[str, Any]:
    from coref_automl.relation.recipe import RelationRecipe
    from coref_automl.relation.train import train_relation

    stage = recipe.relation
    assert stage is not None
    train, dev = (
        (stage.train, stage.dev) if stage.train != "bundled" else _bundled_rows(stage, recipe.seed, out / "relation-rows")
    )
    wanted = RelationRecipe(
        model=chosen,
        train=train,
        dev=dev,
        out=str(out / "relation"),
        scheme=stage.scheme,
        seeds=stage.seeds,
        epochs=stage.epochs,
        batch_size=stage.batch_size,
    )
    progress.note("Relation extraction from the chosen checkpoint")
    result = train_relation(wanted, progress=progress)
    return {name: getattr(result, name) for name in ("split", "n", "micro_f1", "auprc", "accuracy", "scheme", "run")}


def _bundled_rows(stage: RelationStage, seed: int, folder: Path) -> tuple[str, str]:
    from coref_automl.corpus.synthetic.statements import relation_rows

    paths = folder / "train.json", folder / "dev.json"
    if not all(path.is_file() for path in paths):
        write_json(paths[0], relation_rows(stage.rows, seed))
        write_json(paths[1], relation_rows(max(200, stage.rows // 4), seed + 1))
    return str(paths[0]), str(paths[1])


def _next_steps(recipe: LineRecipe, runs: Sequence[Path], chosen: str) -> tuple[str, ...]:
    folder = runs[0].parent
    return (
        f"coref-automl compare {folder}",
        f'coref-automl fill "서울은 대한민국의 [MASK]이다." --model {recipe.model} --model {chosen}',
        "coref-automl adapt --model YOUR_MODEL --source local:YOUR_TEXTS.jsonl --out adapted",
    )
