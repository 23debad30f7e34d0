"""Damaged files. In: a folder and a source of randomness. Out: one file in it changed, and a sentence that says how."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

DEEP = 20_000
SCALARS: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 2**31, 2**63, 10**12, 10**40, -(10**12), 0.5, -0.5, 1e308, float("nan"), float("inf"),
    "", " ", "a", "0", "../..", "/", "~nosuchuser/a", "가" * 300, "\ud800", "\0", "\n", "bundled:ko-mini", "model", [], {},
    [None], [[]], {"": 0}, {"a": {"b": []}}, [1, "a"], "cpu", "mlm", "1e5", "한국어 文字 🙂",
)  # fmt: skip
"""Values of every kind, to stand where another kind is expected."""


def damage(random: Random, place: Path) -> str:
    """Damage a file, or one of the files in a folder."""
    files = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())
    if not files:
        return f"{place} is missing"
    path = random.choice(files)
    own = next((ways for ends, ways in _OF_KIND.items() if path.name.endswith(ends)), ())
    way = random.choice(own) if own and random.random() < 0.75 else random.choice(_OF_ANY)
    try:
        way(random, path)
    except Exception:  # damaged before, so that its shape is gone
        _cut(random, path)
    return f"{path} {(way.__doc__ or '').strip().rstrip('.')}"


def _cut(random: Random, path: Path) -> None:
    """is cut off."""
    raw = path.read_bytes()
    path.write_bytes(raw[: random.randrange(len(raw) + 1)] if raw else b"x")


def _empty(random: Random, path: Path) -> None:
    """is empty."""
    path.write_bytes(b"")


def _noise(random: Random, path: Path) -> None:
    """has changed bytes."""
    raw = bytearray(path.read_bytes() or b"x")
    for _ in range(random.choice((1, 1, 3, 30))):
        raw[random.randrange(len(raw))] = random.randrange(256)
    path.write_bytes(bytes(raw))


def _other_bytes(random: Random, path: Path) -> None:
    """holds something else."""
    others = (
        b"\xff\xfe\x00", b"\0" * 4096, b"[" * DEEP, b"{}", b"[]", b"null", b"0", b'"text"', b"\n\n\n", b"PK\x03\x04",
        b"9" * 5000, "﻿{}".encode(), "가나다".encode("utf-16"), b"a: &a [b]\nc: *a\n", b"\x93NUMPY\x01\x00", b"<html>",
    )  # fmt: skip
    path.write_bytes(random.choice(others))


def _twice(random: Random, path: Path) -> None:
    """holds its bytes twice."""
    path.write_bytes(path.read_bytes() * 2)


def _gone(random: Random, path: Path) -> None:
    """is missing."""
    path.unlink()


def _folder(random: Random, path: Path) -> None:
    """is a folder."""
    path.unlink()
    path.mkdir()


def _loop(random: Random, path: Path) -> None:
    """is a link to itself."""
    path.unlink()
    path.symlink_to(path.name)


def _pipe(random: Random, path: Path) -> None:
    """is a named pipe that nobody writes to."""
    path.unlink()
    os.mkfifo(path)


def _neighbour(random: Random, path: Path) -> None:
    """holds the bytes of the file beside it."""
    others = sorted(other for other in path.parent.iterdir() if other.is_file() and other != path)
    if others:
        shutil.copyfile(random.choice(others), path)


def _json_value(random: Random, path: Path) -> None:
    """has a wrong value."""
    path.write_text(_dumped(_changed(random, json.loads(path.read_text("utf-8")))), "utf-8", "surrogatepass")


def _json_line(random: Random, path: Path) -> None:
    """has a wrong value in a line."""
    lines = path.read_text("utf-8").splitlines()
    at = random.randrange(len(lines))
    lines[at] = _dumped(_changed(random, json.loads(lines[at])))
    path.write_text("\n".join(lines) + "\n", "utf-8", "surrogatepass")


def _lines_repeated(random: Random, path: Path) -> None:
    """has a line twice, or lacks one."""
    lines = path.read_text("utf-8").splitlines(keepends=True)
    at = random.randrange(len(lines))
    path.write_text("".join(lines[:at] + (lines[at : at + 1] * 2 if random.random() < 0.5 else []) + lines[at + 1 :]), "utf-8")


def _csv_cell(random: Random, path: Path) -> None:
    """has a wrong cell."""
    lines = path.read_text("utf-8").split("\n")
    at = random.randrange(min(len(lines), 12))
    cells = lines[at].split(",")
    cells[random.randrange(len(cells))] = random.choice(
        ("", "x", "-1", "nan", "inf", "1e999", '"', "a" * 300, "\0", "9" * 5000, ",", "[]")
    )
    lines[at] = ",".join(cells)
    path.write_text("\n".join(lines), "utf-8")


def _yaml_value(random: Random, path: Path) -> None:
    """has a wrong value."""
    import yaml

    changed = _changed(random, yaml.safe_load(path.read_text("utf-8")))
    path.write_text(yaml.dump(changed, allow_unicode=False), "utf-8")


def _yaml_text(random: Random, path: Path) -> None:
    """has a line that is no setting."""
    bomb = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 4)}]\n" for n in range(1, 20))
    extras = (
        "? [1, 2]\n: 3\n", "1: 2\n", "true: yes\n", "epochs: .inf\n", "epochs: .nan\n", "seed: -1\n",
        "!!python/object:os.system {}\n", "- 1\n", "\t x: 1\n", "a: b: c\n", bomb, "2020-01-01: 2020-01-01\n",
        "unknown_setting: 1\n", "model: {a: 1}\n", "[" * 3000, "seed: " + "9" * 5000 + "\n", "x: !!binary aGk=\n",
        "<<: *nothing\n", "%YAML 9\n", "epoch: 1\n", "models: \n", "device: 0\n",
    )  # fmt: skip
    extra = random.choice(extras)
    path.write_text(random.choice((path.read_text("utf-8") + extra, extra + path.read_text("utf-8"), extra)), "utf-8")


def _array_shape(random: Random, path: Path) -> None:
    """claims another shape or type."""
    raw = path.read_bytes()
    length = struct.unpack("<H", raw[8:10])[0]
    shape = random.choice(("(0,)", "(1000000000000,)", "()", "(3, 5)", "(-1,)", "(99999999999999999999999,)"))
    kind = random.choice(("<i4", "|O", "<f8", "<U9", "<c16", "|b1", "nonsense"))
    order = random.choice(("True", "False"))
    header = (
        f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}".encode().ljust(length - 1)[: length - 1] + b"\n"
    )
    path.write_bytes(raw[:10] + header + raw[10 + length :])


def _array_values(random: Random, path: Path) -> None:
    """holds other numbers."""
    import numpy as np

    values = np.load(path)
    if values.dtype.names is None and values.size:
        fill = random.choice((0, 1)) if values.dtype == bool else random.choice((0, np.iinfo(values.dtype).max))
        values.flat[random.randrange(values.size)] = fill
    else:
        values = values[: len(values) // 2]
    np.save(path, values)


def _weights_header(random: Random, path: Path) -> None:
    """has a wrong header."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = _dumped(_changed(random, json.loads(raw[8 : 8 + length]))).encode("utf-8", "surrogatepass")
    path.write_bytes(len(header).to_bytes(8, "little") + header + raw[8 + length :])


