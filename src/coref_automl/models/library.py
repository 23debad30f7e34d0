"""What the library says. Its lines: silence, for as long as a block runs. Its errors: whether one means that memory is short."""

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


def is_out_of_memory(error: BaseException) -> bool:
    """Torch has an exception of its own on a GPU and only a sentence on a CPU."""
    return type(error).__name__ == "OutOfMemoryError" or isinstance(error, MemoryError) or "can't allocate memory" in str(error)
