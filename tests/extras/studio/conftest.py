"""Runs made by the product's own commands, and a studio over them on a port of its own."""

from __future__ import annotations

import http.client
import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from coref_automl.cli.app import run as command
from coref_automl.corpus.sources import bundled_rows
from coref_automl.models.build import train_tokenizer

MARKUP = "<script>window.hacked = 1</script>"
RUN = "entity <img src=x onerror=hacked()> & '\"실행"
"""A run's name as bad as a file system allows."""
TALES = ("도서관", "방앗간", "양조장", "식물원", "과수원", "대장간", "우체국", "수목원")


def texts() -> list[dict[str, str]]:
    """Tales that name a place again and again; one holds markup."""
    out = []
    for number in range(24):
        place, other = TALES[number % 8], TALES[(number + 3) % 8]
        said = f"{MARKUP} " if number == 5 else ""
        lines = [
            f"{said}어느 마을에 {place}이 있었다. 사람들은 아침마다 {other}을 지나 일하러 갔다.",
            f"그해 여름에 {place}에 큰 비가 내렸고 마을 사람들은 {other} 앞에 모여 걱정을 나누었다.",
            f"비가 그치자 아이들은 다시 {place}에 모였고 노인들은 {other}에서 차를 마셨다.",
            f"{number + 1}년이 지난 뒤에도 {place}은 그대로였고 {other}만 조금 낡았을 뿐이었다.",
        ]
        out.append({"id": str(number), "text": " ".join(lines)})
    return out


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two training runs scored while they were trained, one also on a second set, and a relation run. Read only."""
    root = tmp_path_factory.mktemp("studio")
    (root / "texts.jsonl").write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in texts()), "utf-8")
    (root / "rows.json").write_text(json.dumps(list(islice(bundled_rows("relations"), 40)), ensure_ascii=False), "utf-8")
    train_tokenizer([row["text"] for row in texts()], vocab_size=400).save_pretrained(str(root / "tokenizer"))
    lines = [
        "prepare eval --source local:texts.jsonl --all-documents --task real --per-document 3 --model tokenizer --out"
        " evalsets/mine",
        "prepare entity --source local:texts.jsonl --holdout 0 --min-characters 50 --exact-only --model tokenizer --seq-len 64"
        " --workers 1 --out data",
    ]
    train = "train --model new:tiny --tokenizer tokenizer --dataset data --epochs 2 --batch 4 --checkpoints 2 --device cpu"
    with chdir(root):
        for line in lines:
            assert command(line.split()) == 0, line
        for name, more in ((RUN, ["--objective", "entity"]), ("mlm", ["--objective", "mlm"])):
            assert command([*train.split(), *more, "--eval-set", "evalsets/mine", "--out", f"runs/{name}"]) == 0, name
        other = "prepare eval --source local:texts.jsonl --all-documents --task real --per-document 1 --model tokenizer --out"
        assert command([*other.split(), "evalsets/other"]) == 0
        assert command(["evaluate", str(last_of(root / "runs/mlm")), "--eval-set", "evalsets/other", "--device", "cpu"]) == 0
        relation = "re train --train rows.json --epochs 1 --seeds 1 --batch-size 8 --device cpu --out runs/relation --model"
        assert command([*relation.split(), str(last_of(root / "runs/mlm"))]) == 0
    return root


def last_of(run: Path) -> Path:
    return max(run.glob("checkpoint-*[0-9]"), key=lambda path: int(path.name.rpartition("-")[2]))


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return shutil.copytree(made, tmp_path / "copy")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: str


class Visitor:
    """Asks a studio for pages."""

    def __init__(self, studio: Any, port: int) -> None:
        self.studio, self.port = studio, port
        self.address = f"http://127.0.0.1:{port}"

    def get(self, path: str, *, method: str = "GET", headers: dict[str, str] | None = None, **query: str) -> Answer:
        asked = f"{quote(path, safe='/%?&=')}?{urlencode(query)}" if query else path
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, asked, headers=headers or {})
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode("utf-8"))
        finally:
            connection.close()

    def post(self, path: str, body: str | None = None, *, headers: dict[str, str] | None = None, **form: str) -> Answer:
        """As a form of the studio's own page sends it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        own = {"Origin": self.address, "Content-Type": "application/x-www-form-urlencoded"} if headers is None else headers
        try:
            connection.request("POST", path, body if body is not None else urlencode(form), own)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode("utf-8"))
        finally:
            connection.close()

    def ready(self, path: str, **query: str) -> Answer:
        """The page once what it waits for is there."""
        until = time.monotonic() + 120
        while (answer := self.get(path, **query)).status == 202 or 'id="later"' in answer.body:
            assert time.monotonic() < until
            time.sleep(0.1)
        return answer


@contextmanager
def serving(*paths: Path, **options: Any) -> Iterator[Visitor]:
    """A studio over folders, served as the command serves it."""
    for name in ("starlette", "uvicorn"):
        pytest.importorskip(name, reason="the studio extra is not installed")
    from coref_automl.extras.studio.server import Studio, listen, server_of

    with listen("127.0.0.1", 0) as listening:
        studio = Studio(paths, **options)
        server = server_of(studio)
        studio.start()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield Visitor(studio, listening.getsockname()[1])
        finally:
            studio.stop()
            server.should_exit = True
            thread.join(5)


@pytest.fixture(scope="session")
def visit(made: Path) -> Iterator[Visitor]:
    """A studio over everything that the commands made."""
    with serving(made) as visitor:
        yield visitor
