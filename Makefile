# `make test` runs the tests in the virtual environment at .venv (made where it is absent).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: venv install test lint types readme docs schemas startup fuzz clean

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

fuzz: install
	INFERCOST_FUZZ=20000 $(BIN)/pytest tests/cli/test_fuzz.py

clean:
	rm -rf build dist site *.egg-info $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
