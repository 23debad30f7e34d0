"""The Play page. In: an address with a text and models. Out: the form, and what the models say as it comes.

Models are chosen by key among those under the folders and the bundled ones; no other path is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from markupsafe import Markup, escape

from coref_automl.coreference.show import written
from coref_automl.decoder import read_stored
from coref_automl.errors import InputError
from coref_automl.models.model_files import BUNDLED
from coref_automl.relation.rows import TYPES
from coref_automl.report.language import Say
from coref_automl.studio.folders import Folders
from coref_automl.studio.pages import Address, Pages
from coref_automl.studio.player import Job, Kind
from coref_automl.studio.shelf import not_here

CHAINS = "bundled:ko-mini-coref"
"""The bundled coreference model; the room that owns the name imports torch, which the server does without."""
LONGEST = 4_000
"""Characters of a text: it is part of the address."""
SLOTS = ("a", "b", "c", "d")
HUES = 12
KINDS: tuple[Kind, ...] = ("fill", "chains", "relation")
EXAMPLES: dict[Kind, str] = {
    "fill": "서울은 [MASK]의 수도이다.",
    "chains": "영수는 시장에서 어머니를 만났다. 어머니는 영수의 손을 잡았다. 그는 어머니와 함께 집으로 돌아왔다.",
    "relation": "이순신은 조선 중기의 무신이다.",
}


class _Head(TypedDict, total=False):
    base: str
    rank: int


class PlayPage:
    def __init__(self, folders: Folders, pages: Pages) -> None:
        self._folders, self._pages = folders, pages

    def page(self, address: Address) -> str:
        say, kind = address.say, _kind(address)
        return self._pages.page(
            "play.html.j2",
            address,
            title=say("써 보기", "Play"),
            kind=kind,
            kinds=[
                ("fill", say("빈칸 채우기", "Fill a gap")),
                ("chains", say("상호참조", "Coreference")),
                ("relation", say("관계", "Relation")),
            ],
            models=self._models(kind),
            chosen={slot: address.get(slot) for slot in SLOTS},
            slots=SLOTS[: 4 if kind == "fill" else 1],
            text=address.get("text")[:LONGEST],
            example=EXAMPLES[kind],
            longest=LONGEST,
            types=TYPES,
        )

    def job(self, address: Address) -> Job:
        """The job that the address asks for; an address that names what is not there is an error."""
        kind, text = _kind(address), address.get("text")
        if not text:
            raise InputError(address.say("글을 넣으세요.", "Type or paste a text."))
        if len(text) > LONGEST:
            raise InputError(address.say(f"글은 {LONGEST:,}자까지입니다.", f"A text has at most {LONGEST:,} characters."))
        models = self._models(kind)
        slots = SLOTS if kind == "fill" else SLOTS[:1]
        keys = list(dict.fromkeys(key for slot in slots if (key := address.get(slot)))) or list(models)[:1]
        for key in keys:
            if key not in models:
                raise not_here(key)
        if not keys:
            raise InputError(
                address.say("주어진 폴더에 이런 모델이 없습니다.", "There is no such model under the given folders.")
            )
        values: dict[str, Any] = {"text": text, "nouns": address.get("words") != "all"}
        for role in ("subject", "object"):
            start = address.get(f"{role}_start")
            values[role] = address.get(role)
            values[f"{role}_type"] = address.get(f"{role}_type")
            values[f"{role}_start"] = int(start) if start.isdecimal() and len(start) < 6 else None
        if kind == "chains" and keys[0] != CHAINS:
            self._check_base(Path(models[keys[0]]))
        return Job(kind, tuple((key, models[key]) for key in keys), values)

    def _check_base(self, run: Path) -> None:
        """A head may name the encoder it changes: that must be bundled or under the folders too."""
        for path in run.glob("**/model/coreference.json"):
            held = read_stored(path, _Head)
            base = held.get("base", "")
            if held.get("rank") and base not in BUNDLED and not self._folders.holds(Path(base)):
                raise InputError(f"{run.name} needs the encoder {base}, which is not under the given folders.")

    def _models(self, kind: Kind) -> Mapping[str, str]:
        """What can be chosen: key and what to load. The bundled ones first."""
        found = self._folders.now()
        if kind == "fill":
            return {name: name for name in BUNDLED} | {key: str(folder) for key, folder in found.models.items()}
        wanted = "coreference" if kind == "chains" else kind
        runs = {run.key: str(run.folder) for run in found.runs.values() if run.kind == wanted}
        return {CHAINS: CHAINS, **runs} if kind == "chains" else runs

    def answer(self, kind: Kind, value: Any, address: Address) -> str:
        """What the models said, as HTML."""
        if kind == "chains":
            text, chains = value["text"], value["chains"]
            lines = [", ".join(dict.fromkeys(text[start:end] for start, end in chain)) for chain in chains]
            value = {**value, "html": in_classes(text, chains), "lines": zip(lines, map(len, chains), strict=True)}
        if kind == "relation":
            spans = [[(value[role]["start"], value[role]["end"])] for role in ("subject", "object")]
            value = {**value, "html": in_classes(value["sentence"], spans)}
        return self._pages.part("answer.html.j2", address, kind=kind, value=value)


def in_classes(text: str, chains: Any) -> Markup:
    """A text with its mentions marked by classes: the policy allows no style of an element's own."""

    def opening(chain: int, _place: int) -> str:
        return f'<mark class="chain chain-{chain % HUES}">'

    return Markup(written(text, chains, opening, lambda chain: f"<sub>{chain + 1}</sub></mark>", lambda part: str(escape(part))))


def progress(word: str, value: str, say: Say) -> str:
    if word == "loading":
        return say(f"{value}: 불러오는 중…", f"{value}: loading…")
    return say(f"{value}: 읽는 중…", f"{value}: reading…")


def _kind(address: Address) -> Kind:
    return next((kind for kind in KINDS if kind == address.get("kind")), "fill")
