# `make test` runs the tests in the virtual environment at .venv (made where it is absent).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: venv install test lint types readme docs schemas startup fuzz attack audit dist clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# setuptools ships files from an old build/ that are gone from the tree.
install: $(BIN)/python
	rm -rf build
	$(BIN)/pip install -q -c constraints.txt ".[dev]"

test: install
	$(BIN)/pytest

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: install
	$(BIN)/mypy -p infercost

readme: install
	$(BIN)/python tests/tools/readme.py

docs: install
	$(BIN)/pip install -q -c constraints.txt ".[docs]"
	$(BIN)/mkdocs build --strict --quiet

schemas: install
	$(BIN)/python tests/tools/schemas.py

startup: install
	$(BIN)/python tests/tools/startup.py

FUZZ ?= 20000

# Every parser and the command line: under hypothesis, and under atheris, which steers by coverage.
fuzz: install
	$(BIN)/pip install -q -c constraints.txt atheris
	INFERCOST_FUZZ=$(FUZZ) $(BIN)/pytest tests/fuzz tests/cli/test_fuzz.py

# Hostile files against whole commands; makes files of 300 MB in .attack.
attack: install
	$(BIN)/python tests/tools/attack.py .attack
	rm -rf .attack

# Known vulnerabilities in what the constraints pin.
audit: install
	$(BIN)/pip install -q -c constraints.txt pip-audit
	$(BIN)/pip-audit --strict --no-deps --disable-pip -r constraints.txt

dist: install
	$(BIN)/pip install -q -c constraints.txt twine
	$(BIN)/python tests/tools/dist.py

clean:
	rm -rf .attack build dist site *.egg-info $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
