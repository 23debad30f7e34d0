"""Coreference runs side by side: which method is better, what may be compared, and what the report says about it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from coref_automl.cli.app import run as command
from coref_automl.comparison.archive import archive
from coref_automl.comparison.coreference_methods import compare_coreference
from coref_automl.comparison.coreference_runs import find_coreference, look_for_coreference, unlike
from coref_automl.coreference.data import CorefDocument, write_documents
from coref_automl.coreference.train import train_coreference
from coref_automl.errors import ComparisonError
from coref_automl.models.build import build_masked_lm, train_tokenizer
from coref_automl.report.checkpoint_report import report
from coref_automl.report.coreference_verdicts import compare_runs
from coref_automl.report.printout import recommend
from tests.comparison.conftest import Model, make_scores, write_evaluation
from tests.coreference.conftest import recipe

PAIRS = [("entity", "mlm"), ("entity", "base"), ("mlm", "base")]


def save_encoder(folder: Path, tales: tuple[CorefDocument, ...], number: int, *, blind: bool = False) -> Path:
    """A tiny encoder; a blind one cannot tell words apart. Those of one kind differ a little: less than the kinds do."""
    tokenizer = train_tokenizer([tale.text for tale in tales] * 2, vocab_size=160)
    model = build_masked_lm("tiny", tokenizer, seq_len=128, seed=1)
    draw = torch.Generator().manual_seed(number)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * weight.abs().mean() * torch.randn(weight.shape, generator=draw))
    if blind:
        with torch.no_grad():
            model.get_input_embeddings().weight.zero_()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def cross_fit(data: Path, model: Path, out: Path, **changes: int) -> None:
    train_coreference(recipe(data, model, out, folds=2, learning_rate=1e-6, **changes))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, tales: tuple[CorefDocument, ...], tales_file: Path) -> Path:
    """Runs of a base (three coreference seeds), of three blind `mlm` encoders and of three `entity` ones. Read only."""
    root = tmp_path_factory.mktemp("compared")
    cross_fit(tales_file, save_encoder(root / "encoders" / "base", tales, 9), root / "coref" / "base", seeds=3)
    for kind in ("mlm", "entity"):
        for seed in range(3):
            start = save_encoder(root / "encoders" / f"{kind}-{seed}" / "checkpoint-200", tales, seed, blind=kind == "mlm")
            cross_fit(tales_file, start, root / "coref" / f"{kind}-{seed}", first_seed=1)
    return root / "coref"


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained, tmp_path / "coref")
    return tmp_path / "coref"


def test_methods_are_told_by_name_and_judged_over_runs_and_documents(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["coref", "compare", str(trained), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["documents"], found["mentions"], found["notes"]) == (12, 156, [])
    assert [(one["name"], one["runs"]) for one in found["methods"]] == [("base", 3), ("mlm", 3), ("entity", 3)]
    claims = {(one["claim"]["a"], one["claim"]["b"]): one["claim"] for one in found["answers"]}
    assert set(claims) == set(PAIRS)
    first = claims["entity", "mlm"]
    assert first["seeds"] == [3, 3]
    assert first["difference"]["value"] > 0.05
    shown = "better" if first["difference"]["low"] > 0 else "not shown"  # twelve documents: near the edge
    assert (first["verdict"], first["against"]) == (shown, ["few documents"])
    assert command(["coref", "compare", str(trained / "base"), *(str(trained / f"entity-{n}") for n in range(3))]) == 0
    table = capsys.readouterr().out
    assert "entity - base" in table
    assert "not shown (detectable: " in table


def test_scores_are_those_of_the_runs(trained: Path) -> None:
    runs = {run.name: run for run in find_coreference([str(trained)])}
    found = {one.name: one.conll for one in compare_runs(trained).methods}
    for way in ("gold", "found"):
        own = [runs[f"mlm-{seed}"].result["estimates"][way]["conll"]["value"] for seed in range(3)]
        assert found["mlm"][way] == pytest.approx(sum(own) / 3)
        assert found["base"][way] == pytest.approx(runs["base"].result["estimates"][way]["conll"]["value"])


def test_one_run_each_is_no_verdict(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["coref", "compare", str(trained / "mlm-0"), str(trained / "entity-0")]) == 0
    assert "not judged (one seed)" in capsys.readouterr().out
    claim = compare_runs(trained / "entity-0", trained / "mlm-0").answers[0].claim
    assert (claim.verdict, claim.against) == ("not judged", ("checkpoint", "one seed", "few documents"))


def test_a_run_given_twice_counts_once(trained: Path, copied: Path) -> None:
    found = compare_runs(trained, copied / "base")
    assert found.methods[0].runs == 3
    assert found.notes == (f"Left out: {copied / 'base'} repeats base",)
    (copied / "base").rename(copied / "again")
    named = compare_runs(trained, copied / "again")
    assert named.methods[0].runs == 3
    assert any("each counts once" in note for note in named.notes)


def test_runs_beside_their_archive_count_once(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Model("base", 0, -1.0)
    write_evaluation(copied.parent / "runs", model, make_scores(model, documents=20))
    assert command(["archive", str(copied.parent), "--out", str(copied.parent / "kept")]) == 0
    capsys.readouterr()
    for path in (copied, copied.parent):
        assert command(["coref", "compare", str(path), "--json"]) == 0
    alone, both = (json.loads(line) for line in capsys.readouterr().out.replace("}\n{", "}\0{").split("\0"))
    assert "Left out: 7 results that were found twice, such as " in both.pop("notes")[0]
    assert alone.pop("notes") == []
    assert both == alone


def test_what_does_not_belong_together_is_refused_in_a_sentence(
    trained: Path, tales: tuple[CorefDocument, ...], tales_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encoder = trained.parent / "encoders" / "base"
    fewer = tmp_path / "fewer.jsonl"
    write_documents(fewer, tales[:6])
    cross_fit(tales_file, encoder, tmp_path / "longer", epochs=1)
    cross_fit(fewer, encoder, tmp_path / "fewer")
    train_coreference(recipe(tales_file, encoder, tmp_path / "folds", folds=3, learning_rate=1e-6, epochs=1))
    for name, why in (("longer", "epochs 3 and 1"), ("fewer", "documents 12 ("), ("folds", "folds 2 and 3")):
        assert command(["coref", "compare", str(trained / "mlm-0"), str(tmp_path / name)]) == 2
        said = capsys.readouterr().err
        assert why in said
        assert "cannot be compared" in said
    runs = {run.name: run for run in find_coreference([str(trained), str(tmp_path)])}
    assert unlike(runs["mlm-0"], runs["entity-2"]) == []
    with pytest.raises(ComparisonError, match="No finished coreference run"):
        compare_runs(tmp_path / "none")


def test_a_damaged_run_is_named_and_the_others_stay(copied: Path) -> None:
    (next((copied / "mlm-0").rglob("*-folds.jsonl"))).write_text('{"document": "x"', "utf-8")
    (copied / "mlm-1" / "coref_results.json").write_text("[1]", "utf-8")
    runs, unread = look_for_coreference([str(copied)])
    assert {run.name for run in runs} == {"base", "mlm-2", "entity-0", "entity-1", "entity-2"}
    assert len(unread) == 2
    found = compare_runs(copied)
    assert sum("Left out" in note for note in found.notes) == 2


def test_the_report_the_recommendation_and_compare_name_the_outside_check(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "runs"
    for number, model in enumerate([Model("base", 0, -1.0), *(Model(f"entity-{n}", 200, 0.0, seed=n) for n in range(2))]):
        write_evaluation(root, model, make_scores(model, documents=20, own=number))
    for lang, title in (("en", "Does it carry over to coreference?"), ("ko", "상호참조 해결로 이어지는가?")):
        made = report(root, trained, out=tmp_path / lang, lang=lang)
        page = Path(made.markdown).read_text("utf-8")
        assert title in page
        assert "| entity | mlm |" in page
        assert "No coreference result was given" not in page
    alone = Path(report(root, out=tmp_path / "alone", lang="en").markdown).read_text("utf-8")
    assert "No coreference result was given" in alone
    assert command(["compare", str(root), str(trained)]) == 0
    (line,) = [one for one in capsys.readouterr().out.splitlines() if one.startswith("Does it carry over to coreference?")]
    asked = recommend(root, trained).question("coreference")
    assert asked is not None
    assert f"{asked.lead.a} - {asked.lead.b}" in line


def test_the_report_compares_what_belongs_together_and_names_the_rest(trained: Path, tales_file: Path, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    for number, model in enumerate([Model("base", 0, -1.0), Model("entity-0", 200, 0.0)]):
        write_evaluation(root, model, make_scores(model, documents=20, own=number))
    cross_fit(tales_file, trained.parent / "encoders" / "base", tmp_path / "brief", epochs=1)
    page = Path(report(root, trained, tmp_path / "brief", out=tmp_path / "page", lang="en").markdown).read_text("utf-8")
    assert "Not compared, because documents, folds or settings differ: brief." in page
    assert "| entity | mlm |" in page


def test_an_archive_keeps_the_verdicts_and_no_text(trained: Path, tales: tuple[CorefDocument, ...], tmp_path: Path) -> None:
    root = tmp_path / "runs"
    for number, model in enumerate([Model("base", 0, -1.0), Model("entity-0", 200, 0.0)]):
        write_evaluation(root, model, make_scores(model, documents=20, own=number))
    made = archive(root, trained, out=tmp_path / "kept")
    assert made.coreference_runs == 7
    before, after = compare_runs(trained), compare_runs(tmp_path / "kept")
    assert after.answers == before.answers
    for path in (tmp_path / "kept" / "coreference").rglob("*"):
        held = path.read_bytes() if path.is_file() else b""
        assert str(trained.parent).encode() not in held
        assert not any(tale.id.encode() in held or tale.text[:8].encode() in held for tale in tales)


def test_unequal_training_and_other_encoders_are_not_compared(trained: Path) -> None:
    from coref_automl.records import Provenance

    runs = [run for run in find_coreference([str(trained)]) if run.name != "base"]
    base = next(run for run in find_coreference([str(trained)]) if run.name == "base")

    def made(tokens: int, origin: str):  # type: ignore[no-untyped-def]
        def of(run):  # type: ignore[no-untyped-def]
            kind, _, seed = run.name.partition("-")
            if not seed:
                return None
            own = tokens if kind == "entity" else 1_000
            return Provenance(run.name, 200, 1.0, own, kind, "b", 128, int(seed), base_bytes=origin)

        return of

    fair = compare_coreference([base, *runs], made(1_000, base.weights))
    assert {(one.claim.a, one.claim.b) for one in fair.answers} == {
        ("entity 128", "mlm 128"), ("entity 128", "base"), ("mlm 128", "base"),
    }  # fmt: skip
    longer = compare_coreference([base, *runs], made(2_000, base.weights))
    assert len(longer.answers) == 2
    assert "2,000 and 1,000 tokens" in longer.notes[0]
    strange = compare_coreference([base, *runs], made(1_000, "another"))
    assert [(one.claim.a, one.claim.b) for one in strange.answers] == [("entity 128", "mlm 128")]
    assert sum("started from another encoder" in note for note in strange.notes) == 2
