"""A state on disk is what torch reads, or nothing; an error of the file is raised as it was."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch

from coref_automl.base.errors import StorageError
from coref_automl.base.machine import free_memory
from coref_automl.training.state import write_state

STATE = {"model": {"a": torch.arange(70_000.0), "b": torch.ones(3)}, "step": 3}


def test_a_state_is_the_file_that_torch_writes(tmp_path: Path) -> None:
    write_state(tmp_path / "state.pt", STATE)
    buffer = io.BytesIO()
    torch.save(STATE, buffer)
    assert (tmp_path / "state.pt").read_bytes() == buffer.getvalue()
    assert torch.load(tmp_path / "state.pt", weights_only=True)["model"]["a"][-1] == 69_999


@pytest.mark.parametrize("at", [0, 1, 5, 9])
@pytest.mark.parametrize(("error", "heard"), [(KeyboardInterrupt(), KeyboardInterrupt), (OSError(28, "full"), StorageError)])
def test_what_goes_wrong_is_heard_and_the_old_state_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, error: BaseException, heard: type[BaseException]
) -> None:
    write_state(tmp_path / "state.pt", {"step": 1})
    calls = iter(range(1_000))
    opened = Path.open

    def faulty(self: Path, *arguments: Any, **options: Any) -> Any:
        handle = opened(self, *arguments, **options)
        if self.suffix != ".part":
            return handle
        return _Faulty(handle, lambda: next(calls) >= at, error)

    monkeypatch.setattr(Path, "open", faulty)
    with pytest.raises(heard):
        write_state(tmp_path / "state.pt", STATE)
    monkeypatch.undo()
    assert torch.load(tmp_path / "state.pt", weights_only=True) == {"step": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["state.pt"]


class _Faulty:
    def __init__(self, handle: Any, failing: Any, error: BaseException) -> None:
        self.handle, self.failing, self.error = handle, failing, error

    def write(self, data: Any) -> int:
        if self.failing():
            raise self.error
        return int(self.handle.write(data))

    def __enter__(self) -> _Faulty:
        return self

    def __exit__(self, *_: object) -> None:
        self.handle.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.handle, name)


def test_unused_memory_can_be_given_back_on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    free_memory()
    monkeypatch.setattr("ctypes.CDLL", lambda name: (_ for _ in ()).throw(OSError(name)))
    free_memory()
