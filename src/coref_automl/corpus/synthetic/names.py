"""Invented names. In: a random generator. Out: people, places, companies, works."""

from __future__ import annotations

from random import Random

from coref_automl.corpus.synthetic.phrasebook import words

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
