"""Synthetic relation-extraction rows. In: a count and a seed. Out: rows in KLUE-RE's JSON shape, all thirty labels, distractors.

A row that states a relation often carries a second statement about other people or companies; a no_relation row mostly takes its
subject from one statement and its object from the other. So neither the entity types nor the words alone give the label away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from coref_automl.corpus.synthetic.phrasebook import leads, relations, unrelated
from coref_automl.corpus.synthetic.templates import Placed, Rendered, last_sound, render
from coref_automl.corpus.synthetic.world import Entity, World, count_of_people, work_title

NO_RELATION = "no_relation"
NO_RELATION_SHARE = 0.35


@dataclass(frozen=True, slots=True)
class Statement:
    """One clause: its subject and object, and the text with both placed as `s` and `o`. It ends in 다 without a full stop."""

    subject: Entity
    object: Entity
    rendered: Rendered
    turned: bool = False

    def subject_at(self, offset: int) -> dict[str, Any]:
        return _entity(self.subject, self.rendered.placed, "o" if self.turned else "s", offset)

    def object_at(self, offset: int) -> dict[str, Any]:
        return _entity(self.object, self.rendered.placed, "s" if self.turned else "o", offset)


def relation_rows(count: int, seed: int) -> list[dict[str, Any]]:
    """`count` rows; among the first thirty every label occurs once, afterwards about a third are no_relation."""
    order = [NO_RELATION, *relations()]
    Random(f"{seed}/labels").shuffle(order)
    return [_row(index, order, seed) for index in range(count)]


def _row(index: int, order: list[str], seed: int) -> dict[str, Any]:
    rng = Random(f"{seed}/row/{index}")
    world = World(rng)
    if index < len(order):
        label = order[index]
    else:
        label = NO_RELATION if rng.random() < NO_RELATION_SHARE else rng.choice(list(relations()))
    if label != NO_RELATION:
        main = _state(label, world)
        other = _state(label if rng.random() < 0.5 else rng.choice(list(relations())), world) if rng.random() < 0.6 else None
        return _told(index, label, [(main, True, True)] + ([(other, False, False)] if other else []), rng)
    if rng.random() < 0.3:
        main = _side_by_side(world)
        rest = [(_state(rng.choice(list(relations())), world), False, False)] if rng.random() < 0.5 else []
        return _told(index, label, [(main, True, True), *rest], rng)
    first = rng.choice(list(relations()))
    alike = [name for name, relation in relations().items() if relation.kinds == relations()[first].kinds]
    second = first if rng.random() < 0.4 else rng.choice(alike if rng.random() < 0.6 else list(relations()))
    return _told(index, label, [(_state(first, world), True, False), (_state(second, world), False, True)], rng)


def _state(label: str, world: World) -> Statement:
    relation = relations()[label]
    subject = MAKERS[relation.subject](world)
    found = world.fact(subject, relation.fact)
    roles = {"s": found, "o": subject} if relation.turned else {"s": subject, "o": found}
    rendered = render(world.rng.choice(relation.patterns), lambda path: roles[path].name, world.rng)
    return Statement(subject, found, rendered, turned=relation.turned)


def _side_by_side(world: World) -> Statement:
    pair = world.rng.choice(unrelated())
    roles = {"s": MAKERS[pair.subject](world), "o": MAKERS[pair.object](world)}
    rendered = render(world.rng.choice(pair.patterns), lambda path: roles[path].name, world.rng)
    return Statement(roles["s"], roles["o"], rendered)


def _told(index: int, label: str, parts: list[tuple[Statement, bool, bool]], rng: Random) -> dict[str, Any]:
    """Join the statements in either order; the flags say which one gives the subject and which one the object."""
    rng.shuffle(parts)
    text = rng.choice(leads()) + " " if rng.random() < 0.35 else ""
    entities: dict[str, dict[str, Any]] = {}
    for number, (statement, gives_subject, gives_object) in enumerate(parts):
        at = len(text)
        if gives_subject:
            entities["subject_entity"] = statement.subject_at(at)
        if gives_object:
            entities["object_entity"] = statement.object_at(at)
        text += statement.rendered.text
        text = _linked(text, rng) if number + 1 < len(parts) else text + "."
    return {
        "guid": f"synthetic-re-{index:06d}",
        "sentence": text,
        "subject_entity": entities["subject_entity"],
        "object_entity": entities["object_entity"],
        "label": label,
        "source": "synthetic",
    }


def _entity(entity: Entity, placed: tuple[Placed, ...], path: str, at: int) -> dict[str, Any]:
    found = next(place for place in placed if place.path == path)
    return {"word": entity.name, "start_idx": at + found.start, "end_idx": at + found.end - 1, "type": entity.kind}


def _linked(text: str, rng: Random) -> str:
    """…다 becomes …고, …지만, …으며, or ends the sentence."""
    stem = text[:-1]
    return stem + rng.choice(("고, ", "지만, ", "으며, " if last_sound(stem) else "며, ", "다. ", "다. 한편 "))


MAKERS: dict[str, Callable[[World], Entity]] = {
    "person": World.person,
    "firm": World.company,
    "company": lambda world: world.company() if world.rng.random() < 0.7 else world.organisation("club"),
    "group": lambda world: world.organisation("group"),
    "league": lambda world: world.organisation(world.rng.choice(("school", "group", "club"))),
    "place": World.place,
    "date": lambda world: world.date(world.rng.randrange(1901, 2025)),
    "number": lambda world: world.new("NOH", lambda: count_of_people(world.rng)),
    "creed": lambda world: world.pick("ORG", "creed"),
    "title": lambda world: world.pick("POH", "titles"),
    "product": lambda world: world.fact(world.company(), "product"),
    "work": lambda world: world.new("POH", lambda: work_title(world.rng)),
}
