"""What a surface says, read from its printed text. In: text. Out: Said. Written from the texts, not from the record."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from tests.agreement.pages import TITLES, Row, hero_of, of_html, of_markdown, plain
from tests.agreement.surfaces import Printed

_PARTS = {
    "last step": "last-step", "마지막 구간": "last-step", "peak - end": "peak-end", "정점 - 마지막": "peak-end",
    "at equal tokens": "equal-tokens", "같은 토큰 수에서": "equal-tokens",
    "beyond minus within reach": "reach-contrast", "닿지 않는 문항 - 닿는 문항": "reach-contrast",
    "within reach of both": "within", "둘 다 닿는 문항": "within",
    "beyond the shorter's reach": "beyond", "짧은 쪽이 닿지 않는 문항": "beyond",
}  # fmt: skip
_OUTCOMES = {"Relation extraction, micro-F1": "relation", "관계 추출 micro-F1": "relation"}
_OUTCOMES |= {"Coreference, CoNLL with gold mentions": "coreference", "상호참조, 정답 언급의 CoNLL": "coreference"}
VERDICTS = {
    "better": "better", "더 좋음": "better", "worse": "worse", "더 나쁨": "worse", "not shown": "not shown",
    "차이 미확인": "not shown", "no difference shown": "not shown", "유의한 차이 미확인": "not shown", "not judged": "not judged",
    "판정 없음": "not judged", "equivalent": "equivalent", "동등": "equivalent", "the same": "same", "같음": "same",
    "모든 문항에서 같음": "same",
}  # fmt: skip
_SAME = r"the same on every item|모든 문항에서 같음"
_N = r"[+-]\d+\.\d"
POINTS = rf"({_N}) \[({_N}), ({_N})\]"
_SEEDS = r"(?:(\d+(?:/\d+)?) seeds?|시드 (\d+(?:/\d+)?)개|(one checkpoint|체크포인트 하나))"
_DOCUMENTS = (
    r"(?:all ([\d,]+) (documents|sentences)|([\d,]+) (held-back documents|texts)"
    r"|(모든 문서|고르는 데 쓰지 않은 문서|모든 문장) ([\d,]+)개|(글) ([\d,]+)편)"
)
_KINDS = {
    "documents": "all", "모든 문서": "all", "held-back documents": "confirm", "고르는 데 쓰지 않은 문서": "confirm",
    "sentences": "rows", "모든 문장": "rows", "texts": "texts", "글": "texts",
}  # fmt: skip
_BASIS = re.compile(rf"\({_SEEDS}, {_DOCUMENTS}(?:, (?:corrected for|비교) (\d+)[^()]*\([^()]*\))?\)")
_CLAIM = re.compile(rf"(?P<left>.+?): (?:{_SAME}|{POINTS}, (?P<verdict>.+?)) (?P<basis>{_BASIS.pattern})\.")
_NAME = r"(?:[^,:]|,(?=\d))+"
_USE = re.compile(r"^(?:Use|추천:) (.+)$")
_ACTIONS = {
    "Keep the base": "keep", "원래 모델 유지": "keep", "No base to compare with": "no base",
    "비교할 원래 모델이 없습니다": "no base", "Undecided": "undecided", "판정할 수 없습니다": "undecided",
}  # fmt: skip
_NEXT = {
    "longer": r"Next time, train longer|다음에는 더 길게",
    "as long": r"Next time, train as long|다음에도 이만큼",
    "less": r"Next time, train (?:until|for)|다음에는 .*까지 학습하면",
}
_GONE = r"Its weights are not on this disk\.|가중치가 이 디스크에 없습니다\."
_AGAIN = re.compile(rf"(?:{_GONE}) (?:To make them again|다시 만들기): (.+)")
_TIES = re.compile(r"(?:Not told apart from it|구별되지 않음): (.+?)\.(?=\s|$|<)")
_BEATS = re.compile(r"Shown better than (.+?)\.(?=\s|$|<)|더 나음 확인: (.+?) 대비\.")
_EXPECTED = re.compile(rf"expected to gain ({_N}) points|기대되는 향상은 ({_N})점")
_SHRUNKEN = re.compile(rf"expected gain ({_N}) points|기대 향상 ({_N})점")
_COUNTED = re.compile(r"(\d+) of (\d+) (?:methods|checkpoints) better|(?:방법|체크포인트) (\d+)개 중 (\d+)개가 더 좋음")
_LOOKS = re.compile(r"Judged (\d+) times|더하며 (\d+)번 판정")
_DETECTS = re.compile(r"detects a gain of ([\d.]+) points|검출되는 향상: ([\d.]+)점")


@dataclass(frozen=True)
class Told:
    """A claim as printed; numbers are the printed ones. `seeds` is empty for single checkpoints."""

    a: str
    b: str
    part: str
    outcome: str
    change: tuple[str, ...]
    verdict: str
    seeds: str
    documents: tuple[str, int]


@dataclass(frozen=True)
class Said:
    """What one surface says. `use` is the method or checkpoint, `keep` the path to copy, `base` the path of a base to keep.

    `pair` is the claim beside the studio's answer; `counted` how many of how many are better.
    """

    action: str
    use: str = ""
    keep: str = ""
    base: str = ""
    gone: bool = False
    again: str = ""
    ties: tuple[str, ...] = ()
    beats: tuple[str, ...] = ()
    expected: str = ""
    shrunken: str = ""
    next_time: tuple[str, ...] = ()
    looks: str = ""
    detects: str = ""
    lead: Told | None = None
    questions: dict[str, Told] = field(default_factory=dict)
    counted: tuple[int, int] | None = None
    pair: tuple[tuple[str, ...], str] | None = None
    faults: tuple[str, ...] = ()


def read(one: Printed) -> Said:
    if one.kind == "json":
        return _from_json(json.loads(one.text)["answer"])
    if one.kind == "html":
        return _first_screen(*of_html(one.text), one.text[one.text.index('<section class="hero"') :])
    if one.kind == "markdown":
        return _first_screen(*of_markdown(one.text), one.text)
    if one.kind == "studio":
        lines = [plain(line) for line in re.findall(r'<p class="(?:headline|sentence)">(.*?)</p>', hero_of(one.text), re.S)]
        found = re.search(r'id="verdict">(.*?)</p>', one.text)
        return _lines(lines, _pair(plain(found[1])) if found else None)
    lines = one.text.strip().split("\n")
    start = next((n for n, line in enumerate(lines) if _action(line.removesuffix("."))[0]), None)
    return _lines(lines[start:], None) if start is not None else Said("", faults=("no answer was found",))


def _lines(lines: list[str], pair: tuple[tuple[str, ...], str] | None) -> Said:
    """An answer in lines: terminal, Python, studio."""
    action, use = _action(lines[0].removesuffix(".")) if lines else ("", "")
    text, questions, lead = "\n".join(lines), {}, None
    for line in lines[1:]:
        asked = next((name for name, titles in TITLES.items() if line.startswith(titles)), "")
        found = _claim(_without_title(line))
        if asked and found:
            questions[asked] = found
        elif found and lead is None:
            lead = found
    path = re.search(r"^(?:Checkpoint|체크포인트): (.+?)(?:, [\d.]+[kMG]? (?:tokens|토큰)|, (?:expected|기대)|\.$)", text, re.M)
    return _said(text, action, use, questions, lead, keep=path[1] if path else "", pair=pair)


def _first_screen(headline: str, sentence: str, rows: list[Row], keep: tuple[str, bool], status: str, whole: str) -> Said:
    """An answer as a page: headline, sentence, rows of questions (title, badge, sentence, difference), what to keep."""
    action, use = _action(headline)
    questions, faults, counted = {}, [], None
    for title, badge, told, change in rows:
        asked = next((name for name, titles in TITLES.items() if title in titles), title)
        about, _, moved = change.rpartition(": ")
        found, basis = re.fullmatch(POINTS, moved), _BASIS.search(told)
        if basis is None:
            faults.append(f"{title}: no basis in {told!r}")
            continue
        label = told[: basis.start()].strip()
        inside = next((code for words, code in _spelt() if re.search(rf", {re.escape(words)}", label)), "")
        verdict = _verdict(badge)
        if inside and inside != verdict:
            faults.append(f"{title}: the badge says {verdict}, its sentence {inside}")
        outcome = _outcome(re.split(r", (?:not|equivalent|the same|차이 미확인|판정 없음|[\d.]+점 이내|같음)", label)[0])
        a, b, part = _sides(about)
        questions[asked] = Told(a, b, part, outcome, found.groups() if found else (), verdict, _seeds(basis), _documents(basis))
        if asked == "base" and (of := _COUNTED.search(told)):
            counted = (int(of[1]), int(of[2])) if of[1] else (int(of[4]), int(of[3]))
    path, of_base = keep
    text = "\n".join([sentence, *(told for _, _, told, _ in rows), status])
    nexts = _next_times(plain(re.sub(r"<script.*?</script>", "", whole, flags=re.S)))
    said = _said(
        text, action, use, {name: one for name, one in questions.items() if name != "base"}, _claim(_without_title(sentence)),
        keep="" if of_base else path, pair=None,
    )  # fmt: skip
    base = questions.get("base")
    if said.lead and base and action == "use" and said.lead != base:
        faults.append(f"the sentence leads with {said.lead}, the table with {base}")
    more = {"base": path if of_base else "", "next_time": nexts, "counted": counted, "faults": tuple(faults)}
    found_looks, detects = (_first(one, whole) for one in (_LOOKS, _DETECTS))
    return Said(**{**said.__dict__, **more, "looks": found_looks, "detects": detects})


def _said(
    text: str, action: str, use: str, questions: dict[str, Told], lead: Told | None, *, keep: str, pair: Any
) -> Said:  # fmt: skip
    again, beats = _AGAIN.search(text), _BEATS.search(text)
    ties = _TIES.search(text)
    return Said(
        action,
        use,
        keep,
        gone=bool(re.search(_GONE, text)),
        again=again[1].strip() if again else "",
        ties=tuple(ties[1].split(", ")) if ties else (),
        beats=tuple((beats[1] or beats[2]).split(", ")) if beats else (),
        expected=_first(_EXPECTED, text),
        shrunken=_first(_SHRUNKEN, text),
        next_time=_next_times(text),
        looks=_first(_LOOKS, text),
        detects=_first(_DETECTS, text),
        lead=lead,
        questions=questions,
        pair=pair,
    )


def _from_json(held: dict[str, Any]) -> Said:
    """The answer of `compare --json`: names and numbers as documented in docs/result-schema.md, rounded as texts are."""
    action = {"use method": "use", "use checkpoint": "use", "keep base": "keep"}.get(held["action"], held["action"])
    keep, ahead, power = held["keep"], held["next_time"], held["power"]
    questions = {one["id"]: _json_claim(one["lead"]) for one in held["questions"]}
    base = next((one for one in held["questions"] if one["id"] == "base"), None)
    lead = questions.pop("base", None)
    expected = base["lead"]["expected"] if base and action == "use" else None
    if base and action == "keep":
        lead = _json_claim(max((base["lead"], *base["others"]), key=lambda one: one["difference"]["value"]))
    use = {"use method": held["method"], "use checkpoint": held["highest"]}.get(held["action"], "")
    return Said(
        action,
        use,
        keep["path"] if keep else "",
        gone=bool(keep) and not keep["there"],
        again=keep["again"] if keep else "",
        ties=tuple(held["ties"]),
        beats=tuple(held["beats"]),
        expected=f"{100 * expected:+.1f}" if expected is not None else "",
        shrunken=f"{100 * keep['expected']:+.1f}" if keep and keep["expected"] is not None else "",
        next_time=(ahead["how"],) if ahead else (),
        looks=str(held["looks"]) if held["looks"] > 1 else "",
        detects=f"{100 * power['detectable']:.1f}" if power and power["detectable"] is not None else "",
        lead=lead,
        questions=questions,
    )


def _json_claim(one: dict[str, Any]) -> Told:
    held = one["difference"]
    same = one["verdict"] == "same" or held["value"] == held["low"] == held["high"] == 0
    clipped = (min(1.0, max(-1.0, held[name])) for name in ("value", "low", "high"))
    change = () if same else tuple(f"{100 * number + 0.0:+.1f}" for number in clipped)
    both = [str(count) for count in one["seeds"]]
    seeds = both[0] if one["b"] == "base" or both[0] == both[1] else "/".join(both)
    part = "" if one["part"] is None else _code(one["part"].replace("peak to end", "peak - end"))
    part = {"equal tokens": "equal-tokens", "beyond reach": "beyond", "within reach": "within"}.get(part, part)
    outcome = {"relation_f1": "relation", "coreference_conll": "coreference"}.get(one["outcome"], "")
    verdict = "same" if same else one["verdict"]
    count = (one["documents"], one["count"])
    return Told(one["a"], one["b"], part, outcome, change, verdict, "" if one["test"] == "sign flips" else seeds, count)


def _action(headline: str) -> tuple[str, str]:
    if found := _USE.match(headline):
        return "use", found[1]
    return next((code for words, code in _ACTIONS.items() if headline.startswith(words)), ""), ""


def _claim(text: str) -> Told | None:
    found = _CLAIM.search(text)
    if found is None:
        return None
    left = _code(found["left"])
    own = re.fullmatch(rf"(.+), ({_NAME}), (last-step|peak-end)", left)
    if own:
        outcome, a, b, part = own[1], own[2], own[2], own[3]
    else:
        two = re.fullmatch(rf"(.+), ({_NAME} - .+)", left)
        if two is None:
            return None
        outcome, (a, b, part) = two[1], _sides(two[2])
    basis = _BASIS.search(found["basis"])
    if basis is None:
        return None
    change = tuple(one for one in found.groups()[1:4] if one)
    verdict = _verdict(found["verdict"]) if found["verdict"] else "same"
    return Told(a, b, part, _outcome(outcome), change, verdict, _seeds(basis), _documents(basis))


def _sides(about: str) -> tuple[str, str, str]:
    about = _code(about)
    if own := re.fullmatch(rf"({_NAME}), (last-step|peak-end)", about):
        return own[1], own[1], own[2]
    found = re.fullmatch(rf"({_NAME}) - ({_NAME})(?:, (.+))?", about)
    if found is None:
        return about, "", ""
    return found[1], {"원래 모델": "base"}.get(found[2], found[2]), found[3] or ""


def _code(text: str) -> str:
    for words in sorted(_PARTS, key=len, reverse=True):
        text = text.replace(words, _PARTS[words])
    return text


def _outcome(text: str) -> str:
    """Relation extraction or coreference; labels of metrics are the same in both languages and stand in no record."""
    return next((code for words, code in _OUTCOMES.items() if text.startswith(words)), "")


def _spelt() -> list[tuple[str, str]]:
    return sorted(VERDICTS.items(), key=lambda pair: -len(pair[0]))


def _verdict(text: str) -> str:
    if re.match(r"[\d.]+점 이내로 동등|equivalent", text):
        return "equivalent"
    return next((code for words, code in _spelt() if text.startswith(words)), f"? {text}")


def _seeds(basis: re.Match[str]) -> str:
    return basis[1] or basis[2] or ""


def _documents(basis: re.Match[str]) -> tuple[str, int]:
    count = basis[4] or basis[6] or basis[9] or basis[11]
    kind = basis[5] or basis[7] or basis[8] or basis[10]
    return _KINDS[kind], int(count.replace(",", ""))


def _pair(text: str) -> tuple[tuple[str, ...], str] | None:
    """The studio's verdict: `A - B: Real@1 strict +2.1 [+1.0, +3.2], better.`"""
    if found := re.search(rf"{POINTS}, (.+)\.$", text):
        return found.groups()[:3], _verdict(found[4])
    return ((), "same") if re.search(_SAME, text) else None


def _next_times(text: str) -> tuple[str, ...]:
    return tuple(sorted(how for how, words in _NEXT.items() if re.search(words, text)))


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return next(one for one in found.groups() if one) if found else ""


def _without_title(line: str) -> str:
    for title in (one for titles in TITLES.values() for one in titles):
        line = line.removeprefix(f"{title} ")
    return line.removeprefix("The largest difference: ").removeprefix("가장 큰 차이: ")
