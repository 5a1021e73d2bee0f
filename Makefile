# Everything a newcomer needs; `make help` lists the targets with their explanations.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
SCENARIO ?= scenarios/examples/llama-3.1-70b-64xh100.yaml
TORCH := torch==2.13.0

.DEFAULT_GOAL := help
.PHONY: help plan test test-external check format lint types bench validate examples clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

$(VENV)/.plan: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/.plan

plan: $(VENV)/.plan  ## set up (first time) and print the ranked plans of SCENARIO
	@$(BIN)/shardplan plan $(SCENARIO)

test: $(VENV)/.dev  ## set up what tests need (first time) and run them
	@$(BIN)/python -m pytest -q -n 2

EXTERNAL := .venv-external
MEGATRON := $(EXTERNAL)/megatron-0.19

# torch goes first and stays pinned. The Megatron release that holds the argument parser asks for Python 3.12 and
# would drag CUDA packages along; only its Python files are wanted. nanotron likewise.
$(EXTERNAL)/.done: tests/external/requirements.txt pyproject.toml
	@test -x $(EXTERNAL)/bin/python || $(PYTHON) -m venv $(EXTERNAL)
	@$(EXTERNAL)/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	@$(EXTERNAL)/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH) --editable '.[dev]' --requirement tests/external/requirements.txt
	@$(EXTERNAL)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps megatron-core==0.16.1 nanotron==0.4
	@rm -rf $(MEGATRON)
	@$(EXTERNAL)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --ignore-requires-python \
		--only-binary=:all: --python-version 3.12 --target $(MEGATRON) megatron-core==0.19.2
	@touch $@

test-external: $(EXTERNAL)/.done  ## set up other projects' parsers (first time) and run our files through them
	@$(EXTERNAL)/bin/python -m pytest -q -m external -rs

check: $(VENV)/.dev format-check lint types test  ## format, lint, types and tests: before every commit

format: $(VENV)/.dev  ## write the formatting
	@$(BIN)/ruff format .

format-check: $(VENV)/.dev  ## fail if the formatting is off
	@$(BIN)/ruff format --check .

lint: $(VENV)/.dev  ## ruff's rules
	@$(BIN)/ruff check .

types: $(VENV)/.dev  ## mypy, strict, over source and tests
	@$(BIN)/mypy

bench: $(VENV)/.dev  ## search times on the scenarios that other planners report
	@$(BIN)/python -m benchmarks.bench_search --rounds 3 --json benchmarks/results/search.json

examples: $(VENV)/.dev  ## run the examples and the README's command, store their output anew
	@$(BIN)/python -m tests.readme_parts
	@for name in first_plan whatif_memory own_module; do \
		$(BIN)/python examples/$$name.py > examples/output/$$name.txt || exit 1; done

validate: $(VENV)/.dev  ## run 16 strategies for real on two processes and compare with predictions
	@$(BIN)/python benchmarks/validate.py

clean:  ## remove the virtual environment and caches
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache build *.egg-info
