"""Does length help? In: a Subject. Out: longer against shorter windows, by distance, and within and beyond reach."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.arms import Arm, Versus, arms, equally_trained, last, means, speaking_of, versus
from coref_automl.comparison.corrections import corrected_columns
from coref_automl.comparison.recommendation import eligible_entries
from coref_automl.comparison.scores import Entry
from coref_automl.comparison.speaking import Speaking
from coref_automl.evaluation.metrics import METRICS
from coref_automl.evaluation.tasks.far import BUCKETS
from coref_automl.report import charts
from coref_automl.report.language import p_text, points
from coref_automl.report.page import Block, Charts, Section, Table, Text, Verdict, estimate_cells, in_percent, question, row
from coref_automl.report.subject import Subject
from coref_automl.report.verdicts import badge, checkpoint_cell, lead, phrase, rule, short_cell, shows, sign, tone

_FEWEST = 10
"""Distance buckets with fewer items are left out."""
_FAR = ("real_far1_strict", "real_far_word", "real1_strict", "real_word")


def draw(study: Subject) -> Section | None:
    """Does length help, and at which distance?"""
    if study.alone:
        return None
    say, found = study.say, arms(study)
    pairs = [(b, a) for a, b in combinations(found, 2) if a.length < b.length and (a.method, a.base) == (b.method, b.base)]
    pairs = [pair for pair in pairs if equally_trained(*pair)]
    title = say("길이가 도움이 되는가, 어느 거리에서?", "Does length help, and at which distance?")
    metric = _far_metric(study)
    if not pairs or metric is None:
        return _best_by_length(study, title)
    subsets = _subsets(study, metric)
    speak = speaking_of(pairs)
    columns: dict[tuple[str, str], list[Versus | None]] = {("plain", ""): versus(study, pairs, study.metric)}
    columns |= {("far", name): versus(study, pairs, metric, among=rows) for name, rows in subsets.items()}
    columns |= {("reach", name): column for name, column in _by_reach(study, pairs, metric, speak).items()}
    columns = corrected_columns(columns)
    plain = columns["plain", ""]
    far, reach = ({name: column for (kind, name), column in columns.items() if kind == one} for one in ("far", "reach"))
    head = (
        say("긴 것 - 짧은 것", "longer - shorter"), METRICS[study.metric].label, METRICS[metric].label,
        say("둘 다 닿는 문항", "in reach of both"), say("짧은 쪽은 닿지 않는 문항", "beyond the shorter's reach"),
        say("닿지 않는 문항 - 닿는 문항", "beyond minus within reach"),
    )  # fmt: skip
    lines = tuple(
        row(
            f"{a.name} - {b.length:,}",
            *(short_cell(column[number], say) for column in (plain, far[""], *reach.values())),
        )
        for number, (a, b) in enumerate(pairs)
    )
    buckets = {name: column for name, column in far.items() if name}
    counts = {name: int((subsets[name] & _spoken(study, metric, speak)).sum()) for name in buckets}
    wide = (say("긴 것 - 짧은 것", "longer - shorter"), *(f"{name} (n {counts[name]:,})" for name in buckets))
    by_bucket = tuple(
        row(f"{a.name} - {b.length:,}", *(short_cell(column[number], say) for column in buckets.values()))
        for number, (a, b) in enumerate(pairs)
    )
    label = METRICS[metric].label
    caption = say(f"{label}, 앞선 언급까지의 거리별 차이 (점)", f"{label} by distance to the other mention (points)")
    blocks: tuple[Block, ...] = (
        Table(
            head,
            lines,
            frozenset(range(1, 6)),
            say("길이 사이의 차이 (점)", "differences between lengths (points)"),
            shows(speak.half),
        ),
        Table(wide, by_bucket, frozenset(range(1, len(wide))), caption, shows(speak.half)),
        rule([one for column in (plain, *far.values(), *reach.values()) for one in column], say),
        *_values_by_distance(study, metric, found),
    )
    number = _main_pair(study, pairs, far[""])
    answer = _answer(study, pairs, plain, far, reach, metric, number)
    verdict = _verdict(study, pairs[number], plain[number], far[""][number], metric) if number is not None else None
    reason = _reason(study, pairs[number], plain[number], far[""][number], metric) if number is not None else ""
    return question("lengths", title, answer, blocks, say("길이", "length"), verdict, reason=reason)


def _main_pair(study: Subject, pairs: Sequence[tuple[Arm, Arm]], far: Sequence[Versus | None]) -> int | None:
    """The pair to speak of: the most seeds, the recommended method at its length, the widest, entity rather than another.

    None if far items were not run.
    """

    def order(number: int) -> tuple[int, bool, int, bool]:
        a, b = pairs[number]
        return _seeds(far[number]), any(_recommended(study, arm) for arm in (a, b)), a.length - b.length, a.objective == "entity"

    return max((number for number, one in enumerate(far) if one is not None), key=order, default=None)


def _recommended(study: Subject, arm: Arm) -> bool:
    return any(study.chosen in run for run in arm.runs.values())


def _reason(study: Subject, pair: tuple[Arm, Arm], plain: Versus | None, far: Versus | None, metric: str) -> str:
    """Why the recommended length and not the other one, and when to take the other; empty if the pair is not about it."""
    mine = next((arm for arm in pair if _recommended(study, arm)), None)
    if mine is None or plain is None or plain.seeds < 2:
        return ""
    say, (longer, shorter), label = study.say, pair, METRICS[study.metric].label
    other = shorter if mine is longer else longer
    this, that, short = f"{mine.length:,}", f"{other.length:,}", f"{shorter.length:,}"
    way = 1 if mine is longer else -1
    change = points(plain.answer.interval)
    told = {
        1: say(f"{that} 토큰보다 높습니다({change}점)", f"It beats {that} tokens ({change} points)"),
        -1: say(f"{label}에서는 {that} 토큰이 더 높습니다({change}점)", f"{that} tokens are better on {label} ({change} points)"),
        0: say(
            f"{label}에서는 {this}·{that} 토큰이 구별되지 않고(차이 {change}점) {short} 토큰이 계산량이 적습니다",
            f"On {label} {this} and {that} tokens cannot be told apart (difference {change} points) and {short} is cheaper",
        ),
    }[way * sign(plain)]
    name, gain = METRICS[metric].label, f"{100 * abs(far.answer.difference):+.1f}" if far else ""
    apart = way * sign(far) if far and metric != study.metric else 0
    return {
        1: say(
            f"{told}. 먼 언급에서는 {this} 토큰이 높습니다({name} {gain}점).",
            f"{told}; on far mentions {this} are better ({name} {gain}).",
        ),
        -1: say(
            f"{told}. 먼 언급이 중요하면 {that} 토큰을 쓰세요({name} {gain}점).",
            f"{told}; for far mentions take {that} ({name} {gain}).",
        ),
        0: f"{told}.",
    }[apart]


def _verdict(study: Subject, pair: tuple[Arm, Arm], plain: Versus | None, far: Versus | None, metric: str) -> Verdict | None:
    """Of one pair: where the longer window is better."""
    if far is None:
        return None
    say, (a, b), label = study.say, pair, METRICS[metric].label
    held, about = far.answer.interval, f"{a.name} - {b.length:,}, {label}"
    if far.seeds < 2:
        return Verdict("open", say("시드가 하나뿐이라 판정할 수 없습니다.", "One seed per length: no verdict."), held, about)
    found = {label: sign(far), **({METRICS[study.metric].label: sign(plain)} if plain is not None else {})}
    named = {way: ", ".join(name for name, one in found.items() if one == way) for way in (1, 0, -1)}
    longer = f"{a.length:,}"
    told = [
        say(f"{named[1]}에서 {longer} 토큰이 높습니다.", f"{longer} tokens are better on {named[1]}."),
        say(f"{named[-1]}에서 {longer} 토큰이 낮습니다.", f"{longer} tokens are worse on {named[-1]}."),
        say(f"{named[0]}에서는 유의한 차이 미확인.", f"No difference shown on {named[0]}."),
    ]
    kept = [text for text, way in zip(told, (1, -1, 0), strict=True) if named[way]]
    return Verdict(badge(set(found.values())), " ".join(kept), held, about, tone(sign(far)))


def _answer(
    study: Subject,
    pairs: Sequence[tuple[Arm, Arm]],
    plain: Sequence[Versus | None],
    far: dict[str, list[Versus | None]],
    reach: dict[str, list[Versus | None]],
    metric: str,
    number: int | None,
) -> str:
    """For the main pair: near items, far items, within and beyond reach, and the significant distances."""
    say = study.say
    if number is None:
        return say("먼 문항이 평가되지 않았습니다.", "Far items were not run.")
    a, b = pairs[number]
    told = [f"{a.method} {a.length:,} - {b.length:,}"]
    for name, one in (
        (METRICS[study.metric].label, plain[number]),
        (METRICS[metric].label, far[""][number]),
        (say("둘 다 닿는 곳", "where both reach"), reach["within"][number]),
        (say("짧은 쪽이 닿지 않는 곳", "beyond the shorter's reach"), reach["beyond"][number]),
    ):
        if one is not None:
            told.append(f"{name} {phrase(one, say)}")
    if (contrast := reach["contrast"][number]) is not None:
        told.append(f"{say('닿지 않는 곳 - 닿는 곳', 'beyond minus within reach')} {_contrast(contrast, study)}")
    seen = [name for name, column in far.items() if name and (one := column[number]) is not None and one.shown]
    where = (
        say(
            f" 유의한 차이가 확인된 거리: {', '.join(seen)}.",
            f" By distance, it is shown at {', '.join(seen)}.",
        )
        if seen
        else ""
    )
    first = lead([one for one in far[""] if one is not None], say)
    if _seeds(far[""][number]) > 1:
        first = f"{METRICS[metric].label}: {first}"
    return f"{first} {told[0]} ({say('점', 'points')}): {'; '.join(told[1:])}.{where}"


def _contrast(one: Versus, study: Subject) -> str:
    """The contrast and whether it is shown: only that says that length helps more beyond reach than within."""
    say = study.say
    if one.seeds < 2 or one.alone:
        return phrase(one, say)
    return f"{points(one.answer.interval)}, " + (say("확인", "shown") if one.shown else say("미확인", "not shown"))


def _by_reach(study: Subject, pairs: Sequence[tuple[Arm, Arm]], metric: str, speak: Speaking) -> dict[str, list[Versus | None]]:
    """Compare pairs within the shorter window's reach, beyond it, and beyond minus within; items differ by pair."""
    out: dict[str, list[Versus | None]] = {"within": [], "beyond": [], "contrast": []}
    spoken = _spoken(study, metric, speak)
    for pair in pairs:
        beyond = np.any([last(entries).out_of_reach for entries in pair[1].runs.values()], axis=0)
        enough = {"within": int((~beyond & spoken).sum()) >= _FEWEST, "beyond": int((beyond & spoken).sum()) >= _FEWEST}
        for name, rows in (("within", ~beyond), ("beyond", beyond)):
            out[name] += versus(study, [pair], metric, among=rows, speak=speak) if enough[name] else [None]
        out["contrast"] += versus(study, [pair], metric, beyond=beyond, speak=speak) if all(enough.values()) else [None]
    return out


