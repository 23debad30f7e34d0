"""Sections about relation runs. In: an Assessment. Out: scores beside tokenizers, what fragmentation costs, the five reasons."""

from __future__ import annotations

from collections.abc import Sequence

from coref_automl.relation.assessment import Assessment
from coref_automl.relation.fragmentation import Cost, Fragmentation
from coref_automl.relation.reasons import Finding, Reasons
from coref_automl.relation.row_groups import MANY_PIECES, TokenizerColumns
from coref_automl.report.language import Say, interval, p_text, points
from coref_automl.report.page import Block, Cell, Points, Section, Table, Text, Tone, question, row
from coref_automl.report.verdicts import before_correction
from coref_automl.statistics.crossed import CrossedVerdict

_TONES: dict[int, Tone] = {1: "good", -1: "bad", 0: "quiet"}


def relation_sections(found: Assessment, say: Say) -> list[Section]:
    shown = [variants_section(found, say)]
    shown += [_fragmentation(found.fragmentation, say)] if found.fragmentation else []
    return [*shown, *(_reasons(one, number, say) for number, one in enumerate(found.reasons, 1))]


def tokenizer_cells(columns: TokenizerColumns | None) -> tuple[str, ...]:
    """Pieces per entity, rows with unknown tokens and entities on token edges, as a table of scores carries them."""
    if columns is None:
        return ("–",) * 3
    return f"{columns.pieces:.2f}", f"{100 * columns.unknown:.1f}", f"{100 * columns.edges:.1f}"


def tokenizer_head(say: Say) -> tuple[str, ...]:
    return (
        say("개체당 조각", "pieces per entity"), say("미등록 토큰이 있는 행 %", "rows with unknown tokens %"),
        say("토큰 경계와 맞는 개체 %", "entities on token edges %"),
    )  # fmt: skip


def variants_section(found: Assessment, say: Say) -> Section:
    head = (say("시작 모델", "from"), say("변형", "variant"), say("시드", "seeds"), "micro-F1", *tokenizer_head(say))
    lines = [
        row(one.model, one.variant, str(one.seeds), interval(one.micro_f1), *tokenizer_cells(one.tokenizer))
        for one in found.variants
    ]
    told = say(
        "구간은 실행과 문장을 교차시킨 95% 신뢰구간입니다. 조각, 미등록, 경계는 토크나이저의 것이므로 인코더의 점수와 나누어 "
        "보세요.",
        "Intervals are 95%, runs crossed with sentences. Pieces, unknown tokens and edges belong to the tokenizer: read them "
        "beside the encoder's score, not as part of it.",
    )
    blocks: tuple[Block, ...] = (Table(head, tuple(lines), frozenset(range(2, 7))), Text(told, "quiet"))
    return Section("variants", say("점수와 토크나이저", "Scores and tokenizers"), blocks)


def _fragmentation(found: Sequence[Fragmentation], say: Say) -> Section:
    costs = [(one, cost) for one in found for cost in one.costs]
    told = [f"{_by(cost.by, say)} {points(cost.verdict.interval)}, {_cost_word(cost, say)}" for _, cost in costs]
    shown = any(cost.shown and cost.verdict.difference < 0 for _, cost in costs)
    answer = say("그렇습니다. " if shown else "유의한 차이가 확인되지 않았습니다. ", "Yes. " if shown else "Not shown. ")
    head = (say("시작 모델", "from"), say("나눔", "by"), say("집단", "group"), say("행", "rows"), "micro-F1 %")
    groups = [
        row(one.model, _by(group.by, say), _group(group.by, group.group, say), f"{group.rows:,}", interval(group.micro_f1))
        for one in found
        for group in one.groups
    ]
    costs_head = (
        say("시작 모델", "from"), say("변형", "variant"), say("있는 행 - 나머지", "rows with it - the others"),
        say("있는 행", "rows with it"),
        say("짝이 있는 행", "rows with their like"), say("차이 (점)", "difference (points)"), "p (BH)", say("판정", "verdict"),
    )  # fmt: skip
    lines = [
        row(
            one.model, one.variant, _by(cost.by, say), f"{cost.rows:,}", f"{cost.compared:,}", points(cost.verdict.interval),
            p_text(cost.adjusted), Cell(_cost_word(cost, say), _TONES[_cost_sign(cost)]),
        )
        for one, cost in costs
    ]  # fmt: skip
    how = say(
        "위 표의 집단은 레이블과 유형의 구성이 서로 달라 그대로 견줄 수 없습니다. 판정은 레이블과 개체 유형이 같은 행끼리만 "
        f"견줍니다 (Mantel-Haenszel 가중). 조각 수는 주체나 대상이 {MANY_PIECES}조각 이상인 행을 봅니다. 관찰된 차이이지 "
        "토크나이저를 바꾼 실험이 아닙니다.",
        "Groups of the table above differ in labels and types too, so they cannot be compared as they are. Verdicts compare "
        f"rows of the same label and entity types alone (Mantel-Haenszel weights). Pieces: subject or object has {MANY_PIECES} "
        "or more. This is observed within runs, not an experiment that changes the tokenizer.",
    )
    blocks: list[Block] = [
        Table(head, tuple(groups), frozenset({3, 4})),
        Table(costs_head, tuple(lines), frozenset({3, 4, 5, 6})),
        Text(how, "quiet"),
    ]
    title = say("개체가 쪼개지면 점수가 떨어지는가?", "Does fragmentation cost?")
    return question("fragmentation", title, answer + "; ".join(told) + ".", blocks, say("쪼개짐", "fragmentation"))


