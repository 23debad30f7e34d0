"""The page of a tuning study. In: a FinishedStudy. Out: study.html: verdict, finalists, history, every trial."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from coref_automl.progress import duration
from coref_automl.report import charts
from coref_automl.report.language import Say, language
from coref_automl.report.page import (
    Block,
    Cell,
    Charts,
    Commands,
    Page,
    Section,
    Table,
    Text,
    Tile,
    Tone,
    estimate_cells,
    row,
)
from coref_automl.report.rendering import render_html
from coref_automl.store import write_text
from coref_automl.tuning.finish import Final, judged_where, rival_sentence, sentence_of
from coref_automl.tuning.outputs import FinishedStudy, StudyResult
from coref_automl.tuning.reasons import reason_words
from coref_automl.tuning.recipe import REPORTS, TuneRecipe
from coref_automl.tuning.space import Dimension


def write_study_page(study: FinishedStudy) -> None:
    write_text(study.page, render_html(study_page(study)))


def study_page(study: FinishedStudy) -> Page:
    say, recipe, final = Say(language(study.recipe.lang)), study.recipe, study.finals[study.recipe.arm]
    counted, winner = study.result.trials, final.winner
    sections = [
        _finalists(study, final, say),
        _arms(study, say),
        _search(study, say),
        _dimensions(study, say),
        _trials(study, say),
        _again(recipe, study.result, say),
    ]
    return Page(
        lang=say.lang,
        title=say(f"탐색 보고서: {recipe.arm}", f"Study: {recipe.arm}"),
        subtitle=say(
            f"{study.label}, 시도 {sum(counted.values())}개, {_roles(final, say)}",
            f"{study.label}, {sum(counted.values())} trials, {_roles(final, say)}",
        ),
        lead=say("select로 고른 시도", "Chosen on select"),
        headline=_name(winner.number, winner.recommended, say),
        sentence=sentence_of(winner, final.opponent, study.label, study.confirm_name, say),
        tiles=(
            Tile(
                study.label,
                "–" if winner.confirmed is None else f"{100 * winner.confirmed:.2f}%",
                judged_where(winner, len(winner.confirm), study.confirm_name, say),
            ),
            Tile(say("완료", "completed"), str(counted["complete"])),
            Tile(say("중단", "cut"), str(counted["pruned"])),
            Tile(say("실패", "failed"), str(counted["failed"]), tone="bad" if counted["failed"] else ""),
        ),
        cannot_tell=_limits(final, say),
        sections=tuple(section for section in sections if section.blocks),
        colophon=("coref-automl tune",),
        notes=tuple(reason_words(note, say) for note in final.notes),
    )


def _finalists(study: FinishedStudy, final: Final, say: Say) -> Section:
    seeds, documents = [], []
    for one in final.finalists:
        seeds.append(one.against_reference.over_seeds if one.against_reference else None)
        documents.append(one.against_reference.over_documents if one.against_reference else None)
    over_seeds, over_documents = estimate_cells(seeds, difference=True), estimate_cells(documents, difference=True)
    lines = []
    for one, by_seed, by_document in zip(final.finalists, over_seeds, over_documents, strict=True):
        verdict = one.against_reference
        if one.number == final.reference:
            told = Cell(say("기준", "reference"), "quiet")
        elif verdict is None:
            told = Cell(say("판정 없음", "no verdict") if one is final.winner else say("판정하지 않음", "not judged"), "quiet")
        elif verdict.shown:
            told = Cell(say("유의한 차이 확인", "shown"), "good" if verdict.difference > 0 else "bad")
        elif verdict.over_seeds is None:
            told = Cell(say("알 수 없음", "cannot tell"), "quiet")
        else:
            told = Cell(say("유의한 차이 미확인", "not shown"), "quiet")
        name = Cell(_name(one.number, one.recommended, say), "strong" if one is final.winner else "")
        lines.append(
            row(name, _value(one.mean), _each(one.select), _value(one.confirmed), _each(one.confirm), by_seed, by_document, told)
        )  # fmt: skip
    head = (
        say("시도", "trial"), "select %", say("선택 시드별", "by choosing seed"),
        f"{study.confirm_name} %", _judging_seeds(final, say), say("차이: 시드 (점)", "difference over seeds (points)"),
        say("차이: 문서 (점)", "over documents (points)"), say("판정", "verdict"),
    )  # fmt: skip
    note = say(
        "차이는 추천 설정과의 차이입니다. 시드, 문서, 둘을 함께 본 신뢰구간이 모두 0을 포함하지 않아야 유의한 차이 확인입니다.",
        "Differences are from the recommended settings; shown only if the intervals over seeds, documents and both exclude 0.",
    )
    blocks = (Table(head, tuple(lines), frozenset({1, 3, 5, 6})), Text(note), Text(_who_chose(study, final, say)))
    return Section("finalists", say("마지막 비교", "The end"), blocks)


def _judging_seeds(final: Final, say: Say) -> str:
    if final.winner.judged_by_its_choice:
        return say("선택 시드별", "by choosing seed")
    return say("새 시드별", "by new seed")


def _roles(final: Final, say: Say) -> str:
    """How many seeds chose, and how many judged."""
    chose, judged = len(final.winner.select), len(final.winner.judging_seeds)
    if final.winner.judged_by_its_choice:
        return say(f"선택과 판정에 같은 시드 {chose}개", f"seeds: the same {chose} to choose and to judge")
    return say(f"선택에 시드 {chose}개, 판정에 새 시드 {judged}개", f"seeds: {chose} to choose, {judged} new to judge")


def _who_chose(study: FinishedStudy, final: Final, say: Say) -> str:
    where, winner, opponent = study.confirm_name, final.winner, final.opponent
    if winner.judged_by_its_choice:
        return say(
            f"이전 버전의 결과입니다. 같은 실행이 select에서 고르고 {where}에서 판정했습니다.",
            f"Written by an earlier version: the same runs chose on select and judged on {where}.",
        )
    judged = sorted({*winner.judging_seeds, *(opponent.judging_seeds if opponent else ())})
    chose, judging = _listed(final.choosing_seeds), _listed(judged) or "–"
    return say(
        f"시드 {chose}의 실행으로 select에서 골랐습니다. 선택에 쓰이지 않은 새 시드 {judging}의 실행으로 {where}에서 판정합니다.",
        f"Runs with seeds {chose} chose, on select. Runs with the new seeds {judging}, which chose nothing, judge on {where}.",
    )


def _arms(study: FinishedStudy, say: Say) -> Section:
    lines = []
    for arm in study.arms:
        final = study.finals.get(arm.name)
        lines.append(
            row(
                arm.name,
                *(str(arm.states[name]) for name in ("complete", "pruned", "failed")),
                f"{sum(trial.tokens or 0 for trial in arm.trials):,}",
                duration(sum(trial.wall or 0 for trial in arm.trials), say.lang),
                _value(arm.best),
                _value(final.winner.confirmed if final else None),
            )
        )
    head = (
        say("탐색", "study"), say("완료", "completed"), say("중단", "cut"), say("실패", "failed"), say("토큰", "tokens"),
        say("시간 (시도의 합)", "time (sum over trials)"), say("select 최고 %", "best on select %"), f"{study.confirm_name} %",
    )  # fmt: skip
    blocks: list[Block] = [Table(head, tuple(lines), frozenset(range(1, 8)))]
    if study.rivals:
        blocks.append(Text(rival_sentence(study.recipe.arm, study.rivals, say) or ""))
    return Section("arms", say("탐색과 무작위 탐색", "The tuner and random search"), tuple(blocks))


def _search(study: FinishedStudy, say: Say) -> Section:
    past: list[dict[str, Any]] = []
    courses: list[dict[str, Any]] = []
    for arm in study.arms:
        best: float | None = None
        for trial in arm.trials:
            value = trial.reports[max(trial.reports)] if trial.value is None and trial.reports else trial.value
            if trial.value is not None:
                best = trial.value if best is None else max(best, trial.value)
            told = charts.STATES[trial.state][say.lang]
            past.append({"study": arm.name, "trial": trial.number, "state": told, "value": _percent(value),
                         "best": _percent(best)})  # fmt: skip
            name = f"{arm.name} {trial.number}"
            courses += [{"name": name, "step": step, "value": _percent(at), "state": told} for step, at in trial.reports.items()]
    drawn = (
        (say("시도와 지금까지의 최고", "Trials, and the best so far"), charts.trial_history(past, say, study.label)),
        (say(f"예산의 {REPORTS}분의 1마다", "At each eighth of the budget"), charts.trial_courses(courses, say, study.label)),
    )
    return Section("search", say("탐색 과정", "The search"), (Charts(drawn),))


def _dimensions(study: FinishedStudy, say: Say) -> Section:
    own = next(arm for arm in study.arms if arm.name == study.recipe.arm)
    if len(own.completed) < 2:
        return Section("dimensions", "", ())
    lines = [
        {"name": _name(trial.number, False, say), "dimension": dimension.name, "value": _percent(trial.value),
         "place": round(_place(dimension, trial.params[dimension.name]), 4), "text": _text(trial.params[dimension.name])}
        for trial in own.completed for dimension in study.space if dimension.name in trial.params
    ]  # fmt: skip
    drawn = [(say("설정과 결과", "Settings and results"), charts.parallel(lines, study.space.names, say, study.label))]
    if own.importance:
        rows = [{"name": name, "share": share} for name, share in own.importance.items()]
        drawn.insert(0, (say("차원의 중요도", "Importance"), charts.importances(rows, say)))
    title = say("차원", "Dimensions")
    return Section("dimensions", title, tuple(Charts((one,), wide=True) for one in drawn))


def _place(dimension: Dimension, value: Any) -> float:
    """The position of a value in its dimension, from 0 to 1."""
    if dimension.choices:
        return dimension.choices.index(value) / max(1, len(dimension.choices) - 1)
    if dimension.log:
        return math.log(value / dimension.low) / math.log(dimension.high / dimension.low)
    return float((value - dimension.low) / (dimension.high - dimension.low))


def _trials(study: FinishedStudy, say: Say) -> Section:
    tones: dict[str, Tone] = {"complete": "good", "failed": "bad"}
    lines = []
    for arm in study.arms:
        for trial in sorted(arm.trials, key=lambda one: (1 if one.value is None else -(one.value or -1), one.number)):
            cell = Cell(charts.STATES[trial.state][say.lang], tones.get(trial.state, "quiet"))
            origin = say("추천", "recommended") if trial.origin else ""
            settings = [_text(trial.params[name]) if name in trial.params else "" for name in study.space.names]
            lines.append(
                row(f"{arm.name} {trial.number}", cell, _value(trial.value), origin, *settings, reason_words(trial.reason, say))
            )
    head = (say("시도", "trial"), say("상태", "state"), f"{study.label} %", "", *study.space.names, say("사유", "reason"))
    return Section("trials", say("모든 시도", "Every trial"), (Table(head, tuple(lines), frozenset(range(2, len(head) - 1))),))


def _again(recipe: TuneRecipe, result: StudyResult, say: Say) -> Section:
    command = "coref-automl re train" if recipe.task == "re" else "coref-automl train"
    journal = recipe.storage or f"{recipe.out}/study.journal"
    lines = (f"{command} --recipe {result.best_recipe}", f"optuna-dashboard {journal}")
    title = say("다시 학습하기, 대시보드로 보기", "Train it again; look at the study in a dashboard")
    return Section("again", say("다음", "Next"), (Commands(title, lines),))


def _limits(final: Final, say: Say) -> tuple[str, ...]:
    told, sides = [], [one for one in (final.winner, final.opponent) if one is not None]
    if final.winner.judged_by_its_choice:
        told.append(
            say(
                "고른 실행으로 판정해 최종 시도에 유리합니다. 같은 명령을 다시 실행하면 새 시드로 판정합니다.",
                "Judged by the runs that chose, which favours the winner; the same command judges it anew with new seeds.",
            )
        )
    elif any(one not in sides for one in final.finalists):
        told.append(
            say(
                "최종 시도와 추천 설정만 판정했습니다. 다른 후보는 판정하지 않았습니다.",
                "Only the winner and the recommended settings are judged; the other finalists are not.",
            )
        )
    if min(len(one.confirm) for one in sides) < 3:
        told.append(say("시드가 셋보다 적어 판정이 약합니다.", "With fewer than three seeds a verdict is hard to reach."))
    if final.reference is None:
        told.append(say("추천 설정이 없어 비교할 기준이 없습니다.", "No recommended settings completed: there is no reference."))
    return tuple(told)


def _name(number: int, recommended: bool, say: Say) -> str:
    return say(f"시도 {number}", f"trial {number}") + (say(" (추천 설정)", " (recommended settings)") if recommended else "")


def _each(values: Sequence[float]) -> str:
    return " · ".join(f"{100 * value:.2f}" for value in values) or "–"


def _value(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f}"


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def _percent(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 4)


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
