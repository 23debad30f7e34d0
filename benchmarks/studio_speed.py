"""How fast the studio answers. In: a folder of evaluated runs. Out: time to the first page, latency with four clients, memory.

    python benchmarks/studio_speed.py FOLDER... [--requests 400]

The command is started as a user starts it; four clients ask for a mix of pages: every filter of the items, pairs of checkpoints,
the leaderboard, pages of runs. Nothing is warm but what the clients themselves have asked for before.
"""

from __future__ import annotations

import argparse
import http.client
import random
import re
import subprocess
import sys
import threading
import time
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

CLIENTS = 4
WORDS = ("도서관", "사람", "시장", "그해", "마을", "법원", "선수", "회사")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="+")
    parser.add_argument("--requests", type=int, default=400)
    given = parser.parse_args()
    began = time.monotonic()
    line = [sys.executable, "-m", "coref_automl.cli", "studio", *map(str, given.folder), "--port", "0", "--no-open"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as studio:
        try:
            port = int(re.search(r":(\d+)/", studio.stdout.readline()).group(1))  # type: ignore[union-attr]
            get(port, "/")
            print(f"first page after {time.monotonic() - began:.2f} s")
            began = time.monotonic()
            while get(port, "/items")[0] == 202:
                time.sleep(0.1)
            print(f"evaluations read after {time.monotonic() - began:.1f} s more")
            while 'id="later"' in get(port, "/")[1]:
                time.sleep(0.1)
            print(f"verdicts after {time.monotonic() - began:.1f} s")
            while get(port, "/compare")[0] == 202:
                time.sleep(0.1)
            report(measure(port, given.requests))
            print(f"resident memory {memory(studio.pid):.0f} MB")
        finally:
            studio.terminate()


def measure(port: int, requests: int) -> dict[str, list[float]]:
    """Seconds of every answer by page; an answer that says "one moment" counts as one."""
    page = unescape(get(port, "/compare")[1])
    keys = re.findall(r'<option value="([^":]+/[^"]+)"', page)
    taken: dict[str, list[float]] = {}

    def client(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(requests // CLIENTS):
            path = address(rng, keys)
            began = time.perf_counter()
            status, _body = get(port, path)
            name = path.partition("?")[0] + (" (being made)" if status == 202 else "")
            taken.setdefault(name, []).append(time.perf_counter() - began)
            assert status in (200, 202), (status, path)

    clients = [threading.Thread(target=client, args=(seed,)) for seed in range(CLIENTS)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    return taken


def address(rng: random.Random, keys: list[str]) -> str:
    a, b = rng.sample(keys, 2)
    kind = rng.random()
    if kind < 0.1:
        return "/?" + urlencode({"sort": rng.choice(("", "name", "-tokens")), "open": rng.choice(("", "all"))})
    if kind < 0.15:
        run = next((key.split("/evaluations/")[0] for key in (a, b) if "/checkpoint-" in key), "")
        return "/run?" + urlencode({"key": run}) if run else "/runs"
    if kind < 0.35:
        return "/compare?" + urlencode({"a": rng.choice(keys[:6]), "b": rng.choice(keys[:3])})
    query = {"a": a, "b": b, "which": rng.choice(("", "a-not-b", "b-not-a", "both-wrong")), "page": rng.randint(1, 5)}
    if rng.random() < 0.4:
        query["q"] = rng.choice(WORDS)
    return "/items?" + urlencode(query)


def get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def report(taken: dict[str, list[float]]) -> None:
    every = sorted(value for values in taken.values() for value in values)
    for name, values in sorted({**taken, "all": every}.items()):
        values = sorted(values)
        middle, high = values[len(values) // 2], values[min(len(values) - 1, int(0.95 * len(values)))]
        print(f"{name:<28}{len(values):>5} requests, median {1000 * middle:6.1f} ms, 95% under {1000 * high:6.1f} ms")
    print(f"under 100 ms: {100 * sum(value < 0.1 for value in every) / len(every):.1f}%")


def memory(pid: int) -> float:
    """Megabytes of a process."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
