# The verbs of daily work; `make help` lists them, `make` alone is `make demo`. Each sets up what it needs in .venv, with
# plain pip. P is always the folder of a package, such as builtin_models/fcnet.

# The first that runs: a name on the path may be the shim of a version that is not there, or lack what venv needs.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3.14 python3; do \
	"$$python" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null \
	&& echo "$$python" && break; done)
VENV := .venv
BIN := $(VENV)/bin
LOWEST := .venv-lowest
NEWEST := .venv-newest
ENVIRONMENTS := .venv-environments
# What examples and bridges need and nothing else may see: requirements/skrl.txt, rsl_rl.txt, timm.txt and server.txt say
# why.
BESIDE := $(VENV)/.skrl $(VENV)/.rsl_rl $(VENV)/.timm $(VENV)/.server
# Their tests run in a process of their own, which sees these folders.
BRIDGES := plugins/rsl_rl plugins/skrl
BRIDGES_PATH := $(VENV)/rsl_rl:$(VENV)/skrl
# As many workers as there are cores. Each takes up to 4 GB of memory, so there are at most four.
WORKERS ?= -n logical --maxprocesses 4
# Code on pages has 88 columns. The guide to plugins shows files that `rlcatalog new` writes, which have 100.
FORMAT_PAGES = $(BIN)/ruff format --line-length 88 --config 'include=["*.md"]' --config 'format.exclude=[]' \
	--exclude docs/plugins.md
SEED ?= 0
STEPS ?= 100000
OUT ?= runs/cartpole-$(SEED)

