# Everything that a checkout needs is made here, from its own files, in virtual environments beside them.
#   make demo    duplicates and a crash, with a real worker, beside the same on plain Celery (half a minute)
#   make test    lint, types and every test, on the newest Celery; then real workers and stores on Celery 5.6
#   make soak    five minutes of faults; of your choice: make soak SECONDS=60 SEED=7
#   make matrix  every end of a call, under every lock, with both brokers and in every pool; writes docs/matrix.md (half an hour)
#   make lint, make types, make bench, make clean
# Another Python: make demo PYTHON=python3.12 (after `make clean`, or with VENV=.venv-312).
# Some tests only: make test TESTS=tests/unit

PYTHON ?= python3
VENV ?= .venv
VENV_56 ?= .venv-56
CELERY_56 = celery==5.6.3
TESTS ?= tests
#: of faults, of `make soak`
SECONDS ?= 300
#: test processes at once: they wait for workers most of the time
JOBS ?= 4

PIP = bin/python -m pip install -qq --disable-pip-version-check
PYTEST = bin/python -m pytest --numprocesses $(JOBS) --dist loadgroup
TESTS_56 = tests/acceptance tests/integration tests/soak

.PHONY: help demo test test-56 lint types bench matrix soak clean

help:
	@sed -n 's/^#   //p' Makefile

demo: $(VENV)/.demo
	@PYTHONDONTWRITEBYTECODE=1 $(VENV)/bin/python example_project/demo.py

test: lint types
	$(VENV)/$(PYTEST) $(TESTS)
	$(MAKE) test-56

test-56: $(VENV_56)/.dev
	$(VENV_56)/$(PYTEST) $(TESTS_56)

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports

types: $(VENV)/.dev
	$(VENV)/bin/mypy

soak: $(VENV)/.dev
	PYTHONPATH=tests $(VENV)/bin/python -m soak --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

bench: $(VENV)/.dev
	$(VENV)/bin/python tests/benchmarks/run.py $(ARGS)

matrix: $(VENV)/.dev $(VENV_56)/.dev
	$(VENV)/bin/python tests/matrix/run.py --also $(VENV_56)/bin/python $(ARGS)

clean:
	rm -rf $(VENV) $(VENV_56) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Each stamp says that its packages are in; pip installs again only what a changed file asks for.

$(VENV)/.demo: example_project/requirements.txt requirements-dev.txt pyproject.toml | $(VENV)/bin/python
	@echo "Installing what the demo needs into $(VENV), once."
	@$(VENV)/$(PIP) --constraint requirements-dev.txt --requirement example_project/requirements.txt --editable .
	@touch $@

$(VENV)/.dev: requirements-dev.txt pyproject.toml | $(VENV)/bin/python
	@echo "Installing what the tests need into $(VENV), once."
	@$(VENV)/$(PIP) --requirement requirements-dev.txt
	@$(VENV)/$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@ $(VENV)/.demo

$(VENV_56)/.dev: requirements-dev.txt pyproject.toml Makefile | $(VENV_56)/bin/python
	@echo "Installing what the tests need into $(VENV_56), once, with $(CELERY_56)."
	@sed 's/^celery==.*/$(CELERY_56)/' requirements-dev.txt >$(VENV_56)/requirements.txt
	@$(VENV_56)/$(PIP) --requirement $(VENV_56)/requirements.txt
	@$(VENV_56)/$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

%/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "celery-once-more needs Python 3.10 or later, and $(PYTHON) is not: say for example make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $* || { rm -rf $*; exit 1; }
