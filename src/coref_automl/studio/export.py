"""The report of what is on the screen. In: an address of a set, or of A and B. Out: report.html, as `report` writes it.

Made in a process of its own: a report of a hundred checkpoints takes a minute, and no page waits for it.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from functools import partial

from coref_automl.errors import WorkError
from coref_automl.report.language import Lang
from coref_automl.say import speaking
from coref_automl.studio.folders import Folders
from coref_automl.studio.pages import Address
from coref_automl.studio.shelf import Members, Shelf, not_here


class Export:
    def __init__(self, folders: Folders, shelf: Shelf) -> None:
        self._folders, self._shelf = folders, shelf
        self._worker: ProcessPoolExecutor | None = None

    def report(self, address: Address) -> str:
        """The report of A and B where the address names them, else of the whole set beside the other sets."""
        chosen = self._shelf.members(address.get("set"))
        keys = list(dict.fromkeys(key for name in ("a", "b") if (key := address.get(name)) in chosen.stored))
        if not keys and (address.get("a") or address.get("b")):
            raise not_here(address.get("a") or address.get("b"))
        if keys:
            stored = {key: chosen.stored[key] for key in keys}
            sets = [Members(chosen.mark, chosen.items, chosen.scorer, stored)]
            paths = [str(one.folder) for one in stored.values()]
        else:
            sets = [chosen, *(one for mark, one in self._shelf.sets().items() if mark != chosen.mark)]
            paths = [str(root) for root in self._folders.roots.values()]
        metric = address.get("metric") or None
        states = (*(one.state for one in sets), *self._shelf.results().items())
        asked = ("export", chosen.mark, chosen.state, tuple(keys), states, metric, address.lang)
        worker = self._worker = self._worker or ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        try:
            return self._shelf.made(asked, partial(write, paths, sets, metric, address.lang), worker=worker)
        except BrokenExecutor:
            if self._worker is worker:
                self._worker = None
            raise WorkError(
                address.say(
                    "보고서를 만들던 프로세스가 끝났습니다 (메모리 부족?). 다시 시도하거나 coref-automl report로 만드세요.",
                    "The process that makes the report ended (out of memory?); try again, or write it with coref-automl report.",
                )
            ) from None

    def stop(self) -> None:
        if self._worker is not None:
            self._worker.shutdown(wait=False, cancel_futures=True)


def write(paths: Sequence[str], sets: Sequence[Members], metric: str | None, lang: Lang) -> str:
    from coref_automl.comparison.groups import group_of, rename_bases
    from coref_automl.report.checkpoint_report import checkpoint_page
    from coref_automl.report.rendering import render_html
    from coref_automl.report.subject import read_subject

    with speaking(lang) as say:
        groups = [group_of(rename_bases(list(one.stored.values())), one.items, one.scorer) for one in sets]
        return render_html(checkpoint_page(read_subject(paths, say, metric=metric, groups=groups)))
