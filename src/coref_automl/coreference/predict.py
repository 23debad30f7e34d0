"""Chains of a new text. In: a text, and a model (the bundled one by default). Out: a record that shows itself.

found = coref_automl.coreference("영수는 시장에서 어머니를 만났다. 어머니는 영수의 손을 잡았다.")
found.strings            # [["영수", "영수"], ["어머니", "어머니"]]
found.score((0, 2), (24, 26))

A chain is shown in colour, in brackets, or with names in place of pronouns. The name is a chain's first proper name, or else its
first noun phrase; a chain of pronouns alone stays. The particle behind a pronoun takes the form that fits the name (그는 ->
민준은); a contracted one is written out (내 손 -> 영수의 손, 난 -> 영수는).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, overload

from coref_automl.coreference.answers import tagged
from coref_automl.coreference.documents import CorefDocument
from coref_automl.coreference.evaluate import models_of
from coref_automl.coreference.recipe import BUNDLED
from coref_automl.corpus.batch import Answered, answer_texts
from coref_automl.corpus.clean import foreign_note
from coref_automl.errors import InputError
from coref_automl.evaluation.tasks.gold import PRONOUNS
from coref_automl.fingerprints import fingerprint
from coref_automl.folders import State, state_of
from coref_automl.korean import composed, ends_in_consonant
from coref_automl.machine import pick_device
from coref_automl.models.model_files import folder_fingerprint
from coref_automl.progress import Progress, quiet
from coref_automl.records import Record
from coref_automl.relation.rows import with_marks
from coref_automl.say import say
from coref_automl.store import lone_surrogate

Span = tuple[int, int]
Chains = Sequence[Sequence[Span]]
Confidence = Sequence[Sequence[float | None]]
"""For each mention of each chain, how probable it is that it belongs there; the first one has no link."""
_TERMINAL = (46, 43, 42, 45, 44, 41, 106, 103, 102, 105, 104, 101)
_PLAIN = "\x1b[0m"
KIND = "coreference predictions"
_BUNDLED_NOTE = (
    "일곱 장르의 글 681편(ko-coref, 언어 모델이 주석), 단편소설 28편(KoCoNovel, 둘 다 CC BY-SA 4.0), "
    "이전 모델 다섯이 함께 주석한 글 2,266편으로 학습했습니다. "
    "두 번 이상 언급된 개체를 찾으며, 처음 보는 글에서 언급의 약 4분의 3을 찾습니다(CoNLL 66). 중요한 결과는 확인해 주세요."
)


@dataclass(frozen=True, slots=True)
class Resolved(Record):
    """A text and its chains of two or more mentions, as character spans in the order of the text.

    `singles` are mentions without a chain. `links` holds, for each mention, its probable antecedents: (mention, antecedent,
    probability), least ones left out. `note` says what the model knows.
    """

    text: str
    chains: tuple[tuple[Span, ...], ...]
    singles: tuple[Span, ...]
    links: tuple[tuple[Span, Span, float], ...]
    model: str
    note: str

    @property
    def strings(self) -> list[list[str]]:
        """The chains as they are written in the text."""
        return [[self.text[start:end] for start, end in chain] for chain in self.chains]

    def score(self, a: Span | str, b: Span | str) -> float:
        """How probable it is that two mentions name the same: the later one's antecedent is the other, or in its chain.

        A mention is a span of characters, or a surface, of which the first occurrence counts.
        """
        first, second = sorted((self._mention(a), self._mention(b)))
        chain = next((chain for chain in self.chains if first in chain), (first,))
        return min(1.0, sum(p for mention, before, p in self.links if mention == second and before in chain and before < second))

    @property
    def confidence(self) -> tuple[tuple[float | None, ...], ...]:
        """For each mention of each chain the probability of its link: that its antecedent is one of the chain before it."""
        known: dict[Span, list[tuple[Span, float]]] = {}
        for mention, before, value in self.links:
            known.setdefault(mention, []).append((before, value))
        return tuple(
            (None, *(round(min(1.0, sum(p for one, p in known.get(span, ()) if one in chain)), 4) for span in chain[1:]))
            for chain in self.chains
        )

    @property
    def named(self) -> str:
        """The text with pronouns replaced by the names of their chains."""
        return with_names(self.text, self.chains)

    @property
    def localized_note(self) -> str:
        """The note in the language of results; a model of one's own has the note that it was trained with."""
        return say(_BUNDLED_NOTE, self.note) if self.model == BUNDLED else self.note

    def lines(self, *, colour: bool = False) -> list[str]:
        shown = chain_lines(self.text, self.chains, colour=colour, confidence=self.confidence)
        marked = in_colour(self.text, self.chains) if colour else in_brackets(self.text, self.chains)
        return [marked, "", *(shown or [say("찾은 사슬이 없습니다.", "No chains found.")])]

    def __str__(self) -> str:
        return "\n".join([*self.lines(), *filter(None, [foreign_note(self.text)])])

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """A notebook shows the text in colour, as a terminal does."""
        printer.text("\n".join([*([self.localized_note] if self.note else []), *self.lines(colour=True)]))

    def _mention(self, which: Span | str) -> Span:
        for span in sorted({*(span for chain in self.chains for span in chain), *self.singles}):
            if which in (span, list(span), self.text[slice(*span)]):
                return span
        raise InputError(f"{which!r} is not one of the mentions found; choose one of .chains or .singles.")


