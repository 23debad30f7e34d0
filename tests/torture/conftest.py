"""The world of files that commands made, once per session."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.world import build


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("torture") / "world")
