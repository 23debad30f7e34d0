"""Storages: what is refused, what a kill leaves behind, and many processes on one PostgreSQL server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from coref_automl.base.errors import InputError, InputsChanged
from coref_automl.extras.tune.recipe import TuneRecipe
from coref_automl.extras.tune.space import read_space
from coref_automl.extras.tune.storage import JOURNAL, counts, open_study, recover
from tests.extras.tune.scripted import ScriptedProblem, search
from tests.masked import postgres_programs


def recipe(out: Path, **changes: object) -> TuneRecipe:
    return TuneRecipe(models=("m",), datasets=("d",), out=str(out), **changes)  # type: ignore[arg-type]


def test_a_storage_that_cannot_be_reached_is_an_error_of_the_command_without_its_password(tmp_path: Path) -> None:
    pytest.importorskip("psycopg", reason="the `scale` extra is not installed")
    with pytest.raises(InputError, match=r"postgresql://me:\*\*\*@127\.0\.0\.1:9/none cannot be used") as caught:
        open_study(recipe(tmp_path, storage="postgresql://me:secret@127.0.0.1:9/none"), tmp_path, {})
    assert "secret" not in str(caught.value)
    assert caught.value.exit_status == 2


def test_an_address_that_is_none_is_an_error_of_the_command(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be used"):
        open_study(recipe(tmp_path, storage="nonsense"), tmp_path, {})


def test_another_space_under_the_same_name_is_refused(tmp_path: Path) -> None:
    search(tmp_path)
    other = {"task": "mlm", "space": read_space({"learning_rate": {"low": 0.001, "high": 2.0}}, "mlm").plain()}
    with pytest.raises(InputsChanged, match="was begun with space learning_rate"):
        open_study(recipe(tmp_path), tmp_path, other)
    assert open_study(recipe(tmp_path, study="second"), tmp_path, other).study_name == "second"


def test_a_journal_whose_last_line_a_kill_cut_in_two_goes_on(tmp_path: Path) -> None:
    search(tmp_path, trials=2)[0].run()
    journal = tmp_path / JOURNAL
    with journal.open("ab") as handle:
        handle.write(b'{"op_code":4,"study_id":0,"trial')
    (tmp_path / f"{JOURNAL}.lock").symlink_to(journal)
    tuner, _ = search(tmp_path, trials=3)
    tuner.run()
    assert sum(map(counts, tuner.study.get_trials())) == 3


def test_a_trial_of_another_process_is_left_alone_until_it_has_been_silent(tmp_path: Path) -> None:
    tuner, _ = search(tmp_path)
    theirs = tuner.study.ask()
    theirs.set_user_attr("owner", "there")
    assert recover(tuner.study, "here", private=False) == []
    theirs.set_user_attr("alive", 1.0)
    theirs.suggest_float("learning_rate", 0.001, 1.0)
    assert recover(tuner.study, "here", private=False) == [0]
    again = tuner.study.get_trials()[-1]
    assert again.system_attrs["fixed_params"] == theirs.params
    assert recover(tuner.study, "here", private=False) == []


def test_a_resumed_study_does_not_draw_the_same_again(tmp_path: Path) -> None:
    search(tmp_path, trials=4)[0].run()
    tuner, _ = search(tmp_path, trials=8)
    tuner.run()
    drawn = [trial.params["learning_rate"] for trial in tuner.study.get_trials()]
    assert len(set(drawn)) == 8


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """A private server, run by the user postgres, in a folder of the test."""
    binaries = postgres_programs()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    pytest.importorskip("psycopg", reason="the `scale` extra is not installed")
    folder = Path(tempfile.mkdtemp(prefix="coref-automl-postgres-"))  # pytest's own are root's alone
    as_user: list[str] = []
    if os.getuid() == 0:
        if shutil.which("runuser") is None:
            pytest.skip("root cannot run PostgreSQL, and runuser is not installed")
        as_user = ["runuser", "-u", "postgres", "--"]
        shutil.chown(folder, "postgres")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data = folder / "data"

    def call(*command: str, check: bool = True) -> None:
        subprocess.run([*as_user, *command], check=check, capture_output=True, cwd=folder)

    call(str(binaries / "initdb"), "-D", str(data), "-A", "trust", "-U", "postgres", "--no-sync", "--no-locale", "-E", "UTF8")
    options = f"-F -p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
    call(str(binaries / "pg_ctl"), "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
    try:
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    finally:
        call(str(binaries / "pg_ctl"), "-D", str(data), "-m", "immediate", "stop", check=False)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.journey
def test_two_processes_share_a_postgresql_study_and_no_trial_is_lost(tmp_path: Path, postgres: str) -> None:
    both = [search(tmp_path / owner, storage=postgres, trials=8, study="shared", owner=owner)[0] for owner in ("one", "two")]
    threads = [threading.Thread(target=tuner.run) for tuner in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    trials = both[0].study.get_trials()
    ended = [trial for trial in trials if counts(trial)]
    assert Counter(trial.state.name for trial in ended) == {"COMPLETE": 8}
    assert {trial.user_attrs["owner"] for trial in ended} == {"one", "two"}
    assert len({trial.params["learning_rate"] for trial in ended}) == 8
    assert [trial.user_attrs.get("origin") for trial in ended].count("recommended") == 1


def test_a_postgresql_study_with_another_space_is_refused(tmp_path: Path, postgres: str) -> None:
    search(tmp_path, storage=postgres, study="bound")
    problem = ScriptedProblem(out=tmp_path)
    with pytest.raises(InputsChanged, match="was begun with space learning_rate"):
        open_study(recipe(tmp_path, storage=postgres, study="bound"), tmp_path, {**problem.binding, "space": {}})


def test_a_model_is_known_by_its_bytes_however_it_is_spelled(tmp_path: Path) -> None:
    begun = {"task": "mlm", "bytes": {"model home/model": "a", "eval_set": "e"}}
    open_study(recipe(tmp_path), tmp_path, begun)
    open_study(recipe(tmp_path), tmp_path, {**begun, "bytes": {"model elsewhere/model": "a", "eval_set": "e"}})
    with pytest.raises(InputsChanged, match="was begun with other bytes of the model than"):
        open_study(recipe(tmp_path), tmp_path, {**begun, "bytes": {"model home/model": "b", "eval_set": "e"}})
