"""What a study says at its end. In: a Final. Out: lines for people, the first of which is the verdict. Korean or English."""

from __future__ import annotations

from typing import Any

from coref_automl.records import Estimate
from coref_automl.say import Say
from coref_automl.tuning.choosing import Contender
from coref_automl.tuning.finish import Final, Judgement
from coref_automl.tuning.recipe import TuneRecipe

_ORIGINS = {
    "default": ("train의 기본 설정", "train's default"),
    "recommended": ("추천 설정", "the recommended settings"),
    "portfolio": ("포트폴리오", "the portfolio"),
    "drawn": ("탐색", "the search"),
}


def sentence_of(final: Final, label: str, where: str, say: Say) -> str:
    """Is the winner better than the best of what comes before it, or is it noise?"""
    winner, reference, found = final.won, final.candidate(final.reference), final.comparison
    one = named(winner, say)
    if reference is None:
        reached = f"{label} {100 * sum(final.confirmed) / len(final.confirmed):.2f}%"
        return say(
            f"{one}: 비교할 것 없이 가장 좋습니다 ({where}, {reached}).",
            f"{_begin(one)} is the best tried ({reached} on {where}), and nothing comes before it to compare it with: keep it.",
        )
    other = named(reference, say)
    if found is None:
        return say(
            f"{one}: 가장 좋지만 {other}과(와) 함께 완료된 새 시드가 없어 판정할 수 없습니다. 같은 명령을 다시 실행하세요.",
            f"{_begin(one)} is the best tried; without a new seed that it and {other} both completed there is no verdict: "
            "run the same command again.",
        )
    gain, seeds = gain_of(found, label, say), len(found.seeds)
    most = f"{100 * found.verdict.most:.2f}"
    told = {
        "better": say(f"{one}: {other}보다 낫습니다. {gain}.", f"{_begin(one)} is better than {other}: {gain}."),
        "worse": say(f"{one}: {other}보다 나쁩니다. {gain}.", f"{_begin(one)} is worse than {other}: {gain}; keep those."),
        "futile": say(
            f"{one}: {other}보다 {most}점 넘게 낫지는 않습니다(95%). {gain}.",
            f"{_begin(one)} gains no more than {most} points over {other} (95%): {gain}.",
        ),
    }.get(
        found.verdict.decision,
        say(f"{one}: {other}과(와) 유의한 차이 미확인. {gain}.", f"{_begin(one)} is not shown to differ from {other}: {gain}."),
    )
    return told + say(f" ({where}, 새 시드 {seeds}쌍)", f" On {where}, {seeds} pair{'s' * (seeds != 1)} of new seeds.")


def lines_of(final: Final, recipe: TuneRecipe, label: str, where: str, say: Say) -> list[str]:
    """The verdict, the gain over `train`'s default, the search by itself, tokens, guards and settings that mattered."""
    told = [sentence_of(final, label, where, say)]
    if final.over_default is not None:
        gain = gain_of(final.over_default, label, say)
        told.append(say(f"train의 기본 설정(mlm) 대비: {gain}.", f"Over train's plain default (mlm): {gain}."))
    told += _of_search(final, recipe, say)
    if final.share is not None:
        share = f"{100 * final.share:.0f}%"
        told.append(
            say(
                f"비교 대상의 최종 점수에 토큰의 {share}에서 도달했습니다(select, 학습률이 아직 내려가는 중).",
                f"It reached the reference's final score at {share} of the tokens (on select, before its rate had fallen).",
            )
        )
    if final.unmet is not None:
        told.append(say(f"조건 {final.unmet}: 만족한 탐색 설정이 없습니다.", f"No drawn setting met the guard {final.unmet}."))
    for name, change in (final.comparison.guards if final.comparison else {}).items():
        told.append(say(f"조건 {name}: {_points(change)}.", f"Guard {name}: {_points(change)}."))
    if final.knobs:
        each = "; ".join(f"{one.name} {_text(one.value)} -> {_text(one.back)}: {-100 * one.loss:+.2f}" for one in final.knobs)
        told.append(say(f"설정을 하나씩 되돌리면 (점): {each}.", f"One setting back at a time, in points: {each}."))
    return told


def _of_search(final: Final, recipe: TuneRecipe, say: Say) -> list[str]:
    """What the search itself gained: a portfolio that wins is no win of the search."""
    if final.won.origin == "drawn" or final.ceiling is None:
        return []
    most = f"{100 * max(0.0, final.ceiling):.2f}"
    told = say(
        f"시도한 설정 가운데 {most}점 넘게 더 나은 것은 없습니다(95%).",
        f"No setting tried gains more than {most} points over it (95%).",
    )
    if final.stopped_early:
        told += say(" 그래서 탐색을 일찍 마쳤습니다.", f" The search stopped early: {recipe.worth:g} points would matter.")
    return [told]


def gain_of(found: Judgement, label: str, say: Say) -> str:
    return say(f"{label} {_points(found.verdict.interval)}", f"{_points(found.verdict.interval)} of {label}")


def _points(gain: Estimate) -> str:
    return f"{100 * gain.value:+.2f} [{100 * gain.low:+.2f}, {100 * gain.high:+.2f}]"


def named(one: Contender, say: Say) -> str:
    """A candidate for people: where it comes from, what it is called, its number."""
    origin = say(*_ORIGINS[one.origin])
    number = say(f"시도 {one.number}", f"trial {one.number}")
    average = say(", 평균", ", averaged") if one.params.get("average") else ""
    return f"{origin} ({one.name}, {number}{average})" if one.name else f"{origin} ({number}{average})"


def _begin(text: str) -> str:
    return text[:1].upper() + text[1:]


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
