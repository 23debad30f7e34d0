"""An Answer in words, Korean and English. In: an Answer. Out: its headline, reasons, badges and lines; nothing is decided.

Where questions differ (their badge, and what is said after the leading claim) one table has it: `_WORDINGS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from coref_automl.comparison.claims import BASE, Answer, Caveat, NextTime, Question, QuestionId
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.comparison.questions import TASKS
from coref_automl.comparison.scores import grouped
from coref_automl.report.page import is_same, note, points, rounded, tokens
from coref_automl.report.wording import about, brief, caveat, expected_gain, phrase, sentence, short_title, task, title, verdict
from coref_automl.say import Say

_NAMED = 4
"""How many a sentence names."""
_OWN_BADGES = ("base", "method", "length", "last step", "peak to end")
"""Questions, or parts of one method's curve, that are answered in words of their own."""
_BESIDE = {-1: ("더 좋음", "better"), 1: ("더 나쁨", "worse")}


def headline(it: Answer, say: Say) -> str:
    """What to do; a method with its ties."""
    *first, last = (it.method, *it.ties)[: _NAMED + 1] if it.action == "use method" and it.method else (it.highest,)
    name = f"{', '.join(first)}{say(' 또는 ', ' or ')}{last}" if first else last
    return note(f"headline: {it.action}", say, name=name)


def reasons(it: Answer, say: Say) -> list[str]:
    """Why: between which methods a task decides, the gain over the base, ties, what could have been shown, what is missing."""
    question, lead, out = it.question("base"), it.gain, []
    if lead is not None and it.action in ("use method", "use checkpoint"):
        gain = f"{sentence(lead, say)} {expected_gain(lead, say)}".strip()
        out += [trade_off(it, say), gain, " ".join(told_apart(it, say))]
        if it.action == "use checkpoint":
            out.append(note("one seed per method", say))
    elif lead is not None and it.action == "keep base":
        out += [say("가장 높은 것: ", "Highest: ") + sentence(lead, say), " ".join(power(it, say))]
    elif it.action == "no base":
        only = say(f"{it.highest} 하나만 평가되었습니다.", f"Only {it.highest} was evaluated.")
        out.append(note("no base", say, highest=it.highest) if it.candidates > 1 else only)
    elif question is not None and question.tested:
        out.append(sentence(question.lead, say))
    return [text for text in out if text]


def trade_off(it: Answer, say: Say) -> str:
    """Of methods that are tied: on which task which of them is better."""
    told: dict[str, list[str]] = {}
    for (name, sign), claims in grouped(it.apart(), lambda one: (one.b, one.sign)).items():
        window = say(" (창 길이가 다름)", " (another window)") if claims[0].question == "length" else ""
        on = "·".join(dict.fromkeys(task(one, say) for one in claims)) + window
        ko, en = _BESIDE[sign]
        told.setdefault(name, []).append(say(f"{on}에서 {ko}", f"{en} on {on}"))
    if told:
        listed = "; ".join(f"{name} {', '.join(words)}" for name, words in told.items())
        return say(f"과제별 선택 ({it.method} 대비): {listed}.", f"Choose by task (beside {it.method}): {listed}.")
    return say("평가한 과제로는 구별되지 않습니다.", "No task tested here tells them apart.") if it.unbeaten else ""


def power(it: Answer, say: Say) -> list[str]:
    """What the study could have shown, and what it would take."""
    held, out = it.power, []
    if "floor" in it.against:
        out.append(note("floor", say))
    if "few documents" in it.against:
        out.append(say("문서가 너무 적습니다.", "There are too few documents."))
    if held is None:
        return out
    if held.detectable is not None:
        could = f"{100 * held.detectable:.1f}"
        out.append(note("detects", say, could=could, documents=held.documents, seeds=held.seeds))
    if held.needed is not None and held.largest is not None:
        gain, count, seeds = f"{100 * held.largest:+.1f}", f"{rounded(held.needed):,}", f"{rounded(held.needed_seeds or 0):,}"
        out.append(note("needed", say, gain=gain, count=count, seeds=seeds))
    return out


