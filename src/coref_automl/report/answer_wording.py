"""An Answer in words, Korean and English. In: an Answer. Out: its headline, reasons, badges and lines; nothing is decided.

Questions differ in their badge and in what follows the leading claim: `_WORDINGS` has both for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from coref_automl.base.records import grouped
from coref_automl.base.say import Say
from coref_automl.comparison.claims import BASE, Answer, Caveat, Claim, NextTime, Question, QuestionId
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.comparison.questions import TASKS
from coref_automl.report.page import is_same, note, points, rounded, tokens
from coref_automl.report.wording import ClaimText, short_title, title

_NAMED = 4
"""How many names a sentence lists."""
_OWN_BADGES = ("base", "method", "length", "last step", "peak to end")
"""Questions, and parts of a method's curve, that have badges of their own."""
_OF_OTHER = {"worse": ("더 좋음", "better"), "better": ("더 나쁨", "worse")}
"""The verdict on a method, said of the other one."""


def listing(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


def headline(answer: Answer, say: Say) -> str:
    """What to do; a method is named with its ties."""
    names = (answer.method, *answer.ties) if answer.action == "use method" and answer.method else (answer.highest,)
    *first, last = names[: _NAMED + 1] if len(names) <= _NAMED + 1 else (*names[:_NAMED], "...")
    name = f"{', '.join(first)}{say(' 또는 ', ' or ')}{last}" if first else last
    return note(f"headline: {answer.action}", say, name=name)


def reasons(answer: Answer, say: Say) -> list[str]:
    """Why: what decides between tied methods, the gain over the base, ties, what could have been shown, what is missing."""
    question, lead, sentences = answer.question("base"), answer.gain, []
    text = ClaimText(lead, say) if lead is not None else None
    if text is not None and answer.action in ("use method", "use checkpoint"):
        gain = f"{text.sentence()} {text.expected_gain()}".strip()
        sentences += [trade_off(answer, say), gain, " ".join(other_methods(answer, say))]
        if answer.action == "use checkpoint":
            sentences.append(note("one seed per method", say))
    elif text is not None and answer.action == "keep base":
        sentences += [say("가장 높은 것: ", "Highest: ") + text.sentence(), " ".join(power(answer, say))]
    elif answer.action == "no base":
        only = say(f"{answer.highest} 하나만 평가되었습니다.", f"Only {answer.highest} was evaluated.")
        sentences.append(note("no base", say, highest=answer.highest) if answer.candidates > 1 else only)
    elif question is not None and question.tested:
        sentences.append(ClaimText(question.lead, say).sentence())
    return [sentence for sentence in sentences if sentence]


def trade_off(answer: Answer, say: Say) -> str:
    """Which of the tied methods is better on which task."""
    differences: dict[str, list[str]] = {}
    for (name, verdict), claims in grouped(answer.apart(), lambda claim: (claim.b, claim.verdict)).items():
        window = say(" (창 길이가 다름)", " (another window)") if claims[0].question == "length" else ""
        tasks = "·".join(dict.fromkeys(ClaimText(claim, say).task() for claim in claims)) + window
        ko, en = _OF_OTHER[verdict]
        differences.setdefault(name, []).append(say(f"{tasks}에서 {ko}", f"{en} on {tasks}"))
    if differences:
        listed = "; ".join(f"{name} {', '.join(verdicts)}" for name, verdicts in differences.items())
        return say(f"과제별 선택 ({answer.method} 대비): {listed}.", f"Choose by task (beside {answer.method}): {listed}.")
    return say("평가한 과제로는 구별되지 않습니다.", "No task tested here tells them apart.") if answer.unbeaten else ""


def power(answer: Answer, say: Say) -> list[str]:
    """What the study could have shown, and what it would take to show the largest gain."""
    study, sentences = answer.power, []
    if "floor" in answer.against:
        sentences.append(note("floor", say))
    if "few documents" in answer.against:
        sentences.append(say("문서가 너무 적습니다.", "There are too few documents."))
    if study is None:
        return sentences
    if study.detectable is not None:
        detectable = f"{100 * study.detectable:.1f}"
        sentences.append(note("detects", say, detectable=detectable, documents=study.documents, seeds=study.seeds))
    if study.needed is not None and study.largest is not None:
        gain, count, seeds = f"{100 * study.largest:+.1f}", f"{rounded(study.needed):,}", f"{rounded(study.needed_seeds or 0):,}"
        sentences.append(note("needed", say, gain=gain, count=count, seeds=seeds))
    return sentences


def other_methods(answer: Answer, say: Say) -> list[str]:
    """How every other method compares with the one to use: tied, beaten, or without a verdict."""
    by_relation = {
        "unbeaten": [_with_lead(answer, name, say) for name in answer.unbeaten],
        "unproven": answer.unproven,
        "beaten": [_with_lead(answer, name, say) for name in answer.beats],
        "unjudged": answer.unjudged,
        "not compared": answer.not_compared(),
    }
    equal = {"unbeaten": _compared_at(answer, answer.unbeaten, say), "beaten": _compared_at(answer, answer.beats, say)}
    named = [(relation, listing(names)) for relation, names in by_relation.items() if names]
    sentences = [note(f"methods: {relation}", say, at=equal.get(relation), names=names) for relation, names in named]
    apart = "; ".join(ClaimText(claim, say).sentence().removesuffix(".") for claim in answer.apart()[:_NAMED])
    return [*sentences, note("methods: on another task", say, names=apart)] if apart else sentences


def _with_lead(answer: Answer, name: str, say: Say) -> str:
    """Another method, with the lead of the method to use."""
    claim = answer.beside(name)
    if claim is None or is_same(claim.difference):
        return name
    shown = ClaimText(claim, say).phrase() if claim.verdict == "equivalent" else points(claim.difference)
    return f"{name} ({shown})"


def _compared_at(answer: Answer, names: Sequence[str], say: Say) -> str:
    """The words "at equal tokens" if these methods are compared there, because training was unequal; else empty."""
    claims = map(answer.beside, names)
    return note("methods: at equal tokens", say) if any(claim and claim.part == "equal tokens" for claim in claims) else ""


# -- the questions


def badge(question: Question, answer: Answer, say: Say) -> str:
    """A question's answer in a few words: yes, no, not known; for methods, how many are tied and beaten."""
    if not question.tested:
        return say("비교 없음", "not compared")
    return _wording(question).badge(question, answer, say)


def answer_line(question: Question, answer: Answer, say: Say) -> str:
    """A question's answer in a sentence for the first screen; its badge and its difference stand beside it."""
    if not question.tested:
        return untested(answer, say)
    return " ".join([ClaimText(question.lead, say).brief(), *_wording(question).more(question, answer, say)])


def question_line(question: Question, answer: Answer, say: Say) -> str:
    """A question and its plain answer, then the claim behind it."""
    if not question.tested:
        return f"{title(question.id, say)} {untested(answer, say)}"
    wording, text = _wording(question), ClaimText(question.lead, say)
    plain = wording.badge(question, answer, say)
    caveat = "" if wording.badge_counts else text.caveat()
    opening = f"{title(question.id, say)} {plain[:1].upper()}{plain[1:]}{caveat}."
    more = [] if wording.more_said else wording.more(question, answer, say)
    return " ".join([opening, text.sentence(with_verdict=wording.badge_counts), *more])


def _verdict_badge(question: Question, _answer: Answer, say: Say) -> str:
    """The verdict of the leading claim."""
    lead, text = question.lead, ClaimText(question.lead, say)
    if lead.verdict in ("equivalent", "no gain", "not judged"):
        return text.verdict_word()
    if lead.verdict == "same":
        return text.phrase()
    is_gain = lead.b in (BASE, lead.a)
    if lead.verdict == "not shown":
        return say("향상 미확인", "no gain shown") if is_gain else say("차이 미확인", "no difference shown")
    if lead.verdict == "better" and lead.of_checkpoint:
        return say("예, 체크포인트 하나에서", "yes, of one checkpoint")
    kind = lead.part if lead.a == lead.b else question.id
    kind = kind if kind in _OWN_BADGES else "base" if is_gain else "another"
    return note(f"badge: {kind}: {lead.verdict}", say, other=lead.b)


def _methods_badge(question: Question, answer: Answer, say: Say) -> str:
    """How many methods are beaten and tied; the verdict if no method is to be used."""
    if answer.action != "use method":
        return _verdict_badge(question, answer, say)
    counts = {
        say("{}개보다 나음", "better than {}"): len(answer.beats),
        say("{}개와 동률", "tied with {}"): len(answer.unbeaten),
        say("{}개 판정 없음", "{} not judged"): len(answer.unjudged),
    }
    return " · ".join(text.format(count) for text, count in counts.items() if count) or say("판정 없음", "not judged")


def _sources_badge(question: Question, answer: Answer, say: Say) -> str:
    """The number of sources on which the gain is shown."""
    lead = question.lead
    if lead.verdict not in ("better", "no gain", "not shown"):
        return _verdict_badge(question, answer, say)
    better = [claim.verdict == "better" for claim in question.claims if (claim.a, claim.b) == (lead.a, lead.b)]
    ko = f"문항이 충분한 {len(better)}개 중 {sum(better)}개에서 확인"
    return say(ko, f"shown on {sum(better)} of {len(better)} with enough items")


def _better_than_base(question: Question, _answer: Answer, say: Say) -> list[str]:
    """The methods or checkpoints that are better than the base."""
    lead = question.lead
    alike = [claim for claim in _alike(question.claims, lead) if claim.part == lead.part]
    if len(alike) < 2:
        return []
    better = [claim.a for claim in alike if claim.verdict == "better"]
    kind = say("체크포인트", "checkpoints") if lead.test == "sign flips" else say("방법", "methods")
    listed = f": {listing(better)}" if better and len(better) <= _NAMED else ""
    tried, count = len(alike), len(better)
    return [say(f"{kind} {tried}개 중 {count}개가 더 좋음{listed}.", f"{count} of {tried} {kind} better{listed}.")]


def _weakest_source(question: Question, _answer: Answer, say: Say) -> list[str]:
    count, part = len({claim.part for claim in question.claims}), question.lead.part
    weakest = say(f"데이터 소스 {count}개 중 가장 약한 곳: {part}.", f"Weakest of {count} sources: {part}.")
    return [weakest] if count > 1 else []


def _unbeaten_on_task(question: Question, answer: Answer, say: Say) -> list[str]:
    """The gains on the task of methods that are tied with the one to use."""
    gains = [claim for claim in _alike(question.others, question.lead) if claim.b == BASE and claim.a in answer.unbeaten]
    return [f"{text.about()}: {text.phrase()}." for text in (ClaimText(claim, say) for claim in gains)]


def _on_check(question: Question, answer: Answer, say: Say) -> list[str]:
    """The method to use against another one, the number of its seeds that were fine-tuned, and the methods tied with it."""
    lead, sentences = question.lead, []
    other = next((claim for claim in _alike(question.others, lead) if claim.a == lead.a and claim.b != BASE), None)
    if other is not None:
        phrase = ClaimText(other, say).phrase()
        sentences.append(say(f"{other.b} 대비 {phrase}.", f"Against {other.b}: {phrase}."))
    if answer.gain and not lead.of_checkpoint and lead.seeds[0] < answer.gain.seeds[0]:
        sentences.append(note("some seeds", say, count=lead.seeds[0], full=answer.gain.seeds[0]))
    return [*sentences, *_unbeaten_on_task(question, answer, say)]


def _alike(claims: Sequence[Claim], lead: Claim) -> list[Claim]:
    """Claims on the same outcome, and in relation extraction on as many rows."""
    return [claim for claim in claims if (claim.outcome, claim.rows) == (lead.outcome, lead.rows)]


class _Wording(NamedTuple):
    """A question's short answer (its badge), and what follows its leading claim (`more`), which a terminal leaves out where the
    reasons say it. If the badge counts methods or sources, the claim keeps its own verdict."""

    badge: Callable[[Question, Answer, Say], str]
    more: Callable[[Question, Answer, Say], list[str]]
    more_said: bool = False
    badge_counts: bool = False


_WORDINGS: dict[QuestionId, _Wording] = {
    "base": _Wording(_verdict_badge, _better_than_base, more_said=True),
    "method": _Wording(_methods_badge, lambda _, answer, say: other_methods(answer, say), more_said=True, badge_counts=True),
    "length": _Wording(_verdict_badge, lambda *_: []),
    "training": _Wording(
        _verdict_badge,
        lambda _, answer, say: [next_time(answer.next_time, say)] if answer.next_time else [],
        more_said=True,
    ),
    "sources": _Wording(_sources_badge, _weakest_source, badge_counts=True),
    **dict.fromkeys(TASKS, _Wording(_verdict_badge, _unbeaten_on_task)),
}


def _wording(question: Question) -> _Wording:
    return _WORDINGS.get(question.id, _Wording(_verdict_badge, _on_check))


def lacking(answer: Answer, say: Say) -> str:
    """The tasks that the recommended model was not tested on."""
    tasks, name = ", ".join(short_title(name, say) for name in answer.untested), answer.method or answer.highest
    return say(f"{name} 미평가: {tasks}.", f"Not tested for {name}: {tasks}.") if tasks else ""


def untested(answer: Answer, say: Say) -> str:
    """The answer to a question whose claims are about other models."""
    name = answer.method or answer.highest
    return say(f"{name}: 비교되지 않았습니다.", f"Not compared for {name}.")


def next_time(ahead: NextTime, say: Say) -> str:
    """How long to train next time."""
    share, trained = f"{100 * (ahead.share or 0):.0f}%", tokens(ahead.tokens)
    ko, en = f"이번의 {share}", f"for {share} of this training"
    if ahead.tokens is not None:
        ko, en = f"{trained} 토큰(이번의 {share})", f"until {trained} tokens ({share} of this training)"
    return note(f"next time: {ahead.how}", say, ko=ko, en=en, within=f"{100 * ahead.loss:.2g}")


def keep_lines(answer: Answer, say: Say, *, named: bool = True) -> list[str]:
    """The checkpoint to keep, and what makes it again if its weights are gone; not `named` where the page shows both itself."""
    keep = answer.keep
    if keep is None:
        return []
    here = say("이 디스크에 있음", "on this disk") if keep.there else say("이 디스크에 없음", "not on this disk")
    facts = [say(f"체크포인트: {keep.path}", f"Checkpoint: {keep.path}")] if named or not keep.there else []
    facts += [say(f"{tokens(keep.tokens)} 토큰", f"{tokens(keep.tokens)} tokens")] if keep.tokens else []
    if keep.expected is not None and answer.action == "use checkpoint":  # that of a method is in the reasons
        gain = f"{100 * keep.expected:+.1f}"
        facts.append(say(f"기대 향상 {gain}점 (축소 추정)", f"expected gain {gain} points (shrunken)"))
    documents = say("선택용 절반", "the select half") if keep.chose else say("모든 문서", "all documents")
    rule = note("highest shown" if answer.method is None else "chosen checkpoint", say, method=answer.method, on=documents)
    lines = [f"{', '.join((*facts, here))}. {rule}"]
    if keep.tied:
        tied = listing(keep.tied)
        lines.append(say(f"값이 같은 체크포인트: {tied}.", f"As high: {tied}; the earliest is taken."))
    if keep.again and named and not (answer.step and answer.step.do == "make again"):
        lines.append(say(f"다시 만들기: {keep.again}", f"Make again: {keep.again}"))
    return lines


def step_reason(answer: Answer, say: Say) -> str:
    """Why the next step is the next one."""
    if answer.step is None:
        return ""
    needed = answer.power.needed_seeds if answer.power else None
    count = answer.questions[0].lead.seeds[0] if answer.questions else 1
    several = say(f" (방법당 시드 {needed}개면 충분할 것으로 보입니다)", f" ({needed} per method should do)") if needed else ""
    return note(f"step: {answer.step.do}", say, count=count, several=several)


def answer_lines(answer: Answer, say: Say) -> list[str]:
    """The whole answer for a terminal."""
    lines = [f"{headline(answer, say)}.", *reasons(answer, say), over_base(answer, say), *keep_lines(answer, say)]
    if answer.next_time is not None and not (answer.step and answer.step.do == "train longer"):
        lines.append(next_time(answer.next_time, say))
    in_reasons, in_lacking = ("base",), (*TASKS, *CHECKS)
    questions = [question for question in answer.questions if question.id not in (in_reasons if question.tested else in_lacking)]
    lines += [*(question_line(question, answer, say) for question in questions), lacking(answer, say)]
    if answer.step is not None:
        lines.append(f"{say('다음', 'Next')}: {step_reason(answer, say)}: {answer.step.command}")
    return [line for line in (*lines, *warnings(answer, say)) if line]


def over_base(answer: Answer, say: Say) -> str:
    """Every other method against its base."""
    question = answer.question("base")
    others = [claim for claim in question.claims if claim.test == "crossed" and claim is not answer.gain] if question else []
    gains = "; ".join(f"{claim.a} {ClaimText(claim, say).phrase()}" for claim in others)
    return say(f"베이스 모델 대비 다른 방법: {gains}.", f"Other methods over the base: {gains}.") if gains else ""


def warnings(answer: Answer, say: Say) -> list[str]:
    """How often the study was judged, and caveats of the whole answer that are not said elsewhere."""
    looks = [note("looks", say, looks=answer.looks)] if answer.looks > 1 else []
    caveats: tuple[Caveat, ...] = ("unequal training", "few documents", "few counted")
    return [*looks, *(note(f"against: {code}", say) for code in answer.against if code in caveats)]
