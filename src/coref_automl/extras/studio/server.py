"""The studio's server. In: folders, a host and a port. Out: pages until it is stopped. Routes are here, and nothing else is."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import uvicorn
from markupsafe import escape
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from coref_automl.base.errors import CorefError, RecipeError
from coref_automl.base.say import Lang
from coref_automl.extras.studio import leaderboard
from coref_automl.extras.studio.folders import in_words
from coref_automl.extras.studio.pages import Address, Download, static_file
from coref_automl.extras.studio.safety import MAX_ADDRESS, App, Guard
from coref_automl.extras.studio.user_files import NoteConflict, note_of
from coref_automl.extras.studio.workspace import Gone, Pending, Workspace

Page = Callable[[Workspace, Address], str | Download]
_EXPECTED = (CorefError, OSError)
"""Errors that a page explains; any other is a fault of the studio."""
_NO_STORE = {"cache-control": "no-store"}
_IMMUTABLE = {"cache-control": "private, max-age=31536000, immutable"}
_READING = ("평가를 읽고 있습니다. 곧 보입니다.", "Reading the evaluations; this page follows.")
_MAKING = ("보고서를 만들고 있습니다. 다 되면 내려받기가 시작됩니다.", "Making the report; its download will start.")
_ANSWERING = ("모델이 답하는 중…", "The model is at work…")


class Studio:
    """One studio: its folders and its pages. `app` answers requests."""

    def __init__(self, paths: Sequence[Path], *, lang: Lang = "ko", host: str = "127.0.0.1") -> None:
        self.workspace = Workspace(paths)
        self.folders = self.workspace.folders
        self._lang = lang
        self.app: App = Guard(self._routes(), host)

    def start(self) -> None:
        self.folders.start()

    def stop(self) -> None:
        self.workspace.stop()

    def _routes(self) -> App:
        app: App = Starlette(
            routes=[
                Route("/", self._page(leaderboard.page)),
                Route("/runs", self._page(_lazy("runs_page"))),
                Route("/run", self._page(_lazy("run_page"))),
                Route("/compare", self._page(_lazy("compare_page"))),
                Route("/items", self._page(_lazy("items_page"))),
                Route("/item", self._page(_lazy("items_page", "item"))),
                Route("/chains", self._page(_lazy("chains_page"))),
                Route("/chains/save", self._save_chains, methods=["POST"]),
                Route("/note", self._save_note, methods=["POST"]),
                Route("/tag", self._save_tag, methods=["POST"]),
                Route("/export", self._page(_lazy("compare_page", "report"), _MAKING)),
                Route("/play", self._page(_lazy("play_page"))),
                Route("/play/run", self._play),
                Route("/static/{name}", self._static),
            ],
            exception_handlers={404: self._missing, Exception: self._failed},
        )
        return app

    def _address(self, request: Request) -> Address:
        return Address(request.url.path, dict(request.query_params), self._lang)

    def _page(self, page: Page, waiting: tuple[str, str] = _READING) -> Callable[[Request], Response]:
        """Return the handler of a page, which explains expected errors and shows `waiting` while the page is computed."""

        def answer(request: Request) -> Response:
            address = self._address(request)
            try:
                content = page(self.workspace, address)
            except Pending:
                return self._message(address, address.say(*waiting), 202)
            except _EXPECTED as error:
                return self._message(address, _explain(error, address), 404)
            if isinstance(content, Download):
                headers = {**_NO_STORE, "content-disposition": f'attachment; filename="{content.name}"'}
                return Response(content.text, media_type=content.kind, headers=headers)
            return HTMLResponse(content, headers=_NO_STORE)

        return answer

    async def _save_note(self, request: Request) -> Response:
        """Save the note and the tags of a run. If somebody else has saved since, both notes are shown and nothing is lost."""
        from coref_automl.extras.studio.run_page import find_run

        form = dict(await _form(request))
        address = Address("/run", {name: form[name] for name in ("key", "lang") if name in form}, self._lang)
        try:
            run, note = find_run(self.workspace, address), note_of(form.get("text", ""), form.get("tags", ""))
            self.workspace.user_files.save_note(run, note, form.get("version", ""))
        except NoteConflict as error:
            title = address.say("다른 사람이 먼저 저장했습니다", "Somebody else saved first")
            page = self.workspace.pages.page("conflict.html.j2", address, title=title, stored=error.stored, mine=note, run=run)
            return HTMLResponse(str(page), 409, headers=_NO_STORE)
        except _EXPECTED as error:
            return self._message(address, _explain(error, address), 400)
        return RedirectResponse(address.link(saved=1), 303)

    async def _save_tag(self, request: Request) -> Response:
        """Add or remove one tag of an item, of the chosen items, or of all that match; return to that page."""
        from coref_automl.extras.studio.items_page import tag_items

        pairs = await _form(request)
        form, is_item = dict(pairs), dict(pairs).get("back") == "item"
        query = {name: value for name, value in pairs if name not in ("add", "off", "every", "back")}
        address = Address("/item" if is_item else "/items", query, self._lang)
        items = [value for name, value in pairs if name == "id"] if "every" not in form else None
        try:
            tag_items(self.workspace, address, items, form.get("add") or form.get("off", ""), on="add" in form)
        except Pending:
            return self._message(address, address.say(*_READING), 400)
        except _EXPECTED as error:
            return self._message(address, _explain(error, address), 400)
        return RedirectResponse(address.link(saved=1, id=query["id"] if is_item else None), 303)

    async def _save_chains(self, request: Request) -> Response:
        from coref_automl.extras.studio.chains_page import save

        address = self._address(request)
        try:
            sent = json.loads(await request.body())
            return JSONResponse(await run_in_threadpool(save, self.workspace, sent, address.say), headers=_NO_STORE)
        except _EXPECTED as error:
            status, text = 409 if isinstance(error, Gone) else 400, _explain(error, address)
        except (ValueError, RecursionError):
            status, text = 400, address.say("JSON이 아닙니다", "not JSON")
        return JSONResponse({"error": text}, status, headers=_NO_STORE)

    def _play(self, request: Request) -> Response:
        """Return the models' answers as a part of the Play page, which asks again until they are there."""
        from coref_automl.extras.studio.play_page import answer

        address = self._address(request)
        try:
            return HTMLResponse(answer(self.workspace, address), headers=_NO_STORE)
        except Pending:
            return HTMLResponse(f'<p class="quiet">{address.say(*_ANSWERING)}</p>', 202, headers=_NO_STORE)
        except _EXPECTED as error:
            return HTMLResponse(f'<p class="failed">{escape(_explain(error, address))}</p>', headers=_NO_STORE)

    def _message(self, address: Address, text: str, status: int) -> Response:
        """Return a page with a sentence. With status 202 it reloads until what it waits for is there."""
        say, again = address.say, status == 202
        title = say("잠시만요", "One moment") if again else say("보여 줄 수 없습니다", "Cannot be shown")
        page = self.workspace.pages.page("message.html.j2", address, title=title, text=text, again=again)
        return HTMLResponse(str(page), status, headers=_NO_STORE)

    async def _missing(self, request: Request, _error: Exception) -> Response:
        address = self._address(request)
        return self._message(address, address.say("페이지를 찾을 수 없습니다.", "There is no such page."), 404)

    async def _failed(self, request: Request, error: Exception) -> Response:
        address = self._address(request)
        text = address.say("뜻밖의 오류입니다", "An unexpected error")
        return self._message(address, f"{text}: {type(error).__name__}", 500)

    def _static(self, request: Request) -> Response:
        file = static_file(request.path_params["name"])
        return Response(file[1], media_type=file[0], headers=_IMMUTABLE) if file else Response("", 404)


