"""Relation rows in KLUE's own shape: look at them, train, score, label new ones."""

from __future__ import annotations

import csv
import json

import pytest

from coref_automl.corpus.sources import bundled_rows
from tests.journeys.foreign import write_foreign
from tests.journeys.shell import Shell


@pytest.fixture(scope="module")
def rows(shell: Shell, texts: list[str]) -> Shell:
    """klue-re train and dev files as KLUE publishes them, and unlabelled rows."""
    write_foreign("roberta", texts, shell.folder / "roberta")
    held = list(bundled_rows("relations"))
    for name, part in (("train", held[:160]), ("dev", held[160:220])):
        (shell.folder / f"klue-{name}.json").write_text(json.dumps(part, ensure_ascii=False), "utf-8")
    new = [{key: value for key, value in row.items() if key != "label"} for row in held[220:240]]
    (shell.folder / "new.json").write_text(json.dumps(new, ensure_ascii=False), "utf-8")
    return shell


@pytest.mark.journey
def test_rows_are_explored_trained_on_and_new_ones_labelled(rows: Shell) -> None:
    shell = rows
    shell(
        "coref-automl re train --model roberta --train klue-train.json --dev klue-dev.json --epochs 1 --seeds 1 "
        "--max-length 96 --out re"
    )
    shell("coref-automl re predict re --data new.json --out labelled")
    with (shell.folder / "labelled" / "submission.csv").open(encoding="utf-8") as handle:
        labelled = list(csv.DictReader(handle))
    assert len(labelled) == 20
    labels = {row["label"] for row in json.loads((shell.folder / "klue-train.json").read_text("utf-8"))}
    assert {row["pred_label"] for row in labelled} <= labels
    assert all(abs(sum(json.loads(row["probs"])) - 1) < 1e-3 for row in labelled)


@pytest.mark.journey
def test_the_page_of_the_rows_and_the_score_of_the_run(rows: Shell) -> None:
    shell = rows
    said = shell("coref-automl re explore klue-train.json klue-dev.json --check --model roberta --out explored")
    assert "160" in said.out
    assert list((shell.folder / "explored").glob("*.html"))
    shell(
        "coref-automl re train --model roberta --train klue-train.json --dev klue-dev.json --epochs 1 --seeds 1 "
        "--max-length 96 --out re"
    )
    scored = json.loads(shell("coref-automl re evaluate re --data klue-dev.json --json").out)
    assert scored["n"] == 60
    assert {"micro_f1", "auprc", "accuracy", "split"} <= set(scored)
    one = shell(
        'coref-automl re predict re --text "이순신은 서울에서 태어났다." --subject 이순신 --object 서울 '
        "--subject-type PER --object-type LOC"
    ).out
    assert ":" in one or "no_relation" in one


@pytest.mark.journey
def test_a_row_whose_span_does_not_fit_is_named(rows: Shell) -> None:
    shell = rows
    bad = json.loads((shell.folder / "klue-train.json").read_text("utf-8"))[:12]
    bad[3]["subject_entity"]["start_idx"] += 1
    (shell.folder / "bad.json").write_text(json.dumps(bad, ensure_ascii=False), "utf-8")
    said = shell("coref-automl re train --model roberta --train bad.json --epochs 1 --out re-bad", status=2)
    assert bad[3]["guid"] in said.err
    assert "--skip-bad" in said.err
