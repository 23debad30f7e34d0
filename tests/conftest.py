"""What every test needs: no network, one thread, a cache of its own, the same random draws in CI."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.masked import MASKED, hide

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["COREF_AUTOML_LANG"] = "en"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

_MASKS = pytest.MonkeyPatch()
hide(_MASKS)

gc.disable()  # until the tests are collected: what imports make stays

_EXAMPLES = 100 if os.environ.get("CI") and MASKED else 30  # the masked half of CI has more time
settings.register_profile("local", deadline=None, max_examples=_EXAMPLES)
settings.register_profile(
    "ci", deadline=None, derandomize=True, max_examples=_EXAMPLES, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ci" if os.environ.get("CI") else "local")


_TOGETHER = {"comparison", "coreference", "engine", "experiment", "relation", "studio", "torture", "training", "tuning"}
"""Folders whose files share what is costly to make: of two processes, one runs them all. Any other file stands for itself."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFolder(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = Path(super()._split_scope(nodeid))
            return path.parts[1] if path.parts[1] in _TOGETHER else str(path)

    return ByFolder(config, log)


def pytest_report_header() -> str | None:
    return f"masked: {', '.join(sorted(MASKED))}" if MASKED else None


_imported = 0


def _freeze_imports(phase: str, info: dict[str, int]) -> None:
    """What imports have made stays out of every later collection of garbage; each training and evaluation ends with one."""
    global _imported
    if phase == "stop" and info["generation"] == 2 and len(sys.modules) > _imported:
        gc.freeze()
        _imported = len(sys.modules)


@given(st.none())
def _register_randoms(_: None) -> None:
    """Hypothesis registers generators on its first draw and looks for their owners, which a frozen collector does not show."""


def pytest_collection_finish() -> None:
    gc.enable()
    _register_randoms()
    gc.callbacks.append(_freeze_imports)
    gc.collect()


def pytest_unconfigure() -> None:
    """Libraries complain at the interpreter's end about what is left then."""
    if _freeze_imports in gc.callbacks:
        gc.callbacks.remove(_freeze_imports)
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="session")
def _a_cache_of_their_own_and_no_flush(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    root: Path = tmp_path_factory.getbasetemp()
    chosen = (root.parent if os.environ.get("PYTEST_XDIST_WORKER") else root) / "cache"  # one for both processes
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COREF_AUTOML_CACHE", str(chosen))
        patch.setattr(os, "fsync", lambda _handle: None)  # nothing is read after a power cut; faults of it are tests of their own
        yield


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[None]:
    """A local cluster of two workers that find the tests; its dashboard and its usage reports stay off."""
    ray = pytest.importorskip("ray", reason="ray is not installed (pip install 'coref-automl[scale]')")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    here = str(Path(__file__).parents[1])
    ray.init(
        address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join((here, f"{here}/src"))}},
    )  # fmt: skip
    yield
    ray.shutdown()
