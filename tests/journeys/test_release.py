"""A release: sdist and wheel hold what they need and nothing else, and the installed wheel works away from the repository."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import tarfile
import urllib.request
import venv
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
TALE = "영수는 시장에서 어머니를 만났다. 어머니는 영수의 손을 잡았다. 그는 어머니와 함께 집으로 돌아왔다."
TYPED = """import coref_automl as ca

reveal_type(ca.evaluate("bundled:ko-mini"))
"""


def told(line: list[str], folder: Path) -> str:
    """What a command says in a folder, with nothing of the repository on its path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tracked files alone, built as `python -m build --no-isolation` does: the sdist, and the wheel out of it."""
    pytest.importorskip("setuptools")
    tree, out, unpacked = (tmp_path_factory.mktemp(name) for name in ("tree", "dist", "unpacked"))
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, listed):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes((ROOT / name).read_bytes())
    told([sys.executable, "-c", f"from setuptools import build_meta; build_meta.build_sdist({str(out)!r})"], tree)
    (source,) = out.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(unpacked, filter="data")
    (folder,) = unpacked.iterdir()
    told([sys.executable, "-c", f"from setuptools import build_meta; build_meta.build_wheel({str(out)!r})"], folder)
    return out


@pytest.fixture(scope="module")
def programs(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with the wheel, and with this one's packages in place of a download."""
    pytest.importorskip("pip")
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    (wheel,) = built.glob("*.whl")
    told([sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)], home)
    (packages,) = home.glob("lib/*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"), "utf-8")
    where = told([str(python), "-c", "import coref_automl; print(coref_automl.__file__)"], home)
    assert where.startswith(str(packages))
    return python.parent


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
    named = {found for page in DOCS.rglob("*.md") for found in re.findall(r"coref_automl-([\d.]+)-py3", page.read_text("utf-8"))}
    assert named == {version}


def test_the_installed_commands_work_away_from_the_repository(built: Path, programs: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    command = str(programs / "coref-automl")
    assert told([command, "--version"], tmp_path) == f"coref-automl {wheel.name.split('-')[1]}\n"
    assert "[영수]1" in told([command, "coref", "predict", TALE], tmp_path)
    told([command, "demo", "--quick", "--out", "quick"], tmp_path)
    assert (tmp_path / "quick" / "report" / "report.html").is_file()
    assert "<title>" in first_page([command, "studio", "quick", "--port", "0", "--no-open"], tmp_path)


def first_page(line: list[str], folder: Path) -> str:
    """The studio's first page; the address is the first line it says, and Ctrl-C ends it."""
    with subprocess.Popen(line, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as studio:
        try:
            assert studio.stdout is not None
            with urllib.request.urlopen(studio.stdout.readline().strip(), timeout=60) as answer:
                return str(answer.read().decode())
        finally:
            studio.send_signal(signal.SIGINT)


def test_a_type_checker_sees_the_types_that_ship(programs: Path, tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "three_lines.py").write_text(TYPED, "utf-8")
    checked = told([sys.executable, "-m", "mypy", "--python-executable", str(programs / "python"), "three_lines.py"], tmp_path)
    assert 'Revealed type is "coref_automl.api.Evaluations"' in checked


def test_the_unpacked_wheel_works_where_nothing_can_be_installed(built: Path, tmp_path: Path) -> None:
    """docs/cluster.md: unpacked, and put on the path."""
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "package")
    line = ["env", f"PYTHONPATH={tmp_path / 'package'}", sys.executable, "-m", "coref_automl.cli", "coref", "predict", TALE]
    assert "[영수]1" in told(line, tmp_path)
