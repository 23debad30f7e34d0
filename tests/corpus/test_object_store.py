"""Sources in an object store that refuses, breaks off and stalls (moto's server, through s3fs): the bytes of local ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coref_automl.cli.app import run
from tests.corpus.conftest import WriteRows, rows

pytest.importorskip("moto", reason="moto is not installed (pip install 'coref-automl[dev]')")
pytest.importorskip("s3fs", reason="s3fs is not installed (pip install 'coref-automl[dev]')")
pytest.importorskip("flask_cors", reason="moto's server is not installed (pip install 'coref-automl[dev]')")
pytestmark = pytest.mark.filterwarnings("ignore")  # its libraries' own
ARRAYS = ("tokens.npy", "blocks.npy", "mentions.npy")


class BadDay:
    """moto behind a door: reads of objects take the next of `faults`; `always` is for all that come."""

    def __init__(self, application: Any) -> None:
        self.application, self.faults, self.always, self.read = application, list[str](), "", 0

    def __call__(self, environment: dict[str, Any], start: Any) -> Any:
        if environment["REQUEST_METHOD"] != "GET" or not environment["PATH_INFO"].endswith(".jsonl"):
            return self.application(environment, start)
        self.read += 1
        fault = self.always or (self.faults.pop(0) if self.faults else "")
        if fault in ("503 Slow Down", "403 Forbidden"):
            code = "SlowDown" if fault[0] == "5" else "AccessDenied"
            start(fault, [("Content-Type", "application/xml")])
            return [f"<Error><Code>{code}</Code><Message>{fault}</Message></Error>".encode()]
        body = b"".join(self.application(environment, start))
        if fault == "cut":  # fewer bytes than were announced
            return [body[: len(body) // 2]]
        return self._slowly(body) if fault == "slow" else [body]

    def _slowly(self, body: bytes) -> Iterator[bytes]:
        for at in range(0, len(body), 1 + len(body) // 4):
            time.sleep(0.1)
            yield body[at : at + 1 + len(body) // 4]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[BadDay]:
    import boto3
    import s3fs
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    door = BadDay(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, door, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    access = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1", "AWS_MAX_ATTEMPTS": "1"}
    for name, value in {**access, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}"}.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    boto3.client("s3").create_bucket(Bucket="corpus")
    yield door
    server.shutdown()


def put(name: str, path: Path) -> None:
    import boto3

    boto3.client("s3").upload_file(str(path), "corpus", name)


def prepared(tokenizer: Path, source: str, out: Path, *options: str) -> dict[str, bytes]:
    command = ["prepare", "mlm", "--source", source, "--model", str(tokenizer), "--seq-len", "64", "--portion", "900"]
    assert run([*command, "--out", str(out), *options]) == 0
    return {name: (out / name).read_bytes() for name in ARRAYS}


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.journey)])
def test_a_store_on_a_bad_day_changes_no_byte(
    store: BadDay, tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path, workers: str
) -> None:
    for name in "ab":
        put(f"news/{name}.jsonl", write_rows(f"{name}.jsonl", rows(20, first=100 * ord(name))))
    local = prepared(tokenizer_folder, f"local:{tmp_path}/*.jsonl", tmp_path / "local", "--workers", workers)
    store.faults[:] = ["503 Slow Down", "cut", "slow", "", *["503 Slow Down"] * 7, "slow", "cut", "cut"]
    assert prepared(tokenizer_folder, "s3://corpus/news/*.jsonl", tmp_path / "remote", "--workers", workers) == local
    assert not store.faults
    before = store.read
    assert prepared(tokenizer_folder, "s3://corpus/news/*.jsonl", tmp_path / "remote", "--workers", workers) == local
    assert store.read > before  # a finished dataset is compared with its sources


@pytest.mark.journey
def test_an_evaluation_set_is_made_from_an_object_store(
    store: BadDay, tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path
) -> None:
    put("a.jsonl", write_rows("a.jsonl", rows(30)))
    store.faults[:] = ["503 Slow Down", "cut"]
    for source, out in ((f"local:{tmp_path}/a.jsonl", "local"), ("s3://corpus/a.jsonl", "remote")):
        options = ["--model", str(tokenizer_folder), "--out", str(tmp_path / out)]
        assert run(["prepare", "eval", "--source", source, *options]) == 0
    assert not store.faults
    local, remote = ({path.name: path.read_bytes() for path in (tmp_path / out).rglob("*.jsonl")} for out in ("local", "remote"))
    assert local
    assert local == remote


def test_a_store_that_refuses_ends_in_a_sentence_and_the_same_command_resumes(
    store: BadDay, tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put("a.jsonl", write_rows("a.jsonl", rows(12)))
    command = ["prepare", "mlm", "--source", "s3://corpus/a.jsonl", "--model", str(tokenizer_folder), "--seq-len", "64"]
    command += ["--out", str(tmp_path / "out")]
    store.always = "403 Forbidden"
    assert run(command) == 2
    assert "s3://corpus/a.jsonl cannot be read" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    store.always = ""
    assert run(command) == 0
    assert run([*command[:-1], "s3://corpus/out"]) == 2
    assert "is a URL, and results are written to folders" in capsys.readouterr().err
    assert run([*command[:3], "s3://nowhere/a.jsonl", *command[4:]]) == 2
    assert "s3://nowhere/a.jsonl" in capsys.readouterr().err