def _by(name: str, say: Say) -> str:
    return {
        "subject pieces": say("주체의 조각 수", "pieces of the subject"),
        "object pieces": say("대상의 조각 수", "pieces of the object"),
        "pieces": say(f"{MANY_PIECES}조각 이상", f"{MANY_PIECES} or more pieces"),
        "unknown": say("미등록 토큰", "unknown tokens"),
        "glued": say("붙은 조사", "glued particle"),
    }[name]


def _group(by: str, name: str, say: Say) -> str:
    words = {
        "none": say("없음", "none"),
        "elsewhere": say("개체 밖", "outside the entities"),
        "entity": say("개체 안", "in an entity"),
        "no": say("없음", "no"),
        "yes": say("있음", "yes"),
    }
    return words[name] if by in ("unknown", "glued") else name


def _cost_sign(cost: Cost) -> int:
    return (1 if cost.verdict.difference > 0 else -1) if cost.shown else 0


def _cost_word(cost: Cost, say: Say) -> str:
    words = {-1: say("낮음", "costs"), 1: say("높음", "higher"), 0: _not_shown(cost.verdict, say)}
    return words[_cost_sign(cost)]


def _not_shown(verdict: CrossedVerdict, say: Say) -> str:
    """Why nothing is shown, or what could have been."""
    if verdict.reason == "one seed":
        return say("시드 하나, 판정 없음", "one seed, no verdict")
    if verdict.shown:
        return before_correction(say)
    could = verdict.detectable
    limit = say(f" (검출 가능한 차이 {100 * could:.1f}점)", f" (detectable {100 * could:.1f})") if could else ""
    return say("유의한 차이 미확인", "no difference shown") + limit


def _reasons(found: Reasons, number: int, say: Say) -> Section:
    titles = {
        1: say("긴 문장, 많은 명사 후보", "Long sentences, many candidate nouns"),
        2: say("같은 유형의 개체가 여럿", "Several entities of the same type"),
        3: say("유형과 레이블 마스크, 각각", "Types and the label mask, apart"),
        4: say("no_relation 행의 거짓 관계", "False relations on no_relation rows"),
        5: say("쪼개진 개체와 붙은 조사", "Fragmented entities and glued particles"),
    }
    head = (
        say("이유", "reason"), say("행", "rows"), say("비교", "difference"), say("앞 %", "first %"), say("뒤 %", "second %"),
        say("차이 (점)", "difference (points)"), "p (BH)", say("판정", "verdict"),
        say("다른 행보다 (점)", "more than on other rows (points)"), say("판정", "verdict"),
    )  # fmt: skip
    lines = [_line(one, say) for one in found.findings]
    untested = [f"{reason}. {_missing(why, say)}" for reason, why in found.missing]
    told = tuple(f"{reason}. {title}. {_conclusion(found, reason, say)}" for reason, title in titles.items())
    how = say(
        "차이는 micro-F1 (3의 '불가능한 답'과 4는 비율, 낮을수록 좋음). 구간은 실행과 문장을 교차시킨 95% 신뢰구간이고, p는 이 "
        "표의 모든 판정에 대해 Benjamini-Hochberg로 보정했습니다. '다른 행보다'는 그 행에서 얻는 이득이 나머지 행에서보다 "
        "큰지이며, 레이블과 유형이 같은 행끼리 견줍니다 (2는 유형이 집단을 정하므로 나머지 모두와). 긴 문장과 많은 명사는 "
        "위쪽 3분의 1입니다. '따로 볼 때만'은 보정 전에만 유의한 것입니다.",
        "Differences are in micro-F1 (impossible answers in 3 and all of 4 are rates, less is better). Intervals are 95%, runs "
        "crossed with sentences; p is adjusted for all verdicts of this table (Benjamini-Hochberg). More than on other rows: is "
        "the gain larger there than elsewhere, among rows of the same label and types (in 2, where types make the group, than "
        "on all others)? Long sentences and many nouns are the upper third. Only alone: shown before the correction, not after.",
    )
    seeds = ", ".join(f"{name} {count}" for name, count in found.seeds.items())
    caption = say(
        f"{found.split} {found.rows:,}행, {found.model}; 시드: {seeds}",
        f"{found.rows:,} rows of {found.split}, {found.model}; seeds: {seeds}",
    )
    blocks: list[Block] = [Points(told), Table(head, tuple(lines), frozenset({3, 4, 5, 6, 8}), caption), Text(how, "quiet")]
    if untested:
        blocks.append(Text(say("확인하지 못한 것: ", "Not tested: ") + "; ".join(untested) + ".", "quiet"))
    name = "reasons" if number == 1 else f"reasons-{number}"
    title = say("표지를 두는 다섯 가지 이유, 확인", "The five reasons for entity markers, tested")
    return Section(name, title, tuple(blocks), say("다섯 가지 이유", "five reasons"))


