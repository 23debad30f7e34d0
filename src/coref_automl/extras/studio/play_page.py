"""The Play page. In: an address with a text and models. Out: the form, and what the models say.

Models are chosen by key among those under the folders and the bundled ones; no other path is loaded, no code of a checkpoint is
run (`models/load`), and the network is not used. They are loaded in a process of their own: a slow model blocks no page, and one
that does not fit in memory ends that process alone.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, TypedDict

from markupsafe import Markup, escape

from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import CorefError, InputError, WorkError
from coref_automl.base.folders import MANIFEST, State, state_of
from coref_automl.base.machine import without_panics
from coref_automl.base.records import Provenance
from coref_automl.base.say import Say
from coref_automl.extras.coreference.predict import coreference, mark_mentions
from coref_automl.extras.coreference.recipe import BUNDLED as CHAINS
from coref_automl.extras.relation.rows import TYPES
from coref_automl.extras.studio.pages import Address, Download
from coref_automl.extras.studio.workspace import Workspace, not_here
from coref_automl.models.model_files import BUNDLED, model_state
from coref_automl.report.page import tokens

Kind = Literal["fill", "chains", "relation"]
Models = tuple[tuple[str, str], ...]
MAX_TEXT = 4_000
"""Characters of a text, which is part of the address."""
PATIENCE = 300.0
"""Seconds after which the process of a model that does not answer is ended."""
SLOTS = ("a", "b", "c", "d")
HUES = 12
EXAMPLES: dict[Kind, str] = {
    "fill": "서울은 [MASK]의 수도이다.",
    "chains": "영수는 시장에서 어머니를 만났다. 어머니는 영수의 손을 잡았다. 그는 어머니와 함께 집으로 돌아왔다.",
    "relation": "이순신은 조선 중기의 무신이다.",
}
ENTITIES = {"subject": ("이순신", "0", "PER"), "object": ("조선", "5", "LOC")}
"""The entities of the relation example, so that it can be sent as it is."""


class _Model(TypedDict, total=False):
    """What is read from a model's own files: the encoder that a LoRA head changes, the rows it was trained on."""

    base: str
    rank: int
    train_rows: int | None


def page(ws: Workspace, address: Address) -> str | Download:
    say, kind = address.say, _kind(address)
    kinds = [("fill", say("빈칸 채우기", "Fill a gap")), ("chains", say("상호참조", "Coreference"))]
    kinds.append(("relation", say("관계", "Relation")))
    return ws.pages.page(
        "play.html.j2", address, title=say("써 보기", "Play"), kind=kind, kinds=kinds, models=_models(ws, kind),
        chosen={slot: address.get(slot) for slot in SLOTS}, slots=_slots(kind), text=address.get("text")[:MAX_TEXT],
        example=EXAMPLES[kind], entities={} if address.get("text") else ENTITIES, longest=MAX_TEXT, types=TYPES,
    )  # fmt: skip


def answer(ws: Workspace, address: Address) -> str:
    """Return the models' answers as HTML, with what they were trained on; raises Pending until they are there."""
    kind, models = _kind(address), _models(ws, _kind(address))
    keys = list(dict.fromkeys(key for slot in _slots(kind) if (key := address.get(slot)))) or list(models)[:1]
    for key in keys:
        if key not in models:
            raise not_here(key)
    text, say = address.get("text"), address.say
    if not keys or not text or len(text) > MAX_TEXT:
        en = f"Choose a model and give a text of up to {MAX_TEXT:,} characters."
        raise InputError(say(f"모델과 {MAX_TEXT:,}자까지의 글을 넣으세요.", en))
    values: dict[str, Any] = {"text": text, "nouns": address.get("words") != "all"}
    for role in ("subject", "object"):
        start = address.get(f"{role}_start")
        values |= {role: address.get(role), f"{role}_type": address.get(f"{role}_type")}
        values[f"{role}_start"] = int(start) if start.isdecimal() and len(start) < 6 else None
    if kind == "chains" and keys[0] != CHAINS:
        _check_base(ws, Path(models[keys[0]]))
    chosen = {key: models[key] for key in keys}
    changed = tuple(_states(Path(source)) for source in chosen.values())
    request = ("play", "play", changed, kind, *chosen.items(), *values.items())
    value = ws.boards.in_process(request, partial(_ask, kind, tuple(chosen.items()), values, PATIENCE), stays=True)
    if kind == "chains":
        chains = value["chains"]
        lines = [", ".join(dict.fromkeys(value["text"][start:end] for start, end in chain)) for chain in chains]
        value = {**value, "html": in_classes(value["text"], chains), "lines": zip(lines, map(len, chains), strict=True)}
    if kind == "relation":
        spans = [[(value[role]["start"], value[role]["end"])] for role in ("subject", "object")]
        value = {**value, "html": in_classes(value["sentence"], spans)}
    trained = {key: note for key, source in chosen.items() if (note := _trained_on(kind, Path(source), say))}
    return ws.pages.part("answer.html.j2", address, kind=kind, value=value, trained=trained)


