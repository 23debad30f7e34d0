"""study.html. In: a finished study and the arms beside it. Out: one file: verdict, finalists, history, every trial."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coref_automl.comparison.page import Block, Cell, Charts, Commands, Page, Say, Section, Table, Text, Tile, estimate_cells, row
from coref_automl.comparison.render import render_html
from coref_automl.progress import duration
from coref_automl.store import write_text
from coref_automl.tuning import charts
from coref_automl.tuning.finish import Final, against_other_arms, sentence_of
from coref_automl.tuning.problem import Problem
from coref_automl.tuning.recipe import REPORTS, TuneRecipe
from coref_automl.tuning.table import STATES, arm_of, reason_words, shown, state_word

if TYPE_CHECKING:
    from coref_automl.tuning.outputs import StudyResult

_LEAST = 5
"""Fewer completed trials say nothing about which dimension matters."""


def write_page(
    result: StudyResult, studies: Sequence[Any], problem: Problem, recipe: TuneRecipe, finals: Mapping[str, Final], path: Path
) -> None:
    write_text(path, render_html(page_of(result, studies, problem, recipe, finals)))


def page_of(
    result: StudyResult, studies: Sequence[Any], problem: Problem, recipe: TuneRecipe, finals: Mapping[str, Final]
) -> Page:
    say = Say(recipe.lang)
    final = result.final
    assert final is not None  # a page is written at the end
    own = next(study for study in studies if study.study_name == recipe.arm)
    counted = result.trials
    winner = final.winner
    sections = [
        _finalists(final, problem, say),
        _arms(studies, finals, problem, against_other_arms(problem, recipe, finals, say), say),
        _search(studies, problem, say),
        _dimensions(own, problem, say),
        _trials(studies, problem, say),
        _again(recipe, result, say),
    ]
    lead = say("`select`로 고른 시도", "Chosen on select")
    return Page(
        lang=recipe.lang,
        title=say(f"탐색 보고서: {recipe.arm}", f"Study: {recipe.arm}"),
        subtitle=say(
            f"{problem.label}, 시도 {sum(counted.values())}개, 마지막 비교는 시드 {recipe.seeds}개",
            f"{problem.label}, {sum(counted.values())} trials, finalists with {recipe.seeds} seeds",
        ),
        lead=lead.replace("`", ""),
        headline=_name(winner.number, winner.recommended, say),
        sentence=sentence_of(winner, final.reference, problem, recipe.seeds, say),
        tiles=(
            Tile(problem.label, f"{100 * winner.confirmed:.2f}%", problem.confirm_name),
            Tile(say("끝까지", "completed"), str(counted["complete"])),
            Tile(say("중단", "cut"), str(counted["pruned"])),
            Tile(say("실패", "failed"), str(counted["failed"]), tone="bad" if counted["failed"] else ""),
        ),
        cannot_tell=_limits(final, recipe, say),
        sections=tuple(section for section in sections if section.blocks),
        colophon=("coref-automl tune",),
        notes=tuple(reason_words(note, say) for note in final.notes),
    )


def _finalists(final: Final, problem: Problem, say: Say) -> Section:
    seeds, documents = [], []
    for one in final.finalists:
        seeds.append(one.against_reference.over_seeds if one.against_reference else None)
        documents.append(one.against_reference.over_documents if one.against_reference else None)
    over_seeds, over_documents = estimate_cells(seeds, difference=True), estimate_cells(documents, difference=True)
    lines = []
    for one, by_seed, by_document in zip(final.finalists, over_seeds, over_documents, strict=True):
        verdict = one.against_reference
        if verdict is None:
            told = Cell(say("기준", "reference"), "quiet")
        elif verdict.shown:
            told = Cell(say("보임", "shown"), "good" if verdict.difference > 0 else "bad")
        elif verdict.over_seeds is None:
            told = Cell(say("알 수 없음", "cannot tell"), "quiet")
        else:
            told = Cell(say("우연일 수 있음", "may be noise"), "quiet")
        name = Cell(_name(one.number, one.recommended, say), "strong" if one is final.winner else "")
        lines.append(
            row(name, f"{100 * one.mean:.2f}", _each(one.select), f"{100 * one.confirmed:.2f}", _each(one.confirm), by_seed,
                by_document, told)
        )  # fmt: skip
    head = (
        say("시도", "trial"), "select %", say("시드별", "by seed"), f"{problem.confirm_name} %", say("시드별", "by seed"),
        say("차이: 시드 (점)", "difference over seeds (points)"), say("차이: 문서 (점)", "over documents (points)"),
        say("판정", "verdict"),
    )  # fmt: skip
    note = say(
        "차이는 추천 설정과의 차이입니다. 시드의 구간, 문서의 구간, 둘을 함께 본 구간이 모두 0을 벗어나야 '보임'입니다.",
        "Differences are from the recommended settings; shown only if the intervals over seeds, documents and both exclude 0.",
    )
    return Section("finalists", say("마지막 비교", "The end"), (Table(head, tuple(lines), frozenset({1, 3, 5, 6})), Text(note)))


def _arms(studies: Sequence[Any], finals: Mapping[str, Final], problem: Problem, rival: str | None, say: Say) -> Section:
    lines = []
    for arm in map(arm_of, studies):
        final = finals.get(arm.name)
        lines.append(
            row(
                arm.name,
                *(str(arm.states[name]) for name in ("complete", "pruned", "failed")),
                f"{arm.tokens:,}",
                duration(arm.seconds, say.lang),
                f"{100 * arm.best:.2f}" if arm.best is not None else "–",
                f"{100 * final.winner.confirmed:.2f}" if final else "–",
            )
        )
    head = (
        say("탐색", "study"), say("끝까지", "completed"), say("중단", "cut"), say("실패", "failed"), say("토큰", "tokens"),
        say("시간 (시도의 합)", "time (sum over trials)"), say("select 최고 %", "best on select %"), f"{problem.confirm_name} %",
    )  # fmt: skip
    blocks: list[Block] = [Table(head, tuple(lines), frozenset(range(1, 8)))]
    blocks += [Text(rival)] if rival else []
    return Section("arms", say("탐색과 무작위 탐색", "The tuner and random search"), tuple(blocks))


def _search(studies: Sequence[Any], problem: Problem, say: Say) -> Section:
    past: list[dict[str, Any]] = []
    courses: list[dict[str, Any]] = []
    for study in studies:
        best: float | None = None
        for trial in shown(study):
            state, values = STATES[trial.state.name], trial.intermediate_values
            value = trial.value if state == "complete" else values[max(values)] if values else None
            if state == "complete" and value is not None:
                best = value if best is None else max(best, value)
            told = state_word(state, say)
            past.append({"study": study.study_name, "trial": trial.number, "state": told, "value": _percent(value),
                         "best": _percent(best)})  # fmt: skip
            name = f"{study.study_name} {trial.number}"
            courses += [{"name": name, "step": step, "value": _percent(at), "state": told} for step, at in values.items()]
    drawn = (
        (say("시도와 지금까지의 최고", "Trials, and the best so far"), charts.history(past, say, problem.label)),
        (say(f"예산의 {REPORTS}분의 1마다", "At each eighth of the budget"), charts.courses(courses, say, problem.label)),
    )
    return Section("search", say("탐색 과정", "The search"), (Charts(drawn),))


def _dimensions(study: Any, problem: Problem, say: Say) -> Section:
    done = [trial for trial in shown(study) if trial.state.name == "COMPLETE"]
    if len(done) < 2:
        return Section("dimensions", "", ())
    lines = [
        {"name": _name(trial.number, False, say), "dimension": dimension.name, "value": _percent(trial.value),
         "place": round(charts.place(dimension, trial.params[dimension.name]), 4), "text": _text(trial.params[dimension.name])}
        for trial in done for dimension in problem.space if dimension.name in trial.params
    ]  # fmt: skip
    drawn = [(say("설정과 결과", "Settings and results"), charts.parallel(lines, problem.space.names, say, problem.label))]
    shares = importance(study) if len(done) >= _LEAST else {}
    if shares:
        rows = [{"name": name, "share": share} for name, share in shares.items()]
        drawn.insert(0, (say("차원의 중요도", "Importance"), charts.importances(rows, say)))
    title = say("차원", "Dimensions")
    return Section("dimensions", title, tuple(Charts((one,), wide=True) for one in drawn))


def importance(study: Any) -> dict[str, float]:
    """PED-ANOVA: how far each dimension sets the best quarter apart; empty where the trials cannot tell."""
    import optuna

    if len({trial.value for trial in shown(study) if trial.state.name == "COMPLETE"}) < 2:
        return {}  # equal values have no best quarter
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of dimensions that few trials drew; the page shows how few there were
            found = optuna.importance.get_param_importances(study)
    except (ValueError, RuntimeError):
        return {}
    return {name: float(share) for name, share in found.items()}


def _trials(studies: Sequence[Any], problem: Problem, say: Say) -> Section:
    tones = {"complete": "good", "failed": "bad"}
    lines = []
    for study in studies:
        for trial in sorted(
            shown(study), key=lambda one: (-(one.value or -1) if one.state.name == "COMPLETE" else 1, one.number)
        ):
            state = STATES[trial.state.name]
            cell = Cell(state_word(state, say), tones.get(state, "quiet"))  # type: ignore[arg-type]
            value = f"{100 * trial.value:.2f}" if state == "complete" else "–"
            origin = say("추천", "recommended") if trial.user_attrs.get("origin") else ""
            settings = [_text(trial.params[name]) if name in trial.params else "" for name in problem.space.names]
            reason = reason_words(str(trial.user_attrs.get("reason", "")), say)
            lines.append(row(f"{study.study_name} {trial.number}", cell, value, origin, *settings, reason))
    head = (say("시도", "trial"), say("상태", "state"), f"{problem.label} %", "", *problem.space.names, say("까닭", "reason"))
    return Section("trials", say("모든 시도", "Every trial"), (Table(head, tuple(lines), frozenset(range(2, len(head) - 1))),))


def _again(recipe: TuneRecipe, result: StudyResult, say: Say) -> Section:
    command = "coref-automl re train" if recipe.task == "re" else "coref-automl train"
    journal = recipe.storage or f"{recipe.out}/study.journal"
    lines = (f"{command} --recipe {result.best_recipe}", f"optuna-dashboard {journal}")
    title = say("다시 학습하기, 대시보드로 보기", "Train it again; look at the study in a dashboard")
    return Section("again", say("다음", "Next"), (Commands(title, lines),))


def _limits(final: Final, recipe: TuneRecipe, say: Say) -> tuple[str, ...]:
    told = [
        say(
            "첫 시드는 시도를 고를 때도 쓰였습니다. 나머지 시드는 그렇지 않습니다.",
            "The first seed also served to choose the trials; the further seeds did not.",
        )
    ]
    if recipe.seeds < 3:
        told.append(say("시드가 셋보다 적어 판정이 약합니다.", "With fewer than three seeds a verdict is hard to reach."))
    if final.reference is None:
        told.append(say("추천 설정이 없어 비교할 기준이 없습니다.", "No recommended settings completed: there is no reference."))
    return tuple(told)


def _name(number: int, recommended: bool, say: Say) -> str:
    return say(f"시도 {number}", f"trial {number}") + (say(" (추천 설정)", " (recommended settings)") if recommended else "")


def _each(values: Sequence[float]) -> str:
    return " · ".join(f"{100 * value:.2f}" for value in values)


def _percent(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 4)


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
