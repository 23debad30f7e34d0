"""A hub on the loopback, for tests. In: models and datasets as files. Out: the hub's own protocol, and what was asked of it.

Served: repository information, tree listings, path information, file metadata (ETag, X-Repo-Commit), downloads with ranges and a
redirect to storage for large files, commits of files (large ones sent to storage first), and refusals with the hub's error codes.
A connection can be cut in the middle of a file.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

LARGE = 4_096
"""Files from this size on are served by storage, to which a download is redirected."""
_API = re.compile(r"/api/(models|datasets)/([^/]+/[^/]+)(?:/(revision|tree|paths-info|refs)(?:/([^/]+))?)?(/.*)?")
_SENT = re.compile(r"/api/models/([^/]+/[^/]+)/(preupload|commit)/main")
_BATCH = re.compile(r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch")
_FILE = re.compile(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


@dataclass(slots=True)
class Repository:
    """Files by path. A gated one is given only to the tokens named; without any token the answer is 401, with another 403."""

    files: dict[str, bytes]
    tokens: tuple[str, ...] = ()
    cuts: dict[str, int] = field(default_factory=dict)
    """How many more times the transfer of a file breaks off half way: by its path, or `sent` for those that are sent."""
    private: bool = False
    stored: dict[str, bytes] = field(default_factory=dict)
    """Large files that were sent, by their hash."""

    @property
    def commit(self) -> str:
        return hashlib.sha1(json.dumps({name: _oid(data) for name, data in sorted(self.files.items())}).encode()).hexdigest()


class Hub:
    """The server and its repositories, by kind and name. `asked` is every request: method, path, range."""

    def __init__(self) -> None:
        self.models: dict[str, Repository] = {}
        self.datasets: dict[str, Repository] = {}
        self.asked: list[tuple[str, str, str]] = []
        hub = self

        class Handler(_Handler):
            of = hub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def find(self, kind: str, name: str) -> Repository | None:
        return (self.datasets if kind == "datasets" else self.models).get(name)


@contextmanager
def serving() -> Iterator[Hub]:
    hub = Hub()
    try:
        yield hub
    finally:
        hub.close()


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


_MANY = """
import io, json, os, sys, time
from contextlib import redirect_stderr, redirect_stdout
from coref_automl.cli.app import run
sleep, told = time.sleep, []
time.sleep = lambda seconds: sleep(min(seconds, 0.01))
for words, token in json.loads(sys.argv[1]):
    os.environ.pop("HF_TOKEN", None)
    if token:
        os.environ["HF_TOKEN"] = token
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = run(words)
    told.append((status, out.getvalue(), err.getvalue()))
print("\\n" + json.dumps(told))
"""


@dataclass(frozen=True, slots=True)
class Told:
    """What a command said."""

    status: int
    out: str
    err: str


def commands(hub: Hub, folder: Path, *lines: Sequence[str], tokens: Sequence[str | None] = ()) -> list[Told]:
    """Run commands against a hub, each with its token, and do not wait long between attempts.

    One process, as the hub's address is read when its library is imported.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment |= {"HF_ENDPOINT": hub.address, "HF_HOME": str(folder / "hub-cache"), "HF_HUB_DISABLE_XET": "1"}
    environment |= {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_ETAG_TIMEOUT": "5", "HF_HUB_DOWNLOAD_TIMEOUT": "5"}
    called = [(list(words), token) for words, token in zip(lines, tokens or [None] * len(lines), strict=True)]
    program = [sys.executable, "-c", _MANY, json.dumps(called)]
    done = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3_000:]
    return [Told(*told) for told in json.loads(done.stdout.strip().splitlines()[-1])]


