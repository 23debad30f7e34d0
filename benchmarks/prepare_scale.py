"""Preparation of large sources, measured on one machine. In: megabytes. Out: peak memory, ratios of engines, bytes after kills.

    python benchmarks/prepare_scale.py memory --megabytes 20 200        peak memory of command and worker, tags from a store
    python benchmarks/prepare_scale.py engines --megabytes 1 3          local against Ray, the same cores, with Kiwi
    python benchmarks/prepare_scale.py kills --megabytes 20 --kills 10  workers (or Ray nodes) killed at random moments
    python benchmarks/prepare_scale.py dedup --documents 100000         seconds and memory of one band, pairs to decide

Texts are drawn from the bundled passages, sentence by sentence; one document in ten nearly repeats an earlier one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from coref_automl.base.pool import call_on_worker

FILES = ("tokens.npy", "blocks.npy", "mentions.npy", "documents.jsonl", "manifest.json")


def sentences() -> list[str]:
    from coref_automl.corpus.sources import passages

    return sorted({line for document in passages() for line in document.text.replace("\n", " ").split(". ") if len(line) > 20})


def write_corpus(path: Path, megabytes: float, seed: int = 0) -> None:
    draw, known = random.Random(seed), sentences()
    size, earlier = 0, list[list[str]]()
    with path.open("w", encoding="utf-8") as handle:
        while size < megabytes * 1e6:
            if earlier and draw.random() < 0.1:
                text = list(draw.choice(earlier))
                text[draw.randrange(len(text))] = f"{size}번째로 고친 문장이다"
            else:
                text = [f"{draw.choice(known)} {draw.randrange(10**6)}" for _ in range(draw.randint(8, 40))]
                earlier = [*earlier[-999:], text]
            size += handle.write(json.dumps({"text": ". ".join(text) + "."}, ensure_ascii=False) + "\n") * 5 // 2


def start(source: Path, out: Path, *options: str, mode: str = "mlm", **environment: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "coref_automl.cli",
        "prepare",
        mode,
        "--source",
        f"local:{source}",
        "--model",
        "bundled:ko-mini",
    ]
    command += ["--seq-len", "512", "--out", str(out), *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, **environment})


def below(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The worker processes of a command."""
    try:
        return [
            one
            for one in psutil.Process(process.pid).children(recursive=True)
            if "resource_tracker" not in " ".join(one.cmdline())
        ]
    except psutil.NoSuchProcess:
        return []


def watched(process: subprocess.Popen[bytes], look: Callable[[], None], every: float = 0.05) -> None:
    while process.poll() is None:
        try:
            look()
        except psutil.Error:
            continue
        time.sleep(every)
    if process.returncode:
        raise SystemExit(f"prepare ended with status {process.returncode}")


def digest(out: Path) -> str:
    return hashlib.blake2b(b"".join((out / name).read_bytes() for name in FILES)).hexdigest()[:12]


def store_tags(texts: Path, cache: Path) -> None:
    """The tags of every text, put together from those of its sentences: what would take Kiwi hours."""
    import numpy as np

    from coref_automl.base import korean

    known = dict(zip(own := sentences(), korean.Tagger(None).tag(own), strict=True))
    store, fresh = korean._TagStore(cache / f"tags3-{korean.kiwi_version()}.sqlite"), dict[bytes, korean.Tags]()
    nothing = korean.Tags(np.empty((0, 2), np.int32), np.empty(0, np.uint8), np.empty(0, np.int32))
    for line in texts.open(encoding="utf-8"):
        text, at, found = json.loads(line)["text"], 0, [nothing]
        ends = list[int]()
        for part in text.split(". "):
            if tags := known.get(part.rpartition(" ")[0]):
                found.append(korean.Tags(tags.spans + at, tags.kinds, tags.sentence_ends))
            at += len(part) + 2
            ends.append(min(at, len(text)))
        spans, kinds = (np.concatenate([getattr(one, name) for one in found]) for name in ("spans", "kinds"))
        fresh[korean._key(text)] = korean.Tags(spans.astype(np.int32), kinds, np.array(ends, np.int32))
        if len(fresh) == 1000:
            store.put(fresh)
            fresh = {}
    store.put(fresh)


