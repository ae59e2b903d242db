# Trainyard. `make demo` shows it at work, `make test` proves it; both set up everything they need in .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2
FAST := not train and not browser and not slow and not postgres and not redis

.DEFAULT_GOAL := help
.PHONY: help demo test lint check format dev bench bench-scheduler clean setup

help:            ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/ -/'

setup: $(READY)  ## the virtual environment, without running anything

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV), once"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[server,trainer,demo,dev]'
	@touch $(READY)

demo: $(READY)   ## the main job: base model, dataset, LoRA on 2 processes, download, scores (MODEL=... DATA=... for your own)
	@$(BIN)/python examples/demo.py $(if $(MODEL),--model '$(MODEL)') $(if $(DATA),--data '$(DATA)')

test: $(READY)   ## every test; starts PostgreSQL and Redis itself where it finds them
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(TESTS)

lint: $(READY)   ## format, lint, types, import rules
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

check: lint      ## lint and the fast tests, in under two minutes; before every commit
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "$(FAST)" tests/house tests/trainyard tests/trainer_core tests/api

format: $(READY) ## rewrite to the house format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

dev: $(READY)    ## the service with reload, data in .dev
	@TRAINYARD_DATA_DIR=.dev $(BIN)/watchfiles --sigint-timeout 15 '$(BIN)/python -m trainyard up' api worker trainyard

bench: $(READY)  ## figures: overhead per step, time to the first step, reads, metric intake, start
	@$(BIN)/python tests/bench/run.py

bench-scheduler: $(READY) ## planning 100,000 waiting jobs on 1,000 nodes, and reading them: the curve over their number
	@$(BIN)/python tests/bench/scheduler.py

clean:           ## remove what the targets above made
	rm -rf $(VENV) .demo .dev .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
