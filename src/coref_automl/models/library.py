"""The library's own lines. In: whether its errors are wanted. Out: silence otherwise, for as long as a block runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_library(*, errors: bool = False) -> Iterator[None]:
    """No tables and bars of transformers: what matters of them is in our notes, errors and events."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.ERROR if errors else logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
