"""The work of a trial, in a process of its own. In: a Job of `tune`. Out: its trained run, scored where that is asked for."""

from __future__ import annotations

from pathlib import Path

from coref_automl.engine.job import Job
from coref_automl.progress import Progress
from coref_automl.store import is_done, remove

MASKED, RELATION = f"{__name__}:masked", f"{__name__}:relation"


def masked(job: Job) -> None:
    from coref_automl.config import from_mapping
    from coref_automl.errors import EvaluationError
    from coref_automl.evaluation.run import EvaluateRecipe, evaluate
    from coref_automl.training.judge import reported_values
    from coref_automl.training.recipe import TrainRecipe
    from coref_automl.training.run import train

    recipe = from_mapping(TrainRecipe, job.recipe, "trial")
    if job.confirm is not None and is_done(job.run) and not list(job.run.glob("checkpoint-*/training.json")):
        remove(job.run)  # its weights were given up when it was not among the best; now it is a finalist
    result = train(recipe, progress=Progress())
    reported = list(reported_values(job.run, recipe.metric))
    if result.checkpoints and reported[-1:] != [result.checkpoints[-1].name]:
        raise EvaluationError(f"The last checkpoint of {job.run} could not be scored; its log says why.")
    if job.confirm is not None:
        how = EvaluateRecipe(
            eval_sets=(Path(job.confirm),), device=recipe.device, words=recipe.eval_words, base=False, seed=recipe.seed
        )
        evaluate([result.checkpoints[-1]], how)


def relation(job: Job) -> None:
    from coref_automl.config import from_mapping
    from coref_automl.relation.metrics import Scores
    from coref_automl.relation.recipe import RelationRecipe
    from coref_automl.relation.train import train_relation

    recipe = from_mapping(RelationRecipe, job.recipe, "trial")
    if job.confirm is not None and is_done(job.run) and not list(job.run.glob("seed-*/model")):
        remove(job.run)

    def heard(_seed: int, epoch: int, scores: Scores) -> None:
        Progress(shown=False, events=job.run / "events.ndjson").event(
            "epoch", epoch=epoch, epochs=recipe.epochs, micro_f1=scores.micro_f1, auprc=scores.auprc
        )

    train_relation(recipe, progress=Progress(), on_epoch=heard)
