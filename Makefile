# make train: environment + DREAM on Leduc poker.   make test: environment + all tests.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: env train test test-fast lint bench docs clean

env: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "dream needs Python 3.11 or newer: make env PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv .venv || \
	  { echo "python3 cannot make an environment: install its venv package (Debian: apt install python3-venv)" >&2; exit 1; }
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

train: env
	$(BIN)/dream train leduc-dream-quick

test: env
	$(BIN)/pytest -m 'not slow'
	$(BIN)/pytest -m slow

test-fast: env
	$(BIN)/pytest -m 'not slow'

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: env
	$(BIN)/python -m benchmarks

docs: env
	$(BIN)/python -c 'import pathlib, dream.config as c; pathlib.Path("docs/configuration.md").write_text(c.reference())'

clean:
	rm -rf .venv build dist *.egg-info
