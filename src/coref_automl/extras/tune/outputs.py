"""What a study says and leaves behind. In: its end. Out: lines for people, the first of which is the verdict; best-recipe.yaml,
best-model/, result.json, trials.csv, and a FinishedStudy for its page."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coref_automl.base.config import to_yaml
from coref_automl.base.folders import remove
from coref_automl.base.records import Estimate, Record
from coref_automl.base.say import Say, align, in_words, language
from coref_automl.base.store import atomic_write, write_json, write_text
from coref_automl.comparison.power import Evidence
from coref_automl.extras.tune.choosing import TrialCandidate
from coref_automl.extras.tune.finish import Final, Judgement
from coref_automl.extras.tune.problem import Problem
from coref_automl.extras.tune.recipe import REPORTS, TuneRecipe
from coref_automl.extras.tune.score import guard_of
from coref_automl.extras.tune.search import origin_of
from coref_automl.extras.tune.space import Space
from coref_automl.extras.tune.storage import counts

TABLE = "trials.csv"
STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running"}
_KOREAN = {"complete": "완료", "pruned": "중단", "failed": "실패", "running": "진행 중"}
_ONLY_FOR_RESUMING = ("optimizer*", "scheduler*", "rng_state*", "scaler*")


@dataclass(frozen=True, slots=True)
class StudyResult(Record):
    """What a study leaves behind. `final` is None if other machines still run trials of it; `told` holds its lines."""

    study: str
    metric: str
    trials: dict[str, int]
    told: tuple[str, ...]
    final: Final | None = None
    ability: Evidence | None = None
    best_recipe: str | None = None
    weights: str | None = None
    page: str | None = None
    remembered: str | None = None

    @property
    def sentence(self) -> str:
        return self.told[0]

    def lines(self) -> list[str]:
        say = Say(language())
        by_state = [(say(_KOREAN[state], state), count) for state, count in self.trials.items() if count]
        counted = ", ".join(say(f"{state} {count}개", f"{count} {state}") for state, count in by_state)
        lines = [f"{self.study}: {counted}", *self.told]
        lines += map(in_words, self.final.notes if self.final else ())
        paths = (
            (say("레시피", "recipe"), self.best_recipe),
            (say("가중치", "weights"), self.weights),
            (say("보고서", "report"), self.page),
            (say("포트폴리오에 추가", "added to your portfolio"), self.remembered),
        )
        return lines + align([(name, path) for name, path in paths if path])


@dataclass(frozen=True, slots=True)
class TrialRow(Record):
    """One trial. `value` is None unless it completed; `reports` holds its score at each quarter of the budget."""

    number: int
    state: str
    value: float | None
    origin: str
    name: str
    params: dict[str, Any]
    reports: dict[int, float]
    tokens: int | None
    wall: float | None
    reason: str
    log: str


@dataclass(frozen=True, slots=True)
class FinishedStudy:
    """Everything that the page of a study shows."""

    result: StudyResult
    recipe: TuneRecipe
    label: str
    confirm_name: str
    space: Space
    trials: tuple[TrialRow, ...]
    final: Final
    page: Path


Draw = Callable[[FinishedStudy], None]
"""Draws a study's page."""


def states(study: Any) -> dict[str, int]:
    """Count the trials by state."""
    ended = [STATES.get(trial.state.name) for trial in study.get_trials(deepcopy=False) if counts(trial)]
    return {state: ended.count(state) for state in STATES.values()}


def write_outputs(
    study: Any, problem: Problem, recipe: TuneRecipe, final: Final, out: Path, draw: Draw | None, remembered: Path | None
) -> StudyResult:
    recipe_path, model_path, page = out / "best-recipe.yaml", out / "best-model", out / "study.html"
    _keep_winner(problem, final, recipe_path, model_path, out)
    lines = lines_of(final, recipe, problem.label, problem.confirm_name, Say(language()))
    result = StudyResult(
        recipe.study, problem.metric, states(study), tuple(lines), final, problem.power(), str(recipe_path), str(model_path),
        str(page) if draw is not None else None, str(remembered) if remembered else None,
    )  # fmt: skip
    write_json(out / "result.json", result.to_json())
    trials = trials_of(study)
    write_table(trials, problem, out / TABLE)
    if draw is not None:
        draw(FinishedStudy(result, recipe, problem.label, problem.confirm_name, problem.space, trials, final, page))
    return result


