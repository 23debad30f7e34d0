"""Invented coreference files and calls of the Python API. In: a random source. Out: what broke a reader, a round trip or a call.

Texts hold zero-width characters, halves of surrogate pairs, combining letters and nothing at all; columns and brackets go wrong.
"""

from __future__ import annotations

import inspect
import json
import threading
from pathlib import Path
from random import Random
from typing import Any
from unicodedata import normalize

from coref_automl.base.errors import CorefError

WORDS = (
    "민수는", "그는", "\u200b", "\ufeff", "e\u0301", "\u1100\u1161", "🙂", "👩‍👩‍👧", "", " ", "\u00a0", "\u2028", "\x85",
    "#1", "(1)", "a|b", "-", "_",
    "\t", "서울", "\U000e0041", "\ufe0f", "\u202e", "가" * 300, "x=y", "*", "\x1c", "ﬁ",
)  # fmt: skip
_COLUMNS = ("(1", "1)", "(1)", "-", "(1|(2", "2)|1)", "(", ")", "(1)|(1)", "((1))", "1", "", "(\u200b)", "(9" * 40)
_INDEX = ("1", "2", "3-4", "3", "4", "5.1", "x", "-1", "", "1-", "9" * 30, "0", "2-1")
_ENTITY = (
    "Entity=(e1--1)",
    "Entity=(e1--1",
    "Entity=e1)",
    "Entity=(e1[1/2])",
    "Entity=(e1[2/2])",
    "Entity=(e1[9/1])",
    "SpaceAfter=No",
    "_",
    "Entity=",
    "Entity=(e1-x-99)",
)
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, float("nan"), "", "nothing", "\ud800", b"x", [], [None], {}, {"a": 1}, object(), Path("nothing"),
    (1, 2), 10**40,
)  # fmt: skip


def documents(random: Random) -> str:
    """A file of JSON lines; its mentions lie anywhere."""
    rows = []
    for number in range(random.randrange(1, 5)):
        text = "".join(random.choice(WORDS) for _ in range(random.randrange(0, 12))) + random.choice(
            ("", "\u200b", "\ud800", "\n")
        )
        spans = sorted((random.randrange(len(text) + 2), random.randrange(len(text) + 2)) for _ in range(random.randrange(4)))
        clusters = [[{"start": a, "end": b, "entity": random.choice("AB1")}] for a, b in spans]
        rows.append({"doc_id": random.choice((f"d{number}", "", " ", "a part 1", None, 7)), "text": text, "clusters": clusters})
    return "\n".join(map(json.dumps, rows)) + random.choice(("", "\n", "\n{", "\n[]"))


def conll(random: Random) -> str:
    lines = []
    for number in range(random.randrange(1, 4)):
        lines.append(
            random.choice(
                (
                    f"#begin document (d{number}); part 000",
                    "#begin document ();",
                    "#begin document",
                    f"#begin document (d{number})",
                )
            )
        )
        for place in range(random.randrange(8)):
            columns = [f"d{number}", "0", str(place), random.choice(WORDS) or "x", random.choice(_COLUMNS)]
            lines.append(random.choice(("\t", " ")).join(columns[: random.choice((5, 5, 5, 3))]) if random.random() < 0.9 else "")
        lines += ["#end document"] if random.random() < 0.85 else []
    return "\n".join(lines) + "\n"


def corefud(random: Random) -> str:
    lines = ["# global.Entity = eid-etype-head"]
    for number in range(random.randrange(1, 4)):
        lines.append(f"# newdoc id = d{number}" if random.random() < 0.8 else "# newdoc")
        for place in range(1, random.randrange(2, 9)):
            index = str(place) if random.random() < 0.7 else random.choice(_INDEX)
            misc = "|".join(random.choice(_ENTITY) for _ in range(random.randrange(1, 3)))
            columns = [index, random.choice(WORDS).replace("\t", " "), "_", random.choice(("NOUN", "PRON", "X")), *"_____", misc]
            lines.append("\t".join(columns[: random.choice((10, 10, 10, 10, 9))]))
        lines.append("")
    return "\n".join(lines) + "\n"


KINDS = {".jsonl": documents, ".conll": conll, ".conllu": corefud}


def coreference_case(random: Random, folder: Path) -> str | None:
    """Read an invented file; what was read is written in every format and read again with the same mentions."""
    from coref_automl.extras.coreference.data import inspect_coref
    from coref_automl.extras.coreference.documents import write_documents

    ending = random.choice(list(KINDS))
    path = folder / f"given{ending}"
    path.write_text(KINDS[ending](random), "utf-8", "surrogatepass")
    try:
        held = inspect_coref(path)
    except CorefError:
        return None
    except Exception as error:
        return f"{ending}: {type(error).__name__}: {error}"
    for other in KINDS:
        copy = folder / f"copy{other}"
        try:
            write_documents(copy, held.documents)
            again = inspect_coref(copy)
        except CorefError:
            continue
        except Exception as error:
            return f"{ending} as {other}: {type(error).__name__}: {error}"
        if other == ".jsonl" and [d.mentions for d in again.documents] != [d.mentions for d in held.documents]:
            return f"{ending} as {other}: other mentions than before ({again.problems[:1]})"
        if not again.problems and _forms(again.documents) != _forms(held.documents):
            return f"{ending} as {other}: other mentions than before"
    return None


def _forms(documents: Any) -> list[list[str]]:
    """The mentions of each document that has a text, in letters and without blanks: columns keep no kinds of them."""
    written = (document for document in documents if document.text.strip())
    return [sorted(normalize("NFD", "".join(d.text[m.start : m.end].split())) for m in d.mentions) for d in written]


def api_case(random: Random) -> str | None:
    """A function of the package with values of wrong types, alone or in four threads at once: an error of ours, or TypeError."""
    import coref_automl as ca

    names = [name for name in ca.__all__ if inspect.isfunction(getattr(ca, name, None))]
    name = random.choice(names)
    function = getattr(ca, name)
    known = [p for p in inspect.signature(function).parameters.values() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    given = {p.name: random.choice(VALUES) for p in known if p.default is p.empty or random.random() < 0.2}
    positional = [given.pop(p.name) for p in known if p.kind is p.POSITIONAL_ONLY and p.name in given]
    wrong: list[str] = []

    def call() -> None:
        try:
            function(*positional, **given)
        except CorefError:
            pass
        except BaseException as error:
            wrong.append(f"{name}({positional}, {given}): {type(error).__name__}: {str(error)[:200]}")

    threads = [threading.Thread(target=call) for _ in range(random.choice((1, 1, 1, 4)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong[0] if wrong else None
