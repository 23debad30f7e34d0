"""A text with its pronouns written out. In: a text and its chains. Out: the text in which a pronoun is the name of its chain.

The name is a chain's first proper name, or else its first noun phrase; a chain of pronouns alone stays. The particle behind a
pronoun takes the form that fits the name (그는 -> 민준은); a contracted one is written out (내 손 -> 영수의 손, 난 -> 영수는).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from coref_automl.coreference.baseline import tagged
from coref_automl.coreference.show import Chains, Span
from coref_automl.evaluation.tasks.gold import PRONOUNS
from coref_automl.korean import composed, ends_in_consonant

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