class _Handler(BaseHTTPRequestHandler):
    of: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Nothing on the screen; `asked` holds what a test wants to know."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.of.asked.append((self.command, path, self.headers.get("Range", "")))
        body = self._body()
        if path == "/":
            self._send(200, b"")
        elif path.startswith("/storage/"):
            kind, owner, name, file = path.removeprefix("/storage/").split("/", 3)
            repository = self.of.find(kind, f"{owner}/{name}")
            assert repository is not None
            self._download(repository, file)
        elif path == "/api/validate-yaml":
            self._json({"errors": [], "warnings": []})
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        elif path.startswith("/sent/"):
            self._store(path, body)
        elif match := _BATCH.fullmatch(path):
            held = self.of.models[match[1]].stored
            place = f"{self.of.address}/sent/{match[1]}"
            objects = [
                {**one, **({} if one["oid"] in held else {"actions": {"upload": {"href": f"{place}/{one['oid']}"}}})}
                for one in json.loads(body)["objects"]
            ]
            self._json({"transfer": "basic", "objects": objects})
        elif match := _SENT.fullmatch(path):
            self._commit(self.of.models.get(match[1]), match[1], match[2], body)
        elif match := _FILE.fullmatch(path):
            self._file("datasets" if match[1] else "models", match[2], match[3], match[4])
        elif match := _API.fullmatch(path):
            self._information(match[1], match[2], match[3] or "revision", match[4] or "main", (match[5] or "").strip("/"), body)
        else:
            self._refuse(404, "", "Not found")

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _create(self, asked: dict[str, Any]) -> None:
        name = f"{asked['organization']}/{asked['name']}"
        if not self._token():
            self._refuse(401, "", "Invalid username or password.")
        elif name in self.of.models:
            told = {"error": "You already created this model repo", "url": f"{self.of.address}/{name}"}
            self._send(409, json.dumps(told).encode(), {"Content-Type": "application/json"})
        else:
            self.of.models[name] = Repository({}, (self._token(),), private=asked.get("visibility") == "private")
            self._json({"url": f"{self.of.address}/{name}", "name": name})

    def _store(self, path: str, body: bytes) -> None:
        owner, name, oid = path.removeprefix("/sent/").split("/")
        repository = self.of.models[f"{owner}/{name}"]
        if repository.cuts.get("sent", 0) > 0:
            repository.cuts["sent"] -= 1
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        assert _sha(body) == oid
        repository.stored[oid] = body
        self._send(200, b"")

    def _commit(self, repository: Repository | None, name: str, what: str, body: bytes) -> None:
        if repository is None or not self._token():
            self._refuse(404 if self._token() else 401, "RepoNotFound", "Repository not found")
        elif self._token() not in repository.tokens:
            self._refuse(403, "", "Forbidden: you may not write here")
        elif what == "preupload":
            files = json.loads(body)["files"]
            held = {path: _oid(data) for path, data in repository.files.items()}
            modes = {one["path"]: "lfs" if one["size"] >= LARGE else "regular" for one in files}
            told = [
                {"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": held.get(path)} for path, mode in modes.items()
            ]
            for one in told:
                if one["uploadMode"] == "lfs" and one["path"] in repository.files:
                    one["oid"] = _sha(repository.files[str(one["path"])])
            self._json({"files": told})
        else:
            for line in map(json.loads, body.decode().splitlines()):
                if line["key"] == "file":
                    repository.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                elif line["key"] == "lfsFile":
                    repository.files[line["value"]["path"]] = repository.stored[line["value"]["oid"]]
            self._json({"commitUrl": f"{self.of.address}/{name}/commit/{repository.commit}", "commitOid": repository.commit})

    def _information(self, kind: str, name: str, what: str, revision: str, inside: str, body: bytes) -> None:
        repository = self.of.find(kind, name)
        if repository is None:  # the hub says no more to a stranger, lest he learn what is private
            self._refuse(404 if self._token() else 401, "RepoNotFound", "Repository not found")
        elif revision not in ("main", repository.commit):
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        elif what == "tree":
            self._json([entry for entry in _entries(repository) if entry["path"].startswith(inside)])
        elif what == "paths-info":
            wanted = json.loads(body)["paths"] if body.startswith(b"{") else parse_qs(body.decode()).get("paths", [])
            self._json([entry for entry in _entries(repository) if entry["path"] in wanted])
        elif what == "refs":
            self._json({"branches": [{"name": "main", "ref": "refs/heads/main", "targetCommit": repository.commit}], "tags": []})
        else:
            files = [{"rfilename": path} for path in sorted(repository.files)]
            facts = {"private": False, "disabled": False, "gated": "auto" if repository.tokens else False, "tags": []}
            self._json(
                {"_id": name, "id": name, "sha": repository.commit, "siblings": files, "downloads": 0, "likes": 0, **facts}
            )

    def _file(self, kind: str, name: str, revision: str, path: str) -> None:
        repository = self.of.find(kind, name)
        if repository is None:
            self._refuse(404 if self._token() else 401, "RepoNotFound", "Repository not found")
        elif revision not in ("main", repository.commit):
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        elif repository.tokens and self._token() not in repository.tokens:
            status = 403 if self._token() else 401
            said = "is not in the authorized list" if self._token() else "You must have access to it and be authenticated"
            self._refuse(status, "GatedRepo", f"Access to {kind[:-1]} {name} is restricted. {said}.")
        elif path not in repository.files:
            self._refuse(404, "EntryNotFound", "Entry not found")
        elif (size := len(repository.files[path])) >= LARGE:
            linked = {"X-Linked-Etag": f'"{_sha(repository.files[path])}"', "X-Linked-Size": str(size)}
            place = {"Location": f"{self.of.address}/storage/{kind}/{name}/{path}", "X-Repo-Commit": repository.commit}
            self._send(302, b"", {**linked, **place})
        else:
            self._download(repository, path)

    def _download(self, repository: Repository, path: str) -> None:
        data = repository.files[path]
        headers = {"ETag": f'"{_oid(data)}"', "X-Repo-Commit": repository.commit, "Accept-Ranges": "bytes"}
        status, first, last = 200, 0, len(data) - 1
        if wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            status, first, last = 206, int(wanted[1]), min(int(wanted[2] or last), last)
            if first >= len(data):
                self._send(416, b"", {"Content-Range": f"bytes */{len(data)}"})
                return
            headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        part = data[first : last + 1]
        if self.command == "GET" and repository.cuts.get(path, 0) > 0:
            repository.cuts[path] -= 1
            self._send(status, part, headers, cut=True)
        else:
            self._send(status, part, headers)

    def _token(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ").strip()

    def _json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _refuse(self, status: int, code: str, message: str) -> None:
        headers = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {})}
        self._send(status, json.dumps({"error": message}).encode(), {"Content-Type": "application/json", **headers})

    def _send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None, *, cut: bool = False) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.close_connection = True


def _entries(repository: Repository) -> list[dict[str, Any]]:
    """The tree of a repository: its folders, and its files with the hash of their content."""
    folders = {str(parent) for path in repository.files for parent in Path(path).parents if str(parent) != "."}
    listed: list[dict[str, Any]] = [
        {"type": "directory", "path": path, "size": 0, "oid": _oid(path.encode())} for path in folders
    ]
    for path, data in repository.files.items():
        entry = {"type": "file", "path": path, "size": len(data), "oid": _oid(data)}
        large = {"lfs": {"oid": _sha(data), "size": len(data), "pointerSize": 127}} if len(data) >= LARGE else {}
        listed.append({**entry, **large})
    return sorted(listed, key=lambda entry: str(entry["path"]))


def _oid(data: bytes) -> str:
    """A file's name in git."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
