"""An Answer in words, Korean and English. In: claims and an Answer. Out: phrases, sentences and lines; nothing is decided."""

from __future__ import annotations

from collections.abc import Sequence

from coref_automl.comparison.claims import (
    BASE,
    COREFERENCE,
    RELATION,
    Answer,
    Caveat,
    Claim,
    NextTime,
    Question,
    QuestionId,
    Verdict,
)
from coref_automl.evaluation.metrics import METRICS
from coref_automl.report.language import Say, is_same, points, rounded, tokens
from coref_automl.report.page import Tone

_NAMED = 4
"""How many a sentence names."""
TONES: dict[str, Tone] = {"better": "good", "worse": "bad"}
_PARTS = {
    "last step": ("마지막 구간", "last step"),
    "peak to end": ("정점 - 마지막", "peak - end"),
    "equal tokens": ("같은 토큰 수에서", "at equal tokens"),
    "within reach": ("둘 다 닿는 문항", "within reach of both"),
    "beyond reach": ("짧은 쪽이 닿지 않는 문항", "beyond the shorter's reach"),
    "beyond minus within reach": ("닿지 않는 문항 - 닿는 문항", "beyond minus within reach"),
}
_CORRECTIONS = {"holm": "Holm", "bh": "Benjamini-Hochberg", "max-t": "max-T"}


def title(name: QuestionId, say: Say) -> str:
    return {
        "base": say("적응이 원래 모델보다 나은가?", "Does adapting beat the base model?"),
        "method": say("어느 방법인가?", "Which method?"),
        "length": say("어느 길이인가?", "Which length?"),
        "training": say("얼마나 오래 학습하는가?", "How long to train?"),
        "far": say("먼 언급으로 이어지는가?", "Does it carry over to far mentions?"),
        "lambada": say("LAMBADA로 이어지는가?", "Does it carry over to LAMBADA?"),
        "sources": say("데이터 소스마다 그러한가?", "Does it hold on every source?"),
        "relation": say("관계 추출로 이어지는가?", "Does it carry over to relation extraction?"),
        "coreference": say("상호참조 해결로 이어지는가?", "Does it carry over to coreference?"),
    }[name]


def short_title(name: QuestionId, say: Say) -> str:
    ko = {"base": "원래 모델", "method": "방법", "length": "길이", "training": "학습량", "far": "먼 언급", "lambada": "LAMBADA"}
    ko |= {"sources": "데이터 소스", "relation": "관계 추출", "coreference": "상호참조"}
    return say(ko[name], {"base": "the base", "lambada": "LAMBADA", "relation": "relations"}.get(name, name))


def side(name: str, say: Say) -> str:
    return say("원래 모델", "base") if name == BASE else name


def outcome(claim: Claim, say: Say) -> str:
    """What was measured, with the share of rows in words."""
    if claim.outcome == COREFERENCE:
        return say("상호참조, 정답 언급의 CoNLL", "Coreference, CoNLL with gold mentions")
    if claim.outcome == RELATION:
        told = say("관계 추출 micro-F1", "Relation extraction, micro-F1")
        return f"{told}{rows(claim, say)}"
    metric, _, measure = claim.outcome.partition(":")
    label = METRICS[metric].label
    return label if not measure else f"{label}, {measure.upper()}"


def rows(claim: Claim, say: Say) -> str:
    if claim.rows is None:
        return ""
    count = f"{claim.rows:,}"
    if claim.share is None:
        return say(f" (학습 데이터 {count}행)", f" ({count} rows of train)")
    if claim.share == 1:
        return say(f" (학습 데이터 전체 {count}행)", f" (all {count} rows of train)")
    return say(f" (학습 데이터의 {100 * claim.share:g}%, {count}행)", f" ({100 * claim.share:g}% of train, {count} rows)")


def part(claim: Claim, say: Say) -> str:
    return say(*_PARTS[claim.part]) if claim.part in _PARTS else claim.part


def about(claim: Claim, say: Say) -> str:
    """What is compared: `entity 2,048 - base`; of one method, which of its checkpoints."""
    if claim.a == claim.b:
        return f"{claim.a}, {part(claim, say)}"
    told = f"{claim.a} - {side(claim.b, say)}"
    return f"{told}, {part(claim, say)}" if claim.part else told


