"""Chains of a new text. In: a text, and a model (the bundled one by default). Out: a record that prints itself.

resolved = coref_automl.coreference("영수는 시장에서 어머니를 만났다. 어머니는 영수의 손을 잡았다.")
resolved.strings            # [["영수", "영수"], ["어머니", "어머니"]]
resolved.score((0, 2), (24, 26))

Chains are shown in color, in brackets, or with names in place of pronouns. The name is a chain's first proper name, or else its
first noun phrase; a chain of pronouns alone stays. The particle behind a pronoun takes the form that fits the name (그는 ->
민준은); a contracted one is written out (내 손 -> 영수의 손, 난 -> 영수는).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from coref_automl.base.errors import InputError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.folders import State, state_of
from coref_automl.base.korean import composed, ends_in_consonant
from coref_automl.base.machine import pick_device
from coref_automl.base.progress import Progress, quiet
from coref_automl.base.records import Record
from coref_automl.base.say import say
from coref_automl.base.store import lone_surrogate
from coref_automl.corpus.batch import Answered, answer_texts
from coref_automl.corpus.clean import foreign_note, with_marks
from coref_automl.extras.coreference.answers import tag_nominals
from coref_automl.extras.coreference.documents import CorefDocument, Span
from coref_automl.extras.coreference.evaluate import models_of
from coref_automl.extras.coreference.recipe import BUNDLED, HeadSettings, encoder_path, read_settings, scheme_for
from coref_automl.models.model_files import folder_fingerprint, model_state

if TYPE_CHECKING:
    from coref_automl.extras.coreference.model import CoreferenceModel
    from coref_automl.extras.coreference.resolve import FoundChains

Chains = Sequence[Sequence[Span]]
Confidence = Sequence[Sequence[float | None]]
"""For each mention of each chain, the probability that it belongs there; None for the first, which has no link."""
_TERMINAL = (46, 43, 42, 45, 44, 41, 106, 103, 102, 105, 104, 101)
_PLAIN = "\x1b[0m"
KIND = "coreference predictions"
PRONOUNS = frozenset(
    word
    for line in (
        "나 내 난 날 저 제 전 절 너 네 넌 널 그 그녀 그이 그네 자기 자신 당신 우리 저희 너희 누구 이이 저이",
        "그대 자네 얘 걔 쟤 이 본인 그들 그녀들 우리들 저희들 너희들 자기네 우리네 이들 저들 그대들 당신들 이것 그것 저것",
    )
    for word in line.split()
)
"""Forms that are pronouns whatever the tagger says."""
_BUNDLED_NOTE = (
    "일곱 장르의 글 681편과 일상 글 82편(ko-coref, 언어 모델이 주석), 단편소설 28편(KoCoNovel, 둘 다 CC BY-SA 4.0), "
    "이전 모델들이 함께 주석한 글 4,000여 편으로 학습했습니다. "
    "두 번 이상 언급된 개체를 찾으며, 처음 보는 글에서 언급의 약 4분의 3을 찾습니다(CoNLL 66). 중요한 결과는 확인해 주세요."
)


@dataclass(frozen=True, slots=True)
class Resolved(Record):
    """A text and its chains of two or more mentions, as character spans in the order of the text.

    `singles` are mentions without a chain. `links` lists probable antecedents: (mention, antecedent, probability), without
    negligible ones. `note` describes the model's training data.
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
        """Return the probability that two mentions corefer: that the later one's antecedent is the other, or in its chain.

        A mention is a span of characters, or a string, which means its first occurrence.
        """
        first, second = sorted((self._mention(a), self._mention(b)), key=lambda span: (span[0], -span[1]))  # outer before inner
        chain = next((chain for chain in self.chains if first in chain), (first,))
        return min(1.0, sum(p for mention, antecedent, p in self.links if mention == second and antecedent in chain))

    @property
    def confidence(self) -> tuple[tuple[float | None, ...], ...]:
        """The probability of each mention's link: that its antecedent is an earlier mention of the chain."""
        antecedents: dict[Span, list[tuple[Span, float]]] = {}
        for mention, antecedent, probability in self.links:
            antecedents.setdefault(mention, []).append((antecedent, probability))

        def link(mention: Span, chain: tuple[Span, ...]) -> float:
            return round(min(1.0, sum(p for antecedent, p in antecedents.get(mention, ()) if antecedent in chain)), 4)

        return tuple((None, *(link(mention, chain) for mention in chain[1:])) for chain in self.chains)

    @property
    def named(self) -> str:
        """The text with pronouns replaced by the names of their chains."""
        return with_names(self.text, self.chains)

    @property
    def localized_note(self) -> str:
        """The note in the language of results; a model you trained has the note it was trained with."""
        return say(_BUNDLED_NOTE, self.note) if self.model == BUNDLED else self.note

    def lines(self, *, colour: bool = False) -> list[str]:
        chains = chain_lines(self.text, self.chains, colour=colour, confidence=self.confidence)
        marked = in_colour(self.text, self.chains) if colour else in_brackets(self.text, self.chains)
        return [marked, "", *(chains or [say("찾은 사슬이 없습니다.", "No chains found.")])]

    def __str__(self) -> str:
        return "\n".join([*self.lines(), *filter(None, [foreign_note(self.text)])])

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """Show the text in color in a notebook, as in a terminal."""
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
    """Resolve a text, or each text of a list as a document of its own. The model is loaded once per process.

    `model` is a run of `coref train`, one seed's model, or the bundled head of ko-mini; `scheme` selects what to mark, if the
    model knows several annotation schemes (general, or characters of a novel).
    """
    from coref_automl.extras.coreference.resolve import encode_document, resolve_found
    from coref_automl.extras.coreference.tokens import tokenize_documents

    texts = [text] if isinstance(text, str) else text
    if not isinstance(texts, list | tuple) or not all(isinstance(string, str) for string in texts):
        raise InputError(f"A text is needed, not {type(text).__name__}; pass a string, or a list of strings.")
    folder = models_of(model)[0]
    encoder = encoder_path(folder, read_settings(folder), base)
    loaded = _loaded(str(folder), base, pick_device(device), (state_of(folder), model_state(encoder)))
    scheme = scheme_for(loaded.settings.schemes, scheme).name
    resolved = []
    for original in texts:
        if (half := lone_surrogate(original)) is not None:
            raise InputError(f"Character {half} of the text is half of a surrogate pair; correct the text.")
        syllables, offsets = composed(original)
        (doc,) = tokenize_documents(loaded.tokenizer, [CorefDocument("text", syllables, (), scheme=scheme)])
        found = resolve_found(loaded, encode_document(loaded, doc, progress=progress or quiet()))
        found = replace(found, spans=tuple((offsets[start], offsets[end]) for start, end in found.spans))
        resolved.append(_resolved(original, found, str(model), loaded.settings))
    return resolved[0] if isinstance(text, str) else resolved


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
    """Add to every row of a file its `chains` as character spans and as `strings`; `resolve` adds the text with names."""

    def answer(texts: Sequence[str]) -> Iterator[dict[str, Any]]:
        for resolved in coreference(list(texts), model, **options):
            named = {"resolved": resolved.named} if resolve else {}
            chains = [[list(span) for span in chain] for chain in resolved.chains]
            yield {"chains": chains, "strings": resolved.strings, **named}

    settings = fingerprint([options.get("base"), options.get("scheme"), resolve])
    made_from = {"weights": folder_fingerprint(models_of(model)[0]), "options": settings}
    progress = progress or quiet()
    return answer_texts(data, out, KIND, answer, made_from, column=column, batch_size=16, skip_bad=skip_bad, progress=progress)