def _lazy(module: str, name: str = "page") -> Page:
    """Import a page's module at its first request, so that the first page comes sooner."""

    def page(ws: Workspace, address: Address) -> str | Download:
        content: str | Download = getattr(import_module(f"coref_automl.extras.studio.{module}"), name)(ws, address)
        return content

    return page


async def _form(request: Request) -> list[tuple[str, str]]:
    return parse_qsl((await request.body()).decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=100)


def _explain(error: CorefError | OSError, address: Address) -> str:
    return address.say(error.ko, str(error)) if isinstance(error, Gone) else in_words(error)


def listen(host: str, port: int) -> socket.socket:
    """Open the socket to listen on, before anything is read."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=128)
    except (OSError, OverflowError) as error:
        raise RecipeError(f"Cannot listen on {host}:{port} ({error}); pass another --port, or 0 for any free one.") from error


def server_of(studio: Studio) -> uvicorn.Server:
    """Return a server with HTTP/1.1 alone, bounded requests and no log."""
    settings: dict[str, Any] = {"http": "h11", "ws": "none", "lifespan": "off", "proxy_headers": False, "server_header": False}
    settings |= {"access_log": False, "log_level": "critical", "limit_concurrency": 128, "timeout_keep_alive": 15}
    settings |= {"h11_max_incomplete_event_size": MAX_ADDRESS + 8_192, "timeout_graceful_shutdown": 1}
    return uvicorn.Server(uvicorn.Config(studio.app, **settings))


def serve(paths: Sequence[Path], *, host: str, port: int, lang: Lang, on_ready: Callable[[str], None] = lambda _: None) -> None:
    """Serve until interrupted. `on_ready` gets the address once the socket is open."""
    with listen(host, port) as listening:
        studio = Studio(paths, lang=lang, host=host)
        studio.start()
        name = f"[{host}]" if ":" in host else host
        on_ready(f"http://{name}:{listening.getsockname()[1]}/")
        try:
            server_of(studio).run(sockets=[listening])
        finally:
            studio.stop()
