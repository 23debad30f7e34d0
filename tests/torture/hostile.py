"""Files that mean harm: tokenizers that panic, multiply or never end, and pickles that would run, in valid zips on every path.

A pickle that ran would have made the file OWNED.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coref_automl.base.folders import natural_order
from tests.torture.world import LINES, OUT

OWNED = "owned"
_LONG = "a" * 3_900


def _split(pattern: str) -> dict[str, Any]:
    return {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}}


def _replaced(content: str, times: int, pattern: dict[str, str] | None = None) -> dict[str, Any]:
    one = {"type": "Replace", "pattern": pattern or {"String": "a"}, "content": content}
    return {"normalizer": {"type": "Sequence", "normalizers": [one] * times}}


_UNKNOWN = [{"SpecialToken": {"id": "X", "type_id": 0}}]
TOKENIZERS: dict[str, dict[str, Any]] = {
    "a bracket that does not close": _split("(a+"),
    "an empty pattern": _split(""),
    "a replacement by nothing": _replaced("", 1, {"Regex": "."}),
    "an inverted split": {"pre_tokenizer": {"type": "Split", "pattern": {"String": ""}, "behavior": "Removed", "invert": True}},
    "no rules for its template": {
        "post_processor": {"type": "TemplateProcessing", "single": _UNKNOWN, "pair": [], "special_tokens": {}},
    },
    "digits of another kind": {"pre_tokenizer": {"type": "Digits", "individual_digits": 7}},
    "a nested sequence": {
        "normalizer": json.loads('{"type": "Sequence", "normalizers": [' * 60 + "]}" * 60)
    },
}  # fmt: skip
READERS = {
    "fill": f"fill '{_LONG} [MASK] 가다' --model model",
    "inspect": f"tokenizer inspect tokenizer model --data relations.jsonl --out {OUT}",
    "evaluate": LINES["evaluate"].text,
    "train": LINES["plan"].text,
    "re check": LINES["re check"].text,
    "prepare": f"prepare mlm --source local:texts.jsonl --model model --seq-len 64 --holdout 0 --workers 2 --out {OUT}",
}


class _Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {OWNED}",)


def _evil(whole: bytes | None) -> bytes:
    """A zip as torch writes it, with another pickle inside."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as packed:
        packed.writestr("archive/data.pkl", pickle.dumps({"model": _Runs(), "optimizer": _Runs(), "state": _Runs()}, 2))
        packed.writestr("archive/version", "3\n")
        packed.writestr("archive/byteorder", "little")
        if whole and zipfile.is_zipfile(io.BytesIO(whole)):
            with zipfile.ZipFile(io.BytesIO(whole)) as held:
                for name in (name for name in held.namelist() if "/data/" in name):
                    packed.writestr("archive/data/" + name.rpartition("/")[2], held.read(name))
    return written.getvalue()


def _over(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_evil(path.read_bytes() if path.is_file() else None))


def _resume(name: str) -> Callable[[Path], None]:
    def harm(at: Path) -> None:
        shutil.copytree(at / "runs/a", at / OUT)
        (at / OUT / "DONE").unlink()
        whole = (path for path in (at / OUT).glob("checkpoint-*") if path.is_dir())
        earlier, last = sorted(whole, key=natural_order)[-2:]
        for path in (path for path in last.iterdir() if path.suffix in (".pt", ".pth") or path.name == "trainer_state.json"):
            shutil.move(path, earlier / path.name)  # a run killed after this checkpoint
        state = earlier / "trainer_state.json"
        step = int(earlier.name.rpartition("-")[2])
        state.write_text(json.dumps({**json.loads(state.read_text("utf-8")), "global_step": step}), "utf-8")
        shutil.rmtree(last)
        _over(earlier / name)

    return harm


def _of_seed(run: str) -> Callable[[Path], None]:
    def harm(at: Path) -> None:
        for path in (at / run / "DONE", at / run / "seed-0" / "result.json", at / run / "seed-0" / "DONE"):
            path.unlink(missing_ok=True)
        _over(at / run / "seed-0" / "model" / "resume.pt")
        _over(at / run / "seed-0" / "resume.pt")

    return harm


def _weights(at: Path) -> None:
    (at / "model/model.safetensors").unlink()
    _over(at / "model/pytorch_model.bin")


_TRAIN = f"train --model new:bert-tiny --tokenizer tokenizer --dataset data --epochs 1 --batch 8 --device cpu --out {OUT}"
_RELATION = "re train --model model --train relations.json --seeds 1 --epochs 1 --batch-size 16 --device cpu --out relation"
_CHAINS = (
    "coref train --model model --data chains.jsonl --holdout 0.3 --epochs 1 --size 16 --window 64 --device cpu --out coreference"
)
PICKLES: dict[str, tuple[str, Callable[[Path], None]]] = {
    **{
        name: (_TRAIN, _resume(name))
        for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "mention_losses.pt", "scaler.pt")
    },
    "training_args.bin": (_TRAIN, _resume("training_args.bin")),
    "relation resume.pt": (_RELATION, _of_seed("relation")),
    "coreference resume.pt": (_CHAINS, _of_seed("coreference")),
    "pytorch_model.bin": (LINES["fill"].text, _weights),
    "pytorch_model.bin for chains": (LINES["coref train"].text, _weights),
}


def tokenizer(at: Path, name: str) -> None:
    path = at / "model/tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **TOKENIZERS[name]}), "utf-8")
