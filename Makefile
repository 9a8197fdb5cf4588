# The two commands of the README: `make demo` and `make test`. Each sets itself up; either may come first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Other projects' programs (zeus, nvitop, ...) that the tests run, in an environment of their own.
PEERS := .venv-peers
# Public measurements to compare with; without the folder, the tests and benches that need it are skipped.
export WATTUNE_DATA ?= $(wildcard $(abspath ../shared/data))

# Many tests wait for the processes that they start, so that two test processes per core take less time than one.
WORKERS ?= $(shell expr 2 '*' "$$(nproc)")

.PHONY: demo test check lint setup clean

demo: $(VENV)/.run
	$(BIN)/wattune demo

test: $(VENV)/.dev $(PEERS)/.ready lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

check: $(VENV)/.dev lint
	$(BIN)/python -m pytest tests/unit tests/properties tests/contracts

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

setup: $(VENV)/.dev

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.run: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.dev: pyproject.toml benches/pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]' --editable benches
	touch $@ $(VENV)/.run

$(PEERS)/.ready: tests/end_to_end/peers/requirements.txt
	$(PYTHON) tests/end_to_end/peers/peer_environment.py

clean:
	rm -rf $(VENV) .venv-* .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