@overload
def coreference(  # type: ignore[overload-overlap]  # a str is a sequence of str
    text: str, model: str | Path = ..., *, base: str | None = ..., scheme: str | None = ..., device: str = ...,
    progress: Progress | None = ...,
) -> Resolved: ...  # fmt: skip


@overload
def coreference(
    text: Sequence[str], model: str | Path = ..., *, base: str | None = ..., scheme: str | None = ..., device: str = ...,
    progress: Progress | None = ...,
) -> list[Resolved]: ...  # fmt: skip


def coreference(
    text: str | Sequence[str],
    model: str | Path = BUNDLED,
    *,
    base: str | None = None,
    scheme: str | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> Resolved | list[Resolved]:
    """The chains of a text, or of each text of a list, each a document of its own. The model is loaded once a process.

    `model` is a run of `coref train`, one seed's model, or the bundled head of ko-mini.

    `scheme` says what to mark, where the model knows several ways (general, or characters of a novel).
    """
    from coref_automl.coreference.model import scheme_for
    from coref_automl.coreference.resolve import read_document, with_found
    from coref_automl.coreference.tokens import tokenized

    texts = [text] if isinstance(text, str) else text
    if not isinstance(texts, list | tuple) or not all(isinstance(one, str) for one in texts):
        raise InputError(f"A text is needed, not {type(text).__name__}; pass a string, or a list of strings.")
    folder = models_of(model)[0]
    loaded = _loaded(str(folder), base, pick_device(device), state_of(folder))
    asked = scheme_for(loaded.settings.schemes, scheme).name
    found = []
    for one in texts:
        if (half := lone_surrogate(one)) is not None:
            raise InputError(f"Character {half} of the text is half of a surrogate pair; correct the text.")
        whole, places = composed(one)
        doc = tokenized(loaded.tokenizer, [CorefDocument("text", whole, (), scheme=asked)])[0]
        own = with_found(loaded, read_document(loaded, doc, progress=progress or quiet()))
        own = replace(own, spans=tuple((places[start], places[end]) for start, end in own.spans))
        found.append(_resolved(one, own, str(model), loaded.settings))
    return found[0] if isinstance(text, str) else found


def resolve_file(
    data: str,
    out: Path,
    model: str | Path = BUNDLED,
    *,
    column: str = "text",
    resolve: bool = False,
    skip_bad: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Answered:
    """Every row of a file with its `chains` as character spans and as `strings`; `resolve` adds the text with names."""

    def answer(texts: Sequence[str]) -> Iterator[dict[str, Any]]:
        for one in coreference(list(texts), model, **options):
            named = {"resolved": one.named} if resolve else {}
            yield {"chains": [[list(span) for span in chain] for chain in one.chains], "strings": one.strings, **named}

    used = fingerprint([options.get("base"), options.get("scheme"), resolve])
    made_from = {"weights": folder_fingerprint(models_of(model)[0]), "options": used}
    progress = progress or quiet()
    return answer_texts(data, out, KIND, answer, made_from, column=column, at_once=16, skip_bad=skip_bad, progress=progress)


def annotated_rows(texts: Mapping[str, str], model: str | Path = BUNDLED, **options: Any) -> tuple[str, list[dict[str, Any]]]:
    """What the model was trained on, and one row per text to correct: its chains, each mention with the probability of its
    link."""
    found = coreference(list(texts.values()), model, **options)
    rows = []
    for name, one in zip(texts, found, strict=True):
        alone = [((single,), (None,)) for single in one.singles]
        clusters = [
            [
                {"start": start, "end": end, "text": one.text[start:end], "entity": f"e{number}", "link": value}
                for (start, end), value in zip(chain, values, strict=True)
            ]
            for number, (chain, values) in enumerate((*zip(one.chains, one.confidence, strict=True), *alone), 1)
        ]
        rows.append({"doc_id": name, "text": one.text, "clusters": clusters})
    return found[0].localized_note, rows


_LEAST = 0.01


def _resolved(text: str, found: Any, model: str, settings: Any) -> Resolved:
    answered = found.as_spans()
    links = [
        (found.spans[index], found.spans[place], round(value, 4))
        for index, probabilities in enumerate(found.probabilities)
        for place, value in enumerate(probabilities[1:].tolist(), index - len(probabilities) + 1)
        if value >= _LEAST
    ]
    return Resolved(
        text,
        chains=tuple(sorted((chain for chain in answered if len(chain) > 1), key=lambda chain: chain[0])),
        singles=tuple(chain[0] for chain in answered if len(chain) == 1),
        links=tuple(links),
        model=model,
        note=settings.note,
    )


@lru_cache(maxsize=2)
def _loaded(folder: str, base: str | None, device: str, _state: State) -> Any:
    from coref_automl.coreference.model import load_model

    return load_model(Path(folder), device, base=base)


def in_brackets(text: str, chains: Chains) -> str:
    """`[민수]1가 [친구]2를 만났다`: each mention in brackets with the number of its chain."""
    return written(text, chains, lambda *_: "[", lambda chain: f"]{chain + 1}")


def written(
    text: str, chains: Chains, opens: Callable[[int, int], str], closes: Callable[[int], str], escape: Callable[[str], str] = str
) -> str:
    """The text with `opens(chain, start)` and `closes(chain)` around every mention."""
    marks = [(start, end, opens(n, start), closes(n)) for n, chain in enumerate(chains) for start, end in chain]
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