Way = Callable[[Random, Path], None]
_OF_ANY: tuple[Way, ...] = (
    _cut,
    _cut,
    _empty,
    _noise,
    _noise,
    _other_bytes,
    _other_bytes,
    _twice,
    _gone,
    _folder,
    _loop,
    _pipe,
    _neighbour,
)
_OF_KIND: dict[str, tuple[Way, ...]] = {
    ".json": (_json_value,),
    ".jsonl": (_json_line, _json_line, _lines_repeated),
    ".ndjson": (_json_line, _lines_repeated),
    ".csv": (_csv_cell, _lines_repeated),
    ".yaml": (_yaml_value, _yaml_text),
    ".npy": (_array_shape, _array_values),
    ".safetensors": (_weights_header,),
}


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _changed(random: Random, value: Any) -> Any:
    """The value with one part of it, at whatever depth, replaced, removed, added or nested."""
    places = list(_places(value))
    if not places:
        return random.choice(SCALARS)
    holder, key = random.choice(places)
    match random.randrange(6):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[random.choice(("unknown", "", "0", "가", "__class__"))] = random.choice(SCALARS)
        case 2:
            nested: Any = 0
            for _ in range(random.choice((1, 200))):
                nested = [nested]
            holder[key] = nested
        case _:
            holder[key] = random.choice(SCALARS)
    return value


def _places(value: Any, depth: int = 0, seen: set[int] | None = None) -> Iterator[tuple[Any, Any]]:
    seen = set() if seen is None else seen
    if depth > 12 or id(value) in seen:  # an alias of YAML, which would be walked through once per mention
        return
    seen |= {id(value)} if isinstance(value, dict | list) else set()
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in list(entries)[:400]:
        yield value, key
        yield from _places(part, depth + 1, seen)
