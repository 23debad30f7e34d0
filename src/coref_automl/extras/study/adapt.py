"""`adapt` and `demo`: an experiment of one seed, in this process. In: options or a recipe, or what is bundled. Out: Adapted.

Every step recognises finished work, so the same call resumes where it stopped and recomputes nothing. The demo trains three
methods from one base and judges each run's last checkpoint against it on all held-out documents: nothing is chosen before the
verdict, so no half of the items is spent on choosing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from shlex import quote
from typing import Any

from coref_automl.base.config import from_mapping, overlaid, read_yaml
from coref_automl.base.errors import RecipeError
from coref_automl.base.launch import InProcessLauncher
from coref_automl.base.machine import pick_first_gpu
from coref_automl.base.progress import Progress, quiet
from coref_automl.base.records import Record
from coref_automl.base.say import Say, language
from coref_automl.base.store import read_json, write_json
from coref_automl.comparison.claims import Answer
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.extras.study.preflight import Confirm, before_training
from coref_automl.extras.study.recipe import ExperimentRecipe
from coref_automl.extras.study.run import open_experiment
from coref_automl.extras.study.state import ANSWER

DEFAULTS: dict[str, Any] = {"methods": {"mlm": {}, "combined": {}, "entity": {}}, "lengths": [512], "seeds": 1}
"""Defaults of `adapt` under recipe and options."""
_DEMO = Path(__file__).parents[2] / "assets" / "demo.yaml"


@dataclass(frozen=True, slots=True)
class Adapted(Record):
    """What the command prints at the end: the `answer` in words; the `chosen` model, which is the base where no checkpoint is
    shown to beat it; and the scores of outside `checks` fine-tuned from the best trained checkpoint."""

    answer: str
    chosen: str
    best_trained: str
    report: str
    checks: dict[str, dict[str, Any]]
    next_steps: tuple[str, ...]

    def __str__(self) -> str:
        say = Say(language())
        lines = [self.answer, "", f"{say('보고서', 'Report')}: {self.report}"]
        if self.chosen != self.best_trained:
            best = say("학습한 것 중 점수가 가장 높은 체크포인트", "Highest of the trained checkpoints")
            lines += [f"{say('선택: 베이스 모델', 'Chosen: the base')} {self.chosen}", f"{best}: {self.best_trained}"]
        for name, facts in self.checks.items():
            ko, en = CHECKS[name].title
            score, split = f"{facts['metric']} {facts['score']:.1f}", f"{facts['split']} (n = {facts['n']})"
            start = self.best_trained
            lines.append(say(f"{ko}, {start}: {score}, {split}", f"{en.capitalize()} from {start}: {score} on {split}"))
        return "\n".join([*lines, "", say("그 밖에:", "Also:"), *(f"  {step}" for step in self.next_steps)])


def recipe_values(seq_len: int | None, epochs: float | None, objectives: Sequence[str]) -> dict[str, Any]:
    """Return the parts of a recipe that the short options of `adapt` stand for, of those that were passed."""
    values: dict[str, Any] = {"lengths": [seq_len]} if seq_len is not None else {}
    values |= {"train": {"epochs": epochs}} if epochs is not None else {}
    return values | ({"methods": {name: {} for name in objectives}} if objectives else {})


def adapt_recipe(path: Path | None, options: Mapping[str, Any]) -> ExperimentRecipe:
    """Read a recipe from a YAML file, from options, or from both; options win, and `DEFAULTS` fill the rest."""
    written = read_yaml(path) if path else {}
    ExperimentRecipe.known_keys(written, str(path))
    if "methods" in options:
        written.pop("methods", None)  # options name all methods
    data = overlaid(written, options)
    if "model" not in data:
        raise RecipeError("Name the model to adapt with --model, for example --model bundled:ko-mini.")
    if not data.get("texts") and not data.get("datasets"):
        raise RecipeError("Name the texts with --source, for example --source local:articles.jsonl.")
    if not data.get("out"):
        raise RecipeError("Name the output folder with --out.")
    data = {**DEFAULTS, **data}
    for key, check in CHECKS.items():
        if isinstance(section := data.get(key), Mapping):
            data[key] = overlaid(check.adapt_defaults, section)
    return from_mapping(ExperimentRecipe, data, str(path or "options"))


def adapt(
    recipe: ExperimentRecipe,
    *,
    progress: Progress | None = None,
    then: Sequence[str] = (),
    confirm: Confirm = lambda preflight: not preflight.too_short,
    timed: bool = True,
) -> Adapted:
    """Prepare, train, evaluate, recommend, fine-tune outside checks from the choice, and report.

    `then` are further commands to print. `confirm` is called before training that would be long or too short (`preflight.py`); by
    default, too few steps are refused. `timed`: time a step first, and print how long it all takes.
    """
    out, progress = Path(recipe.out), progress or quiet()
    pick_first_gpu(recipe.device)  # it trains in this process
    before = partial(before_training, progress=progress, confirm=confirm, fit=True, timed=timed)
    with open_experiment(recipe, progress, before, InProcessLauncher(), None) as experiment:
        result, plan = experiment.run(), experiment.plan
    answer, base = Answer.from_json(read_json(out / ANSWER)), plan.recipe.model
    steps = plan.steps_from_recommended(answer.highest_path)
    by_rows = sorted(steps, key=lambda step: getattr(step.recipe, "max_rows", None) or inf)  # the one with most rows is kept
    checks = {step.kind: outcome.facts for step in by_rows if (outcome := step.outcome(out)) and "score" in outcome.facts}
    compare = f"coref-automl compare {quote(str(out))}"
    fill = f'coref-automl fill "서울은 [MASK]의 수도이다." --model {quote(base)} --model {quote(answer.highest_path)}'
    adapted = Adapted(
        answer=result.sentence, chosen=answer.keep.path if answer.keep else base, best_trained=answer.highest_path, checks=checks,
        report=result.report, next_steps=(compare, fill, *then),
    )  # fmt: skip
    write_json(out / "result.json", adapted.to_json())
    return adapted


OWN_DATA_COMMAND = (
    "coref-automl adapt --model bundled:ko-mini --source bundled:synthetic --out adapted"
    "    # or --model YOUR_MODEL --source local:YOUR_TEXTS.jsonl"
)
"""What to run after the demo, as it is or on your own model and texts."""

DEMO_TEXT = "영수는 시장에서 어머니를 만났다. 어머니는 영수의 손을 잡았다. 그는 어머니와 함께 집으로 돌아왔다."
"""The demo ends with the chains that the bundled head finds in this tale. An example, not a measurement."""


def demo_recipe(*, quick: bool = False) -> ExperimentRecipe:
    recipes = read_yaml(_DEMO)
    return from_mapping(ExperimentRecipe, overlaid(recipes["demo"], recipes["quick"] if quick else {}), _DEMO.name)


def demo(out: Path, *, quick: bool = False, lang: str | None = None, progress: Progress | None = None) -> Adapted:
    """Run the full pipeline on bundled data; the same call resumes."""
    recipe = replace(demo_recipe(quick=quick), out=str(out), lang=language(lang))
    return adapt(recipe, progress=progress, then=(OWN_DATA_COMMAND, f"coref-automl studio {quote(str(out))}"), timed=False)
