# make install   make a virtual environment (.venv) of the locked packages
# make demo      install, then run the whole workflow on the phantom; ends with the path of the report
# make test      install what tests need too, then run lint and the tests (two cores: four minutes on an Intel Xeon with AVX-512, six on an AMD EPYC without)
# make lint      … then check style, types, spelling, and that imports between rooms only go down
# make docs      … then build the documentation site; any warning is an error
# make coverage  … then run the tests and print the share of statements that they reach
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# Package index with the build of torch that you want (pytorch.org lists them); empty: pip's own index, whose build on Linux is
# for CUDA.
TORCH_INDEX ?=
INSTALL := $(BIN)/python workflow/install.py
LOCKED := $(INSTALL) --require-hashes --no-deps
COMPILE := $(BIN)/uv pip compile --quiet $(UPGRADE) --universal --fork-strategy fewest --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command "make lock" --no-emit-package torch

# Where Python may not write bytecode, each of the hundreds of processes would compile bolt/ anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo test test-fast test-slow test-lowest coverage lint docs reference lock notebooks schemas clean

install: $(VENV)/.installed

# torch comes last and is locked by version alone, which CPU and CUDA builds share; what both need is installed by then
$(VENV)/.installed: requirements.txt requirements-install.txt requirements-torch.txt pyproject.toml
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "BolT needs Python 3.11 or newer (make PYTHON=python3.11 …)"'
	$(PYTHON) -m venv $(VENV)
	$(LOCKED) -r requirements-install.txt || echo "uv cannot be installed; pip does its work, which takes longer"
	$(LOCKED) -r requirements.txt
	$(INSTALL) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) -r requirements-torch.txt
	$(INSTALL) --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed requirements-test.txt
	$(LOCKED) -r requirements-test.txt
	touch $@

demo: $(VENV)/.installed
	$(BIN)/snakemake --cores all
	@echo "The report: $(CURDIR)/results/phantom/report/index.html"

test: lint test-fast

test-fast: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow" $(PYTEST_ARGS)

test-slow: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations=40 --durations-min=5 -m slow
	BOLT_NATIVE=0 $(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow" tests/models tests/explain tests/experiments/test_complexity.py  # attention without its kernel

# of the lowest versions that pyproject.toml allows, which may warn of what newer ones have done: what the Python API and
# trainings compute
test-lowest:
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/pip install --quiet -r requirements-lowest.txt pytest pytest-xdist hypothesis psutil moto flask flask-cors
	.venv-lowest/bin/python -m pytest -n 2 -W default::FutureWarning -W default::DeprecationWarning -m "not slow" tests/evaluate tests/folds tests/io tests/models \
		tests/experiments/test_spectra.py tests/series tests/share tests/training

coverage: PYTEST_ARGS := --cov --cov-report=
coverage: test-fast
	@echo "Statements of bolt/ that the fast tests reach: $$($(BIN)/coverage report --format=total) %"

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check bolt tests setup.py
	$(BIN)/mypy --num-workers 2
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/codespell
	$(BIN)/snakefmt --check --compact-diff Snakefile workflow

docs: $(VENV)/.installed-test
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --fresh-env --write-all docs docs/_build
	@echo "The site: $(CURDIR)/docs/_build/index.html"

# pages of docs/reference that are made from the code
reference: $(VENV)/.installed
	$(BIN)/python -m docs.generate

notebooks: $(VENV)/.installed-test
	OMP_NUM_THREADS=1 $(BIN)/jupyter execute --inplace docs/examples/*.ipynb

schemas: $(VENV)/.installed
	$(BIN)/python -c 'from bolt.config import ROOT, schemas; from bolt.io.files import write_json; \
	[write_json(schema, ROOT / f"config/schemas/{name}.json") for name, schema in schemas().items()]'

# Versions change only where pyproject.toml requires it; `make lock UPGRADE=--upgrade` takes the newest that fit together.
lock: $(VENV)/.installed
	$(COMPILE) --output-file requirements.txt --extra all --constraints requirements-torch.txt pyproject.toml
	echo uv==0.13.9 | $(COMPILE) --output-file requirements-install.txt -
	$(COMPILE) --output-file requirements-test.txt --extra test --constraints requirements.txt --constraints requirements-torch.txt \
		pyproject.toml \
		$$(sed -n 's/^\([a-z0-9-]*\)==.*/--no-emit-package \1/p' requirements.txt)
	$(BIN)/uv pip compile --quiet --upgrade --resolution lowest-direct --python-version 3.11 --no-annotate --extra all --custom-compile-command "make lock" \
		--output-file requirements-lowest.txt pyproject.toml
	$(BIN)/python workflow/envs/write.py

clean:
	rm -rf results work .snakemake docs/_build
