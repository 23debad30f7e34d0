"""A folder of everything that commands read, made by the commands themselves; and one sound line per command."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

from coref_automl.cli.app import run
from tests.corpus.conftest import rows
from tests.extras.relation.conftest import make_raw_rows

OUT = "out"
"""The folder that every line of WRITES writes, beside the world's own."""

_MADE_BY = (
    "tokenizer learn --source local:texts.jsonl --vocab-size 1000 --alphabet 300 --no-nouns --out tokenizer",
    "prepare combined --source local:texts.jsonl --model tokenizer --seq-len 64 --exact-only --holdout 0 --workers 1 --out data",
    "prepare eval --source local:texts.jsonl --model tokenizer --task real --task lambada --lambada cloze.jsonl --all-documents "
    "--per-source 12 --out set",
    "train --model new:bert-tiny --tokenizer tokenizer --dataset data --epochs 1 --batch 8 --device cpu --out runs/a",
    "train --model new:bert-tiny --tokenizer tokenizer --dataset data --epochs 1 --batch 8 --objective entity --device cpu "
    "--out runs/b",
    "evaluate runs --eval-set set --seq-len 64 --device cpu",
    "archive runs --out kept",
)
_AND_FROM_ITS_MODEL = (
    "re train --model model --train relations.json --seeds 1 --epochs 1 --batch-size 16 --device cpu --out relation",
    "coref train --model model --data chains.jsonl --holdout 0.3 --epochs 1 --size 16 --window 64 --device cpu --out coreference",
)

