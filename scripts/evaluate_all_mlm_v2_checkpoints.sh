#!/usr/bin/env bash
# Evaluate every checkpoint of runs/mlm_v2_scratch_1536 and runs/mlm_v2_scratch_2048 into ./evaluation_results_<timestamp>/.
# Options of `coref-automl evaluate` (--eval-set, --device, --words ...) are passed on. Finished evaluations are copied, not repeated.
set -euo pipefail

runs=()
for run in runs/mlm_v2_scratch_1536 runs/mlm_v2_scratch_2048; do
  if [ -d "$run" ]; then runs+=("$run"); else echo "$run does not exist and is left out." >&2; fi
done
if [ ${#runs[@]} -eq 0 ]; then
  echo "There is no run to evaluate; train one first, or start this script in the folder that holds runs/." >&2
  exit 2
fi

out="./evaluation_results_$(date +%Y%m%d_%H%M%S)"
python -m coref_automl.cli evaluate "${runs[@]}" --out "$out" "$@"
echo "$out"
