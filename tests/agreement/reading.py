"""What a surface says, read from its printed text. In: text. Out: Said. Written from the texts, not from the record."""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass, field, replace
from typing import Any

from tests.agreement.pages import TITLES, Row, hero_of, of_html, of_markdown, plain, plain_lines
from tests.agreement.surfaces import Printed

_PARTS = {
    "last interval": "last-step", "마지막 구간": "last-step", "peak - end": "peak-end", "정점 - 마지막": "peak-end",
    "at equal tokens": "equal-tokens", "같은 토큰 수에서": "equal-tokens",
}  # fmt: skip
_OUTCOMES = {"Relation extraction, micro-F1": "relation", "관계 추출 micro-F1": "relation"}
_OUTCOMES |= {"Coreference, CoNLL with gold mentions": "coreference", "상호참조, 정답 언급의 CoNLL": "coreference"}
_VERDICTS = {
    "better": "better", "더 좋음": "better", "worse": "worse", "더 나쁨": "worse", "not shown": "not shown",
    "차이 미확인": "not shown", "no difference shown": "not shown", "유의한 차이 미확인": "not shown", "not judged": "not judged",
    "판정 없음": "not judged", "equivalent": "equivalent", "no gain above": "no gain", "the same": "same", "같음": "same",
    "모든 문항에서 같음": "same",
}  # fmt: skip
_SAME = r"the same on every item|모든 문항에서 같음"
_N = r"[+-]\d+\.\d\d?"
POINTS = rf"({_N}) \[({_N}), ({_N})\]"
_SEEDS = r"(?:(\d+(?:/\d+)?) seeds?|시드 (\d+(?:/\d+)?)개|(one checkpoint|체크포인트 하나))"
_DOCUMENTS = (
    r"(?:all ([\d,]+) (documents|sentences)(?: of [\w-]+)?|([\d,]+) (documents(?: of [\w-]+)? held back from choosing|texts)"
    r"|(?:[\w-]+의 )?(모든 문서|고르는 데 쓰지 않은 문서|모든 문장) ([\d,]+)개|(글) ([\d,]+)편)"
)
_KINDS = {
    "documents": "all", "모든 문서": "all", "held back": "confirm", "고르는 데 쓰지 않은 문서": "confirm",
    "sentences": "rows", "모든 문장": "rows", "texts": "texts", "글": "texts",
}  # fmt: skip
_BASIS = re.compile(rf"\({_SEEDS}, {_DOCUMENTS}(?:, (?:corrected for|비교) (\d+)[^()]*\([^()]*\))?\)")
_CLAIM = re.compile(
    rf"(?P<left>.+?): (?:{_SAME}|{POINTS}(?:, (?P<verdict>.+?))?|(?P<none>–|(?:not judged|판정 없음).*?)) "
    rf"(?P<basis>{_BASIS.pattern})\."
)
_UNTESTED = re.compile(r"Not compared for ([^:]+)\.$|^(.+): 비교되지 않았습니다\.$")
_LACKING = re.compile(r"^(?:Not tested for (?P<en>[^:\n]+): (?P<tasks>.+)|(?P<ko>[^:\n]+) 미평가: (?P<of>.+))\.$", re.M)
_TASKS = {"real": ("nouns of the document", "문서에 있는 명사"), "new": ("new nouns", "문서에 없는 명사"),
          "far": ("far mentions", "먼 언급"), "lambada": ("LAMBADA",), "relation": ("relation extraction", "관계 추출"),
          "coreference": ("coreference", "상호참조 해결")}  # fmt: skip
