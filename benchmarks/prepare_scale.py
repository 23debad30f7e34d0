"""Preparation of large sources, measured on one machine. In: megabytes. Out: peak memory, ratios of engines, bytes after kills.

    python benchmarks/prepare_scale.py memory --megabytes 20 200        peak memory of driver and worker, by stage
    python benchmarks/prepare_scale.py engines --megabytes 4            local against Ray, the same cores, with Kiwi
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
from pathlib import Path
from typing import Any

import psutil

FILES = ("tokens.npy", "blocks.npy", "mentions.npy", "documents.jsonl", "manifest.json")


def write_corpus(path: Path, megabytes: float, seed: int = 0) -> None:
    from coref_automl.corpus.sources import passages

    draw = random.Random(seed)
    sentences = sorted(
        {line for document in passages() for line in document.text.replace("\n", " ").split(". ") if len(line) > 20}
    )
    size, earlier = 0, list[list[str]]()
    with path.open("w", encoding="utf-8") as handle:
        while size < megabytes * 1e6:
            if earlier and draw.random() < 0.1:
                text = list(draw.choice(earlier))
                text[draw.randrange(len(text))] = f"{size}번째로 고친 문장이다"
            else:
                text = [f"{draw.choice(sentences)} {draw.randrange(10**6)}" for _ in range(draw.randint(8, 40))]
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


def watched(process: subprocess.Popen[bytes], look: Callable[[], None]) -> None:
    while process.poll() is None:
        try:
            look()
        except psutil.Error:
            continue
        time.sleep(0.05)
    if process.returncode:
        raise SystemExit(f"prepare ended with status {process.returncode}")


def digest(out: Path) -> str:
    return hashlib.blake2b(b"".join((out / name).read_bytes() for name in FILES)).hexdigest()[:12]


def memory(work: Path, arguments: argparse.Namespace) -> None:
    for megabytes in arguments.megabytes:
        write_corpus(work / "texts.jsonl", megabytes)
        process, peaks = (
            start(work / "texts.jsonl", work / "out", "--workers", "2", mode=arguments.mode),
            {"driver": 0, "worker": 0},
        )
        began = time.monotonic()

        def look(process: Any = process, peaks: dict[str, int] = peaks) -> None:
            peaks["driver"] = max(peaks["driver"], psutil.Process(process.pid).memory_info().rss)
            peaks["worker"] = max([peaks["worker"], *(one.memory_info().rss for one in below(process))])

        watched(process, look)
        shown = ", ".join(f"{name} {peak / 1e6:.0f} MB" for name, peak in peaks.items())
        print(f"{megabytes:g} MB: peak {shown}, {time.monotonic() - began:.0f} s", flush=True)
        shutil.rmtree(work / "out")


def engines(work: Path, arguments: argparse.Namespace) -> None:
    write_corpus(work / "texts.jsonl", arguments.megabytes[0])
    took: dict[str, float] = {}
    for engine in ("local", "ray"):
        cache = str(work / f"cache-{engine}")
        began = time.monotonic()
        options = ("--engine", engine, "--workers", "2", "--portion", "100000")
        process, used = (
            start(work / "texts.jsonl", work / engine, *options, mode="combined", COREF_AUTOML_CACHE=cache),
            dict[int, float](),
        )

        def look(process: Any = process, used: dict[int, float] = used) -> None:
            for one in (psutil.Process(process.pid), *below(process)):
                used[one.pid] = sum(one.cpu_times()[:2])

        watched(process, look)
        took[engine] = time.monotonic() - began
        print(f"{engine}: {arguments.megabytes[0]:g} MB in {took[engine]:.1f} s, {sum(used.values()):.1f} s of CPU", flush=True)
    same = digest(work / "local") == digest(work / "ray")
    print(f"ratio {took['ray'] / took['local']:.2f}, same bytes: {same}")


def kills(work: Path, arguments: argparse.Namespace) -> tuple[dict[str, int], bool]:
    """Workers are killed at random moments, with Ray every third time a node, which is replaced; at last the command itself."""
    write_corpus(work / "texts.jsonl", arguments.megabytes[0])
    options, nodes, cluster = ("--engine", arguments.engine, "--workers", "2", "--portion", "100000"), list[Any](), None
    if arguments.engine == "ray":
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
        os.environ["RAY_ADDRESS"] = cluster.address
    began = time.monotonic()
    watched(start(work / "texts.jsonl", work / "whole", *options), lambda: None)
    whole, draw, killed = time.monotonic() - began, random.Random(arguments.seed), {"worker": 0, "driver": 0, "node": 0}
    process, next_kill = start(work / "texts.jsonl", work / "killed", *options), time.monotonic() + 5
    while process.poll() is None or process.returncode != 0:
        if process.poll() is not None:
            raise SystemExit(f"prepare ended with status {process.returncode}")
        if time.monotonic() >= next_kill and (count := sum(killed.values())) <= arguments.kills:
            next_kill = time.monotonic() + draw.random() * whole / arguments.kills
            if count == arguments.kills:
                process.kill()
                process.wait()
                killed["driver"] += 1
                process = start(work / "texts.jsonl", work / "killed", *options)
            elif count % 3 == 1 and cluster:
                cluster.remove_node(nodes.pop(0), allow_graceful=False)
                nodes.append(cluster.add_node(num_cpus=1))
                killed["node"] += 1
            elif busy := [one for one in psutil.Process().children(recursive=True) if _is_worker(one)]:
                draw.choice(busy).kill()
                killed["worker"] += 1
        time.sleep(0.02)
    same = digest(work / "whole") == digest(work / "killed")
    print(f"{arguments.engine}: {whole:.0f} s undisturbed, killed {killed}, same bytes: {same}")
    if cluster:
        cluster.shutdown()
    return killed, same


def _is_worker(process: psutil.Process) -> bool:
    try:
        return any(name in word for word in process.cmdline() for name in ("ray::_call_in", "spawn_main"))
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
    parser.add_argument("--mode", default="mlm")
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--at-once", type=int, default=1_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("SCRATCH")) as name:
        globals()[given.what](Path(name), given)
