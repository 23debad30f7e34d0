"""What every test needs: no network, one thread, a cache of its own, the same random draws in CI."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.masked import MASKED, hide

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["COREF_AUTOML_LANG"] = "en"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

_MASKS = pytest.MonkeyPatch()
hide(_MASKS)

_EXAMPLES = 100 if os.environ.get("CI") and not MASKED else 30
settings.register_profile("local", deadline=None, max_examples=_EXAMPLES)
settings.register_profile(
    "ci", deadline=None, derandomize=True, max_examples=_EXAMPLES, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_report_header() -> str | None:
    return f"masked: {', '.join(sorted(MASKED))}" if MASKED else None


@pytest.fixture(autouse=True, scope="session")
def _tags_in_a_folder_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    chosen: Path = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COREF_AUTOML_CACHE", str(chosen))
        yield


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[None]:
    """A local cluster of two workers that find the tests; its dashboard and its usage reports stay off."""
    ray = pytest.importorskip("ray", reason="ray is not installed (pip install 'coref-automl[scale]')")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    here = str(Path(__file__).parents[1])
    ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join((here, f"{here}/src"))}},
    )  # fmt: skip
    yield
    ray.shutdown()
