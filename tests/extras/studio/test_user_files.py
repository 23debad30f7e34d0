"""What people write: notes, tags, corrected chains. Beside the runs and never inside; nothing is lost between two browsers."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from coref_automl.base.errors import InputError
from coref_automl.extras.coreference.data import read_coref
from coref_automl.extras.studio import user_files
from coref_automl.extras.studio.user_files import UserFiles
from tests.agreement.studies import small, write
from tests.extras.studio.conftest import MARKUP, RUN, Visitor, serving
from tests.extras.studio.test_folders import state_of
from tests.extras.studio.test_pages import text_of

TEXT = "영수는 시장에서 어머니를 만났다. 어머니는 영수의 손을 잡았다. 그는 어머니와 함께 돌아왔다."


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's data folder, as the desktop names it."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


def version_of(visitor: Visitor, key: str) -> str:
    found = re.search(r'name="version" value="([^"]*)"', visitor.ready("/run", key=key).body)
    assert found is not None
    return found[1]


def test_a_note_is_kept_beside_the_run_and_never_inside(copied: Path) -> None:
    run, key = copied / "runs" / RUN, f"{copied.name}/runs/{RUN}"
    before = state_of(run)
    with serving(copied, lang="en") as visitor:
        saved = visitor.post("/note", key=key, text=f"{MARKUP}\n둘째 줄", tags=f"good, {MARKUP}", version="")
        assert saved.status == 303
        page = visitor.ready("/run", key=key).body
        assert MARKUP not in page
        assert html.escape(MARKUP).replace("&#x27;", "&#39;") in page
        assert "good" in text_of(visitor.ready("/", tag="good").body)
        assert 'class="tag"' in visitor.ready("/").body
    assert state_of(run) == before
    held = json.loads((copied / "runs" / f"{RUN}.notes.json").read_text("utf-8"))
    assert held == {"text": f"{MARKUP}\n둘째 줄", "tags": ["good", MARKUP]}


def test_of_two_browsers_neither_loses_its_note(copied: Path) -> None:
    key = f"{copied.name}/runs/mlm"
    with serving(copied, lang="en") as visitor:
        first = version_of(visitor, key)
        assert visitor.post("/note", key=key, text="mine", tags="", version=first).status == 303
        other = visitor.post("/note", key=key, text="theirs", tags="b", version=first)
        assert other.status == 409
        assert {"mine", "theirs"} <= set(re.findall(r">(mine|theirs)<", other.body))
        assert json.loads((copied / "runs/mlm.notes.json").read_text("utf-8"))["text"] == "mine"
        again = re.search(r'name="version" value="([^"]+)"', other.body)
        assert again is not None
        assert visitor.post("/note", key=key, text="mine and theirs", tags="b", version=again[1]).status == 303
    assert json.loads((copied / "runs/mlm.notes.json").read_text("utf-8"))["text"] == "mine and theirs"


def test_a_note_that_cannot_be_read_is_not_overwritten(copied: Path) -> None:
    path, key = copied / "runs/mlm.notes.json", f"{copied.name}/runs/mlm"
    path.write_text('{"text": "half', "utf-8")
    with serving(copied, lang="en") as visitor:
        assert visitor.ready("/run", key=key).status == 200
        assert visitor.post("/note", key=key, text="new", tags="", version="").status == 400
    assert path.read_text("utf-8") == '{"text": "half'


def test_a_thousand_tags_are_kept_and_one_more_is_refused(copied: Path) -> None:
    key, many = f"{copied.name}/runs/mlm", [f"tag {number}" for number in range(1_000)]
    with serving(copied, lang="en") as visitor:
        assert visitor.post("/note", key=key, text="", tags=",".join(many), version="").status == 303
        for path in ("/", "/run"):
            assert visitor.ready(path, key=key).status == 200
        refused = visitor.post("/note", key=key, text="", tags=",".join([*many, "one more"]), version=version_of(visitor, key))
        assert refused.status == 400
        assert "at most 1,000" in text_of(refused.body)
    assert len(json.loads((copied / "runs/mlm.notes.json").read_text("utf-8"))["tags"]) == 1_000


def test_notes_on_a_folder_closed_to_writing_go_to_the_users_data_folder_which_is_named(
    copied: Path, own_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = user_files.write_json

    def closed(path: Path, value: object) -> None:
        if path.is_relative_to(copied):
            raise OSError(30, "Read-only file system", str(path))
        original(path, value)

    monkeypatch.setattr(user_files, "write_json", closed)
    key = f"{copied.name}/runs/mlm"
    with serving(copied, lang="en") as visitor:
        first = visitor.post("/note", key=key, text="here", tags="", version="")
        page = visitor.ready(first.headers["location"]).body
        assert visitor.post("/note", key=key, text="again", tags="", version=version_of(visitor, key)).status == 303
        assert ">again<" in visitor.ready("/run", key=key).body
    assert not list(copied.rglob("*.notes.json"))
    (place,) = own_data.rglob("mlm.notes.json")
    assert f"Saved in <code>{place}</code>" in page


def test_items_are_tagged_filtered_by_tag_and_exported(copied: Path) -> None:
    with serving(copied, lang="en") as visitor:
        page = visitor.ready("/items", which="both-wrong").body
        link = html.unescape(re.findall(r'class="open" href="([^"]+)"', page)[0])
        query = dict(pair.split("=") for pair in link.partition("?")[2].split("&"))
        first, second = (
            re.findall(r"id=([0-9a-f]+)", html.unescape(link))[0] for link in re.findall(r'class="open" href="([^"]+)"', page)[:2]
        )
        for item, tag in ((first, "unfair"), (second, "unfair"), (second, "proper noun")):
            assert visitor.post("/tag", set=query["set"], id=item, add=tag, back="item").status == 303
        assert visitor.post("/tag", set=query["set"], id=first, off="unfair").status == 303
        assert visitor.post("/tag", set=query["set"], id="nothing", add="x").status == 400
        assert visitor.post("/tag", set=query["set"], add="x").status == 400  # nothing is chosen
        rows = json.loads(visitor.ready("/items", **{"label": "unfair", "as": "json"}).body)
        assert [(row["item"], row["tags"]) for row in rows] == [(second, "unfair, proper noun")]
        assert rows[0]["a model"] != rows[0]["b model"]
        csv = visitor.ready("/items", **{"which": "both-wrong", "as": "csv"})
        assert csv.headers["content-disposition"].startswith("attachment; filename=")
        assert csv.body.count("\n") == 1 + int(re.search(r'id="count"[^>]*>([\d,]+)', page)[1])  # type: ignore[index]


def test_items_are_tagged_together_those_chosen_or_every_one_found(copied: Path) -> None:
    with serving(copied, lang="en") as visitor:
        page = visitor.ready("/items", which="both-wrong").body
        mark, ids = visitor.studio.workspace.boards.members("").mark, re.findall(r'name="id" value="([^"]+)"', page)
        body = urlencode([("set", mark), ("which", "both-wrong"), ("id", ids[0]), ("id", ids[2]), ("add", "twice")])
        own = {"Origin": visitor.address, "Content-Type": "application/x-www-form-urlencoded"}
        saved = visitor.post("/tag", body, headers=own)
        assert saved.headers["location"] == f"/items?set={quote(mark)}&which=both-wrong&saved=1"
        assert f"Saved in <code>{next(copied.resolve().glob('items-*'))}</code>" in visitor.ready(saved.headers["location"]).body
        assert visitor.post("/tag", set=mark, which="both-wrong", id=ids[0], add="all", every="1").status == 303
        found = {tag: json.loads(visitor.ready("/items", **{"label": tag, "as": "json"}).body) for tag in ("twice", "all")}
    assert [row["item"] for row in found["twice"]] == [ids[0], ids[2]]
    assert len(found["all"]) == int(re.search(r'id="count"[^>]*>([\d,]+)', page)[1])  # type: ignore[index]


def test_a_tag_of_one_run_is_not_its_methods(copied: Path) -> None:
    runs = write(small(), copied / "study")
    with serving(runs, lang="en") as visitor:
        assert visitor.post("/note", key="study/mlm-128-s1", text="", tags="odd", version="").status == 303
        tagged = re.findall(r'<th scope="row">.*?</th>', visitor.ready("/", open="all").body, re.S)
        assert ["mlm-128-s1" in head for head in tagged if 'class="tag"' in head] == [True]
        found = json.loads(visitor.ready("/", **{"tag": "odd", "table": "leaderboard", "as": "json"}).body)
    assert [(row["method"], row["run"]) for row in found] == [("mlm 128", ""), ("mlm 128", "mlm-128-s1/checkpoint-200")]


def annotated(root: Path) -> Path:
    """As `coref annotate` writes it: mentions with the probability of their links."""
    at = [TEXT.index("영수"), TEXT.index("영수", 5), TEXT.index("그는")]
    spans = [(at[0], at[0] + 2, None), (at[1], at[1] + 2, 0.9), (at[2], at[2] + 1, 0.3)]
    chain = [{"start": a, "end": b, "text": TEXT[a:b], "entity": "e1", "link": link} for a, b, link in spans]
    rows = [{"doc_id": name, "text": TEXT, "clusters": [chain]} for name in ("one", "two")]
    path = root / "chains.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


def state(visitor: Visitor, key: str, by: str, doc: str) -> dict[str, object]:
    page = visitor.ready("/chains", file=key, by=by, doc=doc).body
    found = re.search(r'id="chain-state">(.*?)</script>', page)
    assert found is not None
    return dict(json.loads(found[1]))


def save(visitor: Visitor, **sent: object) -> tuple[int, dict[str, object]]:
    own = {"Origin": visitor.address, "Content-Type": "application/json"}
    answer = visitor.post("/chains/save", json.dumps(sent), headers=own)
    return answer.status, json.loads(answer.body)


def test_chains_are_corrected_accepted_and_read_back_as_training_data(tmp_path: Path) -> None:
    root = tmp_path / "texts"
    root.mkdir()
    path = annotated(root)
    before = path.read_bytes()
    key, mother = f"{root.name}/chains.jsonl", [TEXT.index("어머니"), TEXT.index("어머니") + 3]
    with serving(root, lang="en") as visitor:
        held = state(visitor, key, "kim", "one")
        assert held["links"] == {
            f"{TEXT.index('영수', 5)}-{TEXT.index('영수', 5) + 2}": 0.9,
            f"{TEXT.index('그는')}-{TEXT.index('그는') + 1}": 0.3,
        }
        sent = {"file": key, "by": "kim", "doc": "one"}
        more = [*held["clusters"], [mother]]  # type: ignore[misc]
        status, said = save(visitor, **sent, version=held["version"], clusters=more, accepted=False)
        assert status == 200
        assert (root / "chains.kim.draft.jsonl").is_file()
        stale, told = save(visitor, **sent, version=held["version"], clusters=[], accepted=False)
        assert (stale, "another window" in str(told["error"])) == (409, True)
        assert save(visitor, **sent, version=said["version"], clusters=more, accepted=True)[0] == 200
        assert save(visitor, file=key, by="lee", doc="one", version="", clusters=held["clusters"], accepted=True)[0] == 200
        visitor.studio.folders.scan()
        page = visitor.ready("/chains", file=key, by="kim", doc="one").body
        assert "Agreement of annotators" in page
        table = json.loads(visitor.ready("/chains", **{"file": key, "table": "agreement", "as": "json"}).body)
        assert [(row["A"], row["B"], row["documents"], row["mention F1"]) for row in table] == [("kim", "lee", 1.0, 85.7)]
        assert list(re.findall(rf"<option>({key}[^<]*)</option>", visitor.ready("/chains").body)) == [key]
    assert path.read_bytes() == before
    documents = read_coref(root / "chains.kim.jsonl").documents
    assert [(document.id, len(document.chains)) for document in documents] == [("one", 2)]


def test_what_is_not_json_is_refused_in_the_language_of_the_page(tmp_path: Path) -> None:
    with serving(tmp_path) as visitor:
        own = {"Origin": visitor.address, "Content-Type": "application/json"}
        for path, error in (("/chains/save", "JSON이 아닙니다"), ("/chains/save?lang=en", "not JSON")):
            answer = visitor.post(path, "{", headers=own)
            assert (answer.status, json.loads(answer.body)) == (400, {"error": error})


@pytest.mark.parametrize(
    "wrong",
    [{"clusters": [[[0, 999]]]}, {"clusters": [[[3, 3]]]}, {"clusters": [[[0, 2], [0, 2]]]}, {"clusters": "x"},
     {"clusters": [[0, 2]]}, {"clusters": [[[True, 2]]]}, {"by": "../x"}, {"by": ""}, {"by": "a/b"}, {"doc": "three"},
     {"file": "/etc/passwd"}, {"version": 3}],
)  # fmt: skip
def test_chains_that_no_reader_would_take_back_are_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    root = tmp_path / "texts"
    root.mkdir()
    annotated(root)
    given: dict[str, object] = {"file": f"{root.name}/chains.jsonl", "by": "kim", "doc": "one", "version": "", "clusters": []}
    with serving(root, lang="en") as visitor:
        assert save(visitor, **given | wrong)[0] in (400, 409)
    assert [path.name for path in root.iterdir()] == ["chains.jsonl"]


def test_a_document_whose_second_file_cannot_be_written_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "texts"
    root.mkdir()
    annotated(root)
    sent = {"file": f"{root.name}/chains.jsonl", "by": "kim", "doc": "one"}
    plain = UserFiles.write

    def full(files: UserFiles, folder: Path, name: str, write: Callable[[Path], None]) -> Path:
        if written:
            raise InputError("No space left on the disk.")
        written.append(name)
        return plain(files, folder, name, write)

    with serving(root, lang="en") as visitor:
        held = state(visitor, str(sent["file"]), "kim", "one")
        status, said = save(visitor, **sent, version=held["version"], clusters=held["clusters"], accepted=True)
        assert status == 200
        written: list[str] = []
        monkeypatch.setattr(UserFiles, "write", full)
        assert save(visitor, **sent, version=said["version"], clusters=held["clusters"], accepted=False)[0] == 400
    kept = [file for file in root.glob("chains.kim*.jsonl") if file.stat().st_size]
    assert [document.id for file in kept for document in read_coref(file).documents][:1] == ["one"]
