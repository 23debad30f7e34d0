"""The guide's functions take a path, a loaded model or a fill-mask pipeline, and give the numbers of `evaluate`."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import FillMaskPipeline

from coref_automl import tune
from coref_automl.base.errors import ModelError
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.evaluation.run import EvaluateRecipe, evaluate
from tests.evaluation.tiny import freeze_tiny, loaded, save_checkpoint


@pytest.fixture(scope="module")
def evalset(tmp_path_factory: pytest.TempPathFactory) -> EvalSet:
    return freeze_tiny(tmp_path_factory.mktemp("sets") / "tiny")


def test_a_pipeline_a_path_and_a_loaded_model_give_the_number_of_evaluate(evalset: EvalSet, tmp_path: Path) -> None:
    ready = loaded(seed=4)
    path = save_checkpoint(tmp_path / "checkpoint-1", seed=4)
    recipe = EvaluateRecipe(eval_sets=(evalset.folder,), device="cpu", dtype="float32")
    expected = evaluate([path], recipe)[0].estimates
    pipeline = FillMaskPipeline(model=ready.model, tokenizer=ready.tokenizer, device="cpu")
    for model in (ready, path, str(path), pipeline):
        assert tune.eval_real_coref_top1(model, evalset) == expected["real1"].value
        assert tune.eval_real_coref_top5(model, evalset) == expected["real5"].value
        assert tune.eval_lambada_topk(model, evalset, k=1) == expected["lambada_top1"].value
    assert tune.eval_real_coref_top1(ready, evalset, batch_size=2, seq_len=128) == expected["real1"].value


def test_a_set_without_lambada_was_not_run(tmp_path: Path) -> None:
    real = freeze_tiny(tmp_path / "real", tasks=("real",))
    assert tune.eval_lambada_topk(loaded(), real) is None


def test_a_pipeline_cannot_read_further_than_its_model(evalset: EvalSet) -> None:
    ready = loaded(seq_len=64)
    pipeline = FillMaskPipeline(model=ready.model, tokenizer=ready.tokenizer, device="cpu")
    with pytest.raises(ModelError, match="reads 64 tokens"):
        tune.eval_real_coref_top1(pipeline, evalset, seq_len=128)
    with pytest.raises(ModelError, match="not a model"):
        tune.eval_real_coref_top1(3, evalset)
