"""When does over-fitting start? In: a Subject. Out: curves by checkpoint; the peak (on select) against the last (confirm)."""

from __future__ import annotations

from collections.abc import Sequence

from coref_automl.comparison.arms import Arm, Pick, Versus, arms, falls, means
from coref_automl.comparison.corrections import corrected
from coref_automl.comparison.differences import finding
from coref_automl.evaluation.metrics import METRICS
from coref_automl.records import Estimate
from coref_automl.report.language import Say, interval, p_text, points, tokens
from coref_automl.report.page import Badge, Block, Cell, Section, Table, Text, Verdict, question, row
from coref_automl.report.subject import Subject, label
from coref_automl.report.verdicts import detectable, difference_cell, family, lead, sign, tone, verdict_cell


def draw(study: Subject) -> Section | None:
    """When does over-fitting start?"""
    say = study.say
    runs = None if study.alone else _runs_table(study)
    if runs is None:
        return None
    curved = [] if METRICS[study.metric].parts else [arm.with_curve() for arm in arms(study)]
    several = [arm for arm in curved if len(arm.steps()) > 1]
    title = say("과적합은 언제 시작되는가?", "When does over-fitting start?")
    blocks: list[Block] = []
    answer, told = _of_runs(study), ""
    peaks: dict[Arm, int] = {}
    fallen: Sequence[Versus | None] = ()
    if several:
        curves = {arm: _curve(study, arm) for arm in several}
        peaks = {arm: _peak(values) for arm, values in curves.items()}
        fallen = _falls(study, several, peaks)
        answer = f"{_of_arms(study, several, _rising(study, several, curves, peaks), peaks, fallen)} {answer}"
        blocks += [_curve_table(study, several, curves, peaks), _fall_table(study, several, peaks, fallen)]
        told = family(fallen, say)
    note = say(
        "정점은 선택용 절반에서 찾고 정점과 마지막의 차이는 확인용 절반에서 측정하므로, 정점을 골랐다는 이유로 부풀지 않습니다.",
        "The peak is found on the select half and its lead over the last measured on confirm, so that choosing it does not "
        "flatter it.",
    )
    verdict = _verdict(study, several, peaks, fallen)
    blocks += [runs, Text(note + told, "quiet")]
    return question("over-fitting", title, answer, blocks, say("과적합", "over-fitting"), verdict)


def _verdict(study: Subject, several: Sequence[Arm], peaks: dict[Arm, int], fallen: Sequence[Versus | None]) -> Verdict:
    """The recommended method first, then whether any other falls; of single runs if no method has a curve."""
    say, mine = study.say, study.arm
    own = next(((arm, one) for arm, one in zip(several, fallen, strict=True) if mine and arm.is_method(mine)), None)
    if own is None:
        return _verdict_of_runs(study)
    arm, one = own
    others = [(other, found) for other, found in zip(several, fallen, strict=True) if other is not arm and other.seeds > 1]
    down = [f"{other.name} ({_at_epoch(other, peaks, say)})" for other, found in others if found and sign(found) > 0]
    end, limit = tokens(arm.tokens), detectable((found.answer.detectable for _, found in others if found), say)
    few = say(" (시드 하나의 곡선)", " (one seed's curve)") if arm.seeds < 2 else ""
    if peaks[arm] == len(arm.steps()) - 1:
        told = say(
            f"{arm.name}: 마지막({end} 토큰)이 가장 높습니다{few}.", f"{arm.name} is highest at its end, {end} tokens{few}."
        )
    elif one is None:
        told = f"{arm.name}: {_not_judged(say)}"
    elif sign(one) > 0:
        told = say(
            f"{arm.name}: {_at_epoch(arm, peaks, say)} 이후 하락 확인.", f"{arm.name} falls after {_at_epoch(arm, peaks, say)}."
        )
    else:
        own_limit = detectable([one.answer.detectable], say)
        told = say(
            f"{arm.name}: {end} 토큰까지 유의한 하락 미확인{few or own_limit}.",
            f"{arm.name}: no fall shown up to {end} tokens{few or own_limit}.",
        )
    if down:
        told += say(f" 하락 확인: {', '.join(down)}.", f" A fall is shown in {', '.join(down)}.")
    elif others:
        told += say(
            f" 곡선이 있는 다른 방법 {len(others)}개도 하락 미확인{limit}.",
            f" No fall shown in {len(others)} other method{'s' * (len(others) > 1)}{limit}.",
        )
    firm = [sign(found) > 0 if found else False for _, found in (own, *others)]
    badge_of: Badge = "open" if not any(firm) else "shown" if all(firm) else "part"
    held = one.answer.interval if one else None
    return Verdict(badge_of, told, held, f"{arm.name}, {say('정점 - 마지막', 'peak - last')}", tone(-sign(one) if one else 0))