def change(claim: Claim, say: Say) -> str:
    return say("모든 문항에서 같음", "the same on every item") if is_same(claim.difference) else points(claim.difference)


def verdict(claim: Claim, say: Say) -> str:
    """The verdict in words, with what it could have shown or why there is none."""
    if claim.verdict == "not judged":
        return say("판정 없음", "not judged") + (f" ({why})" if (why := why_not(claim, say)) else "")
    told = word(claim.verdict, say, claim.within)
    if claim.verdict == "not shown" and claim.detectable:
        could = f"{100 * claim.detectable:.1f}"
        told += say(f" (검출 가능 차이 {could}점)", f" (detectable: {could} points)")
    if "before correction" in claim.against:
        told += say(", 보정 전에만 유의", ", significant before correction only")
    return told


def word(code: Verdict, say: Say, within: float | None = None) -> str:
    margin = f"{100 * within:g}" if within else ""
    equal = say(f"{margin}점 이내로 동등", f"equivalent within {margin} points") if margin else say("동등", "equivalent")
    return {
        "better": say("더 좋음", "better"),
        "worse": say("더 나쁨", "worse"),
        "equivalent": equal,
        "same": say("같음", "the same"),
        "not shown": say("차이 미확인", "not shown"),
        "not judged": say("판정 없음", "not judged"),
    }[code]


def why_not(claim: Claim, say: Say) -> str:
    seen = " / ".join(tokens(one) for one in claim.tokens)
    words: dict[Caveat, str] = {
        "one seed": say("시드 하나", "one seed"),
        "copies": say("실행들이 서로 같음", "the runs are copies of each other"),
        "one document": say("문서 하나", "one document"),
        "unequal training": say(f"학습량이 다름: {seen} 토큰", f"unequal training: {seen} tokens"),
    }
    return ", ".join(words[code] for code in claim.against if code in words)


def phrase(claim: Claim, say: Say) -> str:
    """`+2.3 [+1.4, +3.1], better`."""
    if claim.verdict == "same" or is_same(claim.difference):
        return say("모든 문항에서 같음", "the same on every item")
    return f"{change(claim, say)}, {verdict(claim, say)}"


def documents(claim: Claim, say: Say) -> str:
    count = f"{claim.count:,}"
    return {
        "all": say(f"모든 문서 {count}개", f"all {count} documents"),
        "confirm": say(f"고르는 데 쓰지 않은 문서 {count}개", f"{count} held-back documents"),
        "rows": say(f"모든 문장 {count}개", f"all {count} sentences"),
        "texts": say(f"글 {count}편", f"{count} texts"),
    }[claim.documents]


def seeds(claim: Claim, say: Say) -> str:
    if claim.test == "sign flips":
        return say("체크포인트 하나", "one checkpoint")
    both = claim.seeds[:1] if claim.b == BASE or claim.seeds[0] == claim.seeds[1] else claim.seeds
    told = "/".join(map(str, both))
    return say(f"시드 {told}개", f"{told} seed{'s' * (both != (1,))}")


def corrected(claim: Claim, say: Say) -> str:
    if claim.family < 2:
        return ""
    name = _CORRECTIONS[claim.correction]
    return say(f"비교 {claim.family}개 보정 ({name})", f"corrected for {claim.family} ({name})")


def basis(claim: Claim, say: Say) -> str:
    """On what a claim rests, in brackets."""
    return f"({', '.join(filter(None, (seeds(claim, say), documents(claim, say), corrected(claim, say))))})"


def sentence(claim: Claim, say: Say) -> str:
    """The whole claim: `Real@1 strict, entity 2,048 - base: +2.2 [+1.3, +3.1], better (3 seeds, all 1,747 documents, ...).`"""
    return f"{outcome(claim, say)}, {about(claim, say)}: {phrase(claim, say)} {basis(claim, say)}."


def answer_line(question: Question, it: Answer, say: Say) -> str:
    """A question's answer in a sentence for the first screen; its verdict and its difference stand beside it."""
    lead = question.lead
    more = "" if lead.shown else f", {verdict(lead, say)}"
    told = f"{outcome(lead, say)}{more} ({seeds(lead, say)}, {documents(lead, say)})."
    beside = [one for one in question.claims if (one.outcome, one.part, one.rows) == (lead.outcome, lead.part, lead.rows)]
    if question.id == "base" and len(beside) > 1:
        better = [one.a for one in beside if one.verdict == "better"]
        what = say("체크포인트", "checkpoints") if lead.test == "sign flips" else say("방법", "methods")
        listed = f": {listing(better)}" if better and len(better) <= _NAMED else ""
        told += say(
            f" {what} {len(beside)}개 중 {len(better)}개가 더 좋음{listed}.",
            f" {len(better)} of {len(beside)} {what} better{listed}.",
        )
    if question.id == "method":
        told += told_apart(it, say)
    if question.id == "training" and it.next_time is not None:
        told += f" {next_time(it.next_time, say)}"
    return told


