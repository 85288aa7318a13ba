# Everything a developer or a first visitor types. `make help` lists it.
.PHONY: help setup demo test test-rust test-python fuzz lint bench docs reference clean
VENV := .venv/bin
# Hundreds of tests start a command, which compiles all of the package where it may not keep what it has compiled.
unexport PYTHONDONTWRITEBYTECODE
# Tests wait, for timers and for each other's servers: one more than there are processors, and four at most, for labs share the rest.
WORKERS := $(shell n=$$(nproc); echo $$((n < 4 ? n + 1 : 4)))
export PATH := $(CURDIR)/.venv/bin:$(HOME)/.cargo/bin:/usr/lib/rust-web/bin:$(PATH)

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install what is missing: packages, .venv, the engine
	@scripts/setup.sh run

demo: ## study 000 scenario 1 at a reduced scale, on real files; prints the answer and the path of the report
	@scripts/setup.sh run
	@$(VENV)/venturi study run cnaf/cp --quick

test: ## the same set-up, then all tests
	@scripts/setup.sh dev
	@$(MAKE) --no-print-directory test-rust test-python

test-rust:
	cargo test --quiet --workspace

test-python:
	$(VENV)/python -m pytest -n $(WORKERS) --dist worksteal -m "not alone"
	$(VENV)/python -m pytest -m alone

fuzz: ## the fuzz targets of the protocol core and the mover, SECONDS each (60)
	scripts/fuzz.sh $(or $(SECONDS),60)

lint: ## formatting, lints and types, warnings denied
	@scripts/setup.sh dev
	cargo fmt --check
	cargo clippy --quiet --workspace --all-targets -- -D warnings
	$(VENV)/ruff format --check
	$(VENV)/ruff check
	$(VENV)/mypy

bench: ## ours beside the peers, in one run each
	@scripts/setup.sh dev
	$(VENV)/python bench/harness.py
	$(VENV)/python bench/fits.py
	$(VENV)/python bench/analysis.py
	$(VENV)/python bench/wire.py
	$(VENV)/python bench/sim.py
	$(VENV)/python bench/mover.py

docs: ## the documentation as HTML in docs/_build
	@scripts/setup.sh docs
	$(VENV)/python -m sphinx -W -q -b html docs docs/_build
	@echo "docs/_build/index.html"

clean: ## remove what can be made again (runs are kept)
	rm -rf target .venv docs/_build .pytest_cache .mypy_cache .ruff_cache

reference: ## write the generated pages of docs/reference again
	@scripts/setup.sh dev
	$(VENV)/venturi-engine schema plan > docs/reference/plan.schema.json
	$(VENV)/venturi schema > docs/reference/scenario.schema.json
	$(VENV)/python -c 'from venturi.mover.reference import movers_reference; print(movers_reference(), end="")' > docs/reference/movers.md
	$(VENV)/python -c 'from venturi.testbed.services.reference import services_reference; print(services_reference(), end="")' > docs/reference/services.md
	$(VENV)/python -c 'from venturi.study.features import features_reference; print(features_reference(), end="")' > docs/reference/features.md
	$(VENV)/python -c 'from venturi.cli.reference import cli_reference; print(cli_reference(), end="")' > docs/reference/cli.md
