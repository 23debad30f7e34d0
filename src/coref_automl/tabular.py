"""Results as tables. In: a result that lists its rows. Out: a pandas frame, where pandas is there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from coref_automl.errors import InputError


class Tabular(ABC):
    """A result that can be listed: `to_rows()` as dictionaries, `to_frame()` as a pandas table."""

    __slots__ = ()

    @abstractmethod
    def to_rows(self) -> list[dict[str, Any]]: ...

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame; install pandas for it, the package does not."""
        try:
            import pandas
        except ImportError:
            raise InputError("to_frame() needs pandas, which is not installed; pip install pandas, or use to_rows().") from None
        return pandas.DataFrame(self.to_rows())