_TRADE = re.compile(r"Choose by task|과제별 선택")
_ELSEWHERE = re.compile(r"(?:Told apart on another task|다른 과제에서는 구별됨): (.+?)\.(?=\s|$|<)")
_NAME = r"(?:[^,:]|,(?=\d))+"
_USE = re.compile(r"^(?:Use|추천:) (.+)$")
_OR = re.compile(r", (?=\D)| or | 또는 ")
_BADGES = {
    "yes": "better", "예": "better", "no: worse": "worse", "아니요: 더 나쁨": "worse", "no gain shown": "not shown",
    "향상 미확인": "not shown", "the longer": "better", "긴 쪽": "better", "the shorter": "worse", "짧은 쪽": "worse",
    "still gaining": "better", "아직 오르는 중": "better", "falling": "worse", "떨어지는 중": "worse",
    "past its peak": "better", "정점을 지남": "better", "yes, of one checkpoint": "better",
    "예, 체크포인트 하나에서": "better",
}  # fmt: skip
"""Badges of questions that ask yes or no, for which length, and of the course of training."""
_COUNTS = {
    "beats": r"better than (\d+)|(\d+)개보다 나음", "level": r"tied with (\d+)|(\d+)개와 동률",
    "unjudged": r"(\d+) not judged|(\d+)개 판정 없음",
}  # fmt: skip
"""The badge of methods: how many are beaten, tied and without a verdict."""
_ACTIONS = {
    "Keep the base": "keep", "베이스 모델 유지": "keep", "No base to compare with": "no base",
    "비교할 베이스 모델이 없습니다": "no base", "Undecided": "undecided", "판정할 수 없습니다": "undecided",
}  # fmt: skip
_NEXT = {
    "longer": r"Next time, try training longer|다음에는 더 길게|Next: train all \d+ seeds longer|다음: 시드 \d+개 모두 더 길게",
    "as long": r"Next time, train as long as now|다음에도 이만큼",
    "less": r"Next time, train (?:until|for)|다음에는 .*까지 학습하면",
}
_GONE = r"not on this disk|이 디스크에 없음"
_THERE = r"(?<!not )on this disk|이 디스크에 있음"
_AGAIN = re.compile(r"^(?:Make again|Next: make it again|다시 만들기|다음: 다시 만들기): (.+)$", re.M)
_STEP = re.compile(r"^(?:Next|다음): (?!make it again|다시 만들기)(.+?): (coref-automl .+)$", re.M)
_LEVEL = re.compile(r"(?:Not distinguishable from it(?: at equal tokens[^:]*)?|구별되지 않음): (.+?)\.(?=\s|$|<)")
_UNPROVEN = re.compile(r"(?:not shown better than the base|그중 베이스 모델 대비 향상 미확인): (.+?)\.(?=\s|$|<)")
_BEATS = re.compile(r"Shown better(?: at equal tokens [^)]*\))? than (.+?)\.(?=\s|$|<)|다음보다 나음이 확인됨: (.+?)\.(?=\s|$|<)")
_UNJUDGED = re.compile(r"(?:Not comparable|비교할 수 없음): (.+?)\.(?=\s|$|<)")
_WEAKEST = re.compile(r"Weakest of \d+ sources: (.+?)\.|가장 약한 곳: (.+?)\.")
_EXPECTED = re.compile(rf"expected to gain ({_N}) points|기대되는 향상은 ({_N})점")
_SHRUNKEN = re.compile(rf"expected gain ({_N}) points|기대 향상 ({_N})점")
_PATH = re.compile(
    r"^(?:Checkpoint|체크포인트): (.+?), (?=[\d.]+[kMG]? (?:tokens|토큰)|expected|기대|not on|on this|이 디스크)", re.M
)
_COUNTED = re.compile(r"(\d+) of (\d+) (?:methods|checkpoints) better|(?:방법|체크포인트) (\d+)개 중 (\d+)개가 더 좋음")
_LOOKS = re.compile(r"Judged (\d+) times|더하며 (\d+)번 판정")
_DETECTS = re.compile(r"a gain of ([\d.]+) points is detected|([\d.]+)점 향상이면 검출")


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

    `ties` are the other methods of the headline, `unproven` are tied without beating the base; `step` is the next command.
    `pair` is the claim of the studio's Compare page, `cells` those of its leaderboard (of the JSON: all); `counted` how many of
    how many are better.
    """

    action: str
    use: str = ""
    keep: str = ""
    base: str = ""
    gone: bool = False
    again: str = ""
    ties: tuple[str, ...] = ()
    beats: tuple[str, ...] = ()
    unproven: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()
    step: str = ""
    expected: str = ""
    shrunken: str = ""
    next_time: tuple[str, ...] = ()
    looks: str = ""
    detects: str = ""
    lead: Told | None = None
    questions: dict[str, Told] = field(default_factory=dict)
    untested: dict[str, str] = field(default_factory=dict)
    elsewhere: int = 0
    counted: tuple[int, int] | None = None
    pair: tuple[tuple[str, ...], str] | None = None
    faults: tuple[str, ...] = ()
    cells: tuple[Told, ...] = ()


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
        cells, faults = _cells(one.text)
        said = _lines(lines, _pair(plain(found[1])) if found else None)
        return replace(said, cells=cells, faults=(*said.faults, *faults))
    lines = one.text.strip().split("\n")
    start = next((n for n, line in enumerate(lines) if _action(line.removesuffix("."))[0]), None)
    return _lines(lines[start:], None) if start is not None else Said("", faults=("no answer was found",))


def _cells(text: str) -> tuple[tuple[Told, ...], tuple[str, ...]]:
    """The leaderboard: what a cell shows must be what its whole sentence says."""
    found, faults = [], []
    for title, cell in re.findall(r'<td class="number score" title="(.*?)">(.*?)</td>', text, re.S):
        told = _claim(html.unescape(title))
        shown = re.search(r'<span class="change [^"]*">(.*?)</span> <span class="said [^"]*">(.*?)</span>', cell)
        if told is None or shown is None:
            faults.append(f"a cell without a claim: {title}")
            continue
        moved, verdict = re.fullmatch(POINTS, plain(shown[1])), verdict_of(plain(shown[2]))
        if (moved.groups() if moved else ()) != told.change or (told.change and verdict != told.verdict):
            faults.append(f"the leaderboard shows {plain(cell)!r} and says {title!r}")
        found.append(told)
    return tuple(found), tuple(faults)


def _lines(lines: list[str], pair: tuple[tuple[str, ...], str] | None) -> Said:
    """An answer in lines: terminal, Python, studio."""
    action, use, ties = _action(lines[0].removesuffix(".")) if lines else ("", "", ())
    text, questions, lead, untested = "\n".join(lines), {}, None, {}
    faults: list[str] = []
    for line in lines[1:]:
        asked = next((name for name, titles in TITLES.items() if line.startswith(titles)), "")
        badge, _, rest = _without_title(line).partition(". ") if asked else ("", "", _without_title(line))
        found = _claim(rest)
        if asked and (lacks := _first(_UNTESTED, _without_title(line))):
            untested[asked] = lacks
        elif asked and found:
            badge = re.sub(r" \(.*\)|, significant before.*|, 보정 전에만 유의", "", badge)
            by_badge = _by_badge(badge[:1].lower() + badge[1:])
            told = found if found.verdict else replace(found, verdict=by_badge)
            faults += _limits(badge, told) + _miscounted_sources(badge, told)
            if asked == "method" and action == "use":
                faults += _miscounted(badge[:1].lower() + badge[1:], text)
            elif asked != "sources" and by_badge != told.verdict:
                faults.append(f"{asked}: the answer is {badge!r}, its claim {told}")
            questions[asked] = told
        elif found and lead is None:
            lead = found
    said = _said(text, action, use, ties, _telling(questions), lead, keep=_first(_PATH, text), pair=pair)
    return replace(said, untested={**_asked(untested), **_lacking(text)}, faults=(*said.faults, *faults))


def _first_screen(headline: str, sentence: str, rows: list[Row], keep: tuple[str, bool], status: str, whole: str) -> Said:
    """An answer as a page: headline, sentence, rows of questions (title, badge, sentence, difference), what to keep."""
    action, use, ties = _action(headline)
    questions, faults, counted, untested = {}, [], None, {}
    for title, badge, told, change in rows:
        asked = next((name for name, titles in TITLES.items() if title in titles), title)
        if lacks := _first(_UNTESTED, told):
            untested[asked] = lacks
            if badge not in ("not compared", "비교 없음") or change != "–":
                faults.append(f"{title}: {told}, and yet {badge} {change}")
            continue
        about, _, moved = change.rpartition(": ")
        found, basis = re.fullmatch(POINTS, moved), _BASIS.search(told)
        if basis is None:
            faults.append(f"{title}: no basis in {told!r}")
            continue
        label, _, words = _parted(told[: basis.start()].strip())
        verdict = verdict_of(words)
        outcome, (a, b, part) = _outcome(label), _sides(about)
        if asked == "method" and action == "use":
            faults += _miscounted(badge, told)
        elif asked != "sources" and (by_badge := _by_badge(badge)) != verdict:
            faults.append(f"{title}: the badge says {by_badge}, its sentence {verdict}")
        if (weakest := _first(_WEAKEST, told)) and weakest != part:
            faults.append(f"{title}: the weakest source is {weakest}, and the difference that of {part}")
        questions[asked] = Told(a, b, part, outcome, found.groups() if found else (), verdict, _seeds(basis), _documents(basis))
        faults += _limits(words, questions[asked]) + _miscounted_sources(badge, questions[asked])
        if asked == "base" and (of := _COUNTED.search(told)):
            counted = (int(of[1]), int(of[2])) if of[1] else (int(of[4]), int(of[3]))
    path, of_base = keep
    text = "\n".join([sentence, *(told for _, _, told, _ in rows), status])
    if re.search(_THERE, status) and not path:
        faults.append("weights on this disk, and no path to keep")
    path = path or _first(_PATH, status)
    nexts = _next_times(plain(re.sub(r"<script.*?</script>", "", whole, flags=re.S)))
    said = _said(
        text, action, use, ties, _telling({name: one for name, one in questions.items() if name != "base"}),
        _claim(_without_title(sentence)), keep="" if of_base else path, pair=None,
    )  # fmt: skip
    said = replace(said, untested={**_asked(untested), **_lacking(plain_lines(whole))})
    base = questions.get("base")
    if said.lead and base and action == "use" and said.lead != base:
        faults.append(f"the sentence leads with {said.lead}, the table with {base}")
    more = {"base": path if of_base else "", "next_time": nexts, "counted": counted, "faults": (*said.faults, *faults)}
    found_looks, detects = (_first(one, whole) for one in (_LOOKS, _DETECTS))
    return Said(**{**said.__dict__, **more, "looks": found_looks, "detects": detects})


def _said(
    text: str, action: str, use: str, ties: tuple[str, ...], questions: dict[str, Told], lead: Told | None, *, keep: str,
    pair: Any,
) -> Said:  # fmt: skip
    unproven, level = _names(_UNPROVEN, text), _names(_LEVEL, text)
    apart = {*ties, *unproven} != {*level} and "..." not in (*level, *unproven)
    elsewhere = len(_first(_ELSEWHERE, text).split("; ")) if _ELSEWHERE.search(text) else 0
    faults = [f"the headline ties {ties}, the text {level}, of them unproven {unproven}"] if apart else []
    if bool(elsewhere) != bool(_TRADE.search(text)):
        faults.append(f"{elsewhere} tasks tell methods apart, and the first lines say otherwise")
    step = _STEP.search(text)
    return Said(
        action,
        use,
        keep,
        gone=bool(re.search(_GONE, text)),
        again=_first(_AGAIN, text).strip(),
        ties=ties,
        beats=_names(_BEATS, text),
        unproven=unproven,
        unjudged=_names(_UNJUDGED, text),
        step=step[2].strip() if step else "",
        expected=_first(_EXPECTED, text),
        shrunken=_first(_SHRUNKEN, text) or (_first(_EXPECTED, text) if keep else ""),  # said once where both are the same
        next_time=_next_times(text),
        looks=_first(_LOOKS, text),
        detects=_first(_DETECTS, text),
        lead=lead,
        questions=questions,
        elsewhere=elsewhere,
        pair=pair,
        faults=tuple(faults),
    )


def _from_json(held: dict[str, Any]) -> Said:
    """The answer of `compare --json`: names and numbers as documented in docs/result-schema.md, rounded as texts are."""
    action = {"use method": "use", "use checkpoint": "use", "keep base": "keep"}.get(held["action"], held["action"])
    keep, ahead, power = held["keep"], held["next_time"], held["power"]
    questions = {one["id"]: _json_claim(one["lead"]) for one in held["questions"] if one["tested"]}
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
        unproven=tuple(held["unproven"]),
        unjudged=tuple(held["unjudged"]),
        step=held["step"]["command"] if held["step"] and held["step"]["do"] != "make again" else "",
        expected=f"{100 * expected:+.1f}" if expected is not None else "",
        shrunken=f"{100 * keep['expected']:+.1f}" if keep and keep["expected"] is not None else "",
        next_time=(ahead["how"],) if ahead else (),
        looks=str(held["looks"]) if held["looks"] > 1 else "",
        detects=f"{100 * power['detectable']:.1f}" if power and power["detectable"] is not None else "",
        lead=lead,
        questions=_telling(questions),
        untested=dict.fromkeys(_json_untested(held), held["method"] or held["highest"]),
        elsewhere=_apart(held),
        cells=tuple(_json_claim(claim) for one in held["questions"] for claim in (one["lead"], *one["others"])),
    )


def _json_untested(held: dict[str, Any]) -> set[str]:
    """Questions that the method took no part in, and the tasks without any."""
    return {*held["untested"], *_asked({one["id"]: "" for one in held["questions"] if not one["tested"]})}


def _asked(untested: dict[str, str]) -> dict[str, str]:
    """Without the tasks, of which one line says what was not tested; one may be scored and have nothing to be compared with."""
    return {name: told for name, told in untested.items() if name not in _TASKS}


def _telling(questions: dict[str, Told]) -> dict[str, Told]:
    """Without those that are not judged and have no difference: pages name no sides there."""
    return {name: one for name, one in questions.items() if one.change or one.verdict != "not judged"}


def _apart(held: dict[str, Any]) -> int:
    """Claims of another task that tell the method from one that it is tied with; texts name four."""
    every = [claim for one in held["questions"] for claim in (one["lead"], *one["others"])]
    tied = {*held["ties"], *held["unproven"]}
    found = [one for one in every if {one["a"], one["b"]} - tied == {held["method"]} and len({one["a"], one["b"]}) == 2
             and one["verdict"] in ("better", "worse") and not one["part"] and one["question"] != "sources"
             and one["outcome"].split(":")[0] != held["metric"]]  # fmt: skip
    return min(4, len(found))


def _json_claim(one: dict[str, Any]) -> Told:
    held = one["difference"]
    none = held["value"] == held["low"] == held["high"] == 0
    same = one["verdict"] == "same" or (none and one["verdict"] != "not judged")
    clipped = [100 * round(min(1.0, max(-1.0, held[name])), 8) for name in ("value", "low", "high")]
    digits = [2 if n and abs(number) > 0 and round(abs(number), 1) == 0 else 1 for n, number in enumerate(clipped)]
    change = () if same or none else tuple(f"{number + 0.0:+.{k}f}" for number, k in zip(clipped, digits, strict=True))
    both = [str(count) for count in one["seeds"]]
    seeds = both[0] if one["b"] == "base" or both[0] == both[1] else "/".join(both)
    parts = {"equal tokens": "equal-tokens", "last step": "last-step", "peak to end": "peak-end"}
    part = parts.get(one["part"], one["part"] or "")
    outcome = {"relation_f1": "relation", "coreference_conll": "coreference"}.get(one["outcome"], "")
    verdict = "same" if same else one["verdict"]
    count = (one["documents"], one["count"])
    return Told(one["a"], one["b"], part, outcome, change, verdict, "" if one["test"] == "sign flips" else seeds, count)


def _action(headline: str) -> tuple[str, str, tuple[str, ...]]:
    if found := _USE.match(headline):
        use, *ties = _OR.split(found[1])
        return "use", use, tuple(ties)
    return next((code for words, code in _ACTIONS.items() if headline.startswith(words)), ""), "", ()


def _parted(label: str) -> tuple[str, str, str]:
    """`Real@1 strict, not shown (detectable: 3.1 points)` as outcome and verdict."""
    found = re.fullmatch(
        r"(.+?)(, )((?:[\d.]+점 이내|-?[\d.]+점을 넘는|" + "|".join(re.escape(words) for words, _ in _spelt()) + r").*)", label
    )
    return (found[1], found[2], found[3]) if found else (label, "", "")


def _by_badge(badge: str) -> str:
    for sign, words in {"better": r"better than |보다 좋음$", "worse": r"worse than |보다 나쁨$"}.items():
        if re.search(words, badge):
            return sign
    return _BADGES.get(badge) or verdict_of(badge)


def _limits(words: str, told: Told) -> list[str]:
    """No gain above the upper limit; equivalent within more than both limits."""
    if found := re.search(r"no gain above ([\d.-]+) |(-?[\d.]+)점을 넘는", words, re.I):
        return [f"{words!r} beside {told}"] if not told.change or float(_any(found)) != float(told.change[2]) else []
    if found := re.search(r"equivalent within ([\d.]+) |([\d.]+)점 이내", words, re.I):
        most = max(abs(float(one)) for one in told.change[1:]) if told.change else 0.0
        return [f"{words!r} beside {told}"] if most > float(_any(found)) + 0.051 else []
    return []


def _miscounted_sources(badge: str, told: Told) -> list[str]:
    """Shown on all of so many only where the weakest is."""
    found = re.search(r"shown on (\d+) of (\d+)|(\d+)개 중 (\d+)개에서 확인", badge, re.I)
    every = found is not None and (found[1] or found[3]) == (found[2] or found[4])
    return [f"{badge!r} beside {told}"] if found is not None and every != (told.verdict == "better") else []


def _lacking(text: str) -> dict[str, str]:
    """The one line of what was not tested."""
    found = _LACKING.search(text)
    if found is None:
        return {}
    names = (found["tasks"] or found["of"]).split(", ")
    return {code: found["en"] or found["ko"] for code, words in _TASKS.items() if {*words} & {*names}}


def _any(found: re.Match[str]) -> str:
    return next(one for one in found.groups() if one)


def _miscounted(badge: str, told: str) -> list[str]:
    """The counts of a badge beside the names of its sentence."""
    named = {"beats": _names(_BEATS, told), "level": _names(_LEVEL, told), "unjudged": _names(_UNJUDGED, told)}
    counts = {what: int(_first(re.compile(pattern), badge) or 0) for what, pattern in _COUNTS.items()}
    return [f"the badge counts {counts[one]} {one}, the sentence {names}" for one, names in named.items()
            if counts[one] != len(names) and "..." not in names]  # fmt: skip


def _names(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    found = re.sub(r" \([+-]\d[^()]*\)", "", _first(pattern, text))
    return tuple(found.split(", ")) if found else ()


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
    words = found["verdict"] or (found["none"] or "").strip("–")
    verdict = verdict_of(words) if words else "" if change or "–" in found[0] else "same"
    return Told(a, b, part, _outcome(outcome), change, verdict, _seeds(basis), _documents(basis))


def _sides(about: str) -> tuple[str, str, str]:
    about = _code(about)
    if own := re.fullmatch(rf"({_NAME}), (last-step|peak-end)", about):
        return own[1], own[1], own[2]
    found = re.fullmatch(rf"({_NAME}) - ({_NAME})(?:, (.+))?", about)
    if found is None:
        return about, "", ""
    return found[1], {"베이스 모델": "base"}.get(found[2], found[2]), found[3] or ""


def _code(text: str) -> str:
    for words in sorted(_PARTS, key=len, reverse=True):
        text = text.replace(words, _PARTS[words])
    return text


def _outcome(text: str) -> str:
    """Relation extraction or coreference; labels of metrics are the same in both languages and stand in no record."""
    return next((code for words, code in _OUTCOMES.items() if text.startswith(words)), "")


def _spelt() -> list[tuple[str, str]]:
    return sorted(_VERDICTS.items(), key=lambda pair: -len(pair[0]))


def verdict_of(text: str) -> str:
    for code, words in {"equivalent": r"[\d.]+점 이내로 동등", "no gain": r"-?[\d.]+점을 넘는 향상 없음"}.items():
        if re.match(words, text):
            return code
    return next((code for words, code in _spelt() if text.startswith(words)), f"? {text}")


def _seeds(basis: re.Match[str]) -> str:
    return basis[1] or basis[2] or ""


def _documents(basis: re.Match[str]) -> tuple[str, int]:
    count = basis[4] or basis[6] or basis[9] or basis[11]
    kind = basis[5] or basis[7] or basis[8] or basis[10]
    return _KINDS["held back" if "held back" in kind else kind], int(count.replace(",", ""))


def _pair(text: str) -> tuple[tuple[str, ...], str] | None:
    """The studio's verdict: `A - B: Real@1 strict +2.1 [+1.0, +3.2], better.`"""
    if found := re.search(rf"{POINTS}, (.+)\.$", text):
        return found.groups()[:3], verdict_of(found[4])
    return ((), "same") if re.search(_SAME, text) else None


def _next_times(text: str) -> tuple[str, ...]:
    return tuple(sorted(how for how, words in _NEXT.items() if re.search(words, text)))


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return next(one for one in found.groups() if one) if found else ""


def _without_title(line: str) -> str:
    for title in (one for titles in TITLES.values() for one in titles):
        line = line.removeprefix(f"{title} ")
    return line.removeprefix("Highest: ").removeprefix("가장 높은 것: ")
