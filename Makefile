# Every command makes the virtual environment that it needs: a clone and a Python are enough.
# `make test PYTHON=python3.12` tests another Python, in an environment of its own.

PYTHON ?= python3
VENV := .venv$(addprefix -,$(filter-out python3,$(notdir $(PYTHON))))
RUN := $(VENV)/bin/python

export MPLBACKEND ?= Agg

.DEFAULT_GOAL := help
.PHONY: help demo test lint docs benchmark clean

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/installed-eval  ## train on real blood cells, generate new ones, draw them into demo_output/
	$(RUN) scripts/demo.py

test: $(VENV)/installed-test lint  ## lint, check types, and run the tests with the examples of the docstrings
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n 2 --quiet

lint: $(VENV)/installed-test  ## check style, format and types
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy

docs: $(VENV)/installed-docs  ## run the tutorials and build the documentation into docs/_build/html; a warning is an error
	$(RUN) -m sphinx --fail-on-warning --keep-going --quiet docs docs/_build/html

# cells of other programs are scored too: make benchmark EXTERNAL="name=folder other=folder"
benchmark: $(VENV)/installed-benchmark  ## measure generation, responses, augmentation and speed (many hours); writes docs/benchmarks.md
	$(RUN) -m benchmarks $(if $(EXTERNAL),--external $(EXTERNAL))

clean:  ## remove what the commands wrote; environments stay (rm -r .venv* removes them)
	rm -rf demo_output docs/_build docs/api/generated docs/tutorials/*.ipynb dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# installed-test holds the package with its extra [test], and so on; made again when the requirements change
$(VENV)/installed-%: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(RUN) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$*]'
	@touch $@
