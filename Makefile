# Two commands: `make demo` and `make test`. Each makes .venv if it is missing, installs what it needs once, and runs.
# `make journeys` takes the long ways through the commands; `make kernels` also installs Triton (270 MB) and checks the fused attention
# on a CPU, in Triton's interpreter.

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
# Two processes; a file, or a folder whose files share what is costly (tests/conftest.py), stays in one of them.
TWO := -n 2 --dist loadfile
# Bytecode is kept wherever the environment forbids it: else every process that a test starts compiles the package anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-masked journeys torture kernels lint docs site picture release results clean

demo: .venv/.for-demo
	$(BIN)/coref-automl demo --out demo
	@echo 'Before the commands above: . $(BIN)/activate'

test: .venv/.for-test lint
	$(BIN)/python -m pytest $(TWO)

# What another machine changes, as it runs it: no bfloat16 instructions, no list of usable cores (macOS), no optional programs.
# Statistics, comparison, reports and pages compute with none of these.
MASKED := $(addprefix tests/,base benchmarks cli corpus deberta_kernels evaluation extras models training) tests/test_*.py
test-masked: .venv/.for-test
	COREF_TEST_MASK=bfloat16,affinity,programs $(BIN)/python -m pytest $(TWO) $(MASKED)

journeys: .venv/.for-test
	$(BIN)/python -m pytest -m journey $(JOURNEYS)

kernels: .venv/.for-kernels
	TRITON_INTERPRET=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 tests/deberta_kernels tests/training/test_fused_run.py
	$(BIN)/python -m pytest -n 2 -m journey tests/deberta_kernels/test_kernels_compile.py

# make torture SECONDS=600 SEED=1: bad inputs, signals, bombs, changed inputs, two at once and full disks against every command; says what failed, and how to repeat it.
SECONDS ?= 600
torture: .venv/.for-test
	$(BIN)/python -m tests.torture --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

lint: .venv/.for-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/.for-test
	$(BIN)/python scripts/write_docs.py

# The pages in docs/ as a site, English and Korean; read it with: python -m http.server -d site
site: .venv/.for-site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# The READMEs' picture, taken anew from the published report, and the outputs of the tutorial.
picture: .venv/.for-demo
	$(BIN)/python scripts/take_picture.py
	$(BIN)/python scripts/write_tutorial.py

# Wheel and sdist in dist/.
release: .venv/.made
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt build
	rm -rf dist
	$(BIN)/python -m build --outdir dist .

# make results RUNS=runs: keep the numbers of these runs in results/experiment; without RUNS only the pages are written again.
results: .venv/.for-test
	$(BIN)/python scripts/write_results.py $(RUNS)

.venv/.made:
	$(PYTHON) -m venv .venv
	touch $@

.venv/.for-demo: pyproject.toml constraints.txt | .venv/.made
	$(INSTALL) -e '.[studio]'
	touch $@

.venv/.for-test: pyproject.toml constraints.txt | .venv/.made
	$(INSTALL) -e '.[dev]'
	touch $@ .venv/.for-demo .venv/.for-site

.venv/.for-site: pyproject.toml constraints.txt | .venv/.made
	$(INSTALL) -e '.[docs]'
	touch $@

.venv/.for-kernels: .venv/.for-test
	$(INSTALL) -e '.[dev,kernels]'
	touch $@

clean:
	rm -rf .venv demo build dist site