def _keep_winner(problem: Problem, final: Final, recipe_path: Path, model_path: Path, out: Path) -> None:
    """Write the recipe that trains the winner again, and the weights of its first judging seed: no run is picked by its score."""
    write_text(recipe_path, to_yaml(problem.best_recipe(final.recommended.params, out / "best-run")))
    seeds = final.comparison.seeds if final.comparison else final.judging
    source = problem.weights(final.recommended.jobs(problem, seeds[:1], confirm=True)[0])
    part = out / f".{model_path.name}.part"
    remove(part)
    shutil.copytree(source, part, ignore=shutil.ignore_patterns(*_ONLY_FOR_RESUMING))
    remove(model_path)
    part.rename(model_path)


def trials_of(study: Any) -> tuple[TrialRow, ...]:
    """Return the trials that count and have started."""
    started = [trial for trial in study.get_trials(deepcopy=False) if counts(trial) and trial.state.name in STATES]
    return tuple(map(_row, started))


def _row(trial: Any) -> TrialRow:
    facts, state = trial.user_attrs, STATES[trial.state.name]
    texts = {name: str(facts.get(name, "")) for name in ("name", "reason", "log")}
    return TrialRow(
        number=trial.number, state=state, value=trial.value if state == "complete" else None, origin=origin_of(trial),
        params=dict(trial.params), reports=dict(trial.intermediate_values), tokens=facts.get("tokens"), wall=facts.get("wall"),
        **texts,
    )  # fmt: skip


def write_table(trials: Sequence[TrialRow], problem: Problem, path: Path) -> None:
    head = ["trial", "state", problem.metric, "origin", "name", *problem.space.names, "tokens", "wall", "reason", "log"]
    head += [f"at {step}/{REPORTS}" for step in range(1, REPORTS + 1)]
    with atomic_write(path) as handle:
        rows = csv.writer(handle, lineterminator="\n")  # None becomes an empty cell
        rows.writerow(head)
        for trial in trials:
            settings = [trial.params.get(name) for name in problem.space.names]
            reports = [trial.reports.get(step) for step in range(1, REPORTS + 1)]
            costs = (trial.tokens, trial.wall, trial.reason, trial.log)
            rows.writerow([trial.number, trial.state, trial.value, trial.origin, trial.name, *settings, *costs, *reports])


_ORIGINS = {
    "default": ("train의 기본 설정", "train's default"),
    "recommended": ("추천 설정", "the recommended settings"),
    "portfolio": ("포트폴리오", "the portfolio"),
    "drawn": ("탐색", "the search"),
}


def sentence_of(final: Final, label: str, where: str, say: Say) -> str:
    """Say whether the winner is better than the best of what comes before it."""
    reference, comparison = final.candidate(final.reference), final.comparison
    best = named(final.best, say)
    if reference is None:
        reached = f"{label} {100 * sum(final.confirmed) / len(final.confirmed):.2f}%"
        return say(
            f"{best}: 시도한 설정 중 가장 좋으며({where}, {reached}), 비교할 기준이 없습니다.",
            f"{_begin(best)} is the best tried ({reached} on {where}), and nothing comes before it to compare it with: keep it.",
        )
    other = named(reference, say)
    if comparison is None:
        return say(
            f"{best}: 가장 좋지만 {other}과(와) 함께 완료된 새 시드가 없어 판정할 수 없습니다. 같은 명령을 다시 실행하세요.",
            f"{_begin(best)} is the best tried; without a new seed that it and {other} both completed there is no verdict: "
            "run the same command again.",
        )
    gain, seeds, most = _gain(comparison, label, say), len(comparison.seeds), f"{100 * comparison.verdict.most:.2f}"
    by_decision = {
        "better": say(f"{best}: {other}보다 낫습니다. {gain}.", f"{_begin(best)} is better than {other}: {gain}."),
        "worse": say(f"{best}: {other}보다 나쁩니다. {gain}.", f"{_begin(best)} is worse than {other}: {gain}; keep those."),
        "futile": say(
            f"{best}: {other}보다 {most}점 넘게 낫지는 않습니다(95%). {gain}.",
            f"{_begin(best)} gains no more than {most} points over {other} (95%): {gain}.",
        ),
    }
    not_shown = say(
        f"{best}: {other}과(와) 유의한 차이 미확인. {gain}.", f"{_begin(best)} is not shown to differ from {other}: {gain}."
    )
    return by_decision.get(comparison.verdict.decision, not_shown) + say(
        f" ({where}, 새 시드 {seeds}쌍)", f" On {where}, {seeds} pair{'s' * (seeds != 1)} of new seeds."
    )


