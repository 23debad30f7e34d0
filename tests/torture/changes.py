"""Ordinary changes between two calls of one line: an input, the folder one stands in, who may read what, the clock.

In: a seed and a number. Out: the line, and what was stale, silent or different.
"""

from __future__ import annotations

import codecs
import importlib
import json
import os
import random as chance
import shlex
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.extras.test_matrix import edit_json, shift_weights
from tests.torture.attempt import Ended, fault, start
from tests.torture.world import LINES, OUT

NOBODY = 65_534


def _without_last(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()
    path.write_text("\n".join(lines[:-2]) + "\n", "utf-8")


def _shorter(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text("utf-8"))[:-4]), "utf-8")


CHANGES: dict[str, Callable[[Path], None]] = {
    "weights": lambda at: shift_weights(at / "model/model.safetensors"),
    "config": lambda at: edit_json(at / "model/config.json", hidden_act="relu"),
    "tokenizer": lambda at: edit_json(at / "model/tokenizer.json", normalizer={"type": "NFD"}),
    "tokenizer settings": lambda at: edit_json(at / "model/tokenizer_config.json", model_max_length=24),
    "relations": lambda at: _shorter(at / "relations.json"),
    "relation rows": lambda at: _without_last(at / "relations.jsonl"),
    "chains": lambda at: _without_last(at / "chains.jsonl"),
    "other chains": lambda at: _without_last(at / "others.jsonl"),
    "texts": lambda at: _without_last(at / "texts.jsonl"),
    "set": lambda at: _without_last(at / "set/items-real.jsonl"),
    "blocks": lambda at: edit_json(at / "data/manifest.json", fingerprint="other"),
    "own head": lambda at: shift_weights(at / "coreference/seed-0/model/head.safetensors"),
    "own encoder": lambda at: shift_weights(at / "relation/seed-0/model/model.safetensors"),
}
_MODEL = ("weights", "config", "tokenizer", "tokenizer settings")
READS: dict[str, tuple[str, ...]] = {
    LINES["train"].text: (*_MODEL, "blocks"),
    LINES["re train"].text: (*_MODEL, "relations"),
    LINES["coref train"].text: (*_MODEL, "chains"),
    LINES["re grid"].text: (*_MODEL, "relations"),
    f"evaluate model --eval-set set --seq-len 64 --device cpu --out {OUT}": (*_MODEL, "set"),
    LINES["re evaluate"].text: ("own encoder", "relation rows"),
    LINES["coref evaluate"].text: ("own head", "other chains"),
    f"prepare mlm --source local:texts.jsonl --model tokenizer --seq-len 64 --holdout 0 --workers 1 --out {OUT}": ("texts",),
    LINES["study"].text: (*_MODEL, "blocks", "set"),
    LINES["tune"].text: (*_MODEL, "blocks", "set"),
    LINES["adapt"].text: (*_MODEL, "set", "texts"),
}
"""A line, and the inputs that its answer depends on."""
_CASES = [(line, change) for line, changes in READS.items() for change in changes]
_FRESH = ("manifest.json", ".safetensors", "result.json", "items.jsonl", ".npy", "predictions", "evaluated")


def stale(seed: int, number: int, world: Path, folder: Path) -> tuple[str, str | None]:
    """The line, a change, the line again: refused, or some result is made anew. With odd numbers the first was killed."""
    random = Random(f"stale {seed} {number}")
    line, change = _CASES[number % len(_CASES)]
    shutil.copytree(world, folder, symlinks=True)
    going = start(shlex.split(line), folder)
    if killed := number // len(_CASES) % 2:
        time.sleep(random.uniform(0.2, 3))
        going.kill()
    first = going.end(600)
    if not killed and first.status:
        return line, f"ended with {first.status}: {first.err[-300:]}"
    before = _written(folder)
    CHANGES[change](folder)
    again = start(shlex.split(line), folder).end(600)
    if wrong := fault(again):
        return f"{line} ({change})", wrong
    if not again.status and not killed and _written(folder) == before:
        return f"{line} ({change})", "the old result, and nothing said"
    return f"{line} ({change})", None


COMPARED = (
    "compare runs/a runs/b --json", "power runs --eval-set set --json", "compare kept --json",
)  # fmt: skip


