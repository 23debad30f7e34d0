"""An invented world. In: a random generator. Out: people, companies and places whose names and facts never change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from coref_automl.corpus.synthetic.phrasebook import sectors, words

FOREIGN_SHARE = 0.06


def person_name(rng: Random, surname: str | None = None, *, old: bool = False) -> str:
    """A Korean name, or now and then a foreign one, unless a family name is asked for or the world is an old one."""
    if surname is None and not old and rng.random() < FOREIGN_SHARE:
        return f"{rng.choice(words('foreign_first'))} {rng.choice(words('foreign_last'))}"
    family = surname or rng.choice(words("surnames"))
    first, second = rng.choice(words("given_first")), rng.choice(words("given_second"))
    while second == first or first == family:
        first, second = rng.choice(words("given_first")), rng.choice(words("given_second"))
    return family + first + second


def place_stem(rng: Random) -> str:
    """Two syllables that do not name a well-known place."""
    while True:
        stem = rng.choice(words("place_first")) + rng.choice(words("place_second"))
        if stem not in words("real_places") and stem[0] != stem[1]:
            return stem


def place_name(rng: Random, *, old: bool = False) -> str:
    """A town, county, island or village."""
    return place_stem(rng) + rng.choice(words("old_place_ending" if old else "place_ending"))


def brand(rng: Random) -> str:
    """The first half of a company's name."""
    if rng.random() < 0.4:
        return rng.choice(words("company_stem"))
    head = rng.choice(words("company_head"))
    return head + rng.choice([tail for tail in words("company_tail") if tail != head])


def work_title(rng: Random) -> str:
    """The name of a book, film or song."""
    return f"{rng.choice(words('work_first'))} {rng.choice(words('work_second'))}"


def count_of_people(rng: Random) -> str:
    return f"{rng.choice((rng.randrange(12, 990), rng.randrange(1000, 24000))):,}명"


def number(sort: str, rng: Random, era: int) -> str:
    """A number of the asked sort; years lie within a generation after the document's era."""
    match sort:
        case "year":
            return str(min(2024, era + rng.randrange(0, 30)))
        case "month":
            return f"{rng.randrange(1, 13)}월"
        case "day":
            return f"{rng.randrange(1, 13)}월 {rng.randrange(1, 29)}일"
        case "money":
            billions, tens = f"{rng.randrange(2, 95)}억", f"{rng.randrange(1, 10)}억 {rng.randrange(1, 10)}천만"
            return rng.choice((f"{billions} 원", f"{tens} 원", f"{rng.randrange(11, 99)}00만 원"))
        case "percent":
            return f"{rng.randrange(2, 10)}0%"
        case "years":
            return str(rng.randrange(4, 45))
        case "count":
            return str(rng.randrange(41, 980))
        case _:
            raise KeyError(sort)


PRESENT = 2024
_ATTEMPTS = 200


@dataclass(frozen=True, slots=True)
class Entity:
    """Something with a name. `kind` is PER, ORG, LOC, POH (a work, product or title), DAT, NOH, or THING (a common noun)."""

    key: int
    kind: str
    name: str