def _values_by_distance(study: Subject, metric: str, found: Sequence[Arm]) -> list[Block]:
    """Accuracy by distance of every arm, means over seeds, all items."""
    sides = [[last(entries) for entries in arm.runs.values()] for arm in found]
    firm = {arm.name for arm in found if arm.seeds > 1}
    return by_distance(study, metric, [arm.name for arm in found], sides, drawn=firm)


def by_distance(
    study: Subject, metric: str, names: Sequence[str], sides: Sequence[Sequence[Entry]], *, drawn: set[str] | None = None
) -> list[Block]:
    """A table of all, and a chart of those in `drawn` (default all)."""
    say = study.say
    columns = {name: means(study, sides, metric, among=rows) for name, rows in _subsets(study, metric).items() if name}
    if not columns:
        return []
    values = [
        {"name": names[number], "bucket": bucket, "n": value.n, **in_percent(value)}
        for bucket, column in columns.items()
        for number, value in enumerate(column)
        if value is not None
    ]
    plotted = [entry for entry in values if not drawn or entry["name"] in drawn]
    title = say(f"거리별 {METRICS[metric].label}", f"{METRICS[metric].label} by distance")
    counts = {entry["bucket"]: entry["n"] for entry in values}
    cells = {bucket: estimate_cells(column) for bucket, column in columns.items()}
    lines = tuple(row(name, *(cells[bucket][number] for bucket in columns)) for number, name in enumerate(names))
    head = (say("모델", "model"), *(f"{bucket} (n {counts.get(bucket, 0):,})" for bucket in columns))
    note = Text(say("값은 모든 문항에 대한 것(%)입니다.", "Values are on all items (%)."), "quiet")
    return [
        Charts(((title, charts.by_distance(plotted, list(columns), say)),), wide=True),
        Table(head, lines, frozenset(range(1, len(head))), title, "all"),
        note,
    ]


