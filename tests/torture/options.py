"""Bad command lines. In: a sound line and a source of randomness. Out: the words with options changed, and what was changed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

from coref_automl.cli.app import load_commands

NUMBERS = (
    "-1", "0", "1", "2", "3", "7", "2147483648", "99999999999", "9223372036854775808", "1" + "0" * 40, "-5", "x", "", " ",
    "1e3", "nan", "inf", "-inf", "1e-300", "1e308", "0.5", "-0.5", "1.5", "0x10", "１", "三",
)  # fmt: skip
TEXTS = (
    "", " ", ".", "..", "/", "//", "~", "~nosuchuser/x", "a" * 300, "/".join(["a" * 200] * 30), "../../..", "-", "--",
    "local:", "hub:", "hub:a", "hub:a/b:c", "bundled:", "bundled:nothing", "bundled:ko-mini", "bundled:passages", "new:",
    "new:bert-tiny", "new:none", "local:*", "local:**", "local:[", "local:/dev/null", "/dev/null", "/dev/full",
    "/proc/self/mem", "1", "-1", "nan", "가나다", "🙂", "a/b", "a/b/c", "a:b", "=", "a=b", "real1=0.5", "real1=",
    "real1=nan,real5=x", "\udcff", "%s", "{0}", "$HOME", "*", "ko", "en", "cpu", "cuda", "mlm", "real1", "all", "none",
    "typed", "1/2", "0/0", "3/2", "auto", "float16", "postgresql://nobody@127.0.0.1:1/x",
)  # fmt: skip
PLACES = (
    "texts.jsonl", "cloze.jsonl", "relations.json", "relations.csv", "relations.jsonl", "table.csv", "train.yaml",
    "grid.yaml", "tune.yaml", "line.yaml", "relation.yaml", "tokenizer", "data", "set", "runs", "runs/a", "runs/b",
    "model", "kept", "relation", "coreference", "chains.jsonl", ".", "runs/a/manifest.json", "set/documents.jsonl",
    "data/tokens.npy", "model/config.json", "local:texts.jsonl", "local:relations.csv", "local:data", "local:model",
    "local:set/documents.jsonl", "nothing", "local:nothing",
)  # fmt: skip
"""What stands in the world: any of it may be given where another kind is wanted."""

_LONG = {
    "epochs", "trials", "seeds", "finalists", "steps", "largest", "megabytes", "documents", "items", "rows", "max_tokens",
    "max_minutes", "vocab_size", "folds", "size", "rank", "alphabet", "eval_items", "batch_size", "padded", "patience",
}  # fmt: skip
"""A large number here is an order for long work, no mistake: these are given small or impossible ones alone."""
_SMALL = tuple(value for value in NUMBERS if len(value) < 4 and value not in ("1e3", "inf"))
_NEVER = {"help", "engine", "compile", "compiled", "storage", "once", "reader"}
"""What starts a cluster, a compiler or an endless view, what asks a person at the keyboard, and what only prints the help."""


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    flag: str
    number: bool
    flag_only: bool


def commands(found: Any = None, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every command of the application: (evaluate,), (re, train), ..."""
    if found is None:
        found = _application()
    inside = [entry for name, below in getattr(found, "commands", {}).items() for entry in commands(below, (*above, name))]
    return [*inside, *([above] if above and (not inside or found.invoke_without_command) else [])]


def _application() -> Any:
    from typer.main import get_command

    return get_command(load_commands())


@cache
def options_of(command: tuple[str, ...]) -> tuple[Option, ...]:
    """The options of a command, as the application itself knows them."""
    found = _application()
    for word in command:
        found = found.commands[word]
    return tuple(
        Option(entry.name, entry.opts[0], _is_number(entry), bool(getattr(entry, "is_flag", False)))
        for entry in found.params
        if entry.opts[0].startswith("-") and entry.name not in _NEVER
    )


def _is_number(entry: Any) -> bool:
    """Typer's options know their type in one place or another, by release."""
    kind = repr(getattr(entry, "type_descriptor", None) or getattr(entry, "type", "")).lower()
    return "int" in kind or "float" in kind


def command_of(words: list[str]) -> tuple[str, ...]:
    """prepare mlm --source ... -> (prepare, mlm)."""
    groups = {
        "tokenizer": 2,
        "prepare": 2,
        "evalset": 2,
        "re": 2,
        "coref": 2,
        "tune": 2 if words[1:2] == ["probe"] else 1,
    }
    return tuple(words[: groups.get(words[0], 1)])


def worsened(random: Random, words: list[str]) -> tuple[list[str], str]:
    """The line with an option set, repeated, emptied or taken away; or one of its own words replaced."""
    command = command_of(words)
    head = len(command)
    match random.randrange(8):
        case 0 if len(words) > head:  # a word is left out
            at = random.randrange(head, len(words))
            if words[at] == "--dry-run":  # without it this is an order for long work
                return words, "as it is"
            return words[:at] + words[at + 1 :], f"without {words[at]!r}"
        case 1 if len(words) > head:  # a word is another
            at = random.randrange(head, len(words))
            other = random.choice((*TEXTS, *PLACES, *PLACES))
            if words[at] == "--dry-run" or words[at - 1].lstrip("-").replace("-", "_") in _LONG | _NEVER | {"workers"}:
                return words, "as it is"
            return [*words[:at], other, *words[at + 1 :]], f"{other!r} for {words[at]!r}"
        case 2:
            typo = random.choice(("--modle", "--ouput", "--seed=", "-x", "--", "--json", "--unknown 1", "--debug"))
            return [*words, *typo.split()], f"with {typo}"
        case _:
            option = random.choice(options_of(command))
            given = [option.flag] if option.flag_only else [option.flag, _value(random, option)]
            return [*words, *given], f"with {' '.join(given)[:80]!r}"


def _value(random: Random, option: Option) -> str:
    if option.name in _LONG:
        return random.choice(_SMALL)
    if option.number:
        return random.choice(NUMBERS)
    if option.name == "out":
        return random.choice((*TEXTS, *PLACES))
    return random.choice((*NUMBERS[:4], *TEXTS, *PLACES, *PLACES))
