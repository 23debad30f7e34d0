"""`adapt`: an experiment of one seed from your model on your texts, in this process. In: options or a recipe. Out: Adapted.

Every step recognises finished work, so the same call resumes where it stopped and recomputes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from coref_automl.comparison.claims import Answer
from coref_automl.config import from_mapping, nearest, read_yaml, shown
from coref_automl.engine.launch import HereLauncher
from coref_automl.errors import RecipeError
from coref_automl.experiment.plan import EVALUATIONS, RUNS, Plan
from coref_automl.experiment.preflight import Preflight, fitted, preflight
from coref_automl.experiment.recipe import CHOSEN, ExperimentRecipe
from coref_automl.experiment.run import run_experiment
from coref_automl.progress import Progress, quiet
from coref_automl.records import Record
from coref_automl.say import Say, language
from coref_automl.store import read_json, write_json

DEFAULTS: dict[str, Any] = {
    "methods": {"mlm": {}, "combined": {}, "entity": {}},
    "lengths": [512],
    "seeds": 1,
}
"""What `adapt` sets where neither the recipe nor an option does."""
_STAGES: dict[str, dict[str, Any]] = {
    "relation": {"start": CHOSEN, "shares": [1.0], "seeds": 1, "settings": {"epochs": 3, "batch_size": 16}},
    "coreference": {"start": CHOSEN, "seeds": 2, "settings": {"epochs": 8}},
}


@dataclass(frozen=True, slots=True)
class Adapted(Record):
    """What the command prints at the end: the `answer` in words. `chosen` is the model to use: the base, where no checkpoint is
    shown to beat it."""

    answer: str
    chosen: str
    best_trained: str
    report: str
    relation: dict[str, Any] | None
    next_steps: tuple[str, ...]

    def __str__(self) -> str:
        say = Say(language())
        lines = [self.answer, "", f"{say('보고서', 'Report')}: {self.report}"]
        if self.chosen != self.best_trained:
            best = say("학습한 것 가운데 가장 높은 체크포인트", "Highest of the trained checkpoints")
            lines += [f"{say('선택: 원래 모델', 'Chosen: the base')} {self.chosen}", f"{best}: {self.best_trained}"]
        if self.relation:
            held, start = self.relation, self.best_trained
            told = f"micro-F1 {held['micro_f1']:.1f}", held["split"], f"(n = {held['n']})", start
            lines.append(say("관계 추출, {3}: {0}, {1} {2}", "Relation extraction from {3}: {0} on {1} {2}").format(*told))
        return "\n".join([*lines, "", say("다음:", "Next:"), *(f"  {step}" for step in self.next_steps)])


def adapt_recipe(path: Path | None, asked: Mapping[str, Any]) -> ExperimentRecipe:
    """A recipe from a YAML file, from options, or from both; options win, and what neither says is as `DEFAULTS` has it."""
    data = read_yaml(path) if path else {}
    for key, value in asked.items():
        if not isinstance(value, Mapping) or key == "methods":
            data[key] = value
        elif isinstance(written := data.get(key) or {}, Mapping):  # what is none is refused below, with the file's name
            data[key] = {**written, **value}
    for key in data:
        if key not in ExperimentRecipe.__dataclass_fields__:
            raise RecipeError(f"{path}: unknown key {shown(key)}. {nearest(key, ExperimentRecipe.__dataclass_fields__)}")
    if "model" not in data:
        raise RecipeError("Name the model to adapt with --model, for example --model bundled:ko-mini.")
    if not data.get("texts") and not data.get("datasets"):
        raise RecipeError("Name the texts with --source, for example --source local:articles.jsonl.")
    if not data.get("out"):
        raise RecipeError("Name the output folder with --out.")
    data = {**DEFAULTS, **data}
    for key, value in _STAGES.items():
        if isinstance(held := data.get(key), Mapping):
            settings = held.get("settings", {})
            data[key] = {
                **value,
                **held,
                "settings": {**value["settings"], **settings} if isinstance(settings, Mapping) else settings,
            }
    return from_mapping(ExperimentRecipe, data, str(path or "options"))


def adapt(
    recipe: ExperimentRecipe,
    *,
    progress: Progress | None = None,
    then: Sequence[str] | None = None,
    agreed: Callable[[Preflight], bool] = lambda told: not told.too_short,
) -> Adapted:
    """Prepare, train, evaluate, recommend, carry the choice into relation extraction and coreference, and report.

    `then` are commands that go on from here, in place of relation extraction and another seed. `agreed` is asked before anything
    is trained where the length of training was left to this function; by default, too few steps are refused.
    """
    out, progress, plans = Path(recipe.out), progress or quiet(), list[Plan]()

    def before(plan: Plan) -> Plan:
        free = not {"epochs", "max_tokens"} & set(recipe.train)
        plans.append(fitted(plan))
        told = preflight(plans[0])
        for line in told.lines():
            progress.note(line)
        if free and not agreed(told):
            raise RecipeError(f"{told.lines()[-1 - told.too_coarse]} Add texts, pass a smaller --seq-len, or --yes to go on.")
        return plans[0]

    result = run_experiment(recipe, progress=progress, launcher=HereLauncher(raising=True), before=before)
    (plan,) = plans
    answer = Answer.from_json(read_json(out / "answer.json"))
    highest = answer.highest_path
    steps = {step.kind: step.outcome(out) for step in plan.after_choice(highest)}
    relation = steps.get("relation")
    adapted = Adapted(
        answer=result.sentence,
        chosen=recipe.model if answer.action == "keep base" else highest,
        best_trained=highest,
        report=result.report,
        relation=relation.facts if relation else None,
        next_steps=(
            f"coref-automl compare {quote(str(out / EVALUATIONS))}",
            f'coref-automl fill "서울은 [MASK]의 수도이다." --model {quote(recipe.model)} --model {quote(highest)}',
            *(_experiments(plan, highest) if then is None else then),
        ),
    )
    write_json(out / "result.json", adapted.to_json())
    return adapted


def _experiments(plan: Plan, chosen: str) -> tuple[str, ...]:
    """Relation extraction, unless it was run, and more seeds: one says nothing about a method."""
    recipe, name = plan.recipe, Path(chosen).resolve().parent.name
    seed, run = recipe.first_seed + 1, plan.out / RUNS / name
    again = quote(str(run.with_name(f"{name.rpartition('-s')[0]}-s{seed}")))
    another = (
        f"coref-automl train --recipe {quote(str(run / 'recipe.yaml'))} --seed {seed} --out {again} && "
        f"coref-automl evaluate {again} --eval-set {quote(str(plan.sets[0]))} --words {recipe.evaluate.words} "
        f"--out {quote(str(plan.out / EVALUATIONS))}"
    )
    relation = f"coref-automl re train --model {quote(chosen)} --train klue-re-v1.1_train.json --out runs/re --seeds 3"
    return (another,) if recipe.relation else (relation, another)
