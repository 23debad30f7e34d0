"""Before training: what it takes and can show is printed, and confirmed where that is needed. In: a Plan (`adapt`,
`study`). Out: a Preflight, printed, and the Plan to go on with, sized to the texts."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import RecipeError
from coref_automl.base.folders import EXPERIMENT, check_folder
from coref_automl.base.locks import claimed
from coref_automl.base.progress import Progress, duration, quiet
from coref_automl.base.say import align, in_words, language, say
from coref_automl.base.store import write_json
from coref_automl.extras.study.estimate import Preflight, plan_preflight, tokens_of, with_times
from coref_automl.extras.study.plan import FEWEST_STEPS, Plan, open_plan
from coref_automl.extras.study.recipe import ExperimentRecipe, kind_name
from coref_automl.extras.study.state import ExperimentState
from coref_automl.training.folder import check_disk_space

_LEAST_BATCH, _MOST_EPOCHS = 4, 10
"""For few texts: fewer rows say little about the texts, and more epochs memorize them."""
AGREED = "agreed.json"
"""In a study's folder: the tokens of every step whose time was shown, and confirmed where it is long."""
Confirm = Callable[[Preflight], bool]
"""Asks whether to go on with what a preflight says."""


def before_training(plan: Plan, progress: Progress, confirm: Confirm, *, fit: bool, timed: bool = True) -> Plan:
    """Print the preflight of `adapt` or `study`, and return the plan to go on with; `fit` sizes batch and epochs to the texts.

    A resumed study is not timed again, so nobody is asked about its hours, unless a step was added or has more tokens.
    """
    length_given = bool({"epochs", "max_tokens"} & plan.recipe.train.keys())
    plan = sized_to_texts(plan) if fit else plan
    preflight = plan_preflight(plan)
    check_disk_space(plan.out, preflight.disk)
    agreed = read_stored(plan.out / AGREED, dict[str, float]) if (plan.out / AGREED).is_file() else {}
    state = ExperimentState.of(plan)
    left = {step.label: tokens_of(plan, step) for step in plan.steps if timed and not state.is_closed(step)}
    is_more = any(tokens > agreed.get(step, 0.0) for step, tokens in left.items())
    if is_more:
        preflight = with_times(preflight, plan, progress)
    print_and_confirm(preflight, progress, confirm, length_given=length_given)
    if is_more:
        write_json(plan.out / AGREED, agreed | left)
    return plan


def sized_to_texts(plan: Plan) -> Plan:
    """The plan with a batch and epochs that give few texts enough steps; what the recipe sets stays as it is."""
    settings = plan.recipe.train
    if "max_tokens" in settings or {"batch", "epochs"} <= settings.keys():
        return plan
    usual = plan.first_run.plan
    rows, batch, epochs = usual.rows, usual.batch, float(settings.get("epochs", 1.0))
    if "batch" not in settings:
        while batch > _LEAST_BATCH and epochs * rows / batch < FEWEST_STEPS:
            batch //= 2
    if "epochs" not in settings and rows:
        epochs = float(min(_MOST_EPOCHS, max(1, math.ceil(FEWEST_STEPS * batch / rows))))
    sized_settings = {**settings, "epochs": epochs, **({"batch": batch} if batch != usual.batch else {})}
    sized = replace(plan, recipe=replace(plan.recipe, train=sized_settings))
    sized.check_runs()
    return sized


def study_preflight(recipe: ExperimentRecipe, *, only: Collection[str] = (), progress: Progress | None = None) -> Preflight:
    """Estimate a study, or its steps of these kinds, and refuse what the study would refuse. Nothing is trained.

    Sets and datasets that must be prepared for it stay in the study's folder, which goes on with them; a study that has not begun
    and needs nothing prepared leaves no folder.
    """
    progress, out = progress or quiet(), Path(recipe.out)
    check_folder(out, EXPERIMENT)
    with ExitStack() as stack:
        if out.exists() or not recipe.datasets:
            stack.enter_context(claimed(out, EXPERIMENT))
        else:
            out = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        plan = open_plan(recipe, out, progress)
        return with_times(plan_preflight(plan), plan, progress, only)