class Peaks(dict[str, float]):
    """The most memory (MB) that the command and any one of its workers took; `pss` divides what processes share."""

    def see(self, process: subprocess.Popen[bytes]) -> None:
        seen = {"command": [psutil.Process(process.pid)], "worker": [one for one in below(process) if _is_worker(one)]}
        for who, those in seen.items():
            for one in those:
                held = one.memory_full_info()
                for kind in ("rss", "pss"):
                    self[f"{who} {kind}"] = max(self.get(f"{who} {kind}", 0), getattr(held, kind) / 1e6)

    def __str__(self) -> str:
        return ", ".join(f"{name} {peak:.0f} MB" for name, peak in self.items())


def memory(work: Path, arguments: argparse.Namespace) -> None:
    """Tags come from a store, so that texts of any size can be gone through in minutes."""
    cache = work / "cache"
    for megabytes in arguments.megabytes:
        write_corpus(work / "texts.jsonl", megabytes)
        if arguments.mode != "mlm":
            store_tags(work / "texts.jsonl", cache)
        began, peaks = time.monotonic(), Peaks()
        process = start(work / "texts.jsonl", work / "out", "--workers", "2", mode=arguments.mode, COREF_AUTOML_CACHE=str(cache))
        watched(process, lambda process=process, peaks=peaks: peaks.see(process), 0.5)  # type: ignore[misc]
        print(f"{megabytes:g} MB: {peaks}; {time.monotonic() - began:.0f} s", flush=True)
        shutil.rmtree(work / "out")


def engines(work: Path, arguments: argparse.Namespace) -> None:
    """With two sizes, the ratio of what every further megabyte takes: what it takes to start is left out."""
    seconds: dict[str, list[float]] = {"local": [], "ray": []}
    for number, megabytes in enumerate(arguments.megabytes):
        write_corpus(work / "texts.jsonl", megabytes)
        for engine, took in seconds.items():
            out, used, peaks, began = work / f"{engine}-{number}", dict[int, float](), Peaks(), time.monotonic()
            options = ("--engine", engine, "--workers", "2", "--portion", "100000")
            cache = str(work / f"cache-{out.name}")
            process = start(work / "texts.jsonl", out, *options, mode="combined", COREF_AUTOML_CACHE=cache)

            def look(process: Any = process, used: dict[int, float] = used, peaks: Peaks = peaks) -> None:
                for one in (psutil.Process(process.pid), *below(process)):
                    used[one.pid] = sum(one.cpu_times()[:2])
                peaks.see(process)

            watched(process, look, 0.2)
            took.append(sum(used.values()))
            print(f"{engine}, {megabytes:g} MB: {time.monotonic() - began:.0f} s, {took[-1]:.1f} s of CPU, {peaks}", flush=True)
        print(f"same bytes: {digest(work / f'local-{number}') == digest(work / f'ray-{number}')}", flush=True)
    more = {engine: (took[-1] - took[0]) or took[0] for engine, took in seconds.items()}
    print(f"Ray to local, CPU: {more['ray'] / more['local']:.2f} ({more['ray']:.1f} s and {more['local']:.1f} s)")
    from kiwipiepy import Kiwi

    kiwi = Kiwi(num_workers=1, load_multi_dict=False)
    kiwi.tokenize("서울")
    trained = {json.loads(line)["id"] for line in (work / f"local-{number}/documents.jsonl").open(encoding="utf-8")}
    lines = enumerate((work / "texts.jsonl").open(encoding="utf-8"), 1)
    texts, began = [json.loads(line)["text"] for row, line in lines if f"texts-{row}" in trained], time.process_time()
    for _ in kiwi.tokenize(texts):
        pass
    alone = time.process_time() - began
    print(
        f"Kiwi alone on what was tagged of the last: {alone:.1f} s; {alone / seconds['local'][-1]:.0%} of the local engine's CPU"
    )


