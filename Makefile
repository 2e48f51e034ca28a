# Every target sets up what it needs: a Python of at least 3.11 and make are the only things that must be there first.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTHONS := python3.13 python3.12 python3.11 python3
CODE := src tests
ARGS ?=

.PHONY: help venv demo test check format wheel dist clean

help: ## Show the targets.
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## Create .venv and install heedful into it, for development.

# The stamp comes last: a set-up that was interrupted is taken up again the next time.
$(STAMP): pyproject.toml constraints.txt
	@python=; \
	if [ -x $(BIN)/python ] && $(BIN)/python -m pip --version >/dev/null 2>&1; then python=$(BIN)/python; else \
	    for name in $(PYTHONS); do \
	        if $$name -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
	        then python=$$name; break; fi; \
	    done; \
	    if [ -z "$$python" ]; then \
	        echo "error: no Python of at least 3.11 with its venv module (looked for: $(PYTHONS)); install one" >&2; \
	        exit 1; \
	    fi; \
	    echo "Setting up $(VENV) with $$($$python --version) (once; it takes a minute or two)"; \
	    $$python -m venv --clear $(VENV); \
	fi
	@$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch $(STAMP)

demo: $(STAMP) ## Train on the embedded phrase book, score, translate, and draw the attention.
	@$(BIN)/heedful demo --overwrite $(ARGS)

test: $(STAMP) ## Run the tests (ARGS='-k name' chooses among them).
	@$(BIN)/python -m pytest $(ARGS)

check: $(STAMP) ## Check format, lint, types and architecture.
	@$(BIN)/ruff format --check $(CODE)
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/mypy
	@$(BIN)/python -m pytest tests/test_architecture.py

format: $(STAMP) ## Format the code and mend what the linter can mend.
	@$(BIN)/ruff format $(CODE)
	@$(BIN)/ruff check --fix $(CODE)

wheel: $(STAMP) ## Build the wheel into dist/.
	@$(PIP) wheel --no-deps --wheel-dir dist .

dist: wheel ## The same as wheel.

clean: ## Remove .venv and everything that was built or cached.
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find $(CODE) -type d -name __pycache__ -prune -exec rm -rf {} +