def print_and_confirm(preflight: Preflight, progress: Progress, confirm: Confirm, *, length_given: bool) -> None:
    """Print the preflight. Where it needs consent, refuse to train without it:

    too short   long   length given   consent to
    no          no     yes or no      nothing
    no          yes    yes or no      its hours
    yes         any    no             so few steps
    yes         no     yes            nothing: few steps were requested
    yes         yes    yes            its hours
    """
    for line in lines_of(preflight):
        progress.note(line)
    if preflight.too_short and not length_given:
        refusal = f"{_shortage(preflight)} Add texts, prepare shorter rows (--seq-len), or pass --yes to go on."
    elif preflight.is_long:
        refusal = "Nothing was trained; ask for fewer methods, trials, seeds or tokens, or pass --yes to go on."
    else:
        return
    if not confirm(preflight):
        raise RecipeError(refusal)


def lines_of(ahead: Preflight) -> list[str]:
    """What a preflight says, line by line."""
    size, ending = f"{ahead.batch} x {ahead.epochs:g}", "s" * (ahead.runs != 1)
    training = say(
        f"학습: 문서 {ahead.documents:,}개, 토큰 {ahead.tokens:,}개({ahead.length:,}토큰 행 {ahead.rows:,}개). "
        f"실행 {ahead.runs}개, 각 {ahead.steps:,}스텝(배치 x 에폭: {size}), {ahead.device}.",
        f"Training: {ahead.documents:,} documents, {ahead.tokens:,} tokens ({ahead.rows:,} rows of {ahead.length:,}). "
        f"{ahead.runs} run{ending} of {ahead.steps:,} steps each (batch x epochs: {size}) on {ahead.device}.",
    )
    lines = [training]
    if ahead.methods:
        lines.append(say("방법: ", "Methods: ") + "; ".join(ahead.methods) + ".")
    if left_out := ahead.left_out:
        reasons = ", ".join(say(f"{in_words(reason)} {count:,}개", f"{count:,} {reason}") for reason, count in left_out.items())
        whole = ahead.documents + sum(left_out.values())
        lines.append(say(f"문서 {whole:,}개 중 제외: {reasons}.", f"Left out of {whole:,} documents: {reasons}."))
    if ahead.evidence:
        lines += ahead.evidence.lines()
    if ahead.shares:
        lines += _cost_lines(ahead)
    if ahead.too_short:
        few = f"{ahead.steps}스텝으로는 거의 바뀌지 않습니다. {FEWEST_STEPS}스텝에 약 {ahead.enough_tokens:,}토큰이 필요합니다."
        lines.append(say(few, _shortage(ahead)))
    return lines


def _shortage(ahead: Preflight) -> str:
    return f"{ahead.steps} steps change next to nothing; {FEWEST_STEPS} take about {ahead.enough_tokens:,} tokens."


def _cost_lines(ahead: Preflight) -> list[str]:
    rows = [(say("단계", "step"), say("남음", "left"), say("시간", "time"), say("근거", "basis"))]
    for share in ahead.shares:
        left = say(f"{share.left}/{share.steps}", f"{share.left} of {share.steps}")
        rows.append((kind_name(share.kind), left, duration(share.seconds, language()), share.source))
    time, jobs = duration(ahead.seconds, language()), ahead.jobs
    if jobs > 1:
        least = duration(ahead.seconds / jobs, language())
        time += say(f" ({jobs}개씩 함께 하면 최소 {least})", f" (at least {least} with {jobs} at a time)")
    total = say(
        f"이 컴퓨터에서 약 {time}, 메모리는 학습 하나에 {ahead.memory:.1f} GB, 디스크는 최대 {ahead.disk:.1f} GB.",
        f"About {time} on this machine, {ahead.memory:.1f} GB of memory per training, up to {ahead.disk:.1f} GB of disk.",
    )
    return [*(f"  {line}" for line in align(rows)), total]
