"""`coref-automl studio` as it is typed: it prints its address, answers, and ends at Ctrl-C; wrong calls are one sentence."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from coref_automl.cli.app import run as command

pytest.importorskip("starlette", reason="the studio extra is not installed")
pytest.importorskip("uvicorn", reason="the studio extra is not installed")


def test_it_prints_its_address_answers_and_ends_at_ctrl_c(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "coref_automl.cli", "studio", str(tmp_path), "--port", "0", "--no-open"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as studio:
        assert studio.stdout is not None
        address = studio.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:")
        connection = http.client.HTTPConnection("127.0.0.1", int(address.rstrip("/").rpartition(":")[2]), timeout=60)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        connection.close()
        studio.send_signal(signal.SIGINT)
        _, told = studio.communicate(timeout=60)
    assert studio.returncode == 0
    assert str(tmp_path) in told
    assert "Traceback" not in told


def test_wrong_calls_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(*arguments: str) -> str:
        assert command(["studio", *arguments, "--no-open"]) == 2
        return capsys.readouterr().err

    assert "nowhere does not exist" in said(str(tmp_path / "nowhere"))
    assert "told in ko and en" in said(str(tmp_path), "--lang", "fr")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "pass another --port" in said(str(tmp_path), "--port", str(taken.getsockname()[1]))
    monkeypatch.delitem(sys.modules, "coref_automl.extras.studio.server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "pip install 'coref-automl[studio]'" in said(str(tmp_path), "--port", "0")
