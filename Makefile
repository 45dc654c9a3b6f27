# Every target works alone on a fresh clone; the first one used makes the environment in .venv.
PYTHON ?= python3
JOBS ?= 2
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup run test check format clean

help: ## What can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/ready ## Make .venv and install the tested versions of everything (once)

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "sbmcl needs Python 3.11 or newer; name one: make $(or $(MAKECMDGOALS),setup) PYTHON=python3.12" >&2; exit 1; }
	@echo "==> Installing sbmcl and the tools to work on it into .venv (once; most of the time goes into fetching PyTorch)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[dev,track]'
	@touch $@

run: setup ## Three minutes of meta-training, then watch it learn streams without forgetting
	@$(BIN)/sbmcl demo

test: setup ## Every test
	@echo "==> Running every test, $(JOBS) at a time"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS)

check: setup ## Formatting, lint, types, and which module may import which
	@echo "==> ruff format" && $(BIN)/ruff format --check .
	@echo "==> ruff check" && $(BIN)/ruff check .
	@echo "==> pyright" && $(BIN)/pyright
	@echo "==> import-linter" && $(BIN)/lint-imports

format: setup ## Format, and mend what lint can mend by itself
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

clean: ## Remove the environment and every cache (runs and data stay)
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .import_linter_cache
