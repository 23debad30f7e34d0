"""Speed of preparation. In: some megabytes of text. Out: throughput by stage, and against the plain way in the same run.

The plain way: one Kiwi call and one row per document, padded or cut to the length. Loading is left out of both.
Both tag with models of their own, and neither finds a tag in a cache.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from coref_automl.bench.measurement import BenchResult
from coref_automl.bench.recipes import PrepareBench
from coref_automl.corpus import encode
from coref_automl.corpus.choice import choose_documents
from coref_automl.corpus.dataset import KIND
from coref_automl.corpus.encode import EncodeSettings, encode_shard, tokenizer_of
from coref_automl.corpus.inputs import made_from
from coref_automl.corpus.pack import assemble
from coref_automl.corpus.prepare import ENCODE, kept_by_shard
from coref_automl.corpus.recipe import PrepareRecipe
from coref_automl.corpus.shards import READ, Index, ReadSettings, build_index, read_part
from coref_automl.corpus.sources import inputs_of, open_source
from coref_automl.errors import SourceError
from coref_automl.korean import Tagger, release_kiwi
from coref_automl.machine import usable_cores
from coref_automl.progress import quiet
from coref_automl.store import claim_folder, read_jsonl, remove


def run(settings: PrepareBench) -> BenchResult:
    """Prepare the same texts in both ways. Without a model, a tokenizer is trained on the texts first."""
    workers, seq_len = settings.workers or usable_cores(), settings.seq_len
    texts = _texts(settings.source, settings.megabytes)
    size = sum(len(text.encode()) for text in texts) / 1e6
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        chosen = settings.model or _trained(texts, work / "tokenizer")
        ours, padding = _ours(texts, chosen, seq_len, workers, work)
        usual, plain_padding, lost = _plain(texts, chosen, seq_len)
    speeds = {stage: size / seconds for stage, seconds in ours.items()}
    stages = ("read and clean", "choose", f"tag, {workers} threads", f"encode, {workers} processes", "pack")
    total = sum(ours[stage] for stage in stages)
    lines = (
        f"{size:.1f} MB in {len(texts):,} documents, {seq_len} tokens per row, {workers} cores",
        *(f"  {stage:24} {speed:8.2f} MB/s" for stage, speed in speeds.items()),
        f"padding: ours {padding:.1%}; one padded row per document {plain_padding:.1%}, dropping {lost:.1%} of the tokens",
    )
    return BenchResult(size / total, size / usual, "MB/s", lines)


def _texts(source: str, megabytes: float) -> list[str]:
    texts: list[str] = []
    size = 0
    for document in open_source(source):
        texts.append(document.text)
        size += len(document.text.encode("utf-8", "replace"))
        if size >= megabytes * 1e6:
            return texts
    if not texts:
        raise SourceError(f"{source} has no text; pass another --source.")
    return texts


def _trained(texts: list[str], folder: Path) -> str:
    from coref_automl.models.build import train_tokenizer

    train_tokenizer(texts, vocab_size=8_000).save_pretrained(str(folder))
    return str(folder)


def _ours(texts: list[str], model: str, seq_len: int, workers: int, work: Path) -> tuple[dict[str, float], float]:
    """Every stage of `prepare`, called one by one; tagging and encoding once with one worker and once with all."""
    path = work / "texts.jsonl"
    path.write_text("".join(json.dumps({"id": str(n), "text": text}) + "\n" for n, text in enumerate(texts)), "utf-8")
    recipe = PrepareRecipe(  # nothing but exact copies is dropped, so that both ways have the same work
        mode="combined",
        sources=(f"local:{path}",),
        model=model,
        seq_len=seq_len,
        holdout=0.0,
        min_characters=1,
        min_hangul=0.0,
        similarity=1.0,
    )
    portion = max(1, sum(map(len, texts)) // (4 * workers))
    reading = ReadSettings(recipe.filters(), near=True, shard_characters=portion)
    (part,) = inputs_of(recipe.sources[0])
    took = {"read and clean": _timed(lambda: sum(1 for _ in read_part(part, 0, work / READ, reading)))}
    index = build_index(work, parts=1, holdout=0.0)
    found: list[Any] = []
    took["choose"] = _timed(lambda: found.append(choose_documents(index, [], near=True, similarity=recipe.similarity, work=work)))
    (choice,) = found
    keeps = kept_by_shard(index, choice)
    for threads in dict.fromkeys((1, workers)):
        release_kiwi()
        cache = work / f"cache-{threads}"
        tagger = Tagger(cache, threads)
        tagger.are_nouns(["서울"])  # loads the model
        took[f"tag, {threads} threads"] = _timed(lambda tagger=tagger: sum(1 for _ in tagger.remember(_texts_of(index))))  # type: ignore[misc]
    release_kiwi()
    settings = EncodeSettings(model, "combined", seq_len, False, recipe.chain_cap, cache)
    tokenizer_of(model)
    kept = [frozenset(np.flatnonzero(keep).tolist()) for keep in keeps]
    for processes in dict.fromkeys((1, workers)):
        remove(work / ENCODE)
        jobs = [(s.texts, keep, work / ENCODE / s.stem.name, settings) for s, keep in zip(index.shards, kept, strict=True)]
        took[f"encode, {processes} processes"] = _encoded(jobs, processes)
    made: list[dict[str, Any]] = []
    claim_folder(work / "out", KIND)
    facts: dict[str, Any] = {"missing": [], "hub": [], "made": made_from(recipe, [part], quiet())}
    took["pack"] = _timed(lambda: made.append(assemble(index, choice, recipe, [], work / "out", progress=quiet(), **facts)))
    return took, float(made[0]["padding_share"])


def _encoded(jobs: list[tuple[Path, frozenset[int], Path, EncodeSettings]], processes: int) -> float:
    """Seconds to encode, in processes that have loaded the tokenizer already."""
    if processes == 1:
        return _timed(lambda: [encode_shard(*job) for job in jobs])
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        list(pool.map(encode.warm_up, [jobs[0][3].model] * 4 * processes))
        return _timed(lambda: list(pool.map(encode_shard, *zip(*jobs, strict=True))))


def _texts_of(index: Index) -> Iterator[str]:
    return (row["text"] for shard in index.shards for row in read_jsonl(shard.texts))


def _plain(texts: list[str], model: str, seq_len: int) -> tuple[float, float, float]:
    """Seconds, padding share, and the share of tokens that one row per document cuts off."""
    from kiwipiepy import Kiwi

    tokenizer = tokenizer_of(model)
    kiwi = Kiwi(load_multi_dict=False)
    kiwi.tokenize("서울")
    rows: list[Any] = []

    def prepare_plainly() -> None:
        for text in texts:
            kiwi.tokenize(text)
            rows.append(tokenizer(text, truncation=True, padding="max_length", max_length=seq_len)["input_ids"])

    seconds = _timed(prepare_plainly)
    padding = float(np.mean(np.array(rows) == tokenizer.pad_token_id))
    whole = sum(len(tokenizer(text, verbose=False)["input_ids"]) for text in texts)
    kept = float(np.sum(np.array(rows) != tokenizer.pad_token_id))
    return seconds, padding, 1 - kept / whole


def _timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return max(time.perf_counter() - started, 1e-6)