def told_apart(it: Answer, say: Say) -> list[str]:
    """Every other method: tied, beaten, or without a verdict."""
    methods = {
        "unbeaten": [_with_lead(it, name, say) for name in it.unbeaten],
        "unproven": it.unproven,
        "beaten": [_with_lead(it, name, say) for name in it.beats],
        "unjudged": it.unjudged,
        "not compared": it.not_compared(),
    }
    equal = {"unbeaten": _compared_at(it, it.unbeaten, say), "beaten": _compared_at(it, it.beats, say)}
    out = [note(f"methods: {code}", say, at=equal.get(code), told=listing(some)) for code, some in methods.items() if some]
    told = "; ".join(sentence(one, say).removesuffix(".") for one in it.apart()[:_NAMED])
    return [*out, note("methods: on another task", say, told=told)] if told else out


def _with_lead(it: Answer, name: str, say: Say) -> str:
    """Another method, and how far the method to use leads it."""
    one = it.beside(name)
    if one is None or is_same(one.difference):
        return name
    return f"{name} ({phrase(one, say) if one.verdict == 'equivalent' else points(one.difference)})"


def _compared_at(it: Answer, names: Sequence[str], say: Say) -> str:
    """Where methods are compared if training was unequal."""
    equal = any(one.part == "equal tokens" for name in names if (one := it.beside(name)))
    return note("methods: at equal tokens", say) if equal else ""


# -- the questions


def badge(question: Question, it: Answer, say: Say) -> str:
    """A question answered in a word or two: yes, no, not known; of methods, how many are tied and beaten."""
    if not question.tested:
        return say("비교 없음", "not compared")
    return _WORDINGS.get(question.id, _CHECK).badge(question, it, say)


def answer_line(question: Question, it: Answer, say: Say) -> str:
    """A question's answer in a sentence for the first screen; its badge and its difference stand beside it."""
    if not question.tested:
        return untested(it, say)
    return " ".join([brief(question.lead, say), *_WORDINGS.get(question.id, _CHECK).more(question, it, say)])


def question_line(question: Question, it: Answer, say: Say) -> str:
    """A question and its plain answer, then the claim behind it."""
    if not question.tested:
        return f"{title(question.id, say)} {untested(it, say)}"
    wording = _WORDINGS.get(question.id, _CHECK)
    plain = wording.badge(question, it, say)
    known = "" if wording.counts else caveat(question.lead, say)
    opening = f"{title(question.id, say)} {plain[:1].upper()}{plain[1:]}{known}."
    more = [] if wording.said else wording.more(question, it, say)
    return " ".join([opening, sentence(question.lead, say, judged=wording.counts), *more])


def _verdict_badge(question: Question, it: Answer, say: Say) -> str:  # noqa: ARG001
    """The verdict of the leading claim."""
    lead = question.lead
    if lead.verdict in ("equivalent", "no gain", "not judged"):
        return verdict(replace(lead, against=()), say).partition(" (")[0]
    if lead.verdict == "same":
        return say("모든 문항에서 같음", "the same on every item")
    gain = lead.b in (BASE, lead.a)
    if lead.verdict == "not shown":
        return say("향상 미확인", "no gain shown") if gain else say("차이 미확인", "no difference shown")
    if lead.verdict == "better" and "checkpoint" in lead.against:
        return say("예, 체크포인트 하나에서", "yes, of one checkpoint")
    about_ends = lead.part if lead.a == lead.b else question.id
    asks = about_ends if about_ends in _OWN_BADGES else "base" if gain else "another"
    return note(f"badge: {asks}: {lead.verdict}", say, other=lead.b)


def _methods_badge(question: Question, it: Answer, say: Say) -> str:
    """How many methods are beaten and tied; the verdict if none is to be used."""
    if it.action != "use method":
        return _verdict_badge(question, it, say)
    counts = {
        say("{}개보다 나음", "better than {}"): len(it.beats),
        say("{}개와 동률", "tied with {}"): len(it.unbeaten),
        say("{}개 판정 없음", "{} not judged"): len(it.unjudged),
    }
    return " · ".join(text.format(count) for text, count in counts.items() if count) or say("판정 없음", "not judged")