def told_apart(it: Answer, say: Say) -> str:
    out = ""
    if it.ties:
        out += say(f" 구별되지 않음: {listing(it.ties)}.", f" Not told apart from it: {listing(it.ties)}.")
    if it.beats:
        out += say(f" 더 나음 확인: {listing(it.beats)} 대비.", f" Shown better than {listing(it.beats)}.")
    return out


def listing(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


def headline(it: Answer, say: Say) -> str:
    """What to do."""
    if it.action == "use method":
        return say(f"추천: {it.method}", f"Use {it.method}")
    if it.action == "use checkpoint":
        return say(f"추천: {it.highest}", f"Use {it.highest}")
    if it.action == "keep base":
        return say("원래 모델 유지: 더 나은 것이 확인되지 않았습니다", "Keep the base: nothing here is shown to beat it")
    if it.action == "no base":
        return say("비교할 원래 모델이 없습니다", "No base to compare with")
    return say("판정할 수 없습니다", "Undecided")


def reasons(it: Answer, say: Say) -> list[str]:
    """Why, in sentences: the gain over the base, ties, what could have been shown, what is missing."""
    question, out = it.question("base"), []
    lead = question.lead if question else None
    if lead is not None and it.action in ("use method", "use checkpoint"):
        out.append(sentence(lead, say))
        if lead.expected is not None:
            gain = f"{100 * lead.expected:+.1f}"
            out.append(
                say(
                    f"여러 방법 가운데 골랐으므로 기대되는 향상은 {gain}점입니다.",
                    f"Chosen among several, it is expected to gain {gain} points.",
                )
            )
        out += [told.strip()] if (told := told_apart(it, say)) else []
        if it.action == "use checkpoint":
            out.append(
                say("시드가 하나이므로 방법에 대해서는 알 수 없습니다.", "One seed per method: it says nothing about methods.")
            )
    elif lead is not None and it.action == "keep base":
        largest = max(question.claims if question else (), key=lambda one: one.difference.value)
        out.append(say("가장 큰 차이: ", "The largest difference: ") + sentence(largest, say))
        out += power(it, say)
    elif it.action == "no base":
        out.append(
            say(
                f"원래 모델이 같은 문항과 창 길이로 평가되지 않았습니다. 가장 높은 것: {it.highest}.",
                f"The base was not evaluated on these items at this length. Highest: {it.highest}.",
            )
            if it.candidates > 1
            else say(f"{it.highest} 하나만 평가되었습니다.", f"Only {it.highest} was evaluated.")
        )
    elif lead is not None:
        out.append(sentence(lead, say))
    return out


def power(it: Answer, say: Say) -> list[str]:
    """What the study could have shown, and what it would take."""
    held, out = it.power, []
    if "floor" in it.against:
        out.append(
            say(
                "바닥 효과: 점수가 너무 낮아 차이가 드러날 수 없습니다.",
                "Floor effect: scores are too low for a difference to show.",
            )
        )
    if "few documents" in it.against:
        out.append(say("문서가 너무 적습니다.", "There are too few documents."))
    if held is None:
        return out
    if held.detectable is not None:
        could = f"{100 * held.detectable:.1f}"
        out.append(
            say(
                f"이 실험으로 검출되는 향상: {could}점 (검정력 80%, 문서 {held.documents:,}개, 시드 {held.seeds}개).",
                f"This study detects a gain of {could} points with 80% power ({held.documents:,} documents, {held.seeds} "
                f"seed{'s' * (held.seeds != 1)}).",
            )
        )
    if held.needed is not None and held.largest is not None:
        gain, count = f"{100 * held.largest:+.1f}", f"{rounded(held.needed):,}"
        out.append(
            say(
                f"{gain}점을 확인하려면 문서가 약 {count}개 필요합니다.",
                f"Showing {gain} points takes about {count} documents.",
            )
        )
    return out


def next_time(ahead: NextTime, say: Say) -> str:
    """How long to train next time, and what it would take to know of less."""
    within = f"{100 * ahead.loss:.2g}"
    if ahead.how == "less":
        share = f"{100 * (ahead.share or 0):.0f}%"
        ko, en = f"이번의 {share}", f"for {share} of this training"
        if ahead.tokens is not None:
            ko, en = (
                f"{tokens(ahead.tokens)} 토큰(이번의 {share})",
                f"until {tokens(ahead.tokens)} tokens ({share} of this training)",
            )
        told = say(
            f"다음에는 {ko}까지 학습하면 됩니다: 정점과 {within}점 이내(95% 신뢰수준)인 가장 이른 지점입니다.",
            f"Next time, train {en}: the earliest point within {within} points of the highest at 95% confidence.",
        )
    elif ahead.how == "longer":
        told = say(
            "다음에는 더 길게 학습해 보세요: 마지막 구간의 향상이 확인되었습니다.",
            "Next time, train longer: the last step is shown to gain.",
        )
    else:
        told = say("다음에도 이만큼 학습하세요.", "Next time, train as long.")
    if ahead.more_documents and ahead.promising is not None:
        count, point = f"{rounded(ahead.more_documents):,}", tokens(ahead.promising)
        told += say(
            f" 문서가 약 {count}개 더 있으면 {point} 토큰으로 충분한지 검정력 80%로 알 수 있습니다.",
            f" About {count} more documents would show with 80% power whether {point} tokens do.",
        )
    return told


def keep_lines(it: Answer, say: Say, *, named: bool = True) -> list[str]:
    """The checkpoint to keep, and what makes it again where its weights are gone; `named`: its path stands nowhere else."""
    keep = it.keep
    if keep is None:
        return []
    facts = [say(f"체크포인트: {keep.path}", f"Checkpoint: {keep.path}")] if named else []
    facts += [say(f"{tokens(keep.tokens)} 토큰", f"{tokens(keep.tokens)} tokens")] if keep.tokens else []
    if keep.expected is not None:
        gain = f"{100 * keep.expected:+.1f}"
        facts.append(say(f"기대 향상 {gain}점 (축소 추정)", f"expected gain {gain} points (shrunken)"))
    told = [f"{', '.join(facts)}."] if facts else []
    if keep.tied:
        told.append(say(f"값이 같은 체크포인트: {listing(keep.tied)}.", f"As high: {listing(keep.tied)}; the earliest is taken."))
    if not keep.there:
        told.append(
            say("가중치가 이 디스크에 없습니다. ", "Its weights are not on this disk. ")
            + (say(f"다시 만들기: {keep.again}", f"To make them again: {keep.again}") if keep.again else "")
        )
    return told


def answer_lines(it: Answer, say: Say) -> list[str]:
    """The whole answer for a terminal."""
    lines = [f"{headline(it, say)}.", " ".join(reasons(it, say)), *keep_lines(it, say)]
    if it.next_time is not None:
        lines.append(next_time(it.next_time, say))
    lines += [f"{title(question.id, say)} {sentence(question.lead, say)}" for question in it.questions if question.id != "base"]
    if it.looks > 1:
        lines.append(looks(it, say))
    return [line for line in (*lines, *caveats(it, say)) if line]


def caveats(it: Answer, say: Say) -> list[str]:
    """What stands against the whole answer and is not said elsewhere."""
    told: dict[Caveat, str] = {
        "unequal training": say(
            "학습량이 다른 방법이 있습니다: 방법끼리의 판정은 같은 학습량에서만 냅니다.",
            "Some methods were trained unequally; methods are judged at equal training only.",
        ),
        "few documents": say("판정한 문서가 매우 적습니다.", "Very few documents judge."),
        "other tokenizer": say(
            "토크나이저가 서로 달라 후보 순위(word)로만 비교합니다.",
            "Tokenizers differ: only ranks among candidates (word) are compared.",
        ),
    }
    return [told[code] for code in it.against if code in told]


def looks(it: Answer, say: Say) -> str:
    return say(
        f"시드를 더하며 {it.looks}번 판정했습니다. 판정마다의 5%는 그만큼 더해집니다.",
        f"Judged {it.looks} times as seeds were added: each look adds its own 5%.",
    )
