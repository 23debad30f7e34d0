"""Jobs end once each, in order, whatever happens to the processes under them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from coref_automl.base import pool
from coref_automl.base.errors import FolderError, MissingExtra, WorkerDied, WorkError
from coref_automl.base.machine import interruptible
from coref_automl.base.pool import Call, Returned, call_on_worker, ray_error, run_calls
from tests.processes import alive, until

HERE = "tests.base.test_pool"


def double(number: int) -> int:
    return 2 * number


def fail(number: int) -> int:
    raise ValueError(f"no {number}")


def lack() -> None:
    raise MissingExtra("ray", "scale", "--engine ray")


class Stubborn(Exception):
    def __init__(self, what: str, where: str) -> None:  # cannot be pickled: one argument is kept and two are needed
        super().__init__(f"{what} at {where}")


def be_stubborn() -> None:
    raise Stubborn("stuck", "home")


def give_what_is_local() -> object:
    return lambda: None


def die_once(mark: str) -> str:
    """Kills its own process the first time, as an out-of-memory killer would."""
    if not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def always_die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def visible(_: int) -> str:
    return os.environ.get("CUDA_VISIBLE_DEVICES", "unset")


def never_end(mark: str) -> None:
    Path(mark).write_text(str(os.getpid()))
    while True:
        sum(range(1000))


def jobs(name: str, count: int) -> list[Call]:
    return [Call(f"{name}-{index}", f"{HERE}:{name}", {"number": index}) for index in range(count)]


def test_results_keep_the_order_of_the_jobs_with_one_worker_and_with_two() -> None:
    for workers in (1, 2):
        heard: list[Returned] = []
        outcomes = run_calls(jobs("double", 5), workers=workers, on_return=heard.append)
        assert [outcome.value for outcome in outcomes] == [0, 2, 4, 6, 8]
        assert {outcome.call.name for outcome in heard} == {f"double-{index}" for index in range(5)}


def test_an_exception_is_the_jobs_answer_and_stops_no_other() -> None:
    mixed = [*jobs("double", 1), *jobs("fail", 1), *jobs("double", 2)[1:]]
    for workers in (1, 2):
        outcomes = run_calls(mixed, workers=workers)
        assert [outcome.value for outcome in outcomes] == [0, None, 2]
        assert isinstance(outcomes[1].error, ValueError)
        assert str(outcomes[1].error) == "no 0"
        assert outcomes[1].attempts == 1


def test_an_exception_travels_as_itself() -> None:
    lacking = [Call("lack", f"{HERE}:lack", {}), Call("stubborn", f"{HERE}:be_stubborn", {})]
    for workers, kind in ((1, Stubborn), (2, WorkError)):
        first, second = (outcome.error for outcome in run_calls(lacking, workers=workers))
        assert isinstance(first, MissingExtra)
        assert str(first) == "--engine ray needs ray, which is not installed. Run: pip install 'coref-automl[scale]'"
        assert isinstance(second, kind)
        assert "stuck at home" in str(second)


def test_a_value_that_cannot_travel_is_an_error_of_its_call_alone() -> None:
    first, second = run_calls([Call("local", f"{HERE}:give_what_is_local", {}), *jobs("double", 2)[1:]], workers=2)
    assert isinstance(first.error, WorkError)
    assert second.value == 2


def test_a_killed_worker_is_replaced_and_its_job_tried_again(tmp_path: Path) -> None:
    killing = Call("killing", f"{HERE}:die_once", {"mark": str(tmp_path / "mark")})
    outcomes = run_calls([killing, *jobs("double", 3)], workers=2)
    assert [outcome.value for outcome in outcomes] == ["alive", 0, 2, 4]
    assert outcomes[0].attempts == 2


def test_a_job_that_kills_every_worker_ends_as_an_error() -> None:
    outcomes = run_calls([Call("deadly", f"{HERE}:always_die", {}), *jobs("double", 1)], workers=2, retries=1)
    assert str(outcomes[0].error) == "the worker process died 2 times"
    assert outcomes[1].value == 0


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are watched through /proc")
def test_the_workers_of_a_killed_process_end_with_it(tmp_path: Path) -> None:
    code = (
        "import sys; from coref_automl.base.pool import Call, run_calls;"
        f"run_calls([Call(mark, '{HERE}:never_end', {{'mark': mark}}) for mark in sys.argv[1:]], workers=2)"
    )
    marks = [tmp_path / "first", tmp_path / "second"]
    parent = subprocess.Popen([sys.executable, "-c", code, *map(str, marks)])
    try:
        until(lambda: all(mark.is_file() and mark.read_text() for mark in marks), "two jobs on their way")
    finally:
        parent.kill()
        parent.wait()
    until(lambda: not any(alive(int(mark.read_text())) for mark in marks), "the end of the workers")


def test_a_worker_sees_its_own_device_only() -> None:
    calls: list[Any] = [Call(str(index), f"{HERE}:visible", {"_": index}) for index in range(2)]
    outcomes = run_calls(calls, workers=2, devices=["cuda:0", "cuda:1"])
    assert {outcome.value for outcome in outcomes} <= {"0", "1"}


def test_a_machine_of_another_version_or_without_the_folder_is_refused(tmp_path: Path) -> None:
    ours = version("coref-automl")
    assert call_on_worker(str(tmp_path), ours, os.getcwd) == str(tmp_path)
    with pytest.raises(WorkError, match=f"has coref-automl {ours}, and this command is 9.9. Install the same version"):
        call_on_worker(str(tmp_path), "9.9", os.getcwd)
    with pytest.raises(FolderError, match=r"does not exist on .*; start the command in a folder all machines see"):
        call_on_worker(str(tmp_path / "gone"), ours, os.getcwd)


def test_what_a_cluster_says_is_one_sentence() -> None:
    missing = RuntimeError("The remote function failed to import.\nModuleNotFoundError: No module named 'coref_automl'")
    assert str(ray_error(missing)).startswith("A machine of the cluster has no coref-automl, and this command is ")
    assert str(ray_error(ValueError("one\ntwo"))) == "ValueError: one"
    assert str(ray_error(ValueError())) == "ValueError"


@pytest.mark.journey
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are watched through /proc")
def test_calls_on_a_cluster_end_with_what_ends_the_command(ray_cluster: None, tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    def interrupt(_: Returned) -> None:
        until(lambda: mark.is_file() and bool(mark.read_text()), "a call on its way")
        raise KeyboardInterrupt

    endless = Call("endless", f"{HERE}:never_end", {"mark": str(mark)})
    with pytest.raises(KeyboardInterrupt):
        run_calls([endless, *jobs("double", 1)], engine="ray", devices=["cpu"], on_return=interrupt)
    until(lambda: not alive(int(mark.read_text())), "the end of the call")


@pytest.mark.journey
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # ray leaves its own sockets and pipes open
def test_ray_keeps_order_answers_and_the_job_of_a_killed_worker(
    ray_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killing = Call("killing", f"{HERE}:die_once", {"mark": str(tmp_path / "mark")})
    mixed = [killing, *jobs("double", 3), *jobs("fail", 1)]
    heard: list[Returned] = []
    outcomes = run_calls(mixed, engine="ray", retries=1, on_return=heard.append)
    assert [outcome.value for outcome in outcomes] == ["alive", 0, 2, 4, None]
    assert outcomes[4].error is not None
    assert "no 0" in str(outcomes[4].error)
    assert len(heard) == 5
    deadly = run_calls([Call("deadly", f"{HERE}:always_die", {})], engine="ray", retries=1)[0]
    assert deadly.value is None
    assert isinstance(deadly.error, WorkerDied)
    with monkeypatch.context() as other:
        other.setattr(pool, "version", lambda _: "9.9")  # as if this machine had another version than the cluster's
        refused = run_calls(jobs("double", 1), engine="ray")[0]
    assert "and this command is 9.9. Install the same version on every machine" in str(refused.error)
    assert [outcome.value for outcome in run_calls(jobs("double", 2), workers=2)] == [0, 2]


def test_a_call_that_hears_no_signal_is_left_when_interrupted() -> None:
    code = (
        "import hashlib, signal; from coref_automl.base.machine import interruptible;"
        "signal.signal(signal.SIGINT, signal.default_int_handler); print('begun', flush=True);"  # a background job ignores it
        "interruptible(lambda: hashlib.pbkdf2_hmac('sha256', b'a', b'b', 2**31 - 1))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "begun\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, text = process.communicate(timeout=30)
    assert "KeyboardInterrupt" in text


def test_what_such_a_call_gives_or_raises_comes_back() -> None:
    assert interruptible(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 // 0)

    class Panic(BaseException):
        """As a library in Rust raises it."""

    def panics() -> None:
        raise Panic

    with pytest.raises(Panic):
        interruptible(panics)