def _line(one: Finding, say: Say) -> tuple[Cell, ...]:
    more = (Cell("–", "quiet"), Cell("–", "quiet"))
    if one.more is not None:
        more = Cell(points(one.more.interval)), Cell(_more_word(one, say), _TONES[one.sign_more])
    return row(
        str(one.reason), f"{about(one.about, say)} ({one.rows:,})", _compared(one, say),
        *(f"{100 * value:.1f}" for value in one.values), points(one.here.interval), p_text(one.adjusted),
        Cell(_word(one, say), _TONES[one.sign]), *more,
    )  # fmt: skip


def about(name: str, say: Say) -> str:
    return {
        "long": say("긴 문장", "long sentences"),
        "nouns": say("명사가 많은 문장", "many nouns"),
        "same types": say("같은 유형이 여럿", "several of a type"),
        "all": say("모든 행", "all rows"),
        "no_relation": "no_relation",
        "fragmented": say(f"{MANY_PIECES}조각 이상", f"{MANY_PIECES} or more pieces"),
        "glued": say("붙은 조사", "glued particle"),
    }[name]


def _word(one: Finding, say: Say) -> str:
    return {1: say("더 좋음", "better"), -1: say("더 나쁨", "worse"), 0: _not_shown(one.here, say)}[one.sign]


def _more_word(one: Finding, say: Say) -> str:
    alone = one.more is not None and one.more.shown
    nothing = before_correction(say) if alone else say("미확인", "not shown")
    return {1: say("더 큼", "more"), -1: say("더 작음", "less"), 0: nothing}[one.sign_more]


def _missing(why: str, say: Say) -> str:
    name, _, rest = why.partition(": ")
    words = {
        "no such runs": say("그런 실행이 없음", "no such runs"),
        "not known": say("알 수 없음 (Kiwi나 토크나이저가 없음)", "not known (no Kiwi or no tokenizer here)"),
    }
    return f"{name}: {words.get(rest, rest)}"


def _conclusion(found: Reasons, reason: int, say: Say) -> str:
    """What was shown of one reason, one clause per comparison; `no difference shown` where that is so."""
    asked: dict[str, list[Finding]] = {}
    for one in found.findings:
        if one.reason == reason:
            asked.setdefault(_compared(one, say), []).append(one)
    if not asked:
        return say("확인할 실행이 없습니다.", "No runs to test it with.")
    return "; ".join(f"{pair}: {', '.join(_clause(one, say) for one in some)}" for pair, some in asked.items()) + "."


def _compared(one: Finding, say: Say) -> str:
    metric = {
        "micro_f1": "",
        "false_relations": say(" (거짓 관계)", " (false relations)"),
        "impossible": say(" (불가능한 답)", " (impossible answers)"),
    }[one.metric]
    return f"{one.a} - {one.b}{metric}"


def _clause(one: Finding, say: Say) -> str:
    where = f"{about(one.about, say)} " if one.about not in ("all", "no_relation") else ""
    nothing = before_correction(say) if one.here.shown else say("차이 미확인", "no difference shown")
    word = {1: say("더 좋음", "better"), -1: say("더 나쁨", "worse"), 0: nothing}[one.sign]
    more = {
        1: say(" (다른 행에서보다 큼)", " (more than on other rows)"),
        -1: say(" (다른 행에서보다 작음)", " (less than on other rows)"),
        0: say(" (다른 행보다 크다고 확인되지 않음)", " (not shown to be more than on other rows)"),
    }[one.sign_more]
    return f"{where}{100 * one.here.difference:+.1f} {word}{more if one.more is not None and one.sign else ''}"
