"""Chains in a text, shown. In: a text and its chains. Out: the text in colour, in brackets, or with names in place of pronouns.

The name is a chain's first proper name, or else its first noun phrase; a chain of pronouns alone stays. The particle behind a
pronoun takes the form that fits the name (그는 -> 민준은); a contracted one is written out (내 손 -> 영수의 손, 난 -> 영수는).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from coref_automl.coreference.answers import tagged
from coref_automl.evaluation.tasks.gold import PRONOUNS
from coref_automl.korean import composed, ends_in_consonant
from coref_automl.relation.rows import with_marks
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


def written(
    text: str,
    chains: Chains,
    opening: Callable[[int, int], str],
    closing: Callable[[int], str],
    escape: Callable[[str], str] = str,
) -> str:
    """The text with `opening(chain, start)` and `closing(chain)` around every mention."""
    marks = [(start, end, opening(n, start), closing(n)) for n, chain in enumerate(chains) for start, end in chain]
    return with_marks(text, marks, escape)


def in_colour(text: str, chains: Chains) -> str:
    """For a terminal: a background colour and a number per chain; an inner mention has its own colour."""
    spans = sorted((start, -end, chain) for chain, spans in enumerate(chains) for start, end in spans)
    marks = []
    for place, (start, minus_end, chain) in enumerate(spans):
        outer = next((c for s, e, c in reversed(spans[:place]) if e < minus_end or (e == minus_end and s < start)), None)
        again = "" if outer is None else _colour(outer)
        marks.append((start, -minus_end, _colour(chain), f"{_PLAIN}\x1b[2m{chain + 1}{_PLAIN}{again}"))
    return with_marks(text, marks)


def _colour(chain: int) -> str:
    return f"\x1b[30;{_TERMINAL[chain % len(_TERMINAL)]}m"


def chain_lines(text: str, chains: Chains, *, colour: bool, confidence: Confidence = ()) -> list[str]:
    """`1  언급 3개: 민수, 그`: one line per chain, its different surfaces in order, and how probable its weakest link is."""
    shown = []
    for number, chain in enumerate(chains):
        forms = list(dict.fromkeys(text[a:b] for a, b in chain))
        label = f"{_colour(number)}{number + 1}{_PLAIN}" if colour else str(number + 1)
        count = say(f"언급 {len(chain)}개", f"{len(chain)} mention{'s' * (len(chain) > 1)}")
        links = [value for value in confidence[number] if value is not None] if confidence else []
        weakest = say(f" (가장 약한 연결 {min(links):.2f})", f" (weakest link {min(links):.2f})") if links else ""
        shown.append(f"{label}  {count}: {', '.join(forms)}{weakest}")
    return shown


_CONTRACTED = {"내": "의", "제": "의", "네": "의", "난": "은", "전": "은", "넌": "은", "날": "을", "절": "을", "널": "을"}
"""What a pronoun holds besides itself where nothing is written onto it."""
_FORMS = (("은", "는"), ("이", "가"), ("을", "를"), ("과", "와"), ("아", "야"), ("이나", "나"), ("이랑", "랑"), ("이여", "여"))
"""Particles after a consonant and after a vowel."""
_RIEUL = 8
_TAIL = re.compile(r"[가-힣]*")


def is_pronoun(form: str) -> bool:
    return bool(form.split()) and all(word in PRONOUNS for word in form.split())


def fitted(word: str, particle: str) -> str:
    """A particle in the form that fits this word, whichever form it is in: fitted("민준", "는") == "은"."""
    if particle.startswith(("로", "으로")):
        sounded = ends_in_consonant(word) and (ord(word[-1]) - ord("가")) % 28 != _RIEUL
        return ("으" if sounded else "") + particle.removeprefix("으")
    both = next((forms for forms in _FORMS if particle in forms), None)
    return particle if both is None else both[0] if ends_in_consonant(word) else both[1]


def with_names(text: str, chains: Chains) -> str:
    """The text with names for pronouns; a decomposed one comes back in whole syllables."""
    text, places = composed(text)
    new = {old: place for place, old in enumerate(places)}
    chains = [[(new[start], new[end]) for start, end in chain] for chain in chains]
    parts, done = [], 0
    for (start, end), name in sorted(_replaced(text, chains)):
        if start < done:
            continue
        tail = _TAIL.match(text, end)
        behind = tail.group() if tail else ""
        contracted = "" if behind else _CONTRACTED.get(text[start:end], "")
        parts += [text[done:start], name + fitted(name, contracted or behind)]
        done = end + len(behind)
    return "".join([*parts, text[done:]])


def _replaced(text: str, chains: Chains) -> list[tuple[Span, str]]:
    """The pronouns to replace, each with its name."""
    found = []
    for chain in chains:
        pronouns = [span for span in chain if is_pronoun(text[slice(*span)])]
        named = [span for span in chain if span not in pronouns]
        if pronouns and named:
            name = text[slice(*_best(text, named))]
            found += [(span, name) for span in pronouns]
    return found


def _best(text: str, named: Sequence[Span]) -> Span:
    proper = {start for start, _, tag in tagged(text) or () if tag == "NNP"}
    return next((span for span in named if any(start in proper for start in range(*span))), named[0])