def _sources_badge(question: Question, it: Answer, say: Say) -> str:
    """On how many sources the gain is shown."""
    lead = question.lead
    if lead.verdict not in ("better", "no gain", "not shown"):
        return _verdict_badge(question, it, say)
    held = [one.verdict == "better" for one in question.claims if (one.a, one.b) == (lead.a, lead.b)]
    return say(f"{len(held)}개 중 {sum(held)}개에서 확인", f"shown on {sum(held)} of {len(held)}")


def _better_than_base(question: Question, it: Answer, say: Say) -> list[str]:  # noqa: ARG001
    """Of methods or checkpoints, those that are better than the base."""
    lead = question.lead
    beside = [one for one in question.claims if (one.outcome, one.part, one.rows) == (lead.outcome, lead.part, lead.rows)]
    if len(beside) < 2:
        return []
    better = [one.a for one in beside if one.verdict == "better"]
    what = say("체크포인트", "checkpoints") if lead.test == "sign flips" else say("방법", "methods")
    listed = f": {listing(better)}" if better and len(better) <= _NAMED else ""
    return [say("{0} {1}개 중 {2}개가 더 좋음{3}.", "{2} of {1} {0} better{3}.").format(what, len(beside), len(better), listed)]


def _weakest_source(question: Question, it: Answer, say: Say) -> list[str]:  # noqa: ARG001
    count, part = len({one.part for one in question.claims}), question.lead.part
    told = say(f"데이터 소스 {count}개 중 가장 약한 곳: {part}.", f"Weakest of {count} sources: {part}.")
    return [told] if count > 1 else []


def _unbeaten_on_task(question: Question, it: Answer, say: Say) -> list[str]:
    """How the methods that are tied with the one to use do on the task."""
    lead = question.lead
    alike = [one for one in question.others if (one.outcome, one.rows) == (lead.outcome, lead.rows)]
    return [f"{about(one, say)}: {phrase(one, say)}." for one in alike if one.b == BASE and one.a in it.unbeaten]


def _on_check(question: Question, it: Answer, say: Say) -> list[str]:
    """The method to use against another one, how many of its seeds were fine-tuned from, and the methods tied with it."""
    lead, out = question.lead, []
    alike = [one for one in question.others if (one.a, one.outcome, one.rows) == (lead.a, lead.outcome, lead.rows)]
    other = next((one for one in alike if one.b != BASE), None)
    if other is not None:
        out.append(say(f"{other.b} 대비 {phrase(other, say)}.", f"Against {other.b}: {phrase(other, say)}."))
    if it.gain and "checkpoint" not in lead.against and lead.seeds[0] < it.gain.seeds[0]:
        out.append(note("some seeds", say, count=lead.seeds[0], full=it.gain.seeds[0]))
    return [*out, *_unbeaten_on_task(question, it, say)]


class _Wording(NamedTuple):
    """A question's short answer (its badge), and what follows its leading claim, which a terminal leaves out if it was `said`
    before. Where the badge only `counts` methods, the claim keeps its own verdict."""

    badge: Callable[[Question, Answer, Say], str]
    more: Callable[[Question, Answer, Say], list[str]]
    said: bool = False
    counts: bool = False


_WORDINGS: dict[QuestionId, _Wording] = {
    "base": _Wording(_verdict_badge, _better_than_base, said=True),
    "method": _Wording(_methods_badge, lambda _, it, say: told_apart(it, say), said=True, counts=True),
    "length": _Wording(_verdict_badge, lambda *_: []),
    "training": _Wording(_verdict_badge, lambda _, it, say: [next_time(it.next_time, say)] if it.next_time else [], said=True),
    "sources": _Wording(_sources_badge, _weakest_source, counts=True),
    **dict.fromkeys(TASKS, _Wording(_verdict_badge, _unbeaten_on_task)),
}
_CHECK = _Wording(_verdict_badge, _on_check)
"""Of every outside check."""


def lacking(it: Answer, say: Say) -> str:
    """The tasks that what is to be used was not tested on."""
    names, used = ", ".join(short_title(name, say) for name in it.untested), it.method or it.highest
    return say(f"{used} 미평가: {names}.", f"Not tested for {used}: {names}.") if names else ""


def untested(it: Answer, say: Say) -> str:
    """Of a question that others were put to, and not what is to be used."""
    name = it.method or it.highest
    return say(f"{name}: 비교되지 않았습니다.", f"Not compared for {name}.")


