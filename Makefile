# The verbs of daily work. `make demo` and `make test` set up all they need in .venv, with plain pip.

# The first that runs: a name on the path may be the shim of a version that is not there, or lack what venv needs.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	"$$python" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null \
	&& echo "$$python" && break; done)
VENV := .venv
BIN := $(VENV)/bin
SEED ?= 0
STEPS ?= 100000
OUT ?= runs/cartpole-$(SEED)

PACKAGES := $(wildcard catalog/pyproject.toml builtin_models/*/pyproject.toml builtin_dists/*/pyproject.toml \
	plugins/*/pyproject.toml)

# TensorFlow's start-up notices are of no use here.
export TF_CPP_MIN_LOG_LEVEL ?= 3
# Small nets: more threads wait for one another, and tests run side by side.
test learn sweep: export OMP_NUM_THREADS ?= 1

.PHONY: demo test learn sweep lint bench mutate docs clean

demo: $(VENV)/.demo  ## explain, train and evaluate CartPole with parts found through entry points
	$(BIN)/rlcatalog explain CartPole-v1
	$(BIN)/rlcatalog train CartPole-v1 --steps $(STEPS) --seed $(SEED) --out $(OUT)
	$(BIN)/rlcatalog evaluate $(OUT) --episodes 100
	@echo "picture: $(OUT)/learning_curve.png"

test: $(VENV)/.dev  ## all tests, a short learning run included
	$(BIN)/python -m pytest -m "not learn" -n 2 --dist loadfile $(PYTEST_ARGS)

learn: $(VENV)/.dev  ## long learning runs, medians over seeds from SEED on; under an hour on two cores
	SEED=$(SEED) $(BIN)/python -m pytest -m learn -n 2 --dist loadgroup $(PYTEST_ARGS)

sweep: N = 10
sweep: $(VENV)/.dev  ## run N seeds of learning tests and write the records their marks come from: T=FILE [K=PART OF A NAME]
	SEED=$(SEED) $(BIN)/python -m pytest -m learn --sweep $(N) $(T) $(if $(K),-k "$(K)") $(PYTEST_ARGS)

lint: $(VENV)/.dev  ## style, types, and the generated file
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.dev  ## speed, as ratios to hand-written floors measured in the same run
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

mutate: N = 100
mutate: $(VENV)/.dev  ## N small faults in a package, drawn by SEED: do its tests notice? `make mutate P=plugins/ppo`
	$(BIN)/python tools/mutate.py $(P) --n $(N) --seed $(SEED) $(MUTATE_ARGS)

docs: $(VENV)/.dev  ## regenerate what is generated: install hints and the key table
	$(BIN)/python tools/public_index.py
	$(BIN)/python tools/config_table.py

clean:
	rm -rf $(VENV) runs .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/pip:
	@test -n "$(PYTHON)" || { echo "No Python 3.11, 3.12 or 3.13 that runs and has venv was found on the path." \
	"Install one, or name yours: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.build: requirements/build.txt | $(BIN)/pip
	$(BIN)/pip install --quiet --disable-pip-version-check -r $<
	touch $@

$(VENV)/.demo: requirements/demo.txt $(PACKAGES) $(VENV)/.build
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation -r $<
	touch $@

$(VENV)/.dev: requirements/dev.txt requirements/demo.txt $(PACKAGES) $(VENV)/.build
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation -r $<
	touch $@ $(VENV)/.demo
