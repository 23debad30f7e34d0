"""Sections about runs. In: a Study. Out: length against length, efficiency at equal tokens, over-fitting, methods."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from coref_automl.comparison import charts
from coref_automl.comparison.page import Block, Cell, Charts, Section, Table, Text, estimate_cells, in_percent, row
from coref_automl.comparison.pairs import p_text, verdict_cell
from coref_automl.comparison.scores import Entry
from coref_automl.comparison.sentences import points, tokens
from coref_automl.comparison.study import Study
from coref_automl.evaluation.metrics import BUCKETS, METRICS
from coref_automl.statistics import MethodVerdict, composite, seed_paired_verdict

_NEAR = 0.15
"""Checkpoints count as equally trained when their tokens differ by less than this share."""


def lengths(study: Study) -> Section:
    """The best checkpoint of each window length against each other, and accuracy by distance."""
    say = study.say
    by_length: dict[int, list[Entry]] = {}
    for entry in study.entries:
        if entry.trained or study.base is None:
            by_length.setdefault(entry.evaluation.seq_len, []).append(entry)
    peaks = [study.peak(entries) for _, entries in sorted(by_length.items())]
    blocks: list[Block] = []
    if len(peaks) > 1:
        answers = study.judged(peaks[0], peaks[1:])
        cells = estimate_cells([answer.difference if answer else None for answer in answers], difference=True)
        lines = tuple(
            row(
                f"{peak.evaluation.seq_len}",
                peak.name,
                cell,
                p_text(answer.p_adjusted if answer else None),
                verdict_cell(answer, study),
            )
            for peak, cell, answer in zip(peaks[1:], cells, answers, strict=True)
        )
        against = say(f"차이 (기준 {peaks[0].evaluation.seq_len} 토큰)", f"difference from {peaks[0].evaluation.seq_len} tokens")
        head = (say("길이", "length"), say("그 길이의 최고", "best of it"), against, "p (Holm)", say("판정", "verdict"))
        blocks.append(Table(head, lines, frozenset({0, 2, 3})))
    else:
        blocks.append(
            Text(
                say(
                    "평가된 길이가 하나뿐이라 길이끼리 비교할 수 없습니다.",
                    "Only one window length was evaluated: nothing to compare.",
                )
            )
        )
    shown = list(dict.fromkeys([*(e for e in (study.base,) if e), study.chosen, *peaks]))[:6]
    return Section("lengths", say("길이와 거리", "Length and distance"), (*blocks, *by_distance(study, shown)))


def by_distance(study: Study, entries: Sequence[Entry]) -> list[Block]:
    """Accuracy by distance on the far items, or on Real where there are none."""
    say = study.say
    names = ("real_far1_strict", "real_far_word", "real1_strict", "real_word")
    usable = [name for name in names if study.group.has(name) and (study.group.tokenizers == 1 or METRICS[name].rule == "word")]
    if not usable:
        return []
    metric, distances = usable[0], study.group.items.facts["distance"]
    rows, order = [], []
    for low, high in BUCKETS:
        columns = study.group.columns(metric, entries=entries, among=(distances >= low) & (distances < high))
        if columns.items < 10:
            continue
        order.append(f"{low}–{high - 1}")
        for entry, value in zip(entries, composite(columns.parts, seed=study.seed, draws=4000), strict=True):
            rows.append({"name": entry.name, "bucket": order[-1], "n": value.n, **in_percent(value)})
    if not order:
        return []
    title = say(f"거리별 {METRICS[metric].label}", f"{METRICS[metric].label} by distance")
    cells = {(r["name"], r["bucket"]): f"{r['value']:.1f} [{r['low']:.1f}, {r['high']:.1f}]" for r in rows}
    counts = {r["bucket"]: r["n"] for r in rows}
    lines = tuple(row(entry.name, *(cells[entry.name, bucket] for bucket in order)) for entry in entries)
    head = (say("모델", "model"), *(f"{bucket} (n {counts[bucket]:,})" for bucket in order))
    return [
        Charts(((title, charts.by_distance(rows, order, say)),), wide=True),
        Table(head, lines, frozenset(range(1, len(head)))),
    ]


def efficiency(study: Study) -> Section | None:
    """Runs at the largest amount of training that all of them reached."""
    runs, say = study.runs(), study.say
    if len(runs) < 2:
        return None
    common = min(entries[-1].tokens for entries in runs.values())
    level = {run: min(entries, key=lambda entry: abs(entry.tokens - common)) for run, entries in runs.items()}
    level = {run: entry for run, entry in level.items() if abs(entry.tokens - common) <= _NEAR * common}
    if len(level) < 2:
        return None
    (first, reference), *rest = level.items()
    answers = study.judged(reference, [entry for _, entry in rest])
    cells = estimate_cells([None, *(answer.difference if answer else None for answer in answers)], difference=True, missing="–")
    lines = tuple(
        row(
            run,
            entry.name,
            tokens(entry.tokens),
            cell,
            verdict_cell(answer, study) if answer else Cell(say("기준", "reference"), "quiet"),
        )
        for (run, entry), cell, answer in zip(level.items(), cells, [None, *answers], strict=True)
    )
    head = (
        say("학습", "run"), say("체크포인트", "checkpoint"), say("토큰", "tokens"),
        say(f"차이 (기준 {first})", f"difference from {first}"), say("판정", "verdict"),
    )  # fmt: skip
    told = say(
        f"모든 학습이 도달한 {tokens(common)} 토큰 근처에서 비교합니다.",
        f"Compared near {tokens(common)} tokens, which every run reached.",
    )
    return Section("efficiency", say("같은 학습량에서", "At equal training"), (Text(told), Table(head, lines, frozenset({2, 3}))))


def over_fitting(study: Study) -> Section | None:
    found, say = study.recommendation.over_fitting, study.say
    if not found:
        return None
    lines = []
    for one in found:
        if one.comparison is None:
            told = Cell(say("마지막이 최고", "the last is the peak"), "quiet")
        elif one.shown:
            told = Cell(say("과적합: 떨어짐이 보임", "over-fitting: the fall is shown"), "bad")
        else:
            told = Cell(say("보이지 않음", "not shown") + _could(one.comparison.detectable, study), "quiet")
        change = points(one.comparison.difference) if one.comparison else "–"
        p = p_text(one.comparison.p_adjusted if one.comparison else None)
        lines.append(row(one.run, one.peak, one.last, change, p, told))
    head = (
        say("학습", "run"), say("최고 (선택 쪽)", "peak (select)"), say("마지막", "last"),
        say("최고 - 마지막 (확인 쪽, 점)", "peak - last (confirm, points)"), "p (Holm)", say("판정", "verdict"),
    )  # fmt: skip
    return Section("over-fitting", say("과적합", "Over-fitting"), (Table(head, tuple(lines), frozenset({3, 4})),))


def method_verdicts(study: Study) -> list[tuple[str, str, int, MethodVerdict]]:
    """Objectives against each other: last checkpoints of runs paired by seed, with everything else alike."""
    last: dict[tuple[str, str, int, int], dict[str, Entry]] = {}
    for entries in study.runs().values():
        if (made := entries[-1].evaluation.provenance) is not None:
            key = (made.base, "", made.seq_len, entries[-1].evaluation.seq_len)
            last.setdefault(key, {})[f"{made.objective}\0{made.seed}"] = entries[-1]
    out = []
    for found in last.values():
        objectives = sorted({name.split("\0")[0] for name in found})
        for a, b in combinations(objectives, 2):
            seeds = sorted(
                {n.split("\0")[1] for n in found if n.startswith(a + "\0")}
                & {n.split("\0")[1] for n in found if n.startswith(b + "\0")}
            )
            if not seeds:
                continue
            entries = [found[f"{objective}\0{seed}"] for objective in (b, a) for seed in seeds]
            columns = study.group.columns(study.metric, half="confirm", entries=entries)
            if not columns.items or len(columns.parts) != 1:
                continue
            values = np.asarray(columns.parts[0].values).T
            answer = seed_paired_verdict(
                list(values[: len(seeds)]), list(values[len(seeds) :]), columns.parts[0].clusters, seed=study.seed
            )
            if answer.difference < 0:
                a, b = b, a
                answer = seed_paired_verdict(
                    list(values[len(seeds) :]), list(values[: len(seeds)]), columns.parts[0].clusters, seed=study.seed
                )
            out.append((b, a, len(seeds), answer))
    return out


def methods(study: Study) -> Section | None:
    found, say = method_verdicts(study), study.say
    if not found:
        return None
    lines = []
    for b, a, seeds, answer in found:
        over_seeds = points(answer.over_seeds) if answer.over_seeds else say("시드 하나: 알 수 없음", "one seed: cannot tell")
        told = (
            Cell(say("보임", "shown"), "good" if answer.difference > 0 else "bad")
            if answer.shown
            else Cell(say("보이지 않음", "not shown"), "quiet")
        )
        lines.append(row(f"{b} - {a}", str(seeds), over_seeds, points(answer.over_documents), told))
    head = (
        say("방법", "methods"),
        say("시드 쌍", "seed pairs"),
        say("시드에 걸친 차이 (t)", "over seeds (t)"),
        say("문서에 걸친 차이", "over documents"),
        say("판정", "verdict"),
    )
    note = say(
        "같은 시드끼리 짝지은 학습의 마지막 체크포인트. 시드와 문서 양쪽 구간이 모두 0을 벗어나야 '보임'입니다.",
        "Last checkpoints of runs paired by seed. Shown only if the interval over seeds and the one over documents both "
        "exclude 0.",
    )
    return Section("methods", say("방법 비교", "Methods"), (Text(note), Table(head, tuple(lines), frozenset({1, 2, 3}))))


def _could(detectable: float | None, study: Study) -> str:
    if detectable is None:
        return ""
    return study.say(f" (보일 수 있는 차이 {100 * detectable:.1f}점)", f" (this set could show {100 * detectable:.1f} points)")
