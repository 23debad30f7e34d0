"""Sentences about results, in Korean and English. In: a Recommendation or a Comparison. Out: text with its numbers."""

from __future__ import annotations

from coref_automl.comparison.advice import NextTime
from coref_automl.comparison.differences import finding, in_words, lost_to_family
from coref_automl.comparison.recommendation import Recommendation
from coref_automl.evaluation.metrics import METRICS
from coref_automl.records import Comparison
from coref_automl.report.language import Lang, Say, is_same, percent, points, rounded, tokens

_NAMED = 3
"""How many checkpoints a sentence names."""


def verdict(comparison: Comparison, lang: Lang) -> str:
    """The verdict in words, with the detectable difference where nothing is shown."""
    say, found = Say(lang), finding(comparison)
    if found == "not shown":
        return in_words(comparison, say)
    words = {
        "better": say("더 좋음", "better"),
        "worse": say("더 나쁨", "worse"),
        "same": say("모든 문항에서 같음", "the same on every item"),
    }
    return words[found]


def recommendation_sentence(it: Recommendation, lang: Lang) -> str:
    """What to use, and how long to train next time. If nothing beats the base, or nothing was chosen, that comes first."""
    first = ends_against_base(it, lang) if it.judged_on == "all" and it.over_bases else _nothing_better(it, lang)
    against = "" if first else _against_base(it, lang)
    parts = (
        first,
        _use(it, lang),
        _tied(it, lang),
        against,
        _against_others(it, lang),
        _contradicted(it, lang),
        _next_time(it, lang),
    )
    return " ".join(part for part in parts if part)


def ends_against_base(it: Recommendation, lang: Lang) -> str:
    """Last checkpoints against their base on all documents: how many are better, and by how much."""
    better = sum(finding(one) == "better" for one in it.over_bases)
    count = len(it.over_bases)
    changes = _changes(it, lang)
    items = it.over_bases[0].difference.n
    if lang == "ko":
        base = f"원래 모델({it.base})" if it.base else "각자의 원래 모델"
        lead = (
            f"실행 {count}개 중 {better}개가 {base}보다 나은 것으로 확인되었습니다"
            if better
            else f"{base}보다 나은 것으로 확인된 실행이 없습니다"
        )
        return f"{lead}: {changes} (문서 {it.documents:,}개의 문항 {items:,}개 전체, max-T 보정){_could(it, better, lang)}."
    base = f"the base model {it.base}" if it.base else "the model it began from"
    runs = "run is" if count == 1 else "runs are"
    lead = f"{better} of {count} {runs} shown better than {base}" if better else f"Nothing here is shown to beat {base}"
    told = f"{changes} (all {items:,} items of {it.documents:,} documents, max-T adjusted)"
    return f"{lead}: {told}{_could(it, better, lang)}."


def _changes(it: Recommendation, lang: Lang) -> str:
    """Every run with its difference; of many the highest, for a table holds the others."""
    told, rest = it.over_bases, ""
    if len(told) > _NAMED:
        told = tuple(sorted(told, key=lambda one: -one.difference.value)[:_NAMED])
        rest = Say(lang)("높은 순으로 ", f"the {_NAMED} highest are ")
    return rest + ", ".join(f"{one.name} {_change(one, lang)}" for one in told)


def _change(one: Comparison, lang: Lang) -> str:
    say = Say(lang)
    if finding(one) == "same":
        return say("모든 문항에서 같음", "the same on every item")
    return points(one.difference) + say("점", " points")


def _could(it: Recommendation, better: int, lang: Lang) -> str:
    """The detectable difference, if nothing is shown better."""
    largest = max((one.detectable for one in it.over_bases if one.detectable), default=None)
    if better or largest is None:
        return ""
    points = f"{100 * largest:.1f}"
    return f"; 검출 가능 차이 {points}점 (검정력 80%)" if lang == "ko" else f"; detectable difference {points} points (80% power)"


def _nothing_better(it: Recommendation, lang: Lang) -> str:
    """The first thing to say if no checkpoint and not the method either is shown to beat the base."""
    if it.beaten_base is not False or it.use.status != "not better than the base" or it.use.over_base is None:
        return ""
    change = points(it.use.over_base)
    told = Say(lang)(f"차이 {change}점", f"difference {change} points") + _one_of_many(it, lang)
    if is_same(it.use.over_base):
        told = Say(lang)("모든 문항에서 같음", "the same on every item")
    if lang == "ko":
        return f"원래 모델({it.base})보다 나은 것으로 확인된 것이 없습니다 ({told})."
    return f"Nothing here is shown to beat the base model {it.base} ({told})."


