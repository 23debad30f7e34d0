"""The page of a tuning study. In: a FinishedStudy. Out: study.html: verdict, finalists, history, every trial."""

from __future__ import annotations

from shlex import quote
from typing import Any

from coref_automl.base.say import Say, in_korean, language
from coref_automl.base.store import write_text
from coref_automl.extras.pages import charts
from coref_automl.extras.pages.rendering import render_html
from coref_automl.extras.tune.finish import Final, Judgement
from coref_automl.extras.tune.outputs import FinishedStudy, StudyResult, lines_of, named, text_of
from coref_automl.extras.tune.recipe import TuneRecipe
from coref_automl.extras.tune.storage import JOURNAL, without_password
from coref_automl.report.page import Cell, Charts, Commands, Page, Section, Table, Text, Tone, estimate_cells, note, row


def write_study_page(study: FinishedStudy) -> None:
    write_text(study.page, render_html(study_page(study)))


def study_page(study: FinishedStudy) -> Page:
    say, recipe, final = Say(language(study.recipe.lang)), study.recipe, study.final
    trials, winner = study.result.trials, final.best
    first, *others = lines_of(final, recipe, study.label, study.confirm_name, say)
    sections = [
        Section("says", say("그 밖의 결과", "What else it says"), tuple(map(Text, others))),
        _end(study, final, say),
        _search(study, say),
        _trials(study, say),
        _again(recipe, study.result, say),
    ]
    selecting, judging = len(winner.select), len(final.judging)
    return Page(
        lang=say.lang,
        title=say(f"탐색 보고서: {recipe.study}", f"Study: {recipe.study}"),
        subtitle=say(
            f"{study.label}, 시도 {sum(trials.values())}개(완료 {trials['complete']}, 중단 {trials['pruned']}, "
            f"실패 {trials['failed']}), 선택에 시드 {selecting}개, 판정에 새 시드 {judging}개",
            f"{study.label}, {sum(trials.values())} trials ({trials['complete']} completed, {trials['pruned']} pruned, "
            f"{trials['failed']} failed), seeds: {selecting} to choose, {judging} new to judge",
        ),
        lead=say("새 시드로 고른 설정", "Chosen by fresh seeds"),
        headline=named(winner, say),
        sentence=first,
        cannot_tell=tuple(study.result.ability.lines()) if study.result.ability else (),
        sections=tuple(section for section in sections if section.blocks),
        colophon=("coref-automl tune",),
        notes=tuple(say(in_korean(note), note) for note in final.notes),
    )


def _end(study: FinishedStudy, final: Final, say: Say) -> Section:
    judgements = {judged.against: judged for judged in (final.comparison, final.over_default) if judged is not None}
    lines = []
    leads = [judgements[trial.number].verdict.interval if trial.number in judgements else None for trial in final.raced]
    for trial, lead in zip(final.raced, estimate_cells(leads, difference=True), strict=True):
        name = Cell(named(trial, say), "strong" if trial.number == final.winner else "")
        by_seed = " · ".join(map(_value, trial.select)) or "–"
        lines.append(row(name, _value(trial.nominated), by_seed, lead, _decision(judgements.get(trial.number), say)))
    head = (
        say("설정", "settings"), say("탐색 때 select %", "select % in the search"),
        say("새 시드별 select %", "select % by fresh seed"),
        say(f"최종 설정과의 차이 ({study.confirm_name}, 점)", f"the winner's lead on {study.confirm_name} (points)"),
        say("판정", "verdict"),
    )  # fmt: skip
    table = Table(head, tuple(lines), frozenset({1, 3}))
    return Section("end", say("마지막 비교", "The end"), (table, Text(note("tuning: seeds", say))))


def _decision(judgement: Judgement | None, say: Say) -> Cell:
    words: dict[str, tuple[str, str, Tone]] = {
        "better": ("유의한 차이 확인", "shown", "good"),
        "worse": ("더 나쁨 확인", "shown worse", "bad"),
        "futile": ("의미 있는 향상 없음", "no gain that matters", "quiet"),
    }
    if judgement is None:
        return Cell(say("판정하지 않음", "not judged"), "quiet")
    korean, english, tone = words.get(judgement.verdict.decision, ("유의한 차이 미확인", "not shown", "quiet"))
    return Cell(f"{say(korean, english)} ({len(judgement.seeds)})", tone)


def _search(study: FinishedStudy, say: Say) -> Section:
    rows: list[dict[str, Any]] = []
    best: float | None = None
    for trial in study.trials:
        value = trial.reports[max(trial.reports)] if trial.value is None and trial.reports else trial.value
        if trial.value is not None:
            best = trial.value if best is None else max(best, trial.value)
        state = say(charts.STATES[trial.state], trial.state)
        rows.append({"trial": trial.number, "state": state, "value": _percent(value), "best": _percent(best)})
    title = say("시도와 지금까지의 최고", "Trials, and the best so far")
    chart = Charts(((title, charts.trial_history(rows, say, study.label)),), wide=True)
    return Section("search", say("탐색 과정", "The search"), (chart,))


def _trials(study: FinishedStudy, say: Say) -> Section:
    tones: dict[str, Tone] = {"complete": "good", "failed": "bad"}
    lines = []
    for trial in sorted(study.trials, key=lambda trial: (1 if trial.value is None else -(trial.value or -1), trial.number)):
        cell = Cell(say(charts.STATES[trial.state], trial.state), tones.get(trial.state, "quiet"))
        settings = [text_of(trial.params[name]) if name in trial.params else "" for name in study.space.names]
        reason, origin = say(in_korean(trial.reason), trial.reason), trial.name or trial.origin
        lines.append(row(str(trial.number), cell, _value(trial.value), origin, *settings, reason))
    head = (say("시도", "trial"), say("상태", "state"), f"{study.label} %", "", *study.space.names, say("사유", "reason"))
    return Section("trials", say("모든 시도", "Every trial"), (Table(head, tuple(lines), frozenset(range(2, len(head) - 1))),))


def _again(recipe: TuneRecipe, result: StudyResult, say: Say) -> Section:
    command = "coref-automl re train" if recipe.task == "re" else "coref-automl train"
    journal = without_password(recipe.storage) if recipe.storage else f"{recipe.out}/{JOURNAL}"
    lines = (f"{command} --recipe {quote(str(result.best_recipe))}", f"optuna-dashboard {quote(journal)}")
    title = say("다시 학습하기, 대시보드로 보기", "Train it again; look at the study in a dashboard")
    return Section("again", say("다음", "Next"), (Commands(title, lines),))


def _value(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f}"


def _percent(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 4)
