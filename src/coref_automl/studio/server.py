"""The studio's server. In: folders, a host and a port. Out: pages until it is stopped. Routes are here, and nothing else is."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coref_automl.errors import CorefError, RecipeError
from coref_automl.report.language import Lang
from coref_automl.studio.compare_page import ComparePage
from coref_automl.studio.export import Export
from coref_automl.studio.folders import Folders, in_words
from coref_automl.studio.items_page import ItemsPage
from coref_automl.studio.pages import Address, Pages, static_file
from coref_automl.studio.play_page import PlayPage, progress
from coref_automl.studio.player import Player
from coref_automl.studio.runs_page import RunsPage, changed
from coref_automl.studio.safety import LONGEST, App, Guard
from coref_automl.studio.shelf import Gone, Pending, Shelf

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

HOW_TO_GET = "pip install 'coref-automl[studio]'"
_LIVE = 32
"""Pages that may follow runs at once."""
_STEP = 1.0


class Studio:
    """One studio: its folders and its pages. `app` answers requests."""

    def __init__(self, paths: Sequence[Path], *, lang: Lang = "ko", host: str = "127.0.0.1") -> None:
        self.folders = Folders(paths)
        self._pages = Pages()
        self._lang = lang
        self._shelf = Shelf(self.folders)
        self._runs = RunsPage(self.folders, self._pages)
        self._compare = ComparePage(self._shelf, self._pages)
        self._items = ItemsPage(self._shelf, self._pages)
        self._play = PlayPage(self.folders, self._pages)
        self._player = Player()
        self._export = Export(self.folders, self._shelf)
        self._live = 0
        self.stopping = False
        self.app: App = Guard(self._routes(), host)

    def start(self) -> None:
        self.folders.start()

    def stop(self) -> None:
        self.stopping = True
        self.folders.stop()
        self._shelf.stop()
        self._player.stop()
        self._export.stop()

    def _routes(self) -> App:
        from starlette.applications import Starlette
        from starlette.routing import Route

        made: App = Starlette(
            routes=[
                Route("/", self._shown(self._runs.page)),
                Route("/live", self._follow),
                Route("/compare", self._shown(self._compare.page)),
                Route("/items", self._shown(self._items.page)),
                Route("/item", self._shown(self._items.item)),
                Route("/export", self._exported),
                Route("/play", self._shown(self._play.page)),
                Route("/play/run", self._run),
                Route("/static/{name}", self._static),
            ],
            exception_handlers={404: self._missing, Exception: self._failed},
        )
        return made

    def _address(self, request: Request) -> Address:
        return Address(request.url.path, dict(request.query_params), self._lang)

    def _shown(self, page: Callable[[Address], str]) -> Callable[[Request], Response]:
        """A page as a route. What cannot be shown says why on a page of its own."""
        from starlette.responses import HTMLResponse

        def answer(request: Request) -> Response:
            address = self._address(request)
            say = address.say
            try:
                return HTMLResponse(page(address), headers={"cache-control": "no-store"})
            except Pending:
                text = say("평가를 읽고 있습니다. 곧 보입니다.", "Reading the evaluations; this page follows.")
                return self._working(address, text)
            except (CorefError, OSError) as error:
                return self._message(address, _told(error, address), 404)

        return answer

    def _exported(self, request: Request) -> Response:
        from starlette.responses import HTMLResponse

        address = self._address(request)
        say = address.say
        try:
            named = {"content-disposition": 'attachment; filename="report.html"', "cache-control": "no-store"}
            return HTMLResponse(self._export.report(address), headers=named)
        except Pending:
            told = say("보고서를 만들고 있습니다. 다 되면 내려받기가 시작됩니다.", "Making the report; its download will start.")
            return self._working(address, told)
        except (CorefError, OSError) as error:
            return self._message(address, _told(error, address), 404)

    def _working(self, address: Address, text: str) -> Response:
        """A page that asks again until what it waits for is there."""
        from starlette.responses import HTMLResponse

        title = address.say("잠시만요", "One moment")
        page = self._pages.page("message.html.j2", address, title=title, text=text, link=None, again=True)
        return HTMLResponse(page, 202, headers={"cache-control": "no-store"})

    def _message(self, address: Address, text: str, status: int) -> Response:
        from starlette.responses import HTMLResponse

        say = address.say
        link = (address.link("/"), say("모든 실행 보기", "All runs"))
        title = say("보여 줄 수 없습니다", "Cannot be shown")
        return HTMLResponse(self._pages.page("message.html.j2", address, title=title, text=text, link=link, again=False), status)

    async def _missing(self, request: Request, _error: Exception) -> Response:
        address = self._address(request)
        return self._message(address, address.say("이런 쪽은 없습니다.", "There is no such page."), 404)

    async def _failed(self, request: Request, error: Exception) -> Response:
        address = self._address(request)
        told = address.say("뜻밖의 오류입니다", "An unexpected error")
        return self._message(address, f"{told}: {type(error).__name__}", 500)

    def _static(self, request: Request) -> Response:
        from starlette.responses import Response

        held = static_file(request.path_params["name"])
        if held is None:
            return Response("", 404)
        return Response(held[1], media_type=held[0], headers={"cache-control": "private, max-age=31536000, immutable"})

    async def _follow(self, request: Request) -> Response:
        """Server-sent events: the parts of the Runs page that have changed, once a second."""
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import PlainTextResponse, StreamingResponse

        if self._live >= _LIVE:
            return PlainTextResponse("Too many pages follow runs already; close some.\n", 503)
        address = self._address(request)

        async def events() -> AsyncIterator[str]:
            self._live += 1
            shown: dict[str, str] = {}
            try:
                while not self.stopping:
                    now = await run_in_threadpool(self._runs.parts, address)
                    parts = changed(shown, now)
                    yield _event("parts", parts) if parts else ": still here\n\n"
                    shown = now
                    await asyncio.sleep(_STEP)
            finally:
                self._live -= 1

        return StreamingResponse(events(), media_type="text/event-stream", headers={"cache-control": "no-store"})

    async def _run(self, request: Request) -> Response:
        """Server-sent events: what the models do, then what they say."""
        from starlette.responses import StreamingResponse

        address, loop = self._address(request), asyncio.get_running_loop()
        told: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()

        def tell(word: str, value: Any) -> None:
            loop.call_soon_threadsafe(told.put_nowait, (word, value))

        async def events() -> AsyncIterator[str]:
            try:
                job = self._play.job(address)
                self._player.ask(job, tell)
            except CorefError as error:
                yield _event("failed", _told(error, address))
                return
            while True:
                word, value = await told.get()
                if word == "failed":
                    yield _event("failed", value)
                    return
                if word == "done":
                    yield _event("answer", self._play.answer(job.kind, value, address))
                    return
                yield _event("progress", progress(word, value, address.say))

        return StreamingResponse(events(), media_type="text/event-stream", headers={"cache-control": "no-store"})


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


def server_of(studio: Studio) -> Any:
    """A uvicorn server for the studio: HTTP/1.1 only, bounded requests, no log."""
    import uvicorn

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
    if missing := [name for name in ("starlette", "uvicorn") if find_spec(name) is None]:
        raise RecipeError(f"The studio needs {' and '.join(missing)}; run: {HOW_TO_GET}")
    with bound(host, port) as listening:
        studio = Studio(paths, lang=lang, host=host)
        server = server_of(studio)
        studio.start()
        name = f"[{host}]" if ":" in host else host
        on_ready(f"http://{name}:{listening.getsockname()[1]}/")
        try:
            server.run(sockets=[listening])
        finally:
            studio.stop()
