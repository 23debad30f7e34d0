"""The studio's server. In: folders, a host and a port. Out: pages until it is stopped. Routes are here, and nothing else is."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from coref_automl.errors import CorefError, RecipeError
from coref_automl.report.language import Lang
from coref_automl.studio.export import Export
from coref_automl.studio.folders import Folders, in_words
from coref_automl.studio.pages import Address, Pages, static_file
from coref_automl.studio.play_page import PlayPage, progress
from coref_automl.studio.player import Player
from coref_automl.studio.runs_page import RunsPage, changed
from coref_automl.studio.safety import LONGEST, App, Guard
from coref_automl.studio.shelf import Gone, Pending, Shelf

if TYPE_CHECKING:
    from coref_automl.studio.compare_page import ComparePage
    from coref_automl.studio.items_page import ItemsPage

_LIVE = 32
"""Pages that may follow runs at once."""
_STEP = 1.0
_FRESH = {"cache-control": "no-store"}
_KEPT = {"cache-control": "private, max-age=31536000, immutable"}
_READING = ("평가를 읽고 있습니다. 곧 보입니다.", "Reading the evaluations; this page follows.")
_MAKING = ("보고서를 만들고 있습니다. 다 되면 내려받기가 시작됩니다.", "Making the report; its download will start.")
_DOWNLOAD = {"content-disposition": 'attachment; filename="report.html"'}


class Studio:
    """One studio: its folders and its pages. `app` answers requests."""

    def __init__(self, paths: Sequence[Path], *, lang: Lang = "ko", host: str = "127.0.0.1") -> None:
        self.folders = Folders(paths)
        self._pages = Pages()
        self._lang = lang
        self._shelf = Shelf(self.folders)
        self._runs = RunsPage(self.folders, self._pages)
        self._play = PlayPage(self.folders, self._pages)
        self._player = Player()
        self._export = Export(self.folders, self._shelf)
        self._live = 0
        self._stopping = False
        self.app: App = Guard(self._routes(), host)

    @cached_property
    def _compare(self) -> ComparePage:
        """Imported when it is asked for: the first page comes sooner."""
        from coref_automl.studio.compare_page import ComparePage

        return ComparePage(self._shelf, self._pages)

    @cached_property
    def _items(self) -> ItemsPage:
        from coref_automl.studio.items_page import ItemsPage

        return ItemsPage(self._shelf, self._pages)

    def start(self) -> None:
        self.folders.start()

    def stop(self) -> None:
        self._stopping = True
        self.folders.stop()
        self._shelf.stop()
        self._player.stop()
        self._export.stop()

    def _routes(self) -> App:
        made: App = Starlette(
            routes=[
                Route("/", self._shown(self._runs.page)),
                Route("/live", self._follow),
                Route("/compare", self._shown(lambda address: self._compare.page(address))),
                Route("/items", self._shown(lambda address: self._items.page(address))),
                Route("/item", self._shown(lambda address: self._items.item(address))),
                Route("/export", self._shown(self._export.report, _MAKING, _DOWNLOAD)),
                Route("/play", self._shown(self._play.page)),
                Route("/play/run", self._run),
                Route("/static/{name}", self._static),
            ],
            exception_handlers={404: self._missing, Exception: self._failed},
        )
        return made

    def _address(self, request: Request) -> Address:
        return Address(request.url.path, dict(request.query_params), self._lang)

    def _shown(
        self, page: Callable[[Address], str], waiting: tuple[str, str] = _READING, headers: dict[str, str] | None = None
    ) -> Callable[[Request], Response]:
        """A page as a route. What cannot be shown says why on a page of its own; what is being made says `waiting`."""

        def answer(request: Request) -> Response:
            address = self._address(request)
            try:
                return HTMLResponse(page(address), headers={**_FRESH, **(headers or {})})
            except Pending:
                return self._message(address, address.say(*waiting), 202)
            except (CorefError, OSError) as error:
                return self._message(address, _told(error, address), 404)

        return answer

    def _message(self, address: Address, text: str, status: int) -> Response:
        """A page with a sentence. One of status 202 asks again until what it waits for is there."""
        say, again = address.say, status == 202
        title = say("잠시만요", "One moment") if again else say("보여 줄 수 없습니다", "Cannot be shown")
        page = self._pages.page("message.html.j2", address, title=title, text=text, again=again)
        return HTMLResponse(page, status, headers=_FRESH)

    async def _missing(self, request: Request, _error: Exception) -> Response:
        address = self._address(request)
        return self._message(address, address.say("이런 쪽은 없습니다.", "There is no such page."), 404)

    async def _failed(self, request: Request, error: Exception) -> Response:
        address = self._address(request)
        told = address.say("뜻밖의 오류입니다", "An unexpected error")
        return self._message(address, f"{told}: {type(error).__name__}", 500)

    def _static(self, request: Request) -> Response:
        held = static_file(request.path_params["name"])
        return Response(held[1], media_type=held[0], headers=_KEPT) if held else Response("", 404)

    async def _follow(self, request: Request) -> Response:
        """Server-sent events: the parts of the Runs page that have changed, once a second."""
        if self._live >= _LIVE:
            return PlainTextResponse("Too many pages follow runs already; close some.\n", 503)
        address = self._address(request)

        async def events() -> AsyncIterator[str]:
            self._live += 1
            shown: dict[str, str] = {}
            try:
                while not self._stopping:
                    now = await run_in_threadpool(self._runs.parts, address)
                    parts = changed(shown, now)
                    yield _event("parts", parts) if parts else ": still here\n\n"
                    shown = now
                    await asyncio.sleep(_STEP)
            finally:
                self._live -= 1

        return StreamingResponse(events(), media_type="text/event-stream", headers=_FRESH)

    async def _run(self, request: Request) -> Response:
        """Server-sent events: what the models do, then what they say."""
        address, loop = self._address(request), asyncio.get_running_loop()
        told: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()

        def tell(word: str, value: Any) -> None:
            loop.call_soon_threadsafe(told.put_nowait, (word, value))

        async def events() -> AsyncIterator[str]:
            try:
                job = self._play.job(address)
            except CorefError as error:
                yield _event("failed", _told(error, address))
                return
            self._player.ask(job, tell)
            while True:
                word, value = await told.get()
                if word == "failed":
                    yield _event("failed", value)
                    return
                if word == "done":
                    yield _event("answer", self._play.answer(job.kind, value, address))
                    return
                yield _event("progress", progress(word, value, address.say))

        return StreamingResponse(events(), media_type="text/event-stream", headers=_FRESH)


def _told(error: CorefError | OSError, address: Address) -> str:
    return address.say(error.ko, str(error)) if isinstance(error, Gone) else in_words(error)


def _event(name: str, value: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(value, ensure_ascii=False)}\n\n"


def bound(host: str, port: int) -> socket.socket:
    """The socket to listen on, before anything is read."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=128)
    except (OSError, OverflowError) as error:
        raise RecipeError(f"Cannot listen on {host}:{port} ({error}); pass another --port, or 0 for any free one.") from error


def server_of(studio: Studio) -> uvicorn.Server:
    """HTTP/1.1 only, bounded requests, no log."""
    return uvicorn.Server(
        uvicorn.Config(
            studio.app,
            http="h11",
            ws="none",
            lifespan="off",
            access_log=False,
            log_level="critical",
            server_header=False,
            proxy_headers=False,
            limit_concurrency=128,
            h11_max_incomplete_event_size=LONGEST + 8_192,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=1,
        )
    )


def serve(
    paths: Sequence[Path], *, host: str, port: int, lang: Lang, on_ready: Callable[[str], None] = lambda _address: None
) -> None:
    """Serve until interrupted. `on_ready` gets the address once the socket is open."""
    with bound(host, port) as listening:
        studio = Studio(paths, lang=lang, host=host)
        studio.start()
        name = f"[{host}]" if ":" in host else host
        on_ready(f"http://{name}:{listening.getsockname()[1]}/")
        try:
            server_of(studio).run(sockets=[listening])
        finally:
            studio.stop()