def _use(it: Recommendation, lang: Lang) -> str:
    use, label, count = it.use, METRICS[it.metric].label, len(it.candidates)
    value, trained, several = percent(use.value), tokens(use.tokens), use.seeds > 1
    if lang == "ko":
        where = {"all": "모든 문서", "confirm": "확인용 절반의 문서", "select": "고르는 데 쓴 문서"}[use.judged_on]
        if count == 1:
            return f"{it.name} 하나만 평가되었습니다: {label} {value} ({where})."
        if it.use.status == "not better than the base":
            name = f"{use.method} 방법과 체크포인트 {use.name}" if several else use.name
            return f"학습한 체크포인트 {count}개 중에서는 {name}의 사후 평균이 가장 높습니다: {label} {value} ({where})."
        if several:
            return (
                f"추천: {use.method}, 학습 {trained} 토큰. {label} {value} (시드 {use.seeds}개 평균, {where}). "
                f"체크포인트는 사후 평균이 가장 높은 {use.name}입니다."
            )
        known = f" (학습 {trained} 토큰)" if use.tokens is not None else ""
        return f"추천: {use.name}{known}, {count}개 중 사후 평균이 가장 높습니다. {label} {value} ({where})."
    where = {"all": "all documents", "confirm": "held-back documents", "select": "the documents that chose it"}[use.judged_on]
    if count == 1:
        return f"Only {it.name} was evaluated: {label} {value} on {where}."
    if it.use.status == "not better than the base":
        name = f"{use.method} and its checkpoint {use.name} have" if several else f"{use.name} has"
        return f"Of the {count} trained checkpoints, {name} the highest posterior mean: {label} {value} on {where}."
    if several:
        return (
            f"Use {use.method}, trained on {trained} tokens: {label} {value} over {use.seeds} seeds on {where}; "
            f"of its checkpoints {use.name} has the highest posterior mean."
        )
    known = f", trained on {trained} tokens" if use.tokens is not None else ""
    return f"Use {use.name}{known}: highest posterior mean of {count}, {label} {value} on {where}."


def _tied(it: Recommendation, lang: Lang) -> str:
    """Why this one of several that are as high."""
    tied = it.use.tied
    if not tied:
        return ""
    named = ", ".join(tied[:_NAMED]) + (", ..." if len(tied) > _NAMED else "")
    if lang == "ko":
        return f"선택용 문서에서 값이 같은 체크포인트 {len(tied)}개({named})가 더 있어 가장 이른 것을 골랐습니다."
    others = "another checkpoint is" if len(tied) == 1 else f"{len(tied)} other checkpoints are"
    return f"On the documents that chose it {others} as high ({named}); the earliest is taken."


def _against_others(it: Recommendation, lang: Lang) -> str:
    """Is the method shown to beat the others? One seed shows nothing."""
    won, left, alone = it.use.better_than, it.use.open_against, len(it.use.unjudged)
    if not won and not left:
        return ""
    if it.use.seeds < 2:
        if lang == "ko":
            return "시드가 하나여서 실행 사이의 우열은 검정하지 않았습니다."
        return "The runs are not tested against each other: one seed shows nothing about a method."
    count = len(won) + len(left)
    if lang == "ko":
        among = f"시드가 2개 이상인 다른 방법 {count}개"
        rest = f" 시드가 하나인 {alone}개는 판정하지 않았습니다." if alone else ""
        if not left:
            return f"{among} 모두보다 나은 것으로 확인되었습니다.{rest}"
        if not won:
            return f"{among}와의 차이는 확인되지 않았습니다.{rest}"
        better = f"{among} 중 {len(won)}개({', '.join(won)})보다 나은 것으로 확인되었고"
        return f"{better}, {len(left)}개와의 차이는 미확인입니다.{rest}"
    among = f"the {count} other methods with several seeds" if count > 1 else "the other method with several seeds"
    rest = f" {alone} with one seed {'is' if alone == 1 else 'are'} not judged." if alone else ""
    if not left:
        return f"It is shown better than {among}.{rest}"
    if not won:
        return f"It is not shown better than {'any of ' if count > 1 else ''}{among}.{rest}"
    return f"It is shown better than {len(won)} of {among} ({', '.join(won)}); against {len(left)} it is open.{rest}"