def elsewhere(seed: int, number: int, world: Path, folder: Path) -> tuple[str, str | None]:
    """One line in two folders: with relative paths in the world, with absolute ones beside a folder of the same names."""
    shutil.copytree(world, folder, symlinks=True)
    other = folder / "elsewhere"
    (other / "model").mkdir(parents=True)
    line = COMPARED[number % len(COMPARED)]
    words = shlex.split(line)
    away = [str(folder / word) if (folder / word).exists() and word != words[0] else word for word in words]
    here, there = start(words, folder).end(), start(away, other).end()
    if wrong := fault(here) or fault(there):
        return line, wrong
    if _plain(here, folder) != _plain(there, folder):
        return line, f"another answer from another folder: {_plain(here, folder)[-300:]!r} {_plain(there, folder)[-300:]!r}"
    return line, None


UNREADABLE = {
    "compare runs": ("runs/b/evaluations", "runs/b", "runs/b/evaluations/*/*/result.json", "runs/b/evaluations/*/*/items.jsonl"),
    f"report runs --out {OUT}": ("runs/b/evaluations", "runs/b/evaluations/*/*/result.json"),
    f"archive runs --out {OUT}": ("runs/b/evaluations", "runs/b"),
    "evaluate runs --eval-set set --seq-len 64 --device cpu": (
        "runs/b",
        "runs/b/checkpoint-*",
        "set/items-real.jsonl",
    ),
    LINES["plan"].text: ("model", "model/model.safetensors", "model/config.json", "data", "data/tokens.npy", "train.yaml"),
    LINES["re evaluate"].text: ("relation/seed-0", "relation/seed-0/model", "relations.jsonl"),
    LINES["coref evaluate"].text: ("coreference/seed-0/model", "others.jsonl"),
    LINES["prepare mlm"].text: ("texts.jsonl", "tokenizer", "tokenizer/tokenizer.json"),
    LINES["fill"].text: ("model/tokenizer.json", "model/config.json"),
    LINES["re predict"].text: ("relation/seed-0/model/relation.json", "relations.csv"),
}
_CLOSED = [(line, pattern) for line, patterns in UNREADABLE.items() for pattern in patterns]


def unreadable(seed: int, number: int, world: Path, folder: Path) -> tuple[str, str | None]:
    """As an ordinary user, with a folder or a file that is closed: it is named, or the line is refused in a sentence."""
    line, pattern = _CLOSED[number % len(_CLOSED)]
    shutil.copytree(world, folder, symlinks=True)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    path = next(folder.glob(pattern))
    path.chmod(0)

    def as_nobody() -> None:
        for name in ("unicode-escape", "utf-32-le"):  # codecs load late, and the interpreter may lie in a closed folder
            codecs.lookup(name)
        importlib.import_module("importlib.readers")
        os.environ["HOME"] = "/nonexistent"
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)

    end = start(shlex.split(line), folder, first=as_nobody).end()
    path.chmod(0o755)
    if wrong := fault(end):
        return f"{line} ({pattern} closed)", wrong
    name = path.name if path.is_file() else str(path.relative_to(folder))
    if name not in end.err + end.out and path.name not in end.err + end.out:
        return f"{line} ({pattern} closed)", f"status {end.status}, and no word of {name}: {end.err[-300:]}"
    return f"{line} ({pattern} closed)", None


def clocks(seed: int, number: int, world: Path, folder: Path) -> tuple[str, str | None]:
    """The clock jumps, back more than forward, at every look."""
    line = list(READS)[number % 7]
    shutil.copytree(world, folder, symlinks=True)

    def jump() -> None:
        drawn, now = chance.Random(f"{seed} {number}"), time.time()
        time.time = lambda: now + drawn.uniform(-86_400, 3_600)

    for _ in range(2):
        end = start(shlex.split(line), folder, first=jump).end(600)
        if wrong := fault(end) or (f"ended with {end.status}: {end.err[-300:]}" if end.status else None):
            return f"{line} (clock)", wrong
    return f"{line} (clock)", None


def _written(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Results under a folder, by their time and content."""
    found = (path for path in folder.rglob("*") if path.is_file() and any(part in str(path) for part in _FRESH))
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in found if "world" not in path.parts}


def _plain(end: Ended, folder: Path) -> str:
    return end.out.replace(f"{folder}/", "")
