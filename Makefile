# Commands for users and developers. `make help` lists them.
.PHONY: help setup demo test test-rust test-python fuzz lint bench docs reference clean
VENV := .venv/bin
# Hundreds of tests start `venturi`. With this variable, each start would compile the package again.
unexport PYTHONDONTWRITEBYTECODE
# Parallel test processes: CPUs + 1, because tests wait for timers and servers; at most 4, because labs need CPUs too.
WORKERS := $(shell n=$$(nproc); echo $$((n < 4 ? n + 1 : 4)))
# `make lint` checks the text of lines added since this commit. Default: the last common commit with `origin/main`.
PROSE_BASE ?= $(shell git merge-base HEAD origin/main 2>/dev/null || git rev-parse --verify --quiet HEAD~1 || echo HEAD)
export PATH := $(CURDIR)/.venv/bin:$(HOME)/.cargo/bin:/usr/lib/rust-web/bin:$(PATH)

help: ## list these commands
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install missing packages, .venv and the engine
	@scripts/setup.sh run

demo: ## set up, then run a small published experiment on real files and print its result
	@scripts/setup.sh run
	@$(VENV)/venturi study run cnaf/cp --quick

test: ## set up for development, then run all tests
	@scripts/setup.sh dev
	@$(MAKE) --no-print-directory test-rust test-python

test-rust:
	cargo test --quiet --workspace

test-python:
	$(VENV)/python -m pytest -n $(WORKERS) --dist worksteal -m "not alone"
	$(VENV)/python -m pytest -m alone

fuzz: ## run each fuzz target for SECONDS (default: 60)
	scripts/fuzz.sh $(or $(SECONDS),60)

lint: ## check formatting, lints, types, names and language; a warning is an error
	@scripts/setup.sh dev
	cargo fmt --check
	cargo clippy --quiet --workspace --all-targets -- -D warnings
	$(VENV)/ruff format --check
	$(VENV)/ruff check
	$(VENV)/mypy
	$(VENV)/python scripts/check_names.py
	$(VENV)/python scripts/prose_check.py --goals scripts/prose_goals.toml >/dev/null
	$(VENV)/python scripts/prose_check.py --changed $(PROSE_BASE) --max-free 6 --max-idiom 6 --max-mean 20 --max-cells 0 >/dev/null

bench: ## run the benchmarks of Venturi and of comparable programs
	@scripts/setup.sh dev
	$(VENV)/python bench/harness.py
	$(VENV)/python bench/fits.py
	$(VENV)/python bench/analysis.py
	$(VENV)/python bench/emulator.py
	$(VENV)/python bench/sim.py
	$(VENV)/python bench/mover.py

docs: ## build the documentation with its gallery in docs/_build and check links, widths and reports
	@scripts/setup.sh docs
	@rm -rf docs/_build # Sphinx keeps the pages of deleted files, and repeats no warning about an unchanged page
	$(VENV)/python -m sphinx -W -q -b html docs docs/_build
	$(VENV)/python docs/gallery/build.py docs/_build/gallery
	$(VENV)/python scripts/check_site.py docs/_build
	$(VENV)/python scripts/check_widths.py docs/_build
	$(VENV)/python scripts/check_reports.py docs/_build/gallery
	@echo "docs/_build/index.html"

clean: ## delete generated files and .venv; keep runs
	rm -rf target .venv docs/_build .pytest_cache .mypy_cache .ruff_cache

reference: ## regenerate the generated pages of docs/reference
	@scripts/setup.sh dev
	$(VENV)/venturi-engine schema plan > docs/reference/plan.schema.json
	$(VENV)/venturi schema > docs/reference/scenario.schema.json
	$(VENV)/python -c 'from venturi.mover.reference import movers_reference; print(movers_reference(), end="")' > docs/reference/movers.md
	$(VENV)/python -c 'from venturi.testbed.services.reference import services_reference; print(services_reference(), end="")' > docs/reference/services.md
	$(VENV)/python -c 'from venturi.study.features import features_reference; print(features_reference(), end="")' > docs/reference/features.md
	$(VENV)/python -c 'from venturi.cli.reference import cli_reference; print(cli_reference(), end="")' > docs/reference/cli.md
