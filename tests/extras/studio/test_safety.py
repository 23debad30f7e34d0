"""Two hundred hostile addresses, names, texts and requests: each is refused or shown as text, and nothing outside is read."""

from __future__ import annotations

import html
import socket
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from coref_automl.extras.studio.safety import MAX_ADDRESS, MAX_BODY, POLICY, WRITES, Guard, is_loopback
from tests.extras.studio.conftest import MARKUP, RUN, Visitor

SECRET = "root:"
OUTSIDE = (
    "../../../../etc/passwd", "/etc/passwd", "....//....//etc/passwd", "..%2f..%2f..%2fetc%2fpasswd", "file:///etc/passwd",
    "%2e%2e/%2e%2e/etc/passwd", "..\\..\\etc\\passwd", "/proc/self/environ", "~/.ssh/id_rsa", "//etc/passwd", "\x00/etc/passwd",
    "runs/../../../etc/passwd", "/dev/zero", "/dev/stdin", "C:\\Windows\\win.ini",
)  # fmt: skip
MARKUPS = (
    "<script>alert(1)</script>", "\"><script>alert(1)</script>", "'><img src=x onerror=alert(1)>", "<svg/onload=alert(1)>",
    "</textarea><script>alert(1)</script>", "</option></select><script>alert(1)</script>", "javascript:alert(1)//<a>",
    "<iframe srcdoc='<script>alert(1)</script>'>", "{{ 7 * 7 }}<b>", "{% raw %}<i>", "${7*7}<u>", "<!--<script>", "]]><x>",
    "<style>*{display:none}</style>", "&lt;script&gt;<b>", "\u2028<script>\u2029", "<base href=//evil>",
    "<meta http-equiv=refresh>",
)  # fmt: skip
ODD = (
    "", " ", "0", "-1", "9" * 40, "1e309", "NaN", "null", "undefined", "true", "[]", "{}", "%", "%%", "%s%n", "\x00", "\n\r\t",
    "\r\nSet-Cookie: a=b", "\ud7a3" * 50, "\U0001f600", "가" * 1_000, "\u202eevil", "' OR '1'='1", "a" * 5_000,
    "..", ".", "/", "//",
)  # fmt: skip
PLACES = (
    "/compare?a=", "/compare?metric=", "/items?q=", "/items?set=", "/item?id=", "/run?key=", "/?q=", "/?cols=", "/?ref=",
    "/?sort=", "/chains?file=", "/items?label=",
)  # fmt: skip


def asked() -> list[str]:
    """Every hostile value at a place where a page reads one, each place in turn."""
    values = [*OUTSIDE, *MARKUPS, *ODD]
    spread = [f"{place}{quote(value, safe='')}" for number, value in enumerate(values) for place in _three(number)]
    paths = [f"/static/{quote(value, safe='')}" for value in (*OUTSIDE, *MARKUPS[:4])]
    paths += [f"/{value.lstrip('/')}" for value in OUTSIDE if value.isprintable() and " " not in value]
    text = [f"/play?text={quote(value, safe='')}&a={quote(value, safe='')}" for value in (*MARKUPS, *OUTSIDE[:4])]
    return [
        *spread,
        *paths,
        *text,
        f"/items?lang={quote(MARKUPS[0])}",
        f"/export?set={quote(OUTSIDE[0])}",
        "/items?page=-1&page=2",
    ]


def _three(number: int) -> list[str]:
    return [PLACES[(number + step) % len(PLACES)] for step in (0, 2, 3)]


ADDRESSES = asked()


def test_there_are_two_hundred_of_them() -> None:
    assert len(set(ADDRESSES)) >= 200


def test_hostile_addresses_are_text_or_refused(visit: Visitor, made: Path) -> None:
    visit.ready("/items")  # loaded: the pages look at what they are asked
    for address in ADDRESSES:
        answer = visit.ready(address)
        assert answer.status in (200, 400, 404), address
        assert SECRET not in answer.body, address
        assert "Traceback" not in answer.body, address
        assert answer.headers["content-security-policy"] == POLICY, address
        assert "set-cookie" not in answer.headers, address
        assert not [value for value in MARKUPS if "<" in value and value in answer.body], address
        assert str(made.parent) not in answer.body.replace(str(made), ""), address