def _next_time(it: Recommendation, lang: Lang) -> str:
    """How long to train next time, and what it would take to know of less."""
    ahead = it.next_time
    if len(it.candidates) == 1:
        return ""
    if ahead is None:
        single = len({one.run for one in it.candidates}) == len(it.candidates)
        if lang == "ko":
            why = (
                "실행마다 평가된 체크포인트가 하나입니다" if single else "이 방법의 실행들에서 함께 평가된 에폭이 2개 미만입니다"
            )
            return f"다음 학습량에 대해서는 말할 수 없습니다: {why}."
        why = "each run has one evaluated checkpoint" if single else "its runs share fewer than two evaluated epochs"
        return f"How long to train next time cannot be said: {why}."
    loss, curve = f"{100 * ahead.loss:.2g}", ahead.seeds > 1
    if lang == "ko":
        line = "평균 곡선" if curve else "곡선"
        quarter = " (원래 모델 대비 향상의 4분의 1)" if ahead.loss < it.margin else ""
        within = f"최고점과 {loss}점{quarter} 이내임이 95% 신뢰수준에서 확인되는"
        if ahead.share is None:
            told = f"다음에도 같은 만큼 학습하세요: 문서가 적어 {line}에서 {within} 지점이 없습니다."
        elif ahead.share == 1:
            told = f"다음에는 더 길게 학습해 보세요: {line}의 마지막이 정점이고, 더 이른 지점 가운데 {within} 것이 없습니다."
        else:
            share = f"{100 * ahead.share:.0f}%"
            until = f"이번의 {share}" if ahead.tokens is None else f"{tokens(ahead.tokens)} 토큰({share})"
            told = f"다음에는 {until}까지 학습하세요: {line}에서 {within} 가장 이른 지점입니다."
        return told + _plan(ahead, lang)
    line = "mean curve" if curve else "curve"
    quarter = " (a quarter of the gain over the base)" if ahead.loss < it.margin else ""
    within = f"within {loss} points{quarter} of its highest at 95% confidence"
    if ahead.share is None:
        told = f"Next time, train as long: there are too few documents to place any point of its {line} {within}."
    elif ahead.share == 1:
        told = f"Next time, train longer: its {line} is highest at the end, and no earlier point is {within}."
    else:
        share = f"{100 * ahead.share:.0f}% of this training"
        until = f"for {share}" if ahead.tokens is None else f"until {tokens(ahead.tokens)} tokens ({share})"
        told = f"Next time, train {until}: the earliest point of its {line} {within}."
    return told + _plan(ahead, lang)


def _plan(ahead: NextTime, lang: Lang) -> str:
    if not ahead.more_documents or ahead.promising is None:
        return ""
    count, point = f"{rounded(ahead.more_documents):,}", tokens(ahead.promising)
    if lang == "ko":
        return f" 선택용 절반에 이런 문서가 약 {count}개 더 있으면 {point} 토큰 지점도 80% 검정력으로 확인할 수 있습니다."
    return f" With about {count} more documents in the select half, {point} tokens would do with 80% power."


def _against_base(it: Recommendation, lang: Lang) -> str:
    change = it.use.over_base
    if change is None:
        return ""
    worse = change.high < 0
    better = not worse and it.use.status != "not better than the base"
    if lang == "ko":
        known = "더 나은 것으로 확인되었습니다" if better else "더 나쁩니다" if worse else "유의한 차이가 확인되지 않았습니다"
        return f"원래 모델({it.base}) 대비 {points(change)}점: {known}{_one_of_many(it, lang)}."
    known = "shown better" if better else "worse" if worse else "no difference shown"
    return f"Against the base model {it.base}: {points(change)} points, {known}{_one_of_many(it, lang)}."


def _one_of_many(it: Recommendation, lang: Lang) -> str:
    """Why an interval that excludes 0 is not significant: it is one of many."""
    use = it.use
    if use.seeds > 1 and use.status == "not better than the base" and use.over_base is not None and use.over_base.low > 0:
        count = 1 + len(use.better_than) + len(use.open_against)
        if lang == "ko":
            return f"; 방법 {count}개 가운데 고른 것이기 때문이며(Bonferroni 보정), 이것 하나였다면 유의했을 것입니다"
        return f"; it would be if it were the only method, but it was chosen of {count} (Bonferroni)"
    if use.seeds > 1 or it.over_base is None or not lost_to_family(it.over_base):
        return ""
    count = it.over_base.family
    if lang == "ko":
        return f"; 비교를 {count}개 했기 때문이며(max-T 보정), 이것 하나였다면 유의했을 것입니다"
    return f"; it would be if it were the only comparison, but {count} were made (max-T)"


def _contradicted(it: Recommendation, lang: Lang) -> str:
    """The other half disagrees: there the highest of `select` leads by more than the margin."""
    if it.best_over_chosen is None or it.confirmation != "not confirmed":
        return ""
    change = points(it.best_over_chosen.difference)
    if lang == "ko":
        return f"다만 확인용 절반의 문서에서는 {it.best}이(가) {change}점 앞섭니다: 더 많은 문서로 평가하세요."
    return f"On held-back documents {it.best} leads it by {change} points: not confirmed, evaluate on more documents."
