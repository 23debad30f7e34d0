"""study.html: it speaks one language, and shows nothing that the trials cannot tell."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coref_automl.base.job import Job, crash_reason
from coref_automl.base.progress import quiet
from coref_automl.base.say import Say, in_korean
from coref_automl.extras.tune import page as tuning_page
from coref_automl.extras.tune.choosing import JobRunner
from coref_automl.extras.tune.finish import finish
from coref_automl.extras.tune.outputs import FinishedStudy, StudyResult, lines_of, states, trials_of
from coref_automl.extras.tune.page import study_page
from coref_automl.extras.tune.recipe import REPORTS
from coref_automl.report.page import Charts, Commands, Page, Table
from tests.extras.tune.scripted import Script, ScriptedLauncher, rate, search, steady


def drawn(job: Job) -> bool:
    return rate(job) not in (0.5, 0.25)


def turned_round(job: Job) -> list[float | str]:
    """A lead that the next seed takes back."""
    return [(0.57 if drawn(job) else 0.56) + (0.1 if drawn(job) == (job.recipe["seed"] % 2 == 0) else 0.0)] * REPORTS


def page(out: Path, script: Script = turned_round, **changes: Any) -> tuple[Page, StudyResult]:
    done, _ = search(out, script, **changes)
    done.run()
    final = finish(
        done.study,
        done.recipe,
        JobRunner(done.problem, ScriptedLauncher(script), quiet(), lambda: None),
    )
    recipe = done.recipe
    problem, say = done.problem, Say(recipe.lang or "en")
    lines = lines_of(final, recipe, problem.label, problem.confirm_name, say)
    result = StudyResult("study", "real1", states(done.study), tuple(lines), final, None, "best.yaml")
    shown = FinishedStudy(
        result, recipe, problem.label, problem.confirm_name, problem.space, trials_of(done.study), final, out / "study.html"
    )
    return study_page(shown), result


def charts(shown: Page) -> dict[str, dict[str, Any]]:
    blocks = [block for section in shown.sections for block in section.blocks if isinstance(block, Charts)]
    return {title: spec for block in blocks for title, spec in block.charts}


def table(shown: Page, name: str) -> Table:
    section = next(section for section in shown.sections if section.id == name)
    return next(block for block in section.blocks if isinstance(block, Table))


def test_the_korean_page_names_states_legends_and_reasons_in_korean(tmp_path: Path) -> None:
    count = iter(range(100))

    def script(job: Job) -> list[float | str]:
        if drawn(job) and next(count) == 0:
            return ["fail: no score: it ended without a score"]
        return steady(job)

    shown, _ = page(tmp_path, script, prune=True, trials=8, lang="ko")
    text = json.dumps([repr(section) for section in shown.sections], ensure_ascii=False)
    for english in ("'complete'", "'pruned'", "'failed'", "without a score", "of the budget", "better half", "'trial "):
        assert english not in text
    assert "상위 절반에 들지 못함" in text
    assert "점수 없이 끝남" in text
    domain = next(iter(charts(shown).values()))["layer"][1]["encoding"]["color"]["scale"]["domain"]
    assert domain == ["완료", "중단", "실패"]


@pytest.mark.parametrize("lang", ["ko", "en"])
def test_the_verdict_has_its_intervals_in_both_languages(tmp_path: Path, lang: str) -> None:
    shown, result = page(tmp_path, lang=lang)
    assert result.final is not None
    assert result.final.comparison is not None
    span = result.final.comparison.verdict.interval
    assert f"[{100 * span.low:+.2f}, {100 * span.high:+.2f}]" in shown.sentence
    assert ("유의한 차이 미확인" if lang == "ko" else "is not shown to differ") in shown.sentence


@pytest.mark.parametrize("lang", ["ko", "en"])
def test_the_page_says_how_many_seeds_chose_and_judged(tmp_path: Path, lang: str) -> None:
    shown, result = page(tmp_path, lang=lang)
    assert result.final is not None
    judged = len(result.final.judging)
    subtitles = {"ko": f"선택에 시드 4개, 판정에 새 시드 {judged}개", "en": f"seeds: 4 to choose, {judged} new to judge"}
    assert subtitles[lang] in shown.subtitle
    assert ("판정하지 않음" if lang == "ko" else "not judged") in repr(table(shown, "end"))


@pytest.mark.parametrize(
    ("reason", "korean"),
    [
        (
            "not in the better half of its objective at 2/4 of the budget",
            "예산의 2/4에서 같은 목표의 상위 절반에 들지 못함",
        ),
        ("CUDA out of memory.", "CUDA out of memory."),
    ],
)
def test_reasons_of_the_engine_are_told_in_korean_and_those_of_training_stay(reason: str, korean: str) -> None:
    assert in_korean(reason) == korean


def test_the_end_of_a_process_is_told_in_korean(tmp_path: Path) -> None:
    job = Job("mlm", "key", str(tmp_path), {})
    assert in_korean(crash_reason(-9, job, " twice")) == "프로세스가 강제로 끝남 (신호 9, 두 번)"
    assert in_korean(crash_reason(1, job)).startswith("프로세스가 상태 1(으)로 끝남: ")


def test_the_next_commands_run_as_printed_and_hold_no_password(tmp_path: Path) -> None:
    """Folders may have blanks in their names; a page is passed on, and the password of its storage is not."""
    recipe = search(tmp_path / "my study")[0].recipe
    result = StudyResult("study", "real1", {}, (), best_recipe=str(tmp_path / "my study" / "best-recipe.yaml"))
    shared = replace(recipe, storage="postgresql://me:secret@host/studies")
    (own,), (theirs,) = (tuning_page._again(asked, result, Say("en")).blocks for asked in (recipe, shared))
    assert isinstance(own, Commands)
    assert isinstance(theirs, Commands)
    train, dashboard = map(shlex.split, own.lines)
    assert train == ["coref-automl", "train", "--recipe", f"{tmp_path}/my study/best-recipe.yaml"]
    assert dashboard == ["optuna-dashboard", f"{tmp_path}/my study/study.journal"]
    assert shlex.split(theirs.lines[1]) == ["optuna-dashboard", "postgresql://me:***@host/studies"]