def kills(work: Path, arguments: argparse.Namespace) -> tuple[dict[str, int], bool]:
    """Workers are killed at random moments, with Ray every third time a node, which is replaced; at last the command itself."""
    write_corpus(work / "texts.jsonl", arguments.megabytes[0])
    options, nodes, cluster = ("--engine", arguments.engine, "--workers", "2", "--portion", "100000"), list[Any](), None
    if arguments.engine == "ray":
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
        os.environ["RAY_ADDRESS"] = cluster.address
    looks = list[tuple[float, bool]]()
    watched(start(work / "texts.jsonl", work / "whole", *options), lambda: looks.append((time.monotonic(), bool(busy_workers()))))
    busy = sum(later - at for (at, found), (later, _) in pairwise(looks) if found)
    draw, killed, next_kill = random.Random(arguments.seed), {"worker": 0, "driver": 0, "node": 0}, 0.0
    process = start(work / "texts.jsonl", work / "killed", *options)
    again = 0
    while (status := process.poll()) != 0:
        if status is not None:  # one shard lost four workers: the command says to run it again
            again += 1
            if status != 1 or again > 3:
                raise SystemExit(f"prepare ended with status {status}")
            process = start(work / "texts.jsonl", work / "killed", *options)
        if (count := sum(killed.values())) <= arguments.kills and time.monotonic() >= next_kill and (those := busy_workers()):
            next_kill = time.monotonic() + draw.uniform(0, 1.2) * busy / arguments.kills
            if count == arguments.kills:
                process.kill()
                process.wait()
                killed["driver"] += 1
                process = start(work / "texts.jsonl", work / "killed", *options)
            elif count % 3 == 1 and cluster:
                cluster.remove_node(nodes.pop(0), allow_graceful=False)
                nodes.append(cluster.add_node(num_cpus=1))
                killed["node"] += 1
            else:
                draw.choice(those).kill()
                killed["worker"] += 1
        time.sleep(0.02)
    same = digest(work / "whole") == digest(work / "killed")
    print(f"{arguments.engine}: busy for {busy:.0f} s undisturbed, killed {killed}, run again {again} times, same bytes: {same}")
    if cluster:
        cluster.shutdown()
    return killed, same


def busy_workers() -> list[psutil.Process]:
    return [one for one in psutil.Process().children(recursive=True) if _is_worker(one)]


def _is_worker(process: psutil.Process) -> bool:
    try:
        return any(name in word for word in process.cmdline() for name in (f"ray::{call_on_worker.__name__}", "spawn_main"))
    except psutil.Error:
        return False


def dedup(work: Path, arguments: argparse.Namespace) -> None:
    import resource

    import numpy as np

    from coref_automl.corpus.dedup import PERMUTATIONS, band_job, near_duplicates, write_signatures

    made, shard = np.random.default_rng(0), 1300
    counts = [shard] * (arguments.documents // shard)
    for number in range(len(counts)):
        signatures = made.integers(0, 1 << 32, (shard, PERMUTATIONS), np.uint32)
        signatures[shard // 2 : shard // 2 + 130] = signatures[:130]
        write_signatures(work / f"{number:05d}", signatures)
    before, took = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, list[float]()

    def run(_: str, jobs: list[dict[str, Any]]) -> None:
        for job in jobs:
            began = time.monotonic()
            band_job(**job)
            took.append(time.monotonic() - began)

    stems, entries = [work / f"{number:05d}" for number in range(len(counts))], np.arange(sum(counts))
    began = time.monotonic()
    found = sum(1 for _ in near_duplicates(stems, counts, entries, work, run, similarity=0.8, at_once=arguments.at_once))
    decide = time.monotonic() - began - sum(took)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3
    print(
        f"{sum(counts):,} documents in {len(counts):,} shards: {len(took)} tasks of {sum(took) / len(took):.2f} s, "
        f"deciding {decide:.2f} s, {found:,} found, memory +{grown:.0f} MB"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("memory", "engines", "kills", "dedup"))
    parser.add_argument("--megabytes", type=float, nargs="+", default=[20.0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=("local", "ray"), default="local")
    parser.add_argument("--mode", default="combined")
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--at-once", type=int, default=1_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("SCRATCH")) as name:
        globals()[given.what](Path(name), given)
