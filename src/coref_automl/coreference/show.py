"""Chains in a text, shown. In: a text and its chains. Out: the text in colour for a terminal, in brackets for a file, in HTML."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

Span = tuple[int, int]
Chains = Sequence[Sequence[Span]]
_TERMINAL = (46, 43, 42, 45, 44, 41, 106, 103, 102, 105, 104, 101)
_PLAIN = "\x1b[0m"
_HUES = 12


def in_brackets(text: str, chains: Chains) -> str:
    """`[민수]1가 [친구]2를 만났다`: each mention in brackets with the number of its chain."""
    return _written(text, chains, lambda _: "[", lambda chain: f"]{chain + 1}")


def in_colour(text: str, chains: Chains) -> str:
    """For a terminal: a background colour and a number a chain; an inner mention has its own colour."""
    parts: list[str] = []
    for part, inside, closed in _stretches(text, chains):
        colour = f"\x1b[30;{_TERMINAL[inside[-1] % len(_TERMINAL)]}m" if inside else ""
        parts.append(f"{colour}{part}{_PLAIN if colour else ''}" if part else "")
        parts += [f"\x1b[2m{chain + 1}{_PLAIN}" for chain in closed]
    return "".join(parts)


def in_html(text: str, chains: Chains, *, note: str = "") -> str:
    """A fragment that needs nothing from outside; hovering over a mention tells its chain."""
    sizes = [len(chain) for chain in chains]

    def opening(chain: int) -> str:
        name = html.escape(text[slice(*chains[chain][0])], quote=True)
        style = f"background:hsl({_hue(chain)} 80% 85%);color:#111;border-radius:3px;padding:0 2px"
        return f'<mark title="{chain + 1}: {name} ({sizes[chain]})" style="{style}">'

    body = _written(text, chains, opening, lambda chain: f"<sub>{chain + 1}</sub></mark>", html.escape)
    legend = "".join(f"<li>{html.escape(line)}</li>" for line in chain_lines(text, chains, colour=False))
    told = f"<p>{html.escape(note)}</p>" if note else ""
    return f'<div style="line-height:1.9;white-space:pre-wrap">{body}</div><ul>{legend}</ul>{told}'


def html_page(fragment: str, title: str) -> str:
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>'
    style = "<style>body{font-family:sans-serif;max-width:52em;margin:2em auto;padding:0 1em}</style>"
    return f'<!doctype html><html lang="ko"><head>{head}{style}</head><body>{fragment}</body></html>\n'


def chain_lines(text: str, chains: Chains, *, colour: bool) -> list[str]:
    """`1  민수 (3): 민수, 그, 그`: one line per chain, its different surfaces in order."""
    shown = []
    for number, chain in enumerate(chains):
        forms = list(dict.fromkeys(text[a:b] for a, b in chain))
        label = f"\x1b[30;{_TERMINAL[number % len(_TERMINAL)]}m{number + 1}{_PLAIN}" if colour else str(number + 1)
        shown.append(
            f"{label}  {len(chain)} mentions: {', '.join(forms)}" if len(chain) > 1 else f"{label}  1 mention: {forms[0]}"
        )
    return shown


def _hue(chain: int) -> int:
    """Neighbouring chains far apart on the circle."""
    return (chain * 5 % _HUES) * 360 // _HUES


def _events(chains: Chains) -> Iterable[tuple[int, int, int, bool]]:
    """(place, order, chain, opens): closings before openings, inner closings first, outer openings first."""
    for number, chain in enumerate(chains):
        for start, end in chain:
            yield start, -end + (1 << 40), number, True
            yield end, -start, number, False


def _written(text: str, chains: Chains, opening, closing, escape=str) -> str:  # type: ignore[no-untyped-def]
    parts, done = [], 0
    for place, _, chain, opens in sorted(_events(chains), key=lambda event: (event[0], event[1])):
        parts += [escape(text[done:place]), opening(chain) if opens else closing(chain)]
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
