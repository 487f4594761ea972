# Every command creates the virtual environment that it needs.
# `make test PYTHON=python3.12` tests another Python, in a separate environment.

PYTHON ?= python3
VENV := .venv$(addprefix -,$(filter-out python3,$(notdir $(PYTHON))))
RUN := $(VENV)/bin/python
QUIET := --quiet --disable-pip-version-check

export MPLBACKEND ?= Agg

.DEFAULT_GOAL := help
.PHONY: help demo test test-wheel test-matrix lint types docs linkcheck benchmark clean

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/installed-eval  ## train on real blood cells, generate new ones, draw them into demo_output/
	$(RUN) scripts/demo.py

test: $(VENV)/installed-test lint types  ## lint, check types, and run the tests with the examples of the docstrings
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n 2 --dist worksteal --quiet

test-wheel:  ## build the wheel, check its size and contents, and run the tests on it in a clean environment
	rm -rf dist .venv-wheel
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip wheel $(QUIET) --no-deps --wheel-dir dist .
	.venv-wheel/bin/python -m pip install $(QUIET) "check-wheel-contents>=0.6"
	.venv-wheel/bin/check-wheel-contents --package src/scdiffgen --package-omit __pycache__ dist/*.whl
	.venv-wheel/bin/python -m zipfile -l dist/*.whl | grep -q licenses/LICENSE
	test $$(cat dist/*.whl | wc -c) -lt 2000000
	.venv-wheel/bin/python -m pip install $(QUIET) --constraint constraints.txt "$$(ls dist/*.whl)[test]"
	OMP_NUM_THREADS=1 .venv-wheel/bin/python -m pytest -n 2 --dist worksteal --quiet tests --pyargs scdiffgen

# each Python with the newest allowed dependencies, and the first one with the oldest
MATRIX := python3.11-oldest python3.11 python3.12 python3.13

test-matrix: $(MATRIX:%=matrix-%)  ## run the tests with each installed supported Python, and with the oldest dependencies

matrix-%: PYTHON_OF_ROW = $(firstword $(subst -, ,$*))
matrix-%:
	@if ! $(PYTHON_OF_ROW) --version > /dev/null 2>&1; then echo "$*: not tested, $(PYTHON_OF_ROW) is not installed"; else \
	set -e; rm -rf .venv-matrix-$*; $(PYTHON_OF_ROW) -m venv .venv-matrix-$*; \
	.venv-matrix-$*/bin/python -m pip install $(QUIET) $(if $(findstring oldest,$*),--constraint constraints-oldest.txt) --editable '.[test]'; \
	OMP_NUM_THREADS=1 .venv-matrix-$*/bin/python -m pytest -n 2 --dist worksteal --quiet; echo "$*: passed"; fi

lint: $(VENV)/installed-test  ## check style, format, documents and the history of the budget
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) scripts/check_docs.py
	$(RUN) scripts/check_ratchet.py

# Type stubs of dependencies change between releases: types are checked on one stack, that of the oldest supported Python.
types: $(VENV)/installed-test  ## check types, on Python 3.11
	@if $(RUN) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then echo "$(RUN) -m mypy"; $(RUN) -m mypy; \
	else echo "types: checked on Python 3.11 only"; fi

docs: $(VENV)/installed-docs  ## run the tutorials and build the documentation into docs/_build/html; a warning is an error
	OMP_NUM_THREADS=1 $(RUN) -m sphinx --fail-on-warning --keep-going --quiet docs docs/_build/html

linkcheck: $(VENV)/installed-docs  ## check all addresses in the documentation; needs the network
	$(RUN) -m sphinx -b linkcheck -D nb_execution_mode=off --keep-going --quiet docs docs/_build/linkcheck

# To score cells of other programs, too: make benchmark EXTERNAL="name=folder other=folder"
benchmark: $(VENV)/installed-benchmark  ## measure generation, responses, tokens, augmentation and speed (many hours); writes benchmarks/pages
	$(RUN) -m benchmarks $(if $(EXTERNAL),--external $(EXTERNAL))

clean:  ## remove the output of all commands; environments stay
	rm -rf demo_output docs/_build docs/api/generated docs/tutorials/*.ipynb dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# installed-test has the package with its extra [test]; it is made again when the requirements change
$(VENV)/installed-%: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(RUN) -m pip install $(QUIET) --constraint constraints.txt --editable '.[$*]'
	@touch $@
