"""Prepare the data of masked language modelling from the fourteen sources.

    python scripts/dataset_preparation_mlm_v2.py [--seq-len 1536] [--source S]... [--model M] [--output-dir DIR]

Every other option of `coref-automl prepare mlm` is passed on. Without --source: the fourteen named sources, at most 20,000 rows
of each, because one of them is a crawl of the web.
"""

import argparse
import sys

from coref_automl.cli.app import run
from coref_automl.corpus.sources import SOURCES

FOURTEEN = [name for name in SOURCES if name not in ("naver-news", "ko-lambada")]

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", action="append", help="named source or local:PATH; may be given several times")
    parser.add_argument("--model", default="kakaobank/kf-deberta-base", help="model whose tokenizer is used")
    parser.add_argument("--seq-len", type=int, default=1536, help="tokens of a block")
    parser.add_argument("--output-dir", "--out", help="prepared_datasets/mlm_v2_<seq-len> when not given")
    known, rest = parser.parse_known_args()
    limit = [] if known.source or "--limit" in rest else ["--limit", "20000"]
    sources = [part for name in known.source or FOURTEEN for part in ("--source", name)]
    out = known.output_dir or f"prepared_datasets/mlm_v2_{known.seq_len}"
    arguments = ["prepare", "mlm", *sources, "--model", known.model, "--seq-len", str(known.seq_len), "--out", out]
    sys.exit(run([*arguments, *limit, *rest]))
