"""Do surfaces agree, and does one contradict itself? In: what they printed, and the plan of the study. Out: findings in words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.agreement.reading import POINTS, Said, Told, read, verdict_of
from tests.agreement.studies import Plan
from tests.agreement.surfaces import Printed

_EVERYWHERE = ("action", "use", "keep", "gone", "again", "ties", "beats", "unproven", "unjudged", "expected", "shrunken",
               "next_time", "lead", "step", "untested", "elsewhere")  # fmt: skip
"""What every surface says."""
_DOWNSTREAM = ("relation", "coreference")
"""What not every method of a generated study has."""
_LISTED = 4
_JUDGED = ("better", "worse", "equivalent", "no gain", "not shown")


def findings(plan: Plan, texts: Sequence[Printed]) -> list[str]:
    read_texts = {one.name: read(one) for one in texts if one.kind != "report"}
    found = [f"{name}: {told}" for name, said in read_texts.items() for told in _contradictions(said, plan)]
    found += [f"{one.name}: {told}" for one in texts if one.kind == "markdown" for told in _tables(one.text)]
    return [*found, *_disagreements(read_texts)]


def _disagreements(said: dict[str, Said]) -> Iterator[str]:
    """Every surface against the first."""
    (first, one), *others = said.items()
    for name, other in others:
        for part in _EVERYWHERE:
            a, b = (_listed(getattr(held, part)) for held in (one, other))
            if a != b:
                yield f"{part}: {first} says {a!r}, {name} {b!r}"
        a, b = one.questions, other.questions
        if a != b:
            apart = {key: (a.get(key), b.get(key)) for key in {*a, *b} if a.get(key) != b.get(key)}
            yield f"questions: {first} and {name} differ in {apart}"
        for cell in other.cells if name != "json en" and "json en" in said else ():
            if cell not in said["json en"].cells:
                yield f"the leaderboard of {name} says {cell}, and no claim of the answer is that"
        if one.action == "use" and one.lead and other.pair not in (None, (one.lead.change, one.lead.verdict)):
            yield f"the pair of {name} is {other.pair}, the answer's {one.lead}"


def _listed(value: object) -> object:
    """Texts name at most so many; the JSON names all."""
    if isinstance(value, tuple) and value and all(isinstance(one, str) for one in value):
        return tuple(one for one in value if one != "...")[:_LISTED]
    return value


def _contradictions(said: Said, plan: Plan) -> Iterator[str]:
    yield from said.faults
    if not said.action:
        yield "no action is named"
    if said.action != "use":
        for what in ("keep", "next_time", "ties", "beats", "unproven", "unjudged", "again", "shrunken"):
            if getattr(said, what):
                yield f"{said.action}, and yet {what} {getattr(said, what)!r}"
    if said.base and said.action != "keep":
        yield f"{said.action}, and yet the base {said.base} is to be kept"
    if said.action == "use":
        yield from _use(said, plan)
    if said.action == "keep" and said.lead is not None and said.lead.verdict == "better":
        yield f"the base is kept beside a gain that is better: {said.lead}"
    if said.counted and (said.counted[0] > 0) != (said.action == "use"):
        yield f"{said.action}, and {said.counted[0]} of {said.counted[1]} better"
    if plan.base == "missing" and said.action in ("use", "keep"):
        yield f"{said.action} without a base"
    for told in (said.lead, *said.questions.values()):
        if told is not None:
            yield from _claim(told, plan)
    own = said.use if said.action == "use" else ""
    for name, told in said.questions.items():
        if own in plan.names and own not in (told.a, told.b) and not _is_its_checkpoint(told, own):
            yield f"{name} is about {told.a} and {told.b}, not about {own}"
    for name, lacks in said.untested.items():
        task = {"far": "real-far"}.get(name, name)
        scored = name not in ("real", "new", "far", "lambada") or task in plan.tasks
        if name not in _DOWNSTREAM and scored and not plan.partial and not (name == "base" and plan.base == "at one length"):
            yield f"{name} was scored for all, and yet it is not tested for {lacks}"
        if own and lacks != own:
            yield f"use {own}, and {name} is not tested for {lacks}"
    if said.unjudged and "re train" in said.step:
        yield f"{said.unjudged} had unequal training, and the next step is {said.step}"


def _is_its_checkpoint(told: Told, method: str) -> bool:
    """Of an outside check with one start: the claim names a checkpoint of the method."""
    stem = method.replace(" ", "-").replace(",", "")
    return told.outcome != "" and any(stem in name for name in (told.a, told.b))


def _use(said: Said, plan: Plan) -> Iterator[str]:
    lead = said.lead
    if lead is None or (lead.a, lead.b, lead.verdict) != (said.use, "base", "better"):
        yield f"use {said.use}, and the gain is {lead}"
    if not said.keep:
        yield f"use {said.use} without a checkpoint"
    elif Path(said.keep).is_dir() == said.gone:
        yield f"{said.keep} is {'there' if said.gone else 'not there'}, and the text says otherwise"
    if said.gone and not said.again:
        yield "weights are gone, and no command makes them again"
    if plan.seeds == 1 and said.use in plan.names:
        yield f"a method is recommended after one seed: {said.use}"
    if plan.seeds > 1 and said.use not in plan.names:
        yield f"{said.use} is no name that its owner gave"
    if said.use in plan.names and said.keep and said.use.replace(" ", "-").replace(",", "") not in said.keep:
        yield f"{said.keep} is no checkpoint of {said.use}"
    others = (*said.ties, *said.unproven, *said.beats, *said.unjudged)
    alike = {name for name in plan.names if name.rpartition(" ")[2] == said.use.rpartition(" ")[2]} - {said.use, *others}
    if said.use in plan.names and alike and "..." not in others and not (plan.other or plan.partial):
        yield f"nothing is said of {alike}: {others}"
    for name in {*others} - {"..."}:
        if name not in plan.names or name == said.use:
            yield f"{name} is told apart from {said.use}, and is no other method here"
    if len({*others} - {"..."}) < len(others) - others.count("..."):
        yield f"in two places: {others}"
    budget = re.search(r"--max-tokens (\d+)", said.step) if "longer" in said.next_time else None
    if budget and said.use in plan.names and int(budget[1]) <= plan.tokens(said.use):
        yield f"train longer, and the next step is {said.step}"
    if len(said.next_time) > 1:
        yield f"several advices for next time: {said.next_time}"
    step = said.questions.get("training")
    if "longer" in said.next_time and (step is None or (step.part, step.verdict) != ("last-step", "better")):
        yield f"train longer, and the last step is {step}"
    if said.shrunken.startswith("-"):
        yield f"use {said.use}, and its checkpoint is expected to lose {said.shrunken}"
    for gain in filter(None, (said.expected, said.shrunken)):
        if lead is not None and lead.change and float(gain) > float(lead.change[0]) + 0.05:
            yield f"a shrunken gain of {gain} above the measured {lead.change[0]}"


def _claim(told: Told, plan: Plan) -> Iterator[str]:
    if told.verdict.startswith("?"):
        yield f"unknown verdict {told.verdict!r}"
    if told.change:
        yield from agrees(told.change, told.verdict, str(told))
    if "1" in told.seeds.split("/")[:1] and told.verdict in _JUDGED and told.outcome == "":
        yield f"a verdict after one seed: {told}"
    for name in (told.a, told.b):
        if told.seeds and name not in (*plan.names, "base") and told.outcome == "":
            yield f"{name!r} is no name that its owner gave"
    if told.documents[0] == "all" and told.outcome == "" and plan.planned is False and told.seeds:
        yield f"checkpoints that the set chose are judged on all documents: {told}"
    if told.documents[0] == "confirm" and plan.planned is True and told.seeds and told.part != "peak-end":
        yield f"methods fixed before scoring are judged on held-back documents: {told}"
    both = [name for name in (told.a, told.b) if name in plan.names]
    if len(both) == 2 and not told.part and told.verdict in _JUDGED and len({plan.tokens(name) for name in both}) > 1:
        yield f"a verdict on methods of unequal training: {told}"


def agrees(change: Sequence[str], verdict: str, where: str) -> Iterator[str]:
    """An interval and its verdict, as printed: a bound that rounds to zero keeps its sign."""
    value, low, high = change
    excludes = low[0] == high[0]
    at_zero = low == "+0.0" or high == "-0.0"
    if verdict in ("better", "worse"):
        if not excludes or value[0] != ("+" if verdict == "better" else "-"):
            yield f"{verdict} beside {value} [{low}, {high}]: {where}"
    elif verdict in ("not shown", "equivalent", "no gain") and excludes and not at_zero:
        yield f"{verdict} beside {value} [{low}, {high}]: {where}"
    if not float(low) - 0.11 <= float(value) <= float(high) + 0.11:
        yield f"{value} lies outside [{low}, {high}]: {where}"


def _tables(text: str) -> Iterator[str]:
    """Every table of the page that has a verdict beside a difference."""
    head: list[str] = []
    for line in text.split("\n"):
        cells = [one.strip() for one in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells:
            head = []
        elif not head:
            head = cells
        else:
            at = next((n for n, title in enumerate(head) if title in ("verdict", "판정")), None)
            moved = next((found for one in cells if (found := re.match(POINTS, one.replace("\\", "")))), None)
            if moved is None:
                continue
            if at is not None and head[0] not in ("question", "질문"):
                yield from agrees(moved.groups(), verdict_of(cells[at]), line)
            for one in cells:
                shown = re.fullmatch(rf"{POINTS} (?:shown|확인)", one.replace("\\", ""))
                if shown:
                    yield from agrees(shown.groups(), "better" if shown[1][0] == "+" else "worse", line)
