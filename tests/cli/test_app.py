"""What holds for every command: light start, exit statuses, errors of one sentence, a reference page that cannot drift."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import coref_automl
from coref_automl.cli.app import COMMANDS, load_commands, run
from coref_automl.cli.options import PANELS

ROOT = Path(__file__).parents[2]


def test_help_and_reports_import_neither_torch_nor_transformers() -> None:
    code = (
        "import sys; from coref_automl.cli.app import run; status = run(['--help']); import coref_automl.extras.pages.rendering;"
        "heavy = {'torch', 'transformers', 'kiwipiepy', 'optuna', 'ray', 'altair', 'datasets', 'pyarrow'} & set(sys.modules);"
        "print('HEAVY', sorted(heavy)); sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "HEAVY []" in done.stdout
    for verb in (
        "demo",
        "adapt",
        "sources",
        "prepare",
        "train",
        "evaluate",
        "compare",
        "report",
        "fill",
        "tune",
        "re",
    ):
        assert f"\n  {verb} " in done.stdout, verb


def test_every_command_is_found_in_the_module_that_is_imported_for_it() -> None:
    listed = {verb: module for verb, (module, _) in COMMANDS.items()}
    shown = load_commands()
    commands = {command.name or getattr(command.callback, "__name__", ""): command for command in shown.registered_commands}
    commands |= {str(group.name): group.typer_instance.registered_commands[0] for group in shown.registered_groups}
    assert {verb: one.callback.__module__ for verb, one in commands.items()} == listed


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["evaluate", "--modle", "x"], "--"),
        (["evalute"], "evaluate"),
        (["demo", "--quik"], "--quick"),
    ],
)
def test_an_unknown_name_exits_2_and_names_the_nearest(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert expected in capsys.readouterr().err


def test_an_error_is_one_sentence_and_debug_shows_the_stack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "none.yaml")
    assert run(["train", "--recipe", missing, "--out", str(tmp_path / "run")]) == 2
    plain = capsys.readouterr().err
    assert plain.count("\n") == 1
    assert missing in plain
    assert run(["train", "--recipe", missing, "--out", str(tmp_path / "run"), "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_an_error_that_repeats_a_long_word_stays_short(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prepare", "status", "data", "a" * 6_000]) == 2
    text = capsys.readouterr().err
    assert "unexpected extra argument" in text
    assert text.rstrip().endswith("--help.")
    assert len(text) < 2_000


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"coref-automl {coref_automl.__version__}\n"


def test_help_names_debug_and_long_helps_have_panels(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    assert "--debug" in capsys.readouterr().out
    assert run(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    places = [shown.index(f"\n{panel}:\n") for panel in PANELS]
    assert places == sorted(places)
    assert run(["compare", "--help"]) == 0
    assert "\nBasics:\n" not in capsys.readouterr().out


def test_every_option_of_a_panel_is_one_that_some_command_has() -> None:
    flags = set(re.findall(r"--([a-z][a-z-]*)", "".join(path.read_text("utf-8") for path in (ROOT / "docs" / "cli").iterdir())))
    assert {name for names in PANELS.values() for name in names} <= flags


def test_all_missing_options_are_named_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train"]) == 2
    assert "Missing: --model, --dataset, --out." in capsys.readouterr().err
    assert run(["prepare", "mlm"]) == 2
    assert "Missing: --out, --source, --model." in capsys.readouterr().err
    assert run(["re", "predict", "--text", "글"]) == 2
    assert "Missing: RUN." in capsys.readouterr().err


def test_generated_pages_say_what_the_code_says() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "write_docs.py"))
    result = script["pages"]()
    assert set((ROOT / "docs" / "cli").iterdir()) <= set(result), "a page of a command that is gone: run make docs"
    for path, text in result.items():
        assert path.read_text("utf-8") == text, f"{path.name}: run make docs"
