"""What every request must pass and every answer carries. In: an ASGI application. Out: the same behind a guard.

The studio answers whoever can reach its port, so it trusts no Host that could be another site's name (DNS rebinding), starts no
work for another site's page, and lets its pages load nothing but its own files. It only reads, except for notes, tags and
corrected chains, which small forms of its own pages send.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

MAX_ADDRESS = 60_000
"""Bytes of an address: a pasted text of 4,000 Korean characters has 36,000."""
_MAX_HEADERS = 16_000
WRITES = ("/note", "/tag", "/chains/save")
"""The addresses that accept a body."""
MAX_BODY = 1_000_000
_WORK = ("/play/run", "/export")
"""The addresses that start long work."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # without it, browsers do not say which page sent a form
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_LOCAL = ("localhost", "127.0.0.1", "[::1]")


class Guard:
    """Refuses requests that the studio has no use for, before any page sees them."""

    def __init__(self, app: App, host: str) -> None:
        self._app = app
        machine = () if is_loopback(host) else (socket.gethostname().lower(), socket.getfqdn().lower())
        self._names = (*_LOCAL, f"[{host}]" if ":" in host else host.lower(), *machine)
        self._any_address = not is_loopback(host)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(header for header in headers if header[0] not in present)]
            await send(message)

        if refusal := self._refusal(scope):
            status, why = refusal
            kind = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
            await guarded({"type": "http.response.start", "status": status, "headers": kind})
            await guarded({"type": "http.response.body", "body": f"{why}\n".encode()})
            return
        await self._app(scope, receive, guarded)

    def _refusal(self, scope: Message) -> tuple[int, str] | None:
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        if len(headers.get("host", ())) != 1 or not self._is_ours(headers["host"][0]):
            return 421, "This address is not one the studio was started under; open the one it printed."
        if scope["http_version"] not in ("1.0", "1.1"):
            return 505, "The studio speaks HTTP/1.0 and HTTP/1.1."
        writes = scope["method"] == "POST" and scope["path"] in WRITES
        if not writes and scope["method"] not in ("GET", "HEAD"):
            return 405, "The studio reads: GET and HEAD; it writes notes, tags and corrected chains alone."
        if sum(len(name) + len(value) for name, value in scope["headers"]) > _MAX_HEADERS:
            return 431, f"The headers of a request have at most {_MAX_HEADERS:,} bytes."
        if len(scope["raw_path"] or b"") + len(scope["query_string"]) > MAX_ADDRESS:
            return 414, f"An address has at most {MAX_ADDRESS:,} bytes; paste a shorter text."
        if writes and not _from_own_page(headers):
            return 403, "The studio writes what its own pages send, and nothing else."
        size = headers.get("content-length", ["0"])
        if "transfer-encoding" in headers or not size[0].isdecimal() or len(size) > 1 or int(size[0][:9]) > MAX_BODY * writes:
            return 413, f"A request has no body, or one of at most {MAX_BODY:,} bytes where something is written."
        if headers.get("sec-fetch-site") in (["cross-site"], ["same-site"]):  # links to pages are allowed, frames are not
            kind = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest", ["document"]))
            if kind != (["navigate"], ["document"]) or scope["path"] in _WORK:
                return 403, "The studio answers its own pages only."
        return None

    def _is_ours(self, host: str) -> bool:
        name = host.lower().rsplit(":", 1)[0] if not host.endswith("]") else host.lower()
        if name in self._names:
            return True
        return self._any_address and _is_address(name.strip("[]"))


def _from_own_page(headers: Mapping[str, list[str]]) -> bool:
    """Was a form sent by one of our pages? Browsers name the origin; a request without one is refused."""
    own = [f"http://{headers['host'][0]}"]
    return headers.get("origin") == own and headers.get("sec-fetch-site", ["same-origin"]) == ["same-origin"]


def is_loopback(host: str) -> bool:
    return host.lower() == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(name: str) -> bool:
    """Is it an IP address? No other site's name can be one."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