def _not_judged(say: Say) -> str:
    return say(
        "정점 이후의 하락은 판정하지 않았습니다(확인용 절반에 문항이 없음).",
        "A fall after the peak is not judged: the confirm half has no items.",
    )


def _at_epoch(arm: Arm, peaks: dict[Arm, int], say: Say) -> str:
    return say(f"에폭 {_when(arm, peaks[arm])}", f"epoch {_when(arm, peaks[arm])}")


def _verdict_of_runs(study: Subject) -> Verdict:
    """The bar is the largest fall."""
    say, found = study.say, study.recommendation.over_fitting
    down = [f"{one.run} ({one.peak.rsplit('/', 1)[-1]})" for one in found if one.shown]
    falls_of = [(one.comparison.difference, one.run) for one in found if one.comparison is not None]
    limit = detectable((one.comparison.detectable for one in found if one.comparison is not None), say)
    end = tokens(longest) if (longest := max(entry.recorded_tokens or 0 for entry in study.entries)) else ""
    held, about = max(falls_of, key=lambda one: one[0].value, default=(None, ""))
    about = about and f"{about}, {say('정점 - 마지막', 'peak - last')}"
    if down:
        told = say(f"정점 이후 하락 확인: {', '.join(down)}.", f"A fall after the peak is shown in {', '.join(down)}.")
        return Verdict("shown" if len(down) == len(found) else "part", told, held, about)
    if held is None and any(one.peak != one.last for one in found):
        return Verdict("open", _not_judged(say))
    if held is None:
        at = (f"{end} 토큰에서 ", f"{end} tokens") if end else ("", "the end")
        return Verdict("open", say(f"{at[0]}마지막이 가장 높습니다.", f"Still rising at {at[1]}."))
    until = (f"{end} 토큰까지 ", f" up to {end} tokens") if end else ("", "")
    told = say(f"{until[0]}유의한 하락 미확인{limit}.", f"No fall shown{until[1]}{limit}.")
    return Verdict("open", told, held, about)


def _curve(study: Subject, arm: Arm) -> list[Estimate | None]:
    """Means over seeds on the select half, one value per checkpoint."""
    return means(study, [list(step.values()) for step in arm.steps()], study.metric, half="select")


def _peak(values: Sequence[Estimate | None]) -> int:
    """The highest; the earliest of equals."""
    return max(range(len(values)), key=lambda number: (one.value if (one := values[number]) else 0.0, -number))


def _falls(study: Subject, several: Sequence[Arm], peaks: dict[Arm, int]) -> list[Versus | None]:
    """Peak minus last of each arm; None if the last is the peak."""

    def at(arm: Arm, number: int) -> Pick:
        wanted = {id(entry) for entry in arm.steps()[number].values()}
        return lambda entries: next(entry for entry in entries if id(entry) in wanted)

    asked = [arm for arm in several if peaks[arm] != len(arm.steps()) - 1]
    found = falls(study, [(arm, at(arm, peaks[arm]), at(arm, -1)) for arm in asked], study.metric)
    fallen = dict(zip(asked, corrected(found), strict=True))
    return [fallen.get(arm) for arm in several]


def _ends_highest(values: Sequence[Estimate | None]) -> bool:
    """Is no checkpoint higher than the last? Ties count."""
    return bool(values) and (values[-1].value if values[-1] else 0.0) >= max(one.value if one else 0.0 for one in values)