def _best_by_length(study: Subject, title: str) -> Section | None:
    """Without arms to pair: compare the best checkpoint of each window length."""
    say = study.say
    by_length: dict[int, list[Entry]] = {}
    for entry in eligible_entries(study.group):
        by_length.setdefault(entry.evaluation.seq_len, []).append(entry)
    peaks = [study.peak(entries) for _, entries in sorted(by_length.items())]
    blocks: list[Block] = []
    if len(peaks) > 1:
        answers = study.judged(peaks[0], peaks[1:])
        cells = estimate_cells([answer.difference if answer else None for answer in answers], difference=True)
        first = peaks[0].evaluation.seq_len
        head = (
            say("길이", "length"), say("그 길이의 최고", "best of it"),
            say(f"차이 (기준 {first} 토큰)", f"difference from {first} tokens"), "p (max-T)", say("판정", "verdict"),
        )  # fmt: skip
        lines = tuple(
            row(
                f"{peak.evaluation.seq_len}",
                peak.name,
                cell,
                p_text(one.p_adjusted if one else None),
                checkpoint_cell(one, say),
            )
            for peak, cell, one in zip(peaks[1:], cells, answers, strict=True)
        )
        blocks.append(Table(head, lines, frozenset({0, 2, 3}), shows="confirm"))
        answer = say(
            "길이만 다른 실행이 없어, 길이마다 최고인 체크포인트끼리 비교합니다.",
            "No runs differ in length alone, so the best checkpoint of each length is compared.",
        )
    else:
        answer = say(
            "평가된 길이가 하나뿐이라 길이끼리 비교할 수 없습니다.", "Only one window length was evaluated: nothing to compare."
        )
    if (metric := _far_metric(study)) is not None:
        shown = list(dict.fromkeys([*(e for e in (study.base,) if e), study.chosen, *peaks]))[:6]
        blocks += by_distance(study, metric, [entry.name for entry in shown], [[entry] for entry in shown])
    return question("lengths", title, answer, tuple(blocks), say("길이", "length"))


