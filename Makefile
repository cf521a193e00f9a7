# Everything starts here: `make help`.
# uv is taken from PATH, or put into the checkout (.uv/) when the machine has none.
SHELL := /bin/bash
UV := $(shell command -v uv 2>/dev/null || echo .uv/bin/uv)
RUN := $(UV) run --frozen --quiet
PY := .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help setup demo test simulate rounds faults fuzz up lint format bench wheels proto

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

.uv/bin/uv:
	@echo "setting up: uv (into .uv/)"
	@python3 -m venv .uv && .uv/bin/pip install --quiet --disable-pip-version-check 'uv>=0.13,<0.14'

setup: $(filter .uv/bin/uv,$(UV)) ## Install everything into .venv; the command is then .venv/bin/hopline
	@$(UV) sync --frozen --quiet --compile-bytecode

demo: setup ## Run a real delegation through the whole mesh and show its timeline and trace (CREW=1: a whole crew)
	@$(PY) demo/run.py $(if $(CREW),--crew)

test: setup ## Run all tests
	@$(PY) -m pytest -n auto --dist loadfile $(ARGS)

simulate: setup ## Play random agents against the rails (SEEDS=100 STEPS=1000 FIRST=1 JOBS=cores; SEED=n tells one)
	@PYTHONHASHSEED=0 $(PY) -m tests.simulation --seeds $(or $(SEEDS),100) --steps $(or $(STEPS),1000) $(if $(FIRST),--first $(FIRST)) $(if $(JOBS),--jobs $(JOBS)) $(if $(SEED),--seed $(SEED))

rounds: setup ## Play rounds of a crew, and look whether it comes to rest (SEEDS=20 ROUNDS=50 FIRST=1 JOBS=cores; SEED=n tells one)
	@PYTHONHASHSEED=0 $(PY) -m tests.rounds --seeds $(or $(SEEDS),20) --rounds $(or $(ROUNDS),50) $(if $(FIRST),--first $(FIRST)) $(if $(JOBS),--jobs $(JOBS)) $(if $(SEED),--seed $(SEED))

faults: setup ## Kill, stop, cut off and slow down the parts of a mesh of processes under load (ROUNDS=300; SEED=n)
	@$(PY) -m tests.chaos --rounds $(or $(ROUNDS),300) $(if $(SEED),--seed $(SEED))

fuzz: setup ## Feed every surface mutated input at random (SECONDS=300; SEED=n plays one round again)
	@$(PY) -m tests.fuzz --seconds $(or $(SECONDS),300) $(if $(SEED),--seed $(SEED)) $(ARGS)

up: setup ## Start the mesh and stay; Ctrl-C drains it
	@.venv/bin/hopline up

lint: setup ## ruff, mypy --strict, buf lint
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@$(PY) proto/lint.py

format: setup ## Let ruff format the code
	@.venv/bin/ruff check --fix-only . ; .venv/bin/ruff format .

bench: setup ## Measure the mesh beside its floors (FULL=1, PEERS=1: more rows; ROWS=a,b: only these)
	@$(PY) -m tests.bench.run

wheels: setup ## Build a wheel of every part into dist/ (hopline itself pins them all)
	@$(UV) build --quiet --all-packages --wheel --clear --out-dir dist

proto: $(filter .uv/bin/uv,$(UV)) ## Generate the contracts again
	@$(UV) sync --frozen --quiet --reinstall-package hopline-contracts