def annotated_rows(texts: Mapping[str, str], model: str | Path = BUNDLED, **options: Any) -> tuple[str, list[dict[str, Any]]]:
    """Return the model's note, and one row per text to correct: its chains, each mention with the probability of its link."""
    answers = coreference(list(texts.values()), model, **options)
    rows = []
    for name, resolved in zip(texts, answers, strict=True):
        singles = [((single,), (None,)) for single in resolved.singles]
        clusters = [
            [
                {"start": start, "end": end, "text": resolved.text[start:end], "entity": f"e{number}", "link": value}
                for (start, end), value in zip(chain, values, strict=True)
            ]
            for number, (chain, values) in enumerate((*zip(resolved.chains, resolved.confidence, strict=True), *singles), 1)
        ]
        rows.append({"doc_id": name, "text": resolved.text, "clusters": clusters})
    return answers[0].localized_note, rows


_MIN_PROBABILITY = 0.01


def _resolved(text: str, found: FoundChains, model: str, settings: HeadSettings) -> Resolved:
    chains = found.as_spans()
    links = [
        (found.spans[index], found.spans[antecedent], round(value, 4))
        for index, probabilities in enumerate(found.probabilities)
        for antecedent, value in enumerate(probabilities[1:].tolist(), index - len(probabilities) + 1)
        if value >= _MIN_PROBABILITY
    ]
    return Resolved(
        text,
        chains=tuple(sorted((chain for chain in chains if len(chain) > 1), key=lambda chain: chain[0])),
        singles=tuple(chain[0] for chain in chains if len(chain) == 1),
        links=tuple(links),
        model=model,
        note=settings.note,
    )


@lru_cache(maxsize=2)
def _loaded(folder: str, base: str | None, device: str, _states: tuple[State, State]) -> CoreferenceModel:
    from coref_automl.extras.coreference.model import load_model

    return load_model(Path(folder), device, base=base)