@dataclass(slots=True)
class World:
    """Facts are made when they are first asked for and kept: a document never tells two birthplaces of one person.

    An `old` world is that of tales: no foreign names, no cities.
    """

    rng: Random
    old: bool = False
    era: int = field(init=False)
    entities: list[Entity] = field(default_factory=list)
    _facts: dict[tuple[int, str], Entity] = field(default_factory=dict)
    _years: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.era = self.rng.randrange(1925, 2005)

    def new(self, kind: str, make: Callable[[], str]) -> Entity:
        """An entity whose name neither holds nor is held by another's, so that one name is one chain."""
        proper = kind in ("PER", "ORG", "LOC")
        name = make()
        for _ in range(_ATTEMPTS):
            if not any(name in e.name or e.name in name for e in self.entities if proper or e.kind == kind):
                break
            name = make()
        entity = Entity(len(self.entities), kind, name)
        self.entities.append(entity)
        return entity

    def pick(self, kind: str, pool: str) -> Entity:
        """A new entity named by a word of a list."""
        return self.new(kind, lambda: self.rng.choice(words(pool)))

    def person(self, surname: str | None = None) -> Entity:
        return self.new("PER", lambda: person_name(self.rng, surname, old=self.old))

    def relative(self, person: Entity) -> Entity:
        """Someone of the same family name; a foreign name has it at the end."""
        if " " in person.name:
            last = person.name.split(" ")[1]
            return self.new("PER", lambda: f"{self.rng.choice(words('foreign_first'))} {last}")
        return self.person(person.name[:2] if person.name[:2] in words("surnames") else person.name[0])

    def company(self) -> Entity:
        sector = self.rng.choice(list(sectors()))
        return self.new("ORG", lambda: brand(self.rng) + sector)

    def organisation(self, sort: str) -> Entity:
        """A school, group or club; its name is a place's or a brand's."""
        ending = self.rng.choice(words(sort))
        return self.new("ORG", lambda: self.rng.choice((place_stem, brand))(self.rng) + ending)

    def place(self) -> Entity:
        return self.new("LOC", lambda: place_name(self.rng, old=self.old))

    def date(self, year: int) -> Entity:
        year = min(year, PRESENT)
        month = f"{year}년 {self.rng.randrange(1, 13)}월"
        day = f"{month} {self.rng.randrange(1, 29)}일"
        return self.new("DAT", lambda: self.rng.choice((day, day, day, month, f"{year}년")))

    def first_year(self, entity: Entity) -> int:
        """When a person was born or a company founded."""
        earlier = self.rng.randrange(25, 58) if entity.kind == "PER" else self.rng.randrange(1, 30)
        return self._years.setdefault(entity.key, self.era - earlier)

    def fact(self, entity: Entity, name: str) -> Entity:
        """What `name` is for this entity; see FACTS for the names."""
        known = self._facts.get((entity.key, name))
        if known is None:
            known = self._facts[entity.key, name] = FACTS[name](self, entity)
            if name in MUTUAL:
                self._facts.setdefault((known.key, MUTUAL[name]), entity)
        return known


MUTUAL = {"spouse": "spouse", "sibling": "sibling", "colleague": "colleague", "kin": "kin", "group": "member", "member": "group"}
"""Facts that hold the other way round as well."""

Fact = Callable[[World, Entity], Entity]


def _later(least: int, most: int) -> Fact:
    return lambda world, entity: world.date(world.first_year(entity) + world.rng.randrange(least, most))


def _person(world: World, _: Entity) -> Entity:
    return world.person()


def _place(world: World, _: Entity) -> Entity:
    return world.place()


def _word(kind: str, pool: str) -> Fact:
    return lambda world, _: world.pick(kind, pool)


def _trade(company: Entity) -> tuple[str, ...]:
    return next(
        (trade for ending, trade in sectors().items() if company.name.endswith(ending)), ("문화 사업", "기념우표", "소식지")
    )


def _product(world: World, company: Entity) -> Entity:
    return world.new("POH", lambda: f"{brand(world.rng)} {world.rng.choice(_trade(company)[1:])}")


FACTS: dict[str, Fact] = {
    "birth": lambda world, person: world.date(world.first_year(person)),
    "death": _later(48, 92),
    "home": _place,
    "town": _place,
    "grave": _place,
    "origin": _word("LOC", "countries"),
    "school": lambda world, _: world.organisation("school"),
    "firm": lambda world, _: world.company(),
    "title": _word("POH", "titles"),
    "work": lambda world, _: world.new("POH", lambda: work_title(world.rng)),
    "pen": _word("PER", "pen_names"),
    "creed": _word("ORG", "creed"),
    "leaning": lambda world, _: world.pick("ORG", world.rng.choice(("creed", "party"))),
    "father": World.relative,
    "child": World.relative,
    "sibling": World.relative,
    "kin": World.relative,
    "mother": _person,
    "spouse": _person,
    "colleague": _person,
    "founder": _person,
    "head": _person,
    "hq": _place,
    "founded": lambda world, company: world.date(world.first_year(company)),
    "dissolved": _later(4, 60),
    "product": _product,
    "staff": lambda world, _: world.new("NOH", lambda: count_of_people(world.rng)),
    "alias": lambda world, _: world.new("ORG", lambda: brand(world.rng) + world.rng.choice(words("company_alias"))),
    "group": lambda world, _: world.organisation("group"),
    "member": lambda world, _: world.company(),
    "field": lambda world, company: world.new("TRADE", lambda: _trade(company)[0]),
}
"""What may be asked of a person (birth to colleague) or a company (founder to field)."""
