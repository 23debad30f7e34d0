"""The package by itself: its names, its README, and what it says where it cannot help."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import deberta_kernels
from deberta_kernels import Documents, KernelError, install, installed, why_not
from tests.deberta_kernels.tiny import batch, build

README = (Path(deberta_kernels.__file__).parent / "README.md").read_text("utf-8")


def test_importing_the_package_imports_nothing_heavy_and_nothing_of_coref_automl() -> None:
    code = "import sys, deberta_kernels; print({'torch', 'transformers', 'triton', 'coref_automl'} & set(sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "set()"
    code = "import sys, deberta_kernels.fused_deberta; print('coref_automl' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"


def test_every_name_that_the_readme_imports_is_public() -> None:
    named = re.findall(r"from deberta_kernels import (.+)", README)
    assert named
    assert {name.strip() for line in named for name in line.split(",")} <= set(deberta_kernels.__all__)


def test_on_a_cpu_an_installed_model_computes_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    model, ids = build("deberta"), batch()
    mask = torch.ones_like(ids)
    mask[1, 12:] = 0
    expected = model(input_ids=ids, attention_mask=mask).logits
    assert why_not(model) == "needs a CUDA device"
    install(model)
    assert installed(model)
    assert torch.equal(model(input_ids=ids, attention_mask=mask).logits, expected)


def test_a_mask_of_unknown_form_is_refused_in_one_sentence() -> None:
    with pytest.raises(KernelError, match=r"takes no mask of this form \(str\); pass a \(B, L\) mask"):
        Documents.of("causal")
