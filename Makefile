# make demo    install, then run the whole workflow on the phantom; ends with the path of the report
# make test    install, then run the tests (about five minutes on two cores)
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test test-slow lint schemas clean

$(VENV)/.installed: requirements.txt requirements-test.txt pyproject.toml
	$(PYTHON) -c 'import sys; assert (3, 11) <= sys.version_info < (3, 13), "BolT needs Python 3.11 or 3.12 (make PYTHON=python3.11 …)"'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -r requirements.txt -r requirements-test.txt
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	touch $@

demo: $(VENV)/.installed
	$(BIN)/snakemake --cores all
	@echo "The report: $(CURDIR)/results/phantom/report/index.html"

test: $(VENV)/.installed lint
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

test-slow: $(VENV)/.installed
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations=40 --durations-min=5 -m slow

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check bolt tests
	$(BIN)/mypy
	$(BIN)/snakefmt --check --compact-diff Snakefile workflow

schemas: $(VENV)/.installed
	$(BIN)/python -c 'from bolt.config import ROOT, schemas; from bolt.files import write_json; \
	[write_json(schema, ROOT / f"config/schemas/{name}.json") for name, schema in schemas().items()]'

clean:
	rm -rf results work .snakemake