def next_time(ahead: NextTime, say: Say) -> str:
    """How long to train next time."""
    share, seen = f"{100 * (ahead.share or 0):.0f}%", tokens(ahead.tokens)
    ko, en = f"이번의 {share}", f"for {share} of this training"
    if ahead.tokens is not None:
        ko, en = f"{seen} 토큰(이번의 {share})", f"until {seen} tokens ({share} of this training)"
    return note(f"next time: {ahead.how}", say, ko=ko, en=en, within=f"{100 * ahead.loss:.2g}")


def keep_lines(it: Answer, say: Say, *, named: bool = True) -> list[str]:
    """The checkpoint to keep, and what makes it again where its weights are gone; `named`: neither stands anywhere else."""
    keep = it.keep
    if keep is None:
        return []
    here = say("이 디스크에 있음", "on this disk") if keep.there else say("이 디스크에 없음", "not on this disk")
    facts = [say(f"체크포인트: {keep.path}", f"Checkpoint: {keep.path}")] if named or not keep.there else []
    facts += [say(f"{tokens(keep.tokens)} 토큰", f"{tokens(keep.tokens)} tokens")] if keep.tokens else []
    if keep.expected is not None and it.action == "use checkpoint":  # of a method it stands in the reasons
        gain = f"{100 * keep.expected:+.1f}"
        facts.append(say(f"기대 향상 {gain}점 (축소 추정)", f"expected gain {gain} points (shrunken)"))
    on = say("선택용 절반", "the select half") if keep.chose else say("모든 문서", "all documents")
    rule = note("highest shown" if it.method is None else "chosen checkpoint", say, method=it.method, on=on)
    text = [f"{', '.join((*facts, here))}. {rule}"]
    if keep.tied:
        text.append(say(f"값이 같은 체크포인트: {listing(keep.tied)}.", f"As high: {listing(keep.tied)}; the earliest is taken."))
    if keep.again and named and not (it.step and it.step.do == "make again"):
        text.append(say(f"다시 만들기: {keep.again}", f"Make again: {keep.again}"))
    return text


def step_reason(it: Answer, say: Say) -> str:
    """Why the next step is the next one."""
    if it.step is None:
        return ""
    needed = it.power.needed_seeds if it.power else None
    count = it.questions[0].lead.seeds[0] if it.questions else 1
    several = say(f" (방법당 시드 {needed}개면 충분할 것으로 보입니다)", f" ({needed} per method should do)") if needed else ""
    return note(f"step: {it.step.do}", say, count=count, several=several)


def answer_lines(it: Answer, say: Say) -> list[str]:
    """The whole answer for a terminal."""
    lines = [f"{headline(it, say)}.", *reasons(it, say), over_base(it, say), *keep_lines(it, say)]
    if it.next_time is not None and not (it.step and it.step.do == "train longer"):
        lines.append(next_time(it.next_time, say))
    said = {True: ("base",), False: (*TASKS, *CHECKS)}  # tested: among the reasons; not tested: by `lacking`
    asked = [one for one in it.questions if one.id not in said[one.tested]]
    lines += [*(question_line(one, it, say) for one in asked), lacking(it, say)]
    if it.step is not None:
        lines.append(say(f"다음: {step_reason(it, say)}: {it.step.command}", f"Next: {step_reason(it, say)}: {it.step.command}"))
    return [line for line in (*lines, *warnings(it, say)) if line]


def over_base(it: Answer, say: Say) -> str:
    """Every other method against its base."""
    question = it.question("base")
    others = [one for one in question.claims if one.test == "crossed" and one is not it.gain] if question else []
    told = "; ".join(f"{one.a} {phrase(one, say)}" for one in others)
    return say(f"베이스 모델 대비 다른 방법: {told}.", f"Other methods over the base: {told}.") if told else ""


def warnings(it: Answer, say: Say) -> list[str]:
    """How often it was judged, and what stands against the whole answer and is not said elsewhere."""
    looks = [note("looks", say, looks=it.looks)] if it.looks > 1 else []
    told: tuple[Caveat, ...] = ("unequal training", "few documents", "other tokenizer")
    return [*looks, *(note(f"against: {code}", say) for code in it.against if code in told)]


def listing(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
