"""Golden records: what the product answers on the archives of results/, as records, in tests/golden/.

    python scripts/write_golden.py

In: results/<archive>/. Out: tests/golden/<archive>.json, one answer per evaluation set. A change of
structure leaves them equal (tests/test_golden.py); a change of verdicts writes them again, in a
commit of its own that lists what changed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from coref_automl.comparison.groups import read_groups
from coref_automl.comparison.reader import open_results
from coref_automl.comparison.study import study_at

ROOT = Path(__file__).parents[1]
ARCHIVES = sorted(path.parent for path in (ROOT / "results").glob("*/items-*.npz"))
GOLDEN = ROOT / "tests" / "golden"


def answers(archive: Path) -> dict[str, Any]:
    """The answer of each group of an archive, by its set and scorer."""
    results = open_results([str(archive)])
    groups = read_groups(results)
    named = {f"{group.evalset} {group.fingerprint} {group.scorer}": group for group in groups}
    return {name: study_at(results, group, margin=0.02, seed=0).answer.to_json() for name, group in named.items()}


def main() -> int:
    GOLDEN.mkdir(exist_ok=True)
    for archive in dict.fromkeys(ARCHIVES):
        text = json.dumps(answers(archive), ensure_ascii=False, indent=1, sort_keys=True)
        (GOLDEN / f"{archive.name}.json").write_text(text + "\n", "utf-8")
        print(archive.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
