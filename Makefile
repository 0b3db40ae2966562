# Every target sets up what it needs in $(VENV) first; a stamp file per kind of set-up says when
# that was done, and a change to pyproject.toml or constraints.txt makes it stale.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
ARGS ?=

bin := $(VENV)/bin
lock := pyproject.toml constraints.txt
pip := $(bin)/python -m pip --disable-pip-version-check $(if $(CI),--quiet)
user_stamp := $(VENV)/.installed-all
dev_stamp := $(VENV)/.installed-dev

.DELETE_ON_ERROR:
.PHONY: help demo test check lint types layers sync format eval bench clean

help: ## List these commands
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

demo: $(user_stamp) ## Kill an agent mid-conversation and restart it from its memory
	@$(bin)/memstore demo $(ARGS)

test: $(dev_stamp) ## Run the tests (ARGS="-k word" passes options to pytest)
	@$(bin)/python -m pytest -n logical --maxprocesses 4 $(ARGS)

check: lint types layers ## Lint, formatting, types, layers, and the generated sync side

lint: $(dev_stamp)
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/python scripts/generate_sync.py --check

types: $(dev_stamp)
	$(bin)/mypy
	$(bin)/pyright --pythonpath $(bin)/python

layers: $(dev_stamp)
	$(bin)/lint-imports --no-logo

sync: $(dev_stamp) ## Generate memstore/_sync from memstore/_async
	@$(bin)/python scripts/generate_sync.py

format: $(dev_stamp) ## Format, and mend what lint can mend
	$(bin)/ruff check --fix .
	$(bin)/ruff format .

eval: $(dev_stamp) ## Measure retrieval
	@$(bin)/python -m eval run $(ARGS)

bench: $(dev_stamp) ## Measure speed, as ratios to floors taken in the same run
	@$(bin)/python -m eval bench $(ARGS)

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(bin)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "memstore needs Python 3.11 or newer; name one: make PYTHON=python3.12" >&2; exit 1; }
	@echo "Making a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(user_stamp): $(lock) $(bin)/python
	@echo "Installing memstore with all extras into $(VENV) (a few minutes the first time)"
	@$(pip) install --progress-bar on -c constraints.txt -e '.[all]'
	@touch $@

$(dev_stamp): $(lock) $(bin)/python
	@echo "Installing memstore and the development tools into $(VENV) (a few minutes the first time)"
	@$(pip) install --progress-bar on -c constraints.txt -e '.[all,dev]'
	@touch $@ $(user_stamp)