def test_hostile_names_of_runs_and_texts_of_items_are_text(visit: Visitor) -> None:
    for path in ("/", "/compare", "/items", "/play", "/runs"):
        body = visit.ready(path, open="all").body
        assert RUN not in body, path
        named = html.escape(RUN, quote=True).replace("&#x27;", "&#39;").replace("&quot;", "&#34;") in body
        assert named or path == "/", path  # methods of one seed have no rows of runs
        assert MARKUP not in body, path


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "", "127.0.0.1:1:2", "evil.example:80", "[::2]",
     "0.0.0.0", "127.0.0.2", "localhost@evil.example", "169.254.169.254", "xn--localhost", "localhost,evil.example"],
)  # fmt: skip
def test_another_host_is_refused(visit: Visitor, host: str) -> None:
    answer = visit.get("/", headers={"Host": host})
    assert answer.status in (400, 421)
    assert "<html" not in answer.body


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8000", "LOCALHOST", "[::1]:80"])
def test_the_names_of_this_machine_are_not(visit: Visitor, host: str) -> None:
    assert visit.get("/", headers={"Host": host}).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"])
def test_the_studio_only_reads(visit: Visitor, method: str) -> None:
    assert visit.get("/", method=method).status in (400, 405)


@pytest.mark.parametrize(
    "headers",
    [{}, {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "own", "Sec-Fetch-Site": "cross-site"},
     {"Origin": "own", "Sec-Fetch-Site": "none"}],
)  # fmt: skip
def test_what_no_page_of_its_own_sends_is_not_written(visit: Visitor, made: Path, headers: dict[str, str]) -> None:
    own = {name: visit.address if value == "own" else value for name, value in headers.items()}
    for path in WRITES:
        assert visit.post(path, f"key={made.name}/runs/mlm&text=x", headers=own).status == 403
    assert not list(made.rglob("*.notes.json"))


def test_requests_are_bounded(visit: Visitor) -> None:
    assert visit.get(f"/items?q={'a' * MAX_ADDRESS}").status in (400, 414, 431)
    assert visit.get("/", headers={"Content-Length": "5"}).status == 413
    assert visit.post("/note", headers={"Origin": visit.address, "Content-Length": str(MAX_BODY + 1)}).status == 413
    assert visit.get("/", headers={"X-Long": "a" * 100_000}).status in (400, 431)


def test_pages_of_other_sites_may_link_here_and_nothing_else(visit: Visitor) -> None:
    cross = {"Sec-Fetch-Site": "cross-site"}
    assert visit.get("/play/run?text=a", headers={**cross, "Sec-Fetch-Mode": "no-cors"}).status == 403
    assert visit.get("/items", headers={**cross, "Sec-Fetch-Mode": "navigate"}).status in (200, 202)


@pytest.mark.parametrize(
    "raw",
    [b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n",
     b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
     b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n", b"\r\n\r\n\r\n", b"A" * 200_000,
     b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"],
)  # fmt: skip
def test_what_is_no_request_is_closed(visit: Visitor, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", visit.port), timeout=20) as connection:
        answer = b""
        with suppress(OSError):  # closed before all of it was read
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65_536):
                answer += part
    assert not answer or answer.split()[1] in (b"400", b"413", b"421", b"505")
    assert visit.get("/").status == 200


def test_an_open_host_allows_numbers_and_its_own_name_alone() -> None:
    guard = Guard(None, "0.0.0.0")  # type: ignore[arg-type]
    assert guard._is_ours("192.168.0.7:8420")
    assert guard._is_ours("localhost:8420")
    assert not guard._is_ours("evil.example:8420")
    assert guard._is_ours(f"{socket.getfqdn()}:8420")
    assert Guard(None, "127.0.0.2")._is_ours("127.0.0.2:8420")  # type: ignore[arg-type]
    assert Guard(None, "::1")._is_ours("[::1]:8420")  # type: ignore[arg-type]
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert not is_loopback("0.0.0.0")