def _far_metric(study: Subject) -> str | None:
    """Far items if they were run, else Real; `word` if tokenizers differ."""
    several = study.group.tokenizers > 1
    usable = [name for name in _FAR if study.group.has(name) and (not several or METRICS[name].rule == "word")]
    return usable[0] if usable else None


def _subsets(study: Subject, metric: str) -> dict[str, NDArray[np.bool_]]:
    """All items of the metric under "", then each distance bucket with enough items."""
    distances, rows = study.group.items.facts["distance"], _of(study, metric)
    out: dict[str, NDArray[np.bool_]] = {"": rows}
    for low, high in BUCKETS:
        inside = np.asarray((distances >= low) & (distances < high))
        if int((inside & rows).sum()) >= _FEWEST:
            out[f"{low:,}–{high - 1:,}"] = inside
    return out


def _of(study: Subject, metric: str) -> NDArray[np.bool_]:
    return np.asarray(study.group.items.facts["task"] == METRICS[metric].task)


def _spoken(study: Subject, metric: str, speak: Speaking) -> NDArray[np.bool_]:
    """The metric's items in the documents that speak."""
    return np.asarray(_of(study, metric) & (speak.half is None or study.group.items.halves == speak.half))


def _seeds(one: Versus | None) -> int:
    return one.seeds if one is not None else 0
