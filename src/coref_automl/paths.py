"""Paths. In: names as they are typed or stored. Out: paths, their natural order, and names short enough to show."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePath

from coref_automl.errors import InputError
from coref_automl.fingerprints import fingerprint


def check_name(path: Path) -> None:
    """Refuse a path that is not UTF-8: no page and no record could name it."""
    if not is_text(str(path)):
        shown = os.fsencode(path).decode("utf-8", "replace")
        raise InputError(f"The name of {shown} is not UTF-8, so it cannot be shown; rename it.")


def is_text(name: str) -> bool:
    """Whether a name can be encoded: bytes that are not UTF-8 reach Python as surrogates, which no file can hold."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def at_home(place: str) -> Path:
    """A path with `~` expanded; that of an unknown user is kept and will be reported as missing."""
    try:
        return Path(place).expanduser()
    except RuntimeError:
        return Path(place)


def short_names(folders: Iterable[PurePath]) -> dict[PurePath, str]:
    """A unique name for each folder: its own, preceded by as many parent folders as needed."""
    parts = {folder: [part for part in folder.parts if part not in (folder.anchor, "..")] or ["root"] for folder in folders}
    names = {folder: own[-1] for folder, own in parts.items()}
    for depth in range(2, 1 + max(map(len, parts.values()), default=0)):
        count = Counter(names.values())
        names |= {folder: "-".join(parts[folder][-depth:]) for folder, name in names.items() if count[name] > 1}
    count = Counter(names.values())
    return {folder: name if count[name] == 1 else f"{name}-{fingerprint(str(folder))[:6]}" for folder, name in names.items()}


def natural_order(name: str | Path) -> list[tuple[int, str]]:
    """Sort key under which checkpoint-65 comes before checkpoint-131."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", str(name))]