PACKAGES := $(wildcard catalog/pyproject.toml builtin_models/*/pyproject.toml builtin_dists/*/pyproject.toml \
	plugins/*/pyproject.toml)

FOLDERS := $(patsubst %/pyproject.toml,%,$(PACKAGES))

# What the package P needs: an engine's package needs its engine, any other one framework.
NEEDS = $(VENV)/$(if $(shell grep -hx -e '-e ./$(P)' requirements/dev.txt requirements/without_dependencies.txt),.dev,.torch)

ifneq ($(filter test-one,$(MAKECMDGOALS)),)
override P := $(patsubst %/,%,$(P))
ifeq ($(filter $(FOLDERS),$(P)),)
$(error P=$(P) is no package of this repository. Say P=FOLDER, one of: $(FOLDERS))
endif
endif

# What is imported is compiled once, whatever the shell says: tests start many processes.
unexport PYTHONDONTWRITEBYTECODE
# TensorFlow's start-up notices are of no use here.
export TF_CPP_MIN_LOG_LEVEL ?= 3
# Small nets: more threads wait for one another, and tests run side by side.
test test-one bridges quick lowest newest engines environments learn attack sweep compare peers docs docs-run: export OMP_NUM_THREADS ?= 1

.PHONY: demo help test quick test-one bridges learn attack sweep lint fix bench bench-check gpu peers compare lowest newest update engines environments generate dist version docs docs-serve docs-run browser docs-check clean

demo: $(VENV)/.demo  ## explain, train and evaluate CartPole with parts found through entry points
	$(BIN)/rlcatalog explain CartPole-v1
	$(BIN)/rlcatalog train CartPole-v1 --steps $(STEPS) --seed $(SEED) --out $(OUT) --overwrite
	$(BIN)/rlcatalog evaluate $(OUT) --episodes 100
	@echo "picture: $(OUT)/learning_curve.png"

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

test: $(VENV)/.dev $(BESIDE)  ## the tests of all packages and of how they fit together, a short learning run included
	$(BIN)/python -m pytest -m "not learn and not slow" $(WORKERS) --dist loadfile --ignore=tests/docs $(PYTEST_ARGS)
	$(if $(PYTEST_ARGS),,PYTHONPATH=$(BRIDGES_PATH) $(BIN)/python -m pytest $(WORKERS) --dist loadfile $(BRIDGES))

quick: $(VENV)/.torch  ## the kernel's tests and those of what changed since main, in about a minute
	$(BIN)/python tools/quick.py $(PYTEST_ARGS)

ifneq ($(filter $(BRIDGES),$(P)),)
test-one: export PYTHONPATH := $(BRIDGES_PATH)
test-one: $(BESIDE)
endif
test-one: $(NEEDS)  ## the tests of one package, P=FOLDER; PyTorch alone will do
	$(BIN)/python -m pytest -m "not learn and not slow" $(P) $(PYTEST_ARGS)

bridges: $(VENV)/.dev $(BESIDE)  ## the tests of the bridges to rsl_rl and skrl, which need folders of their own
	PYTHONPATH=$(BRIDGES_PATH) $(BIN)/python -m pytest $(BRIDGES) $(PYTEST_ARGS)

attack: $(VENV)/.dev $(BESIDE)  ## attacks and large grids of which `make test` runs a part, in full; half an hour on two cores
	$(BIN)/python -m pytest -m slow $(WORKERS) --dist worksteal $(PYTEST_ARGS)
	HYPOTHESIS_PROFILE=full $(BIN)/python -m pytest -m "hypothesis and not slow and not learn" $(WORKERS) --dist worksteal $(PYTEST_ARGS)

learn: $(VENV)/.dev $(VENV)/.compare  ## long learning runs, medians over seeds from SEED on; under an hour on two cores
	SEED=$(SEED) $(BIN)/python -m pytest -m learn $(WORKERS) --dist loadgroup $(PYTEST_ARGS)

sweep: N = 10
sweep: $(VENV)/.dev  ## run N seeds of learning tests and write the records their marks come from: T=FILE [K=PART OF A NAME]
	SEED=$(SEED) $(BIN)/python -m pytest -m learn --sweep $(N) $(T) $(if $(K),-k "$(K)") $(PYTEST_ARGS)

lint: $(VENV)/.dev  ## style, types, spelling, plain words, allowed imports, homes of tests, and whether the generated files are fresh
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(FORMAT_PAGES) --check .
	$(BIN)/mypy
	MYPYPATH=plugins/example/src $(BIN)/mypy -p example_compass  # the plugin of the guide, as an outsider checks it
	MYPYPATH=tests/frameworks/tape_plugin/src $(BIN)/mypy -p tape -p rlcatalog_tape  # that of the page for frameworks
	PYTHONPATH=plugins/example/src $(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/python tools/plain_code.py
	$(BIN)/python tools/public_index.py --check
	$(BIN)/python tools/config_table.py --check
	$(BIN)/python tools/mask_table.py --check
	$(BIN)/python tools/action_bounds_page.py --check
	$(BIN)/python tools/porting_table.py --check
	$(BIN)/python tools/plugins_page.py --check
	$(BIN)/python tools/engines_page.py --check
	$(BIN)/python tools/seeds_page.py --check
	$(BIN)/python tools/framework_page.py --check
	$(BIN)/python tools/observation_page.py --check
	$(BIN)/python tools/spaces_page.py --check
	$(BIN)/python tools/results_page.py --check
	$(BIN)/python tools/environments_page.py --check
	$(BIN)/python tools/reference_pages.py --check
	$(BIN)/python tools/gallery.py --check
	$(BIN)/python tools/robot_tutorial.py --check
	$(BIN)/python tools/pictures.py --check
	$(BIN)/codespell
	$(BIN)/python tools/words.py
	$(BIN)/python tools/test_homes.py

fix: $(VENV)/.torch  ## mend what ruff can: imports, simple faults, layout
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(FORMAT_PAGES) .

bench: $(VENV)/.dev  ## speed, as ratios to hand-written floors measured in the same run; BENCH_ARGS=--help
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

bench-check: $(VENV)/.dev  ## measure, and say what got slower or faster than benchmarks/ratios.json
	$(BIN)/python -m benchmarks --check $(BENCH_ARGS)

gpu: $(VENV)/.dev  ## on an accelerator: tests of devices, then acting, training and PPO beside the CPU, as tables; GPU_ARGS=--help
	$(BIN)/python -m benchmarks.gpu $(GPU_ARGS)

peers: $(VENV)/.dev $(VENV)/.peers  ## speed and memory beside other libraries on the same work, in one run; PEERS_ARGS=--help
	$(BIN)/python -m benchmarks.peers $(PEERS_ARGS)

compare: $(VENV)/.dev $(VENV)/.compare  ## learning: engines with their own nets and with ours, our PPO beside them, over paired seeds; COMPARE_ARGS=--help
	$(BIN)/python -m benchmarks.learning $(COMPARE_ARGS)

# Old third parties use what newer ones of others call deprecated. RLlib's tests have a process of their own: its lowest
# version leaves threads behind that can crash PyTorch.
lowest: PYTEST_LOWEST = -m "not learn and not slow" -W ignore::DeprecationWarning $(WORKERS) --dist loadfile
lowest: $(LOWEST)/.done  ## the tests of every package, at every lowest version that the packages declare
	$(LOWEST)/bin/python -m pytest $(PYTEST_LOWEST) catalog builtin_models builtin_dists plugins \
	--ignore=plugins/rllib $(PYTEST_ARGS)
	$(LOWEST)/bin/python -m pytest $(PYTEST_LOWEST) -W ignore::FutureWarning plugins/rllib $(PYTEST_ARGS)

newest: $(VENV)/.build  ## the tests with the newest versions that pip finds, in empty environments; NEWEST_ARGS=--help
	$(BIN)/python tools/newest.py --python $(PYTHON) $(NEWEST_ARGS)

update: $(VENV)/.build  ## raise the versions in requirements/ to the newest, and say what moved
	$(BIN)/python tools/update.py

engines: $(VENV)/.dev $(VENV)/.peers  ## the examples of engines that need other packages than the rest: tianshou
	$(BIN)/python -m pytest tests/docs/test_examples.py -k tianshou $(PYTEST_ARGS)

environments: $(VENV)/.build  ## environments of other packages, from their spaces to an exported policy; ENVIRONMENTS_ARGS=--help
	$(BIN)/python tools/environments.py --python $(PYTHON) $(ENVIRONMENTS_ARGS)

generate: $(VENV)/.dev  ## write what is generated: install hints, tables, pages and pictures of the docs, and the expected screens of commands
	$(BIN)/python tools/public_index.py
	$(BIN)/python tools/config_table.py
	$(BIN)/python tools/mask_table.py
	$(BIN)/python tools/action_bounds_page.py
	$(BIN)/python tools/porting_table.py
	$(BIN)/python tools/plugins_page.py
	$(BIN)/python tools/engines_page.py
	$(BIN)/python tools/seeds_page.py
	$(BIN)/python tools/framework_page.py
	$(BIN)/python tools/observation_page.py
	$(BIN)/python tools/spaces_page.py
	$(BIN)/python tools/results_page.py
	$(BIN)/python tools/environments_page.py
	$(BIN)/python tools/reference_pages.py
	$(BIN)/python tools/gallery.py
	$(BIN)/python tools/robot_tutorial.py
	$(BIN)/python tools/pictures.py
	$(BIN)/python -m pytest -q tests/commands/test_screens.py --write-screens
	$(BIN)/python -m benchmarks.learning --report
	$(BIN)/python -m benchmarks.peers --report

dist: $(VENV)/.dev $(VENV)/.dist  ## build all packages into dist/, check them, run the tour in an empty environment and the demo in a bare clone
	$(BIN)/python tools/dist.py

version: $(VENV)/.dev  ## raise the version of all packages, V=0.2.0; see RELEASING.md
	$(BIN)/python tools/version.py $(V)

docs: $(VENV)/.docs  ## the site, built from nothing into docs/_build/html: notebooks run, a warning is an error
	rm -rf docs/_build
	@test -e examples/browser/node_modules/onnxruntime-web || (cd examples/browser && npm ci --ignore-scripts --silent) \
	|| echo "without onnxruntime-web, the home page shows a film instead of a policy that plays in it"
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --nitpicky --quiet docs docs/_build/html
	@echo "open docs/_build/html/index.html, or say make docs-serve"

docs-serve: PORT = 8000
docs-serve: docs  ## show the site to this machine's browsers, at http://127.0.0.1:8000; PORT= names another
	$(BIN)/python -m http.server $(PORT) --bind 127.0.0.1 --directory docs/_build/html

docs-run: $(VENV)/.dev $(BESIDE)  ## run the code of all pages, READMEs and examples, and follow the links
	$(BIN)/python -m pytest -m "not learn and not slow" $(WORKERS) --dist loadfile tests/docs $(PYTEST_ARGS)

browser: $(VENV)/.dev  ## find Chromium for docs-check; if none is installed, unpack Debian's into .venv, without root
	$(BIN)/python tools/fetch_browser.py

docs-check: browser  ## look at the built site in Chromium: nothing is wider than the window or cut, pictures have dark colours
	@test -d docs/_build/html || { echo "docs/_build/html is missing: run make docs first." >&2; exit 1; }
	$(BIN)/python -m pytest -q tests/docs/test_pages_in_browser.py $(PYTEST_ARGS)

clean:  ## remove the environments, the runs, the site and the tools' caches
	rm -rf $(VENV) $(LOWEST) $(NEWEST) $(ENVIRONMENTS) runs dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/pip:
	@test -n "$(PYTHON)" || { echo "No Python 3.11 to 3.14 that runs and has venv was found on the path." \
	"Install one, or name yours: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.build: requirements/build.txt | $(BIN)/pip
	$(BIN)/pip install --quiet --disable-pip-version-check -r $<
	touch $@

$(VENV)/.demo: requirements/demo.txt $(PACKAGES) $(VENV)/.build
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation -r $<
	touch $@

$(VENV)/.torch: requirements/torch.txt requirements/demo.txt $(PACKAGES) $(VENV)/.build
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation -r $<
	touch $@ $(VENV)/.demo

$(VENV)/.dev: requirements/dev.txt requirements/without_dependencies.txt requirements/torch.txt requirements/demo.txt $(PACKAGES) $(VENV)/.build
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation -r $<
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -r requirements/without_dependencies.txt
	touch $@ $(VENV)/.torch $(VENV)/.demo

$(BESIDE) $(VENV)/.compare $(VENV)/.peers: $(VENV)/.%: requirements/%.txt | $(BIN)/pip
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(VENV)/$* -r $<
	touch $@

$(VENV)/.dist: requirements/dist.txt $(VENV)/.build
	$(BIN)/pip install --quiet --disable-pip-version-check -r $<
	touch $@

$(VENV)/.docs: requirements/docs.txt $(VENV)/.dev
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation -r $<
	touch $@

# The lowest Python too; the oldest wheels are for no later one. Older versions of pip take very long to find versions
# that fit one another.
$(LOWEST)/.done: tools/lowest.py requirements/dev.txt requirements/torch.txt requirements/demo.txt $(PACKAGES) $(VENV)/.build
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "The lowest versions are those of" \
	"Python 3.11. Name one: make lowest PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(LOWEST)
	$(BIN)/python tools/lowest.py > $(LOWEST)/requirements.txt
	$(LOWEST)/bin/pip install --quiet --disable-pip-version-check --upgrade pip -r requirements/build.txt
	$(LOWEST)/bin/pip install --quiet --disable-pip-version-check --no-build-isolation -r $(LOWEST)/requirements.txt
	touch $@
