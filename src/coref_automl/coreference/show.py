"""Chains in a text, shown. In: a text and its chains. Out: the text in colour for a terminal, in brackets for a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coref_automl.say import say

Span = tuple[int, int]
Chains = Sequence[Sequence[Span]]
Confidence = Sequence[Sequence[float | None]]
"""For each mention of each chain, how probable it is that it belongs there; the first one has no link."""
_TERMINAL = (46, 43, 42, 45, 44, 41, 106, 103, 102, 105, 104, 101)
_PLAIN = "\x1b[0m"


def in_brackets(text: str, chains: Chains) -> str:
    """`[민수]1가 [친구]2를 만났다`: each mention in brackets with the number of its chain."""
    return written(text, chains, lambda *_: "[", lambda chain: f"]{chain + 1}")


def in_colour(text: str, chains: Chains) -> str:
    """For a terminal: a background colour and a number per chain; an inner mention has its own colour."""
    parts: list[str] = []
    for part, inside, closed in _stretches(text, chains):
        colour = f"\x1b[30;{_TERMINAL[inside[-1] % len(_TERMINAL)]}m" if inside else ""
        parts.append(f"{colour}{part}{_PLAIN if colour else ''}" if part else "")
        parts += [f"\x1b[2m{chain + 1}{_PLAIN}" for chain in closed]
    return "".join(parts)


def chain_lines(text: str, chains: Chains, *, colour: bool, confidence: Confidence = ()) -> list[str]:
    """`1  언급 3개: 민수, 그`: one line per chain, its different surfaces in order, and how probable its weakest link is."""
    shown = []
    for number, chain in enumerate(chains):
        forms = list(dict.fromkeys(text[a:b] for a, b in chain))
        label = f"\x1b[30;{_TERMINAL[number % len(_TERMINAL)]}m{number + 1}{_PLAIN}" if colour else str(number + 1)
        count = say(f"언급 {len(chain)}개", f"{len(chain)} mention{'s' * (len(chain) > 1)}")
        links = [value for value in confidence[number] if value is not None] if confidence else []
        weakest = say(f" (가장 약한 연결 {min(links):.2f})", f" (weakest link {min(links):.2f})") if links else ""
        shown.append(f"{label}  {count}: {', '.join(forms)}{weakest}")
    return shown


def _events(chains: Chains) -> Iterable[tuple[int, int, int, bool]]:
    """(place, order, chain, opens): closings before openings, inner closings first, outer openings first."""
    for number, chain in enumerate(chains):
        for start, end in chain:
            yield start, -end + (1 << 40), number, True
            yield end, -start, number, False


def written(text: str, chains: Chains, opening, closing, escape=str) -> str:  # type: ignore[no-untyped-def]
    parts, done = [], 0
    for place, _, chain, opens in sorted(_events(chains), key=lambda event: (event[0], event[1])):
        parts += [escape(text[done:place]), opening(chain, place) if opens else closing(chain)]
        done = place
    return "".join([*parts, escape(text[done:])])


def _stretches(text: str, chains: Chains) -> Iterable[tuple[str, list[int], list[int]]]:
    """(characters, the chains around them from outside in, the chains whose mention ends behind them)."""
    inside: list[int] = []
    done = 0
    for place, _, chain, opens in sorted(_events(chains), key=lambda event: (event[0], event[1])):
        yield text[done:place], list(inside), []
        if opens:
            inside.append(chain)
        else:
            inside.reverse()
            inside.remove(chain)
            inside.reverse()
            yield "", [], [chain]
        done = place
    yield text[done:], [], []