def in_brackets(text: str, chains: Chains) -> str:
    """Mark each mention with brackets and the number of its chain: `[민수]1가 [친구]2를 만났다`."""
    return mark_mentions(text, chains, lambda *_: "[", lambda chain: f"]{chain + 1}")


def mark_mentions(
    text: str, chains: Chains, opens: Callable[[int, int], str], closes: Callable[[int], str], escape: Callable[[str], str] = str
) -> str:
    """Put `opens(chain, start)` and `closes(chain)` around every mention."""
    marks = [(start, end, opens(n, start), closes(n)) for n, chain in enumerate(chains) for start, end in chain]
    return with_marks(text, marks, escape)


def in_colour(text: str, chains: Chains) -> str:
    """Mark mentions for a terminal: a background color and a number per chain; an inner mention has its own color."""
    spans = sorted((start, -end, chain) for chain, spans in enumerate(chains) for start, end in spans)
    marks = []
    for index, (start, minus_end, chain) in enumerate(spans):
        outer = next((c for s, e, c in reversed(spans[:index]) if e < minus_end or (e == minus_end and s < start)), None)
        restored = "" if outer is None else _colour(outer)
        marks.append((start, -minus_end, _colour(chain), f"{_PLAIN}\x1b[2m{chain + 1}{_PLAIN}{restored}"))
    return with_marks(text, marks)


def _colour(chain: int) -> str:
    return f"\x1b[30;{_TERMINAL[chain % len(_TERMINAL)]}m"


def chain_lines(text: str, chains: Chains, *, colour: bool, confidence: Confidence = ()) -> list[str]:
    """Describe each chain in a line: its distinct forms and its weakest link. `1  언급 3개: 민수, 그 (가장 약한 연결 0.80)`."""
    lines = []
    for number, chain in enumerate(chains):
        forms = list(dict.fromkeys(text[a:b] for a, b in chain))
        label = f"{_colour(number)}{number + 1}{_PLAIN}" if colour else str(number + 1)
        count = say(f"언급 {len(chain)}개", f"{len(chain)} mention{'s' * (len(chain) > 1)}")
        links = [value for value in confidence[number] if value is not None] if confidence else []
        weakest = say(f" (가장 약한 연결 {min(links):.2f})", f" (weakest link {min(links):.2f})") if links else ""
        lines.append(f"{label}  {count}: {', '.join(forms)}{weakest}")
    return lines


_CONTRACTED = {"내": "의", "제": "의", "네": "의", "난": "은", "전": "은", "넌": "은", "날": "을", "절": "을", "널": "을"}
"""The particle contracted into a pronoun that has no other."""
_FORMS = (("은", "는"), ("이", "가"), ("을", "를"), ("과", "와"), ("아", "야"), ("이나", "나"), ("이랑", "랑"), ("이여", "여"))
"""Forms of particles after a consonant and after a vowel."""
_RIEUL = 8
_TAIL = re.compile(r"[가-힣]*")


def is_pronoun(form: str) -> bool:
    return bool(form.split()) and all(word in PRONOUNS for word in form.split())


def fit_particle(word: str, particle: str) -> str:
    """Return the form of a particle that fits this word: fit_particle("민준", "는") == "은"."""
    if particle.startswith(("로", "으로")):
        sounded = ends_in_consonant(word) and (ord(word[-1]) - ord("가")) % 28 != _RIEUL
        return ("으" if sounded else "") + particle.removeprefix("으")
    both = next((forms for forms in _FORMS if particle in forms), None)
    return particle if both is None else both[0] if ends_in_consonant(word) else both[1]


def with_names(text: str, chains: Chains) -> str:
    """Replace pronouns by names; a decomposed text comes back in whole syllables."""
    text, offsets = composed(text)
    new = {old: index for index, old in enumerate(offsets)}
    chains = [[(new[start], new[end]) for start, end in chain] for chain in chains]
    parts, done = [], 0
    for (start, end), name in sorted(_replacements(text, chains)):
        if start < done:
            continue
        tail = _TAIL.match(text, end)
        behind = tail.group() if tail else ""
        contracted = "" if behind else _CONTRACTED.get(text[start:end], "")
        parts += [text[done:start], name + fit_particle(name, contracted or behind)]
        done = end + len(behind)
    return "".join([*parts, text[done:]])


def _replacements(text: str, chains: Chains) -> list[tuple[Span, str]]:
    replacements = []
    for chain in chains:
        pronouns = [span for span in chain if is_pronoun(text[slice(*span)])]
        nominals = [span for span in chain if span not in pronouns]
        if pronouns and nominals:
            proper = {start for start, _, tag in tag_nominals(text) or () if tag == "NNP"}
            name = next((span for span in nominals if any(start in proper for start in range(*span))), nominals[0])
            replacements += [(span, text[slice(*name)]) for span in pronouns]
    return replacements