def _rising(study: Subject, several: Sequence[Arm], curves: dict[Arm, list[Estimate | None]], peaks: dict[Arm, int]) -> str:
    """The number of methods whose last checkpoint is the highest on the select half."""
    count = len(several)
    highest = [arm for arm in several if _ends_highest(curves[arm])]
    still, tied = len(highest), sum(peaks[arm] != len(arm.steps()) - 1 for arm in highest)
    ties = f" (in {tied} as high as an earlier one)" if tied and count > 1 else " (as high as an earlier one)" if tied else ""
    return study.say(
        f"선택용 절반에서 마지막 체크포인트가 가장 높은 것은 방법과 길이 {count}가지 중 "
        + (f"{still}가지입니다" if still else "하나도 없습니다")
        + (f" ({tied}가지는 앞선 것과 같은 높이)." if tied else "."),
        f"On the select half the last checkpoint is the highest in {still or 'none'} of {count} methods and lengths{ties}."
        if count > 1
        else f"On the select half the last checkpoint of the one method is {'' if still else 'not '}the highest{ties}.",
    )


def _of_arms(study: Subject, several: Sequence[Arm], rising: str, peaks: dict[Arm, int], fallen: Sequence[Versus | None]) -> str:
    """Methods with several seeds: significant falls. Single seeds: where the peak is, without a verdict."""
    say = study.say
    firm = [(arm, one) for arm, one in zip(several, fallen, strict=True) if arm.seeds > 1]
    if not firm:
        return f"{lead([], say)} {rising}"
    shown = [
        f"{arm.name} ({say('정점 에폭', 'peak at epoch')} {_when(arm, peaks[arm])}, {points(one.answer.interval)})"
        for arm, one in firm
        if one is not None and one.shown and one.answer.difference > 0
    ]
    if shown:
        return f"{rising} " + say(
            f"정점 이후의 하락 확인: {', '.join(shown)}.", f"A fall from the peak is shown in {', '.join(shown)}."
        )
    could = [one.answer.detectable for _, one in firm if one is not None and one.answer.detectable]
    limit = say(f" (검출 가능 차이 {100 * max(could):.1f}점)", f" (detectable: {100 * max(could):.1f} points)") if could else ""
    return f"{rising} " + say(
        f"정점 이후의 하락은 시드가 둘 이상인 {len(firm)}가지 중 어디에서도 확인되지 않았습니다{limit}.",
        f"A fall from the peak is shown in none of the {len(firm)} with several seeds{limit}."
        if len(firm) > 1
        else f"A fall from the peak is not shown in the one with several seeds{limit}.",
    )


def _of_runs(study: Subject) -> str:
    """Single runs: one test per run that peaked before its end."""
    found = study.recommendation.over_fitting
    fallen = [one.run for one in found if one.shown]
    tests = sum(one.comparison is not None for one in found)
    told = "1 test" if tests == 1 else f"{tests} tests"
    if fallen:
        return study.say(
            f"실행별로는(Holm 보정, 검정 {tests}건) 과적합이 확인된 실행: {', '.join(fallen)}.",
            f"Run by run (Holm over {told}), over-fitting is shown in {', '.join(fallen)}.",
        )
    if any(one.peak != one.last for one in found) and not tests:
        return _not_judged(study.say)
    if not tests:
        return study.say("모든 실행에서 마지막이 정점입니다.", "Every run is at its highest at its end.")
    return study.say(
        f"실행별로는(Holm 보정, 검정 {tests}건) 과적합이 확인된 실행이 없습니다.",
        f"Run by run (Holm over {told}), over-fitting is shown in none.",
    )


