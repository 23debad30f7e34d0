"""A release: wheel and sdist of this tree hold what they need and nothing else, and the wheel works away from the repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.pages.markdown import DOCS, ROOT

pytestmark = pytest.mark.journey

NEEDED = (
    "coref_automl/py.typed",
    "coref_automl/assets/models/ko-mini/model.safetensors",
    "coref_automl/assets/models/ko-mini/tokenizer.json",
    "coref_automl/assets/models/ko-mini/ATTRIBUTION.md",
    "coref_automl/assets/coreference/ko-mini/ATTRIBUTION.md",
    "coref_automl/assets/evalsets/bundled/manifest.json",
    "coref_automl/report/templates/report.html.j2",
    "coref_automl/report/templates/page.js",
    "coref_automl/studio/templates/layout.html.j2",
    "coref_automl/studio/static/studio.js",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tracked files alone, built as `python -m build --no-isolation` does: sdist, and the wheel out of it."""
    pytest.importorskip("setuptools")
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, listed):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes((ROOT / name).read_bytes())
    code = "import sys; from setuptools import build_meta as b; b.build_sdist(sys.argv[1]); b.build_wheel(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, str(out)], cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return out


def test_the_wheel_has_what_it_needs_and_no_tests(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert set(NEEDED) <= set(names)
    assert {name.split("/")[0] for name in names if not name.split("/")[0].endswith(".dist-info")} == {"coref_automl"}
    assert not [name for name in names if "test" in Path(name).name or name.endswith((".pyc", ".ipynb"))]


def test_the_size_of_the_wheel_is_the_one_the_pages_state(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    pages = "".join(page.read_text("utf-8") for page in DOCS.glob("install*.md"))
    stated = {int(size) for size in re.findall(r"wheel(?: is|은) (\d+) MB", pages)}
    assert stated == {round(wheel.stat().st_size / 1e6)}


def test_the_version_is_the_one_of_the_changelog_and_the_citation(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    version = wheel.name.split("-")[1]
    assert f"\n## {version} (" in (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    told = {found for page in DOCS.rglob("*.md") for found in re.findall(r"coref_automl-([\d.]+)-py3", page.read_text("utf-8"))}
    assert told == {version}


def test_the_sdist_builds_by_itself(built: Path) -> None:
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = archive.getnames()
    package = "src/coref_automl"
    for name in ("pyproject.toml", "README.md", "LICENSE", f"{package}/py.typed", f"{package}/report/templates/page.js"):
        assert any(held.endswith("/" + name) for held in names), name


def test_the_unpacked_wheel_works_away_from_the_repository(built: Path, tmp_path: Path) -> None:
    """As on a machine where nothing can be installed (docs/own/offline.md): unpacked, and put on the path."""
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "package")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "package"), "HF_HUB_OFFLINE": "1"}

    def tell(*words: str) -> str:
        line = [sys.executable, "-m", "coref_automl.cli", *words]
        done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    where = subprocess.run(
        [sys.executable, "-c", "import coref_automl; print(coref_automl.__file__)"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert where.startswith(str(tmp_path))
    assert "evaluate" in tell("--help")
    assert "[민수]1" in tell("coref", "predict", "민수는 어머니를 찾아 시장으로 갔다. 그는 어머니의 손을 잡았다.")
    assert (tmp_path / "package" / "coref_automl" / "py.typed").is_file()