_RECIPES = {
    "train.yaml": {"model": "model", "dataset": "data", "epochs": 1, "batch": 8, "device": "cpu"},
    "relation.yaml": {"model": "model", "train": "relations.json", "seeds": 1, "epochs": 1, "batch_size": 16, "device": "cpu"},
    "study.yaml": {
        "model": "model",
        "datasets": ["data"],
        "lengths": [64],
        "methods": {"mlm": {}, "combined": {}},
        "seeds": 1,
        "train": {"max_tokens": 2000, "batch": 8},
        "evaluate": {"sets": ["set"]},
        "device": "cpu",
    },
    "grid.yaml": {"models": ["model"], "train": "relations.json", "epochs": [1], "settings": {"device": "cpu", "seeds": 1}},
    "chains.yaml": {
        "model": "model", "data": "chains.jsonl", "holdout": 0.3, "epochs": 1, "size": 16, "window": 64, "device": "cpu",
    },
    "line.yaml": {
        "model": "model",
        "texts": {"sources": ["local:texts.jsonl"], "holdout": 0.0, "near_duplicates": False},
        "lengths": [64],
        "methods": {"mlm": {}},
        "train": {"epochs": 1, "batch": 8},
        "evaluate": {"sets": ["set"]},
    },
    "tune.yaml": {
        "models": ["model"], "datasets": ["data"], "eval_set": "set", "max_tokens": 1200, "settings": {"batch": 2},
        "space": {"learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}}, "trials": 2, "finalists": 1, "seeds": 2,
        "device": "cpu",
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """A command that does its work on the undamaged world, in about so many seconds: quick ones are tried more often.

    A heavy one is cut off when it has begun to work in earnest.
    """

    text: str
    reads: tuple[str, ...] = ()
    heavy: bool = False
    seconds: float = 1.0

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text)


LINES = {
    "sources": Line("sources local:texts.jsonl --check", ("texts.jsonl",)),
    "tokenizer": Line(
        f"tokenizer learn --source local:texts.jsonl --vocab-size 1000 --alphabet 300 --no-nouns --out {OUT}", ("texts.jsonl",)
    ),
    "tokenizer inspect": Line(
        f"tokenizer inspect tokenizer model --data relations.jsonl --data chains.jsonl --eval-set set --out {OUT}",
        ("tokenizer", "model", "relations.jsonl", "chains.jsonl", "set"),
        seconds=2,
    ),
    "prepare mlm": Line(
        f"prepare mlm --source local:texts.jsonl --model tokenizer --seq-len 64 --holdout 0 --workers 1 --out {OUT}",
        ("texts.jsonl", "tokenizer"),
    ),
    "prepare entity": Line(
        f"prepare entity --source local:texts.jsonl --model tokenizer --seq-len 64 --holdout 0 --eval-set set --allow-empty "
        f"--workers 1 --out {OUT}",
        ("texts.jsonl", "tokenizer", "set"),
        seconds=8,
    ),
    "prepare eval": Line(
        f"prepare eval --source local:texts.jsonl --model tokenizer --lambada cloze.jsonl --all-documents --out {OUT}",
        ("texts.jsonl", "cloze.jsonl", "tokenizer"),
        seconds=8,
    ),
    "train": Line(f"train --recipe train.yaml --out {OUT}", ("train.yaml", "model", "data")),
    "plan": Line(f"train --recipe train.yaml --out {OUT} --dry-run", ("train.yaml", "model", "data")),
    "evaluate": Line(f"evaluate model --eval-set set --seq-len 64 --device cpu --out {OUT}", ("model", "set")),
    "evaluate runs": Line("evaluate runs --eval-set set --seq-len 64 --device cpu", ("runs", "set")),
    "compare": Line("compare runs/a runs/b", ("runs",)),
    "evalset read": Line("evalset read set", ("set",)),
    "power": Line("power runs --eval-set set --difference 2", ("runs", "set")),
    "compare kept": Line("compare kept", ("kept",)),
    "report": Line(f"report runs --out {OUT}", ("runs",), seconds=8),
    "archive": Line(f"archive runs --out {OUT}", ("runs",)),
    "publish": Line("publish runs/a --repo owner/name --dry-run", ("runs",), seconds=2),
    "fill rows": Line(
        f"fill --data cloze.jsonl --model model --no-nouns --skip-bad --out {OUT}", ("cloze.jsonl", "model"), seconds=2
    ),
    "fill": Line("fill '시민은 [MASK]을 찾았다.' --model model", ("model",), seconds=8),
    "re explore": Line(f"re explore relations.json relations.csv --out {OUT}", ("relations.json", "relations.csv"), seconds=8),
    "re check": Line("re explore relations.jsonl --check --model model --scheme typed", ("relations.jsonl", "model")),
    "re train": Line(f"re train --recipe relation.yaml --out {OUT}", ("relation.yaml", "model", "relations.json")),
    "re evaluate": Line("re evaluate relation --data relations.jsonl --device cpu", ("relation", "relations.jsonl")),
    "re predict": Line(f"re predict relation --data relations.csv --device cpu --out {OUT}", ("relation", "relations.csv")),
    "re predict text": Line(
        "re predict relation --text '이순신은 서울에서 태어났다.' --subject 이순신 --object 서울 --subject-type PER "
        "--object-type LOC --device cpu",
        ("relation",),
    ),
    "re grid": Line(f"re grid --recipe grid.yaml --out {OUT}", ("grid.yaml", "model", "relations.json")),
    "coref explore": Line("coref explore chains.jsonl", ("chains.jsonl",)),
    "coref train": Line(f"coref train --recipe chains.yaml --out {OUT}", ("chains.yaml", "chains.jsonl", "model"), seconds=4),
    "coref evaluate": Line(
        "coref evaluate coreference --data others.jsonl --device cpu", ("coreference", "others.jsonl"), seconds=2
    ),
    "coref annotate": Line(
        f"coref annotate plain --model coreference --device cpu --out {OUT}.jsonl", ("plain", "coreference"), seconds=2
    ),
    "coref predict rows": Line(
        f"coref predict --data texts.jsonl --model coreference --device cpu --out {OUT}",
        ("texts.jsonl", "coreference"),
        seconds=4,
    ),
    "coref predict": Line(
        "coref predict '민수는 어머니를 찾았다. 그는 어머니를 안았다.' --model coreference --device cpu",
        ("coreference",),
        seconds=2,
    ),
    "adapt": Line(f"adapt --recipe line.yaml --out {OUT}", ("line.yaml", "model", "set"), heavy=True, seconds=8),
    "demo": Line(f"demo --quick --out {OUT}", heavy=True, seconds=8),
    "study": Line(f"study --recipe study.yaml --out {OUT}", ("study.yaml", "model", "data", "set"), heavy=True, seconds=8),
    "tune": Line(f"tune --recipe tune.yaml --out {OUT}", ("tune.yaml", "model", "data", "set"), heavy=True, seconds=8),
    "tune plan": Line(f"tune --dry-run --recipe tune.yaml --out {OUT}", ("tune.yaml", "model", "data", "set")),
    "tune probe": Line(
        "tune probe --model model --dataset data --largest 2 --steps 1 --device cpu", ("model", "data"), heavy=True, seconds=8
    ),
}
"""Every command, on inputs of this world. Paths are relative: a case runs inside a copy."""


def build(folder: Path) -> Path:
    """Make the world. A command that fails here is a fault by itself."""
    folder.mkdir(parents=True)
    texts = rows(24)
    _lines(folder / "texts.jsonl", texts)
    _lines(folder / "cloze.jsonl", [_cloze(number, row["text"]) for number, row in enumerate(texts[:6])])
    _lines(folder / "chains.jsonl", [_chain(row["id"], row["text"]) for row in texts[:8]])
    _lines(folder / "others.jsonl", [_chain(row["id"], row["text"]) for row in texts[8:14]])
    relations = make_raw_rows(40)
    _lines(folder / "relations.jsonl", relations)
    (folder / "plain").mkdir()
    (folder / "plain" / "tale.txt").write_text("민수는 어머니를 찾았다. 그는 어머니를 안았다.\n", "utf-8")
    (folder / "relations.json").write_text(json.dumps(relations, ensure_ascii=False), "utf-8")
    (folder / "relations.csv").write_text(_as_csv(relations), "utf-8")
    for name, recipe in _RECIPES.items():
        (folder / name).write_text(_as_yaml(recipe), "utf-8")
    with chdir(folder):
        for line in _MADE_BY:
            _done(line)
        shutil.copytree(max(path for path in Path("runs/a").glob("checkpoint-*") if path.is_dir()), "model")
        for line in _AND_FROM_ITS_MODEL:
            _done(line)
    return folder


def _done(line: str) -> None:
    status = run(shlex.split(line))
    if status:
        raise SystemExit(f"The world cannot be made: {line} ended with {status}.")


def _lines(path: Path, entries: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries), "utf-8")


def _cloze(number: int, text: str) -> dict[str, object]:
    """A row in Ko-LAMBADA's columns: the last word of the first lines is hidden."""
    words = text.split()[:40]
    return {
        "index": number,
        "title": f"제목 {number}",
        "text": " ".join([*words[:-1], "_"]),
        "answer": words[-1],
        "candidate": words[0],
    }


def _chain(identity: str, text: str) -> dict[str, object]:
    """A text with the chain of its first word: the person it is about."""
    name, found = text[:3], []
    while (at := text.find(name, found[-1]["end"] if found else 0)) >= 0:
        found.append({"start": at, "end": at + len(name), "text": name, "entity": "A"})
    return {"doc_id": identity, "text": text, "clusters": [found]}


def _as_csv(relations: list[dict[str, object]]) -> str:
    import csv
    import io

    written = io.StringIO()
    columns = ["id", "sentence", "subject_entity", "object_entity", "label"]
    writer = csv.DictWriter(written, columns, extrasaction="ignore")
    writer.writeheader()
    writer.writerows({**row, "id": row["guid"]} for row in relations)
    return written.getvalue()


def _as_yaml(recipe: dict[str, object]) -> str:
    import yaml

    return str(yaml.safe_dump(recipe, allow_unicode=True))


def quiet() -> None:
    """One thread, no network, no bars: before anything heavy is imported."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}