def lines_of(final: Final, recipe: TuneRecipe, label: str, where: str, say: Say) -> list[str]:
    """The verdict, the gain over `train`'s default, the search by itself, tokens, guards and settings that mattered."""
    lines: list[str] = []

    def add(ko: str, en: str) -> None:
        lines.append(say(ko, en))

    if final.refused is not None:
        best, recommended = named(final.best, say), named(final.recommended, say)
        measured = final.comparison is not None and guard_of(final.refused).metric in final.comparison.guards
        unmeasured = say("측정하지 못해", "nothing could be measured for the guard")
        why = say("만족하지 않아", "it breaks the guard") if measured else unmeasured
        add(
            f"{best}: 조건 {final.refused}을(를) {why} 채택하지 않습니다. 레시피와 가중치는 {recommended}의 것입니다.",
            f"{_begin(best)} is refused: {why} {final.refused}. Recipe and weights are those of {recommended}.",
        )
    lines.append(sentence_of(final, label, where, say))
    if final.over_default is not None:
        gain = _gain(final.over_default, label, say)
        add(f"train의 기본 설정(mlm) 대비: {gain}.", f"Over train's plain default (mlm): {gain}.")
    lines += _search_lines(final, recipe, say)
    if final.share is not None:
        share = f"{100 * final.share:.0f}%"
        add(
            f"비교 대상의 최종 점수에 토큰의 {share}에서 도달했습니다(select, 학습률이 아직 내려가는 중).",
            f"It reached the reference's final score at {share} of the tokens (on select, before its rate had fallen).",
        )
    if final.unmet is not None:
        add(
            f"모든 조건을 만족한 탐색 설정이 없습니다. 가장 좋은 설정이 어긴 조건: {final.unmet}.",
            f"No drawn setting met all guards; the best one broke {final.unmet}.",
        )
    for name, difference in (final.comparison.guards if final.comparison else {}).items():
        add(f"조건 {name}: {_points(difference)}.", f"Guard {name}: {_points(difference)}.")
    if final.effects:
        effects = "; ".join(f"{e.name} {text_of(e.value)} -> {text_of(e.back)}: {-100 * e.loss:+.2f}" for e in final.effects)
        add(f"설정을 하나씩 되돌리면 (점): {effects}.", f"One setting back at a time, in points: {effects}.")
    return lines


def _search_lines(final: Final, recipe: TuneRecipe, say: Say) -> list[str]:
    """Say how much the search itself can gain, if the winner is not one of its settings."""
    if final.best.is_sampled or final.ceiling is None:
        return []
    most = f"{100 * max(0.0, final.ceiling):.2f}"
    line = say(
        f"시도한 설정 가운데 {most}점 넘게 더 나은 것은 없습니다(95%).",
        f"No setting tried gains more than {most} points over it (95%).",
    )
    if final.stopped_early:
        line += say(" 그래서 탐색을 일찍 마쳤습니다.", f" The search stopped early: {recipe.worth:g} points would matter.")
    return [line]


def _gain(judgement: Judgement, label: str, say: Say) -> str:
    return say(f"{label} {_points(judgement.verdict.interval)}", f"{_points(judgement.verdict.interval)} of {label}")


def _points(gain: Estimate) -> str:
    return f"{100 * gain.value:+.2f} [{100 * gain.low:+.2f}, {100 * gain.high:+.2f}]"


def named(candidate: TrialCandidate, say: Say) -> str:
    """Name a candidate for people: its origin, its name if it has one, its number."""
    origin = say(*_ORIGINS[candidate.origin])
    number = say(f"시도 {candidate.number}", f"trial {candidate.number}")
    average = say(", 평균", ", averaged") if candidate.params.get("average") else ""
    return f"{origin} ({candidate.name}, {number}{average})" if candidate.name else f"{origin} ({number}{average})"


def _begin(text: str) -> str:
    return text[:1].upper() + text[1:]


def text_of(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
