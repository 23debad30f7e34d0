"""Claims in words, Korean and English. In: a claim. Out: its phrases and sentences; nothing is decided.

A sentence, and the methods of `ClaimText` that it is made of:

    Noun@1 44.1 → 46.3%, entity 2,048 - base: +2.2 [+1.3, +3.1], better (3 seeds, all 400 documents).

    outcome    Noun@1
    levels     44.1 → 46.3%
    about      entity 2,048 - base                           `b_name` and `part`
    phrase     +2.2 [+1.3, +3.1], better                     `change` and `verdict`
    verdict    better                                        `verdict_word` and `caveat`: not shown (detectable: 1.8 points)
    basis      (3 seeds, all 400 documents)                  `seeds`, `documents` and `correction`, such as corrected for 3 (Holm)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coref_automl.base.records import Comparison, Estimate, Half
from coref_automl.base.say import Say
from coref_automl.comparison.claims import BASE, Caveat, Claim, QuestionId, Verdict, VocabularyPair
from coref_automl.comparison.differences import ComparisonRow, lost_to_family
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.comparison.questions import TASKS
from coref_automl.evaluation.metrics import METRICS
from coref_automl.report.page import Tone, bound, is_same, note, p_text, plotted, points, tokens

TONES: dict[str, Tone] = {
    "better": "good",
    "worse": "bad",
    "equivalent": "even",
    "no gain": "even",
    "same": "even",
    "not judged": "blank",
}
_VERDICTS: dict[Verdict, tuple[str, str]] = {
    "better": ("더 좋음", "better"),
    "worse": ("더 나쁨", "worse"),
    "equivalent": ("{near}점 이내로 동등", "equivalent within {near} points"),
    "no gain": ("{most}점을 넘는 향상 없음", "no gain above {most} points"),
    "same": ("같음", "the same"),
    "not shown": ("차이 미확인", "not shown"),
    "not judged": ("판정 없음", "not judged"),
}
_SAME = ("모든 문항에서 같음", "the same on every item")
_PARTS = {
    "last step": ("마지막 구간", "last interval"),
    "peak to end": ("정점 - 마지막", "peak - end"),
    "equal tokens": ("같은 토큰 수에서", "at equal tokens"),
}
_CORRECTIONS = {"holm": "Holm", "bh": "Benjamini-Hochberg", "max-t": "max-T"}
_WHY_UNJUDGED: tuple[Caveat, ...] = ("one seed", "copies", "one document", "unequal training")


@dataclass(frozen=True, slots=True)
class ClaimText:
    """The words for a claim in one language."""

    claim: Claim
    say: Say

    def outcome(self) -> str:
        """The metric, and of relation extraction the training rows."""
        if self.claim.question in CHECKS:
            return self.say(*CHECKS[self.claim.question].metric) + self.rows()
        metric, _, measure = self.claim.outcome.partition(":")
        label = METRICS[metric].label
        return label if not measure else f"{label}, {measure.upper()}"

    def rows(self) -> str:
        claim, say = self.claim, self.say
        if claim.rows is None:
            return ""
        count = f"{claim.rows:,}"
        if claim.share is None:
            return say(f" (학습 데이터 {count}행)", f" ({count} rows of train)")
        if claim.share == 1:
            return say(f" (학습 데이터 전체 {count}행)", f" (all {count} rows of train)")
        return say(f" (학습 데이터의 {100 * claim.share:g}%, {count}행)", f" ({100 * claim.share:g}% of train, {count} rows)")

    def task(self) -> str:
        """The task of the metric in short: `Real-far` for `Real-far@1`."""
        if self.claim.question in CHECKS:
            return self.say(*CHECKS[self.claim.question].title)
        return METRICS[self.claim.outcome.partition(":")[0]].label.split("@")[0]

    def levels(self) -> str:
        """The scores of both sides; empty if they are not recorded."""
        values = self.claim.values
        return f"{100 * values[1]:.1f} → {100 * values[0]:.1f}%" if values is not None else ""

    def measured(self) -> str:
        """The outcome, with the scores of both sides."""
        return f"{self.outcome()} {self.levels()}".rstrip()

    def part(self) -> str:
        """The items, the interval of training or the condition that the claim is about."""
        return self.say(*_PARTS[self.claim.part]) if self.claim.part in _PARTS else self.claim.part

    def b_name(self) -> str:
        return self.say("베이스 모델", "base") if self.claim.b == BASE else self.claim.b

    def about(self) -> str:
        """The two sides, and the part."""
        sides = self.claim.a if self.claim.a == self.claim.b else f"{self.claim.a} - {self.b_name()}"
        return f"{sides}, {self.part()}" if self.claim.part else sides

    def change(self) -> str:
        """The difference with its interval."""
        if not self.claim.judged and is_same(self.claim.difference):
            return "–"  # the same on every item would be a verdict
        return self.say(*_SAME) if is_same(self.claim.difference) else points(self.claim.difference)

    def drawn(self) -> Estimate | None:
        """The difference to draw; None if nothing differs at all."""
        return None if is_same(self.claim.difference) else self.claim.difference

    def p(self) -> str:
        return p_text(self.claim.p)

    def verdict_word(self) -> str:
        near, most = f"{100 * (self.claim.within or 0):.1f}", bound(self.claim.difference.high).lstrip("+")
        return self.say(*_VERDICTS[self.claim.verdict]).format(near=near, most=most)

    def caveat(self) -> str:
        """What follows a verdict: the detectable difference, the loss that is still possible, or why there is no verdict."""
        if "before correction" not in self.claim.against:
            return self._bounds()
        loss = self.say(" (하락)", " (a loss)") if self.claim.difference.value < 0 else ""
        return self._bounds() + self.say(", 보정 전에만 유의", ", significant before correction only") + loss

    def _bounds(self) -> str:
        claim, say = self.claim, self.say
        if claim.verdict == "not shown" and claim.detectable:
            detectable = f"{100 * claim.detectable:.1f}"
            return say(f" (검출 가능 차이 {detectable}점)", f" (detectable: {detectable} points)")
        if claim.verdict == "no gain" and -claim.difference.low > claim.difference.high:
            loss = bound(-claim.difference.low).lstrip("+")
            return say(f" ({loss}점까지의 하락은 배제되지 않음)", f" (a loss of up to {loss} not excluded)")
        why = self.why_unjudged() if claim.verdict == "not judged" else ""
        return f" ({why})" if why else ""

    def why_unjudged(self) -> str:
        """Why a claim has no verdict; empty if it has one."""
        trained = " / ".join(map(tokens, self.claim.tokens))
        reasons = [code for code in self.claim.against if code in _WHY_UNJUDGED]
        return ", ".join(note(f"why: {code}", self.say, trained=trained) for code in reasons)

    def verdict(self) -> str:
        return self.verdict_word() + self.caveat()

    def phrase(self) -> str:
        if self.claim.verdict == "same" or is_same(self.claim.difference):
            return self.say(*_SAME) if self.claim.judged else self.verdict()
        return f"{self.change()}, {self.verdict()}"

    def seeds(self) -> str:
        claim = self.claim
        if claim.test == "sign flips":
            return self.say("체크포인트 하나", "one checkpoint")
        seeds = claim.seeds[:1] if claim.b == BASE or claim.seeds[0] == claim.seeds[1] else claim.seeds
        counts = "/".join(map(str, seeds))
        return self.say(f"시드 {counts}개", f"{counts} seed{'s' * (seeds != (1,))}")

    def documents(self) -> str:
        """Their number, and which they are: all of the set, a source or a task, or those on which nothing was chosen."""
        claim, count = self.claim, self.claim.count
        of = claim.part if claim.question == "sources" else self.task() if claim.question in TASKS else ""
        ko, en = (f"{of}의 ", f" of {of}") if of else ("", "")
        every, s = ("all ", "s") if count != 1 else ("", "")
        return {
            "all": self.say(f"{ko}모든 문서 {count:,}개", f"{every}{count:,} document{s}{en}"),
            "confirm": self.say(
                f"{ko}고르는 데 쓰지 않은 문서 {count:,}개", f"{count:,} document{s}{en} held back from choosing"
            ),
            "rows": self.say(f"모든 문장 {count:,}개", f"{every}{count:,} sentence{s}"),
            "texts": self.say(f"글 {count:,}편", f"{count:,} text{s}"),
        }[claim.documents]

    def correction(self) -> str:
        """The number of claims corrected for; empty for a single one."""
        if self.claim.family < 2:
            return ""
        name = _CORRECTIONS[self.claim.correction]
        return self.say(f"비교 {self.claim.family}개 보정 ({name})", f"corrected for {self.claim.family} ({name})")

    def basis(self) -> str:
        return f"({', '.join(filter(None, (self.seeds(), self.documents(), self.correction())))})"

    def brief(self) -> str:
        """Short form, for a table that already shows both sides and the difference."""
        return f"{self.measured()}, {self.verdict()} ({self.seeds()}, {self.documents()})."

    def sentence(self, *, with_verdict: bool = True) -> str:
        """The whole claim; without its verdict where that has been said already."""
        finding = self.phrase() if with_verdict else self.change()
        return f"{self.measured()}, {self.about()}: {finding} {self.basis()}."

    def expected_gain(self) -> str:
        """The gain to expect of a side that was selected on the data; empty for any other."""
        if self.claim.expected is None:
            return ""
        gain = f"{100 * self.claim.expected:+.1f}"
        return note("expected gain", self.say, count=self.claim.family, name=self.claim.a, gain=gain)


def title(name: QuestionId, say: Say) -> str:
    if name in CHECKS:
        ko, en = CHECKS[name].title
        return say(f"{ko}로 전이되는가?", f"Does it carry over to {en}?")
    return note(f"question: {name}", say)


def short_title(name: QuestionId, say: Say) -> str:
    return say(*CHECKS[name].title) if name in CHECKS else note(f"short: {name}", say)


def comparison_verdict(comparison: Comparison, say: Say) -> str:
    """A checkpoint's verdict, with the detectable difference if none is shown."""
    if comparison.verdict == "not shown":
        text = say("유의한 차이 미확인", "no difference shown")
        text += say(", 보정 후", " after correction") if lost_to_family(comparison) else ""
        if comparison.detectable:
            detectable = f"{100 * comparison.detectable:.1f}"
            text += say(f" (검출 가능 차이 {detectable}점)", f"; detectable difference {detectable} points")
        return text
    return say(*_SAME) if comparison.verdict == "same" else say(*_VERDICTS[comparison.verdict])


