# Every target sets up what it needs in .venv; nothing has to be run before.
.DEFAULT_GOAL := help
.PHONY: help java setup tools demo wheels test test-fast test-flink test-browser test-stores check docs format soak storm fuzz bench ui clean-demo

PYTEST := scripts/with-java python -m pytest
# The variable silences an advertisement that the theme prints on every run.
MKDOCS := NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs
# Budget and seed of the long runs: make soak SECONDS=600 SEED=7
SECONDS ?= 300
SEED ?= 0
COMMITS ?= 1000

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/|/' | awk -F'|' '{printf "  make %-14s %s\n", $$1, $$2}'

java:
	@scripts/find-java >/dev/null

setup: ## make .venv with what the demo needs (the other targets add theirs by themselves)
	@scripts/setup-venv

tools: setup
	@scripts/setup-venv dev

demo: java setup ## the main job end to end on real flights, through Dagster and Spark
	@scripts/with-java python -m examples.flights.run

wheels: tools ## both wheels in dist, with kernels compiled for this Python and system
	@.venv/bin/python -m tests.wheels dist

ui: java setup ## the Dagster UI on the demo's instance (run make demo first)
	@scripts/setup-venv ui
	@scripts/with-java python -m examples.flights.ui

test: tools ## all tests that need neither Flink nor a browser
	@$(PYTEST) -n 4 tests/docs tests/integration/dagster tests/integration/spark tests/install \
	  tests/contract tests/simulation tests/property tests/unit tests/fuzz -m "not soak"

test-fast: tools ## unit and property tests without Spark, with few examples and without the slow ones
	@DSTL_PROFILE=fast $(PYTEST) -n auto tests/unit tests/property -m "not slow and not spark and not dagster and not flink and not browser and not soak"

test-flink: tools ## restore what we write in real Flink (fetches its jars once)
	@scripts/setup-venv flink
	@$(PYTEST) -n 2 tests/integration/flink -m "not soak"

test-browser: tools ## the Dagster UI in headless Chromium
	@$(PYTEST) tests/integration/browser

test-stores: tools ## Google Cloud Storage and Azure, on servers of their own (needs Node.js)
	@scripts/setup-venv stores
	@scripts/setup-azurite
	@$(PYTEST) -m stores tests/contract tests/integration/stores

check: tools ## format, lint, types, imports of tests, import contracts, documentation site
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@out=$$($(PYTEST) -qq --collect-only -p no:cacheprovider tests) || { echo "$$out" | tail -40; exit 1; }
	@.venv/bin/lint-imports --no-logo
	@.venv/bin/dg --quiet check defs 2>/dev/null || .venv/bin/dg check defs
	@$(MKDOCS) build --quiet

docs: tools ## the documentation site on http://127.0.0.1:8000
	@$(MKDOCS) serve --dev-addr 127.0.0.1:8000

format: tools ## write the format and the safe fixes
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

soak: tools ## the long runs, every byte of every file, and property tests with 25 times the examples of make test (SECONDS=300 SEED=0)
	@DSTL_SOAK_SECONDS=$(SECONDS) DSTL_SOAK_SEED=$(SEED) $(PYTEST) -m soak
	@DSTL_SOAK_SECONDS=$(SECONDS) $(PYTEST) -n auto --hypothesis-seed=$(SEED) tests/property -m "not soak"
	@DSTL_SOAK_SECONDS=$(SECONDS) $(PYTEST) -n auto tests/unit -m "slow and not soak"

storm: tools ## drivers, kills and a bad network on one pipeline, local and S3 (SECONDS=300 each, COMMITS=1000, SEED=0)
	@for storage in local s3; do .venv/bin/python -m tests.simulation.storm $$storage --commits $(COMMITS) --seconds $(SECONDS) --seed $(SEED) || exit 1; done

fuzz: tools ## coverage-guided fuzzing of the readers (SECONDS=300 in all)
	@scripts/setup-venv fuzz
	@for target in metadata keyed table_file java_stream kryo_value python_pickle message class_file declaration expression; do .venv/bin/python -m tests.fuzz $$target $$(($(SECONDS) / 10)) $(SEED) || exit 1; done

bench: tools ## side-by-side benchmarks into benchmarks/results
	@scripts/setup-venv bench
	@scripts/with-java python -m benchmarks

clean-demo: ## forget the demo's data and its Dagster instance
	@rm -rf .demo
