"""Sentences about results, in Korean and English. In: a Recommendation or a Comparison. Out: text with its numbers."""

from __future__ import annotations

from coref_automl.comparison.differences import finding, lost_to_holm
from coref_automl.comparison.recommendation import Recommendation
from coref_automl.evaluation.metrics import METRICS
from coref_automl.records import Comparison
from coref_automl.report.language import Lang, Say, percent, points, rounded


def verdict(comparison: Comparison, lang: Lang) -> str:
    """The verdict in words, with the detectable difference where nothing is shown."""
    say, found = Say(lang), finding(comparison)
    if found == "not shown":
        limit = f"{100 * comparison.detectable:.1f}" if comparison.detectable else ""
        could = say(f" (검출 가능 차이 {limit}점)", f"; detectable difference {limit} points") if limit else ""
        count = comparison.family
        holm = say(f", 비교 {count}개의 Holm 보정 후", f" after Holm's adjustment for {count} comparisons")
        return say("유의한 차이 미확인", "no difference shown") + (holm if lost_to_holm(comparison) else "") + could
    words = {
        "better": say("더 좋음", "better"),
        "worse": say("더 나쁨", "worse"),
        "same": say("모든 문항에서 같음", "the same on every item"),
    }
    return words[found]


def recommendation_sentence(it: Recommendation, lang: Lang) -> str:
    """What to keep, why, and whether the other half agrees. If nothing was chosen, what beats the base comes first."""
    if it.judged_on == "all" and it.over_bases:
        return f"{ends_against_base(it, lang)} {_highest(it, lang) if it.best == it.name else _choice(it, lang)}"
    return " ".join(part for part in (_choice(it, lang), _against_base(it, lang), _confirmed(it, lang), _more(it, lang)) if part)


def ends_against_base(it: Recommendation, lang: Lang) -> str:
    """Last checkpoints against their base on all documents: how many are better, and by how much."""
    better = sum(finding(one) == "better" for one in it.over_bases)
    count, changes = len(it.over_bases), ", ".join(f"{one.name} {points(one.difference)}" for one in it.over_bases)
    items = it.over_bases[0].difference.n
    if lang == "ko":
        base = f"원래 모델({it.base})" if it.base else "각자의 원래 모델"
        lead = (
            f"실행 {count}개 중 {better}개가 {base}보다 나은 것으로 확인되었습니다"
            if better
            else f"{base}보다 나은 것으로 확인된 실행이 없습니다"
        )
        return f"{lead}: {changes}점 (문서 {it.documents:,}개의 문항 {items:,}개 전체, Holm 보정){_could(it, better, lang)}."
    base = f"the base model {it.base}" if it.base else "the model it began from"
    runs = "run is" if count == 1 else "runs are"
    lead = f"{better} of {count} {runs} shown better than {base}" if better else f"Nothing here is shown to beat {base}"
    told = f"{changes} points (all {items:,} items of {it.documents:,} documents, Holm-adjusted)"
    return f"{lead}: {told}{_could(it, better, lang)}."


def _could(it: Recommendation, better: int, lang: Lang) -> str:
    """The detectable difference, if nothing is shown better."""
    largest = max((one.detectable for one in it.over_bases if one.detectable), default=None)
    if better or largest is None:
        return ""
    points = f"{100 * largest:.1f}"
    return (
        f"; 검출 가능한 차이 {points}점 (검정력 80%)" if lang == "ko" else f"; detectable difference {points} points (80% power)"
    )


def _highest(it: Recommendation, lang: Lang) -> str:
    """Which one to keep. The highest rank is no verdict about its method."""
    label, value = METRICS[it.metric].label, percent(it.value)
    if len(it.candidates) == 1:
        return f"{label} {value}."
    if lang == "ko":
        return (
            f"추천: {it.name}. 선택용 절반에서 가장 높고, 다른 절반에서 {label} {value}입니다. "
            "실행 사이의 우열은 검정하지 않았습니다."
        )
    return (
        f"Keep {it.name}: highest on the select half, {label} {value} on the other. The runs are not tested against each other."
    )