def why_not_compared(checkpoint: ComparisonRow, say: Say) -> str:
    """Why a checkpoint has no reference."""
    if checkpoint.scratch:
        return say("베이스 모델 없음: 새 모델", "no base: a new model")
    return say("베이스 모델이 평가되지 않음", "its base was not evaluated")


def pair_lines(pair: VocabularyPair, say: Say) -> list[str]:
    """Two models of different tokenizers: what they share, and the claims about them; or why nothing was measured."""
    items, nouns, undetermined = f"{pair.items:,}", f"{pair.nouns:,}", f"{pair.undetermined:,}"
    values = {"a": pair.a, "b": pair.b, "items": items, "nouns": nouns, "undetermined": undetermined, "error": pair.error}
    lead = note(f"two tokenizers: {pair.why or 'measured'}", say, **values)
    return [lead, *(f"  {ClaimText(claim, say).sentence()}" for claim in pair.claims)]


def forest_row(group: str, name: str, compared: Claim | Comparison) -> dict[str, Any]:
    """A difference as a row of a forest plot, colored if it is shown."""
    finding = compared.verdict if compared.verdict in ("better", "worse") else "not shown"
    return {"task": group, "name": name, **plotted(compared.difference), "finding": finding}


def which_documents(half: Half | None, say: Say) -> str:
    """The documents of a table, for its caption: those of a half, or all."""
    if half is None:
        return say("모든 문서", "all documents")
    return say("고르는 데 쓰지 않은 문서(확인용 절반)", "held-back documents (confirm half)")
