"""Grades of the runs. In: a Subject. Out: A, B or C in six respects, with the rule of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coref_automl.comparison.differences import compare_with
from coref_automl.comparison.scores import Entry
from coref_automl.evaluation.metrics import METRICS
from coref_automl.records import Comparison
from coref_automl.report.cells import which_documents
from coref_automl.report.language import Say, points
from coref_automl.report.page import Cell, Points, Section, Table, Tone, row
from coref_automl.report.subject import Subject

_GRADES: dict[str, Tone] = {"A": "good", "B": "quiet", "C": "bad"}


@dataclass(frozen=True, slots=True)
class Grade:
    what: str
    letter: str
    because: str


def draw(study: Subject) -> Section | None:
    """Grade every run in six respects."""
    runs, say = study.runs(), study.say
    if not runs:
        return None
    behind, starts, falls = _behind(study), study.against_base(), _falls(study)
    graded = {run: _grades(study, entries, behind, starts, falls) for run, entries in runs.items()}
    titles = [grade.what for grade in next(iter(graded.values()))]
    lines = tuple(
        row(run, *(Cell(f"{grade.letter} · {grade.because}", _GRADES.get(grade.letter, "quiet")) for grade in grades))
        for run, grades in graded.items()
    )
    margin = f"{100 * study.margin:g}"
    rules = (
        say(
            "시작: 첫 체크포인트가 원래 모델보다 나은 것이 확인되면(모든 체크포인트에 대한 max-T 보정) A, 차이가 미확인이면 B, "
            "나쁜 것이 확인되면 C.",
            "Initial: A if the first checkpoint is shown better than the base (max-T over all checkpoints), B if no "
            "difference is shown, C if shown worse.",
        ),
        say(
            f"최고: 전체 최고의 {margin}점 이내임이 확인되면 A, 최고와의 차이가 미확인이면 B, 나쁜 것이 확인되면 C.",
            f"Best: A if its peak is within {margin} points of the best of all at 95% confidence, B if not shown different, C if "
            f"shown worse.",
        ),
        say(
            f"속도: 자기 최고의 {margin}점 이내(선택용 절반)에 처음 닿은 학습량이 전체의 1/3 이하면 A, 2/3 이하면 B, 그 밖은 C.",
            f"Speed: the share of its training at which it first came within {margin} points of its own peak: up to 1/3 A, "
            f"2/3 B, else C.",
        ),
        say(
            "데이터: 최고까지 쓴 토큰이 가장 적게 쓴 학습의 1.5배 이하면 A, 3배 이하면 B, 그 밖은 C.",
            "Data: tokens to its peak, against the run that took the fewest: up to 1.5 times A, 3 times B, else C.",
        ),
        say(
            f"안정: 마지막이 최고보다 나쁘다고 확인되면 C. 마지막이 곧 최고이거나 더 낫다고 확인되면 A. 차이가 확인되지 않으면, "
            f"{margin}점의 하락을 검정력 80%로 검출할 수 있는 세트에서는 A, 그렇지 못한 세트에서는 B.",
            f"Stability: C if the last checkpoint is shown worse than the peak. A if it is the peak, is shown better, or has no "
            f"difference shown on a set that detects a fall of {margin} points with 80% power. B if the set cannot detect that.",
        ),
        say(
            "효율: 백만 토큰당 오른 점수가 가장 좋은 학습의 2/3 이상이면 A, 1/3 이상이면 B, 그 밖은 C.",
            "Efficiency: points gained over the base per million tokens, against the best run: 2/3 or more A, 1/3 or more "
            "B, else C.",
        ),
    )
    which = which_documents(study.group.judging, say)
    caption = say(
        f"최고는 선택용 절반에서 찾고 그 값도 거기의 것, 차이는 {which}, 효율은 모든 문서",
        f"peaks and their values on the select half, differences on {which}, efficiency on all documents",
    )
    table = Table((say("실행", "run"), *titles), lines, caption=caption, shows="both")
    return Section("rating", say("요약 평가", "Summary rating"), (table, Points(rules)))


def _behind(study: Subject) -> dict[Entry, Comparison | None]:
    """The peak of each run against the overall best on confirm, max-T over runs."""
    peaks = [peak for entries in study.runs().values() if (peak := study.choice.peak(entries)) is not study.best]
    return dict(zip(peaks, study.judged(study.best, peaks), strict=True))


def _falls(study: Subject) -> dict[Entry, Comparison | None]:
    """The peak of each run against its last checkpoint on confirm, max-T over runs."""
    pairs = [(study.choice.peak(entries), entries[-1]) for entries in study.runs().values()]
    pairs = [(peak, end) for peak, end in pairs if peak is not end]
    peaks, ends = [peak for peak, _ in pairs], [end for _, end in pairs]
    return dict(zip(peaks, compare_with(study.group, study.metric, peaks, ends, seed=study.seed, half="confirm"), strict=True))


def _grades(
    study: Subject,
    entries: list[Entry],
    behind: Mapping[Entry, Comparison | None],
    starts: Mapping[Entry, Comparison],
    falls: Mapping[Entry, Comparison | None],
) -> list[Grade]:
    say, values = study.say, {entry: one.value for entry, one in study.choice.candidates.items()}
    first, last, peak = entries[0], entries[-1], study.choice.peak(entries)
    bound = study.choice.candidates[peak].bound
    near = next(entry for entry in entries if values[peak].value - values[entry].value <= study.margin)
    share = near.tokens / last.tokens if last.tokens else 1.0
    start, lost = starts.get(first), behind.get(peak)
    return [
        Grade(say("시작", "initial"), _by_sign(start), points(start.difference) if start else say("기준 없음", "no base")),
        Grade(
            say("최고", "best"),
            "A" if bound <= study.margin or peak is study.best else "C" if lost is not None and lost.verdict == "worse" else "B",
            f"{METRICS[study.metric].label} {100 * values[peak].value:.1f}%",
        ),
        Grade(say("속도", "speed"), _under(share, 1 / 3, 2 / 3), f"{100 * share:.0f}%"),
        _data(study, peak),
        _stability(study, peak, last, falls.get(peak)),
        _efficiency(study, peak),
    ]


def _stability(study: Subject, peak: Entry, last: Entry, fall: Comparison | None) -> Grade:
    say = study.say
    if peak is last:
        return Grade(say("안정", "stability"), "A", say("마지막이 최고", "the last is the peak"))
    if fall is None:
        return Grade(say("안정", "stability"), "–", say("알 수 없음", "unknown"))
    letter = {"better": "C", "worse": "A"}.get(fall.verdict, "")  # the peak against the last
    could = fall.detectable is not None and fall.detectable <= study.margin
    letter = letter or ("A" if could else "B")
    return Grade(say("안정", "stability"), letter, points(fall.difference))


def _data(study: Subject, peak: Entry) -> Grade:
    say, name = study.say, study.say("데이터", "data")
    if peak.recorded_tokens is None:
        return Grade(name, "–", _unrecorded(say))
    fewest = min(known for run in study.runs().values() if (known := study.choice.peak(run).recorded_tokens) is not None) or 1
    times = peak.recorded_tokens / fewest
    return Grade(name, _under(times, 1.5, 3), f"×{times:.1f}")


def _unrecorded(say: Say) -> str:
    return say("학습 토큰 기록 없음", "tokens not recorded")


def _efficiency(study: Subject, peak: Entry) -> Grade:
    say, name = study.say, study.say("효율", "efficiency")
    if peak.recorded_tokens is None:
        return Grade(name, "–", _unrecorded(say))
    own = _gained(study, peak)
    if own is None:
        return Grade(name, "–", say("기준 없음", "no base"))
    rates = [_gained(study, study.choice.peak(entries)) for entries in study.runs().values()]
    top = max(rate for rate in rates if rate is not None)
    letter = "C" if top <= 0 or own <= 0 else _under(1 - own / top, 1 / 3, 2 / 3)
    return Grade(name, letter, say(f"{own:+.2f}점/백만", f"{own:+.2f} points/M"))


def _gained(study: Subject, peak: Entry) -> float | None:
    """Points gained over the base per million tokens; None if the base was not evaluated or the tokens not recorded."""
    base, trained = study.own_base(peak), peak.recorded_tokens
    before = base.evaluation.estimates.get(study.metric) if base else None
    if before is None or trained is None:
        return None
    value = peak.evaluation.estimates.get(study.metric)
    return 1e8 * (value.value - before.value) / trained if value and trained else 0.0


def _by_sign(answer: Comparison | None) -> str:
    if answer is None:
        return "–"
    return {"better": "A", "worse": "C"}.get(answer.verdict, "B")


def _under(value: float, a: float, b: float) -> str:
    return "A" if value <= a + 1e-9 else "B" if value <= b + 1e-9 else "C"