def _choice(it: Recommendation, lang: Lang) -> str:
    label, margin, count = METRICS[it.metric].label, f"{100 * it.margin:g}", len(it.candidates)
    trained = {candidate.path: candidate.tokens for candidate in it.candidates}
    ours, best = trained[it.chosen], trained[it.best_path]
    if lang == "ko":
        if count == 1:
            return f"{it.name} 하나만 평가되었습니다: {label} {percent(it.value)}."
        if it.saves:
            return (
                f"추천: {it.name}. 최고인 {it.best} 대비 {margin}점 이내임이 95% 신뢰수준에서 확인된 가장 이른 체크포인트이며, "
                f"학습량은 최고의 {100 * ours / best:.0f}%입니다. {label} {percent(it.value)}."
            )
        why = (
            f"더 이른 것 중 {margin}점 이내임이 확인된 것은 없습니다."
            if it.settled
            else f"이 세트는 {margin}점 이내인지 판정해 학습을 줄이기에는 작습니다."
        )
        return f"추천: {it.name}, {count}개 중 최고. {label} {percent(it.value)}. {why}"
    if count == 1:
        return f"Only {it.name} was evaluated: {label} {percent(it.value)}."
    if it.saves:
        return (
            f"Keep {it.name}: with 95% confidence it is within {margin} points of the best ({it.best}), "
            f"at {100 * ours / best:.0f}% of its training. {label} {percent(it.value)}."
        )
    if it.settled:
        return (
            f"Keep {it.name}, the best of {count}: {label} {percent(it.value)}. "
            f"No earlier one is within {margin} points at 95% confidence."
        )
    return (
        f"Keep {it.name}, the best of {count}: {label} {percent(it.value)}. "
        f"This set is too small to save training: it places no checkpoint within {margin} points of the best at 95% confidence."
    )


def _against_base(it: Recommendation, lang: Lang) -> str:
    if it.over_base is None:
        return ""
    change, shown = points(it.over_base.difference), finding(it.over_base)
    if lang == "ko":
        if it.beaten_base is False:
            return (
                f"다만 어느 체크포인트도 원래 모델({it.base})보다 나은 것이 확인되지 않았습니다 "
                f"(차이 {change}점{_holm(it, lang)})."
            )
        known = {"better": "더 나은 것이 확인되었습니다", "worse": "더 나쁜 것이 확인되었습니다"}.get(
            shown, "유의한 차이가 확인되지 않았습니다"
        )
        return f"원래 모델({it.base})보다 {change}점: {known}{_holm(it, lang)}."
    if it.beaten_base is False:
        return f"But nothing here is shown to beat the base model {it.base} (difference {change} points{_holm(it, lang)})."
    known = {"better": "shown better", "worse": "shown worse"}.get(shown, "no difference shown")
    return f"Against the base model {it.base}: {change} points, {known}{_holm(it, lang)}."


def _holm(it: Recommendation, lang: Lang) -> str:
    """Why an interval that excludes 0 is not significant: it is one of many."""
    if it.over_base is None or not lost_to_holm(it.over_base):
        return ""
    count = it.over_base.family
    if lang == "ko":
        return f"; 비교를 {count}개 했기 때문이며(Holm 보정), 이것 하나였다면 유의했을 것입니다"
    return f"; it would be if it were the only comparison, but {count} were made (Holm)"


def _confirmed(it: Recommendation, lang: Lang) -> str:
    if it.best_over_chosen is None:
        return ""
    change = points(it.best_over_chosen.difference)
    if lang == "ko":
        word = {
            "confirmed": "확인됨",
            "not confirmed": "확인되지 않음: 더 평가하거나 가장 높은 것을 쓰세요",
            "open": "어긋나지는 않으나 확정하기에는 문서가 적음",
        }
        return f"선택에 쓰지 않은 문서에서 (최고 - 선택) {change}점: {word[it.confirmation]}."
    word = {
        "confirmed": "confirmed",
        "not confirmed": "not confirmed: evaluate on more documents, or keep the best",
        "open": "compatible, but too few documents to settle it",
    }
    return f"On held-back documents the best leads by {change} points: {word[it.confirmation]}."


def _more(it: Recommendation, lang: Lang) -> str:
    if not it.more_documents or it.promising is None:
        return ""
    count = f"{rounded(it.more_documents):,}"
    if it.promising == it.name:
        if lang == "ko":
            return f"{100 * it.margin:g}점 이내를 확신하려면 이런 문서가 선택용 절반에 약 {count}개 더 필요합니다."
        return f"To be that sure would take about {count} more documents in the select half."
    if lang == "ko":
        return f"이런 문서가 선택용 절반에 약 {count}개 더 있으면 더 이른 {it.promising}도 판정할 수 있습니다."
    return f"About {count} more documents in the select half could settle the earlier {it.promising}."
