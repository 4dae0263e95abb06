# anabranch. `make` alone lists what can be made.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
STAMP := $(VENV)/.installed
PEERS_STAMP := $(PEERS)/.installed
# Processes that run tests side by side, and more arguments for pytest: make test PYTEST_ARGS='-k gather'
WORKERS ?= auto
PYTEST_ARGS ?=
# How long `make fuzz` goes on, and where its random programs start
SECONDS ?= 3600
SEED ?= 1
# What `make unit-tests` runs of what is kept: all, missing, unfinished, failed
RUN ?= missing

PROTOS = $(wildcard anabranch/proto/*.proto)

.DEFAULT_GOAL := help
.PHONY: help venv demo demo-text demo-cluster test tiny lint format types extras api-docs bench bench-env fuzz oracle covered onnx libraries unit-tests programs first-steps protos stubs names lock clean distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

venv: $(STAMP) ## create .venv with the locked dependencies and this package

# Modules are compiled by all processors, which pip does with one; one that cannot be would not be imported either.
$(STAMP): requirements/lock.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "anabranch needs Python 3.11 or later; say which with: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "creating $(VENV): about a minute, or more where packages must be fetched first"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python requirements/install.py --no-compile --require-hashes -r requirements/lock.txt
	@$(BIN)/python requirements/install.py --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	@echo "$(VENV) is ready"
	@touch $@

demo: venv ## train a convolutional network on handwritten digits, live
	$(BIN)/anabranch demo

demo-text: venv ## train a character-level LSTM on Python's own library, and let it write
	$(BIN)/anabranch demo text

demo-cluster: venv ## train on 2 parameter servers and 3 workers, and kill one of them
	$(BIN)/python examples/cluster_demo.py

# Modules of this checkout are compiled first, for the processes that tests start: where Python is told to write no bytecode,
# each of them would compile anew what it imports, for half a second. One that cannot be compiled fails its tests.
test: venv ## run the whole test suite
	@$(BIN)/python -m compileall -qq -j 0 anabranch tests || true
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

tiny: venv ## run the tests for every save, in under ten seconds
	$(BIN)/python -m pytest -q tests/test_tiny.py $(PYTEST_ARGS)

lint: venv ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: venv ## mend style and formatting where that can be done mechanically
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

types: venv ## check types
	$(BIN)/mypy

extras: venv ## check that every extra, and all of them together, can be resolved
	$(BIN)/python .ci/resolve_extras.py

api-docs: venv ## write the API's pages to docs/api
	$(BIN)/anabranch api docs/api

bench-env: $(PEERS_STAMP) ## create .venv-peers with TensorFlow, PyTorch and JAX to measure against

# tf-slim and tf-keras would bring a second build of TensorFlow; hence --no-deps.
$(PEERS_STAMP): requirements/peers.txt
	@echo "creating $(PEERS) with TensorFlow, PyTorch and JAX: several minutes"
	@$(PYTHON) -m venv $(PEERS)
	@$(PEERS)/bin/python requirements/install.py --no-deps -r requirements/peers.txt
	@touch $@

bench: venv bench-env ## measure against the peers; each benchmark prints a table
	$(BIN)/python -m benchmarks

fuzz: venv bench-env ## run random graphs beside genuine TensorFlow: SECONDS=3600 SEED=1
	$(BIN)/python -m tests.fuzz.differential --seconds $(SECONDS) --seed $(SEED)

oracle: venv bench-env ## record anew what genuine TensorFlow gives, and compare it with the tests' fixtures: RECORDINGS='make_string_fixture'
	$(BIN)/python -m tests.oracles $(RECORDINGS)

covered: venv ## count which operation types are compared with genuine TensorFlow, by random programs or by recordings
	$(BIN)/python -m tests.oracles.covered

onnx: venv ## the onnx package's backend tests, a line for each operator (needs the extra onnx): PEERS=--peers
	$(BIN)/python -m tests.onnx_backend $(PEERS)
	$(BIN)/python -m tests.onnx_backend --kind light $(PEERS)

libraries: venv ## libraries of TensorFlow 1's time, each installed alone, and a table: LIBRARIES='keras tflearn' SOURCES='keras=FOLDER'
	$(BIN)/python -m tests.libraries $(LIBRARIES) $(foreach source,$(SOURCES),--sources $(source))

unit-tests: venv ## TensorFlow 1.15's own unit tests, kept results without CHECKOUT=FOLDER: FILES='ops/*' RUN=failed
	$(BIN)/python -m tests.tensorflow_tests $(FILES) \
		$(if $(CHECKOUT),--checkout $(CHECKOUT) --run $(RUN),--run none) \
		$(foreach folder,$(PACKAGES),--packages $(folder)) $(UNIT_TEST_ARGS)

programs: venv bench-env ## public programs, unmodified, beside TensorFlow: PROGRAMS=FOLDER CHECKOUTS=FOLDER IDS='V02 V1*'
	$(BIN)/python -m tests.listed_programs --programs $(PROGRAMS) --home $(CHECKOUTS) $(IDS)

first-steps: venv bench-env ## gradients of public programs' first steps beside TensorFlow's: PROGRAMS=FOLDER CHECKOUTS=FOLDER IDS=V02
	$(BIN)/python -m tests.first_steps --programs $(PROGRAMS) --home $(CHECKOUTS) $(IDS)

protos: venv ## regenerate the protocol-buffer classes
	$(BIN)/python -m grpc_tools.protoc -I. --plugin=$(BIN)/protoc-gen-mypy --python_out=. --mypy_out=. $(PROTOS)

stubs: venv ## write the stub of tf.raw_ops anew from the registry of operations
	$(BIN)/python -m anabranch.tools.raw_ops_stub

names: venv ## count which of TensorFlow 1.15's public names are there
	$(BIN)/python -m anabranch check --interface

lock: venv ## resolve requirements/lock.txt anew from pyproject.toml
	env -u PIP_FIND_LINKS -u PIP_EXTRA_INDEX_URL $(BIN)/uv pip compile pyproject.toml --extra dev --universal \
		--python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
		--quiet --output-file requirements/lock.txt

clean: ## remove caches and what the demo wrote
	rm -rf build dist runs docs/api .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find anabranch tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean ## remove the environments too
	rm -rf $(VENV) $(PEERS)
