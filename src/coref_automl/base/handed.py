"""What the top of the package hands down: functions of extras, by name. In: loaders (`extras/table.py`). Out: what they load.

No room imports an extra. The package fills both tables when it is imported; each entry is imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coref_automl.base.errors import InputError

CHECKS: dict[str, Callable[[], Any]] = {}
"""The outside checks of extras, in the order of their questions (`comparison/outside_checks.py` says what one is)."""
OFFERS: dict[str, Callable[[], Any]] = {}


def offered(name: str) -> Any:
    """What an extra offers under this name."""
    if name not in OFFERS:
        raise InputError(f"{name!r} is part of an extra that this installation lacks; reinstall the package.")
    return OFFERS[name]()
