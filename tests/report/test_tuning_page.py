"""study.html: it speaks one language, and shows nothing that the trials cannot tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coref_automl.engine.job import Job, death
from coref_automl.progress import quiet
from coref_automl.report.language import Say
from coref_automl.report.page import Charts, Page, Table
from coref_automl.report.tuning_page import reason_words, study_page
from coref_automl.tuning.finish import finish
from coref_automl.tuning.outputs import FinishedStudy, StudyResult, states
from coref_automl.tuning.recipe import REPORTS
from coref_automl.tuning.table import arm_of
from tests.tuning.scripted import Script, ScriptedLauncher, rate, search, steady


def drawn(job: Job) -> bool:
    return rate(job) not in (0.5, 0.25)


def turned_round(job: Job) -> list[float | str]:
    """A lead that the next seed takes back."""
    return [(0.60 if drawn(job) else 0.56) + (0.1 if drawn(job) == (job.recipe["seed"] % 2 == 0) else 0.0)] * REPORTS


def page(out: Path, script: Script = turned_round, **changes: Any) -> tuple[Page, StudyResult]:
    made, _ = search(out, script, **changes)
    made.run()
    final = finish(made.study, made.problem, made.recipe, ScriptedLauncher(script), quiet(), wait=lambda: None)
    recipe = made.recipe
    result = StudyResult(recipe.arm, recipe.sampler, "real1_strict", states(made.study), final.sentence, final, "best.yaml")
    problem, finals = made.problem, {recipe.arm: final}
    shown = FinishedStudy(
        result, recipe, problem.label, problem.confirm_name, problem.space, (arm_of(made.study),), finals, {}, out / "study.html"
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
    assert "나은 절반에 들지 못함" in text or "짝지은 검정" in text
    assert "점수 없이 끝남" in text
    domain = next(iter(charts(shown).values()))["layer"][1]["encoding"]["color"]["scale"]["domain"]
    assert domain == ["완료", "중단", "실패"]


@pytest.mark.parametrize("lang", ["ko", "en"])
def test_the_verdict_has_its_intervals_in_both_languages(tmp_path: Path, lang: str) -> None:
    shown, result = page(tmp_path, lang=lang)
    assert result.final is not None
    verdict = result.final.verdict
    assert verdict is not None
    assert verdict.over_seeds is not None
    for span in (verdict.over_seeds, verdict.over_documents):
        assert f"[{100 * span.low:+.2f}, {100 * span.high:+.2f}]" in shown.sentence
    assert ("유의한 차이 미확인" if lang == "ko" else "is not shown to differ") in shown.sentence


@pytest.mark.parametrize("lang", ["ko", "en"])
def test_one_seed_cannot_tell_in_either_language(tmp_path: Path, lang: str) -> None:
    shown, _ = page(tmp_path, lang=lang, seeds=1)
    told = {"ko": "시드 하나로는 판정할 수 없으니 --seeds 3", "en": "one seed cannot tell, pass --seeds 3"}
    assert told[lang] in shown.sentence
    assert "우연" not in shown.sentence
    assert ("알 수 없음" if lang == "ko" else "cannot tell") in repr(table(shown, "finalists"))


@pytest.mark.parametrize("lang", ["ko", "en"])
def test_the_page_says_which_seeds_chose_and_which_judged(tmp_path: Path, lang: str) -> None:
    shown, _ = page(tmp_path, lang=lang)
    told = {
        "ko": (
            "선택에 시드 3개, 판정에 새 시드 3개",
            "시드 0, 1, 2의 실행으로 select에서",
            "새 시드 3, 4, 5의 실행으로 confirm에서",
        ),
        "en": (
            "seeds: 3 to choose, 3 new to judge",
            "Runs with seeds 0, 1, 2 chose",
            "with the new seeds 3, 4, 5, which",
        ),
    }
    subtitle, chose, judged = told[lang]
    assert subtitle in shown.subtitle
    section = repr(next(section for section in shown.sections if section.id == "finalists"))
    assert chose in section
    assert judged in section
    not_judged = "판정하지 않음" if lang == "ko" else "not judged"
    assert repr(table(shown, "finalists")).count(not_judged) == 2


def test_the_time_of_a_study_is_called_a_sum_over_its_trials(tmp_path: Path) -> None:
    assert "time (sum over trials)" in table(page(tmp_path, lang="en")[0], "arms").head


def test_importance_is_left_out_where_all_trials_are_equal(tmp_path: Path) -> None:
    assert "Importance" in charts(page(tmp_path / "differ", steady, lang="en", trials=8)[0])
    assert "Importance" not in charts(page(tmp_path / "equal", lambda _: [0.5] * REPORTS, lang="en", trials=8)[0])


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (
            "worse than trial 3 at 2/8 of the budget: 4.5 points, p 0.0010 (paired test on select)",
            "예산의 2/8에서 시도 3보다 4.5점 낮음, p 0.0010 (select의 짝지은 검정)",
        ),
        ("CUDA out of memory.", "CUDA out of memory."),
    ],
)
def test_reasons_of_the_engine_are_told_in_korean_and_those_of_training_stay(reason: str, told: str) -> None:
    assert reason_words(reason, Say("ko")) == told
    assert reason_words(reason, Say("en")) == reason


def test_the_end_of_a_process_is_told_in_korean(tmp_path: Path) -> None:
    job = Job("mlm", "key", str(tmp_path), {})
    assert reason_words(death(-9, job, " twice"), Say("ko")) == "프로세스가 강제로 끝남 (신호 9) (두 번)"
    assert reason_words(death(1, job), Say("ko")).startswith("프로세스가 상태 1로 끝남")