def _curve_table(
    study: Subject, several: Sequence[Arm], curves: dict[Arm, list[Estimate | None]], peaks: dict[Arm, int]
) -> Table:
    """Values on the select half by checkpoint; the peak is marked."""
    say = study.say
    width = max(len(arm.steps()) for arm in several)
    lines = []
    for arm in several:
        cells = [
            Cell(f"{_when(arm, n)}: {interval(value)}", "strong" if n == peaks[arm] else "")
            for n, value in enumerate(curves[arm])
        ]
        lines.append(row(arm.name, *cells, *([Cell("–", "quiet")] * (width - len(cells)))))
    numbers = (say(f"{n + 1}번째", f"checkpoint {n + 1}") for n in range(width))
    caption = say(
        f"{METRICS[study.metric].label} (%), 시드 평균, 에폭: 값; 굵은 글씨가 정점",
        f"{METRICS[study.metric].label} (%), means over seeds, epoch: value; the peak in bold",
    )
    head = (say("방법과 길이", "method, length"), *numbers)
    return Table(head, tuple(lines), frozenset(range(1, width + 1)), caption, "select")


def _fall_table(study: Subject, several: Sequence[Arm], peaks: dict[Arm, int], fallen: Sequence[Versus | None]) -> Table:
    say = study.say
    lines = []
    for arm, one in zip(several, fallen, strict=True):
        end = len(arm.steps()) - 1
        if peaks[arm] == end:
            told, change = Cell(say("마지막이 정점", "the last is the peak"), "quiet"), Cell("–", "quiet")
        else:
            told, change = verdict_cell(one, say), difference_cell(one.answer.interval) if one else Cell("–", "quiet")
            if one is not None and one.shown:
                told = _fallen(say) if one.answer.difference > 0 else _risen(say)
        lines.append(row(arm.name, str(arm.seeds), _when(arm, peaks[arm]), _when(arm, end), change, told))
    head = (
        say("방법과 길이", "method, length"), say("시드", "seeds"), say("정점 (에폭)", "peak (epoch)"), say("마지막", "last"),
        say("정점 - 마지막 (확인용 절반, 점)", "peak - last (confirm, points)"), say("판정", "verdict"),
    )  # fmt: skip
    return Table(head, tuple(lines), frozenset({1, 4}), shows="both")


def _fallen(say: Say) -> Cell:
    return Cell(say("과적합: 하락 확인", "over-fitting: the fall is shown"), "bad")


def _risen(say: Say) -> Cell:
    return Cell(say("마지막이 더 좋음", "the last is better"), "good")


def _when(arm: Arm, number: int) -> str:
    made = next(iter(arm.steps()[number].values())).evaluation.provenance
    return f"{round(made.epoch, 2):g}" if made else str(number + 1)


def _runs_table(study: Subject) -> Table | None:
    """Single runs: peak against last, Holm over the runs."""
    found, say = study.recommendation.over_fitting, study.say
    if not found:
        return None
    lines = []
    for one, (peak, end) in zip(found, study.choice.falls, strict=True):
        if peak is end:
            told = Cell(say("마지막이 정점", "the last is the peak"), "quiet")
        elif one.comparison is None:
            told = Cell(say("판정하지 않음", "not judged"), "quiet")
        elif one.shown:
            told = _fallen(say)
        elif finding(one.comparison) == "worse":
            told = _risen(say)
        else:
            told = Cell(say("미확인", "not shown") + _could(one.comparison.detectable, study), "quiet")
        change = difference_cell(one.comparison.difference) if one.comparison else Cell("–", "quiet")
        p = p_text(one.comparison.p_adjusted if one.comparison else None)
        lines.append(row(one.run, label(peak), label(end), change, p, told))
    head = (
        say("실행", "run"), say("정점 (선택용 절반)", "peak (select)"), say("마지막", "last"),
        say("정점 - 마지막 (확인용 절반, 점)", "peak - last (confirm, points)"), "p (Holm)", say("판정", "verdict"),
    )  # fmt: skip
    return Table(head, tuple(lines), frozenset({3, 4}), say("실행별", "run by run"), "both")


def _could(detectable: float | None, study: Subject) -> str:
    if detectable is None:
        return ""
    return study.say(f" (검출 가능 차이 {100 * detectable:.1f}점)", f" (detectable: {100 * detectable:.1f} points)")