def _states(source: Path) -> tuple[State, ...]:
    """The state of all that answers: a model or a run with its models, and the encoders of LoRA heads. None of a bundled name."""
    return tuple(state_of(folder, deep=True) for folder in (source, *map(Path, _bases(source))) if folder.is_dir())


def _bases(run: Path) -> Iterator[str]:
    """Yield the encoders, outside a run, that its LoRA heads change."""
    for path in run.glob("**/model/coreference.json"):
        model = read_stored(path, _Model)
        if model.get("rank"):
            yield model.get("base", "")


def _check_base(ws: Workspace, run: Path) -> None:
    """Refuse a head with a LoRA encoder that is neither bundled nor under the folders."""
    for base in _bases(run):
        if base not in BUNDLED and not ws.folders.contains(Path(base)):
            raise InputError(f"{run.name} needs the encoder {base}, which is not under the given folders.")


def _models(ws: Workspace, kind: Kind) -> Mapping[str, str]:
    """Return what can be chosen, bundled models first: keys, and what to load for each."""
    contents = ws.folders.contents()
    if kind == "fill":
        return {name: name for name in BUNDLED} | {key: str(folder) for key, folder in contents.models.items()}
    run_kind = "coreference" if kind == "chains" else kind
    with_weights = [run for run in contents.runs.values() if run.kind == run_kind and (run.folder / MANIFEST).is_file()]
    runs = {run.key: str(run.folder) for run in with_weights}
    return {CHAINS: CHAINS, **runs} if kind == "chains" else runs


def _trained_on(kind: Kind, source: Path, say: Say) -> str:
    """Say what a model was trained on, if its own files tell."""
    with suppress(CorefError, OSError):
        if kind == "relation" and (rows := read_stored(source / MANIFEST, _Model).get("train_rows")) is not None:
            return say(f"학습 데이터 {rows:,}행으로 학습한 모델", f"trained on {rows:,} rows")
        if kind != "relation" and (path := source / "training.json").is_file():
            provenance = read_stored(path, Provenance)
            training = f"{provenance.objective}, {tokens(provenance.tokens)}"
            return say(f"{training} 토큰 추가 학습", f"{training} more tokens")
    return ""


def in_classes(text: str, chains: Any) -> Markup:
    """Mark the mentions of a text by classes, because the policy forbids inline styles."""

    def opening(chain: int, _start: int) -> str:
        return f'<mark class="chain chain-{chain % HUES}">'

    return Markup(
        mark_mentions(text, chains, opening, lambda chain: f"<sub>{chain + 1}</sub></mark>", lambda part: str(escape(part)))
    )


def _kind(address: Address) -> Kind:
    return next((kind for kind in EXAMPLES if kind == address.get("kind")), "fill")


def _slots(kind: Kind) -> tuple[str, ...]:
    return SLOTS if kind == "fill" else SLOTS[:1]


@lru_cache(maxsize=2)
def _masked_lm(source: str, _state: State) -> Any:
    """Two stay loaded, as of coreference and relation models, until their files change."""
    from coref_automl.models.load import load_masked_lm

    return load_masked_lm(source)


def _ask(kind: Kind, models: Models, values: dict[str, Any], patience: float) -> Any:
    """Ask models, given as (name for people, what to load)."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        with without_panics(), Path(os.devnull).open("w") as nowhere:
            faulthandler.dump_traceback_later(patience, exit=True, file=nowhere)  # works while a library holds the GIL
            return _KINDS[kind](models, values)
    except CorefError as error:
        raise WorkError(str(error)) from None
    except Exception as error:  # a model or a text that the libraries cannot process; the next one may be fine
        raise WorkError(f"{type(error).__name__}: {str(error)[:300]}") from None
    finally:
        faulthandler.cancel_dump_traceback_later()


def _fill(models: Models, values: dict[str, Any]) -> list[dict[str, Any]]:
    from coref_automl.evaluation.fill import fill, find_gap

    find_gap(values["text"])
    options = {"nouns_only": values["nouns"], "top": 10}
    loaded = ((name, _masked_lm(source, model_state(source))) for name, source in models)
    return [fill(model, values["text"], name=name, **options).to_json() for name, model in loaded]


def _chains(models: Models, values: dict[str, Any]) -> dict[str, Any]:
    resolved = coreference(values["text"], models[0][1], device="cpu")
    return {"text": resolved.text, "chains": resolved.chains, "note": resolved.note}


def _relation(models: Models, values: dict[str, Any]) -> dict[str, Any]:
    from coref_automl.extras.relation.predict import predict_texts

    return predict_texts(Path(models[0][1]), [{**values, "sentence": values["text"]}], device="cpu")[0].to_json()


_KINDS: dict[str, Callable[[Models, dict[str, Any]], Any]] = {"fill": _fill, "chains": _chains, "relation": _relation}
