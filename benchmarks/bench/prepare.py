"""Speed of preparation. In: some megabytes of text. Out: throughput by stage, and the ratio to the plain way in the same run.

The plain way: one Kiwi call and one row per document, padded or cut to the length. Loading is not timed; no tags are cached.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bench import BenchResult, PrepareBench, recipe_for_texts
from coref_automl.base.errors import SourceError
from coref_automl.base.folders import claim_folder
from coref_automl.base.korean import Tagger, release_kiwi
from coref_automl.base.machine import end_with_parent, usable_cores
from coref_automl.base.pool import Call, run_calls
from coref_automl.base.progress import quiet
from coref_automl.base.store import read_jsonl
from coref_automl.corpus import encode
from coref_automl.corpus.choice import KEPT, choose_documents
from coref_automl.corpus.dataset import KIND
from coref_automl.corpus.encode import EncodeSettings, encode_shard, store_tokenizer, tokenizer_of
from coref_automl.corpus.inputs import survey
from coref_automl.corpus.pack import assemble
from coref_automl.corpus.shards import build_index, read_part
from coref_automl.corpus.sources import inputs_of, open_source
from coref_automl.corpus.work import DEDUP, ENCODE, READ
from coref_automl.extras.study.probe import Stopwatch
from coref_automl.models.build import train_tokenizer

T = TypeVar("T")


def run(settings: PrepareBench) -> BenchResult:
    """Prepare the same texts both ways. Without a model, a tokenizer is trained on the texts first."""
    workers, seq_len = settings.workers or usable_cores(), settings.seq_len
    texts = _texts(settings.source, settings.megabytes)
    size = sum(len(text.encode()) for text in texts) / 1e6
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        model = settings.model or str(work / "tokenizer")
        if settings.model is None:
            train_tokenizer(texts, vocab_size=8_000).save_pretrained(model)
        seconds, padding = _ours(texts, model, seq_len, workers, work)
        usual, plain_padding, cut = _plain(texts, model, seq_len)
    lines = (
        f"{size:.1f} MB in {len(texts):,} documents, {seq_len} tokens per row, {workers} cores",
        *(f"  {stage:24} {size / stage_seconds:8.2f} MB/s" for stage, stage_seconds in seconds.items()),
        f"padding: ours {padding:.1%}; one padded row per document {plain_padding:.1%}, dropping {cut:.1%} of the tokens",
    )
    return BenchResult(size / sum(seconds.values()), size / usual, "MB/s", lines)


def _texts(source: str, megabytes: float) -> list[str]:
    texts: list[str] = []
    size = 0
    for document in open_source(source):
        texts.append(document.text)
        size += len(document.text.encode("utf-8", "replace"))
        if size >= megabytes * 1e6:
            break
    if not texts:
        raise SourceError(f"{source} has no text; pass another --source.")
    return texts


def _ours(texts: list[str], model: str, seq_len: int, workers: int, work: Path) -> tuple[dict[str, float], float]:
    """Seconds of each stage of `prepare`, called one by one; and the share of padding."""
    seconds: dict[str, float] = {}

    def timed(stage: str, call: Callable[[], T]) -> T:
        clock = Stopwatch()
        result = clock.timed(call)
        seconds[stage] = max(clock.seconds, 1e-6)
        return result

    recipe = recipe_for_texts(texts, model, seq_len, work, "combined")
    reading = replace(recipe, portion=max(1, sum(map(len, texts)) // (4 * workers)))
    (part,) = inputs_of(recipe.sources[0])
    timed("read and clean", lambda: list(read_part(part, 0, work / READ, reading)))
    index = build_index(work, parts=1, holdout=0.0)
    choosing: dict[str, Any] = {"similarity": recipe.similarity, "at_once": recipe.portion // 4}
    choice = timed("choose", lambda: choose_documents(index, [], work / DEDUP, _in_turn, **choosing))
    release_kiwi()
    tagger = Tagger(work / "cache", workers)
    tagger.are_nouns(["서울"])  # loads the model
    cleaned = (row["text"] for shard in index.shards for row in read_jsonl(shard.texts))
    timed(f"tag, {workers} threads", lambda: list(tagger.fill_cache(cleaned)))
    release_kiwi()
    settings = EncodeSettings(
        store_tokenizer(model, work / "tokenizer.json"), "combined", seq_len, False, recipe.chain_cap, work / "cache"
    )
    kept = (choice[index.rows_of(number)] == KEPT for number in range(len(index.shards)))
    jobs = [(s.texts, keep, work / ENCODE / s.stem.name, settings) for s, keep in zip(index.shards, kept, strict=True)]
    with ProcessPoolExecutor(workers, get_context("spawn"), end_with_parent) as pool:
        list(pool.map(encode.stored_tokenizer, [settings.tokenizer] * 4 * workers))  # load the tokenizer
        timed(f"encode, {workers} processes", lambda: list(pool.map(encode_shard, *zip(*jobs, strict=True))))
    claim_folder(work / "out", KIND)
    provenance = survey(recipe, [part], quiet())[0]
    provenance["inputs"] = [{**entry, "rows": len(texts)} for entry in provenance["inputs"]]
    facts: dict[str, Any] = {"missing": [], "hub": [], "made_from": provenance}
    manifest = timed("pack", lambda: assemble(index, choice, recipe, [], work / "out", progress=quiet(), **facts))
    return seconds, float(manifest["padding_share"])


def _in_turn(target: str, jobs: Iterable[dict[str, Any]]) -> list[Any]:
    return run_calls([Call(target, target, job) for job in jobs])


def _plain(texts: list[str], model: str, seq_len: int) -> tuple[float, float, float]:
    """Seconds, the share of padding, and the share of tokens cut off by one row per document."""
    from kiwipiepy import Kiwi

    tokenizer, kiwi, clock = tokenizer_of(model), Kiwi(load_multi_dict=False), Stopwatch()
    kiwi.tokenize("서울")

    def prepare_plainly(text: str) -> Any:
        kiwi.tokenize(text)
        return tokenizer(text, truncation=True, padding="max_length", max_length=seq_len)["input_ids"]

    rows = np.array(clock.timed(lambda: [prepare_plainly(text) for text in texts]))
    total = sum(len(tokenizer(text, verbose=False)["input_ids"]) for text in texts)
    real = int((rows != tokenizer.pad_token_id).sum())
    return clock.seconds, 1 - real / rows.size, 1 - real / total
