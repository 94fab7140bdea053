PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?= -n 2 --dist worksteal
DOCS_JOBS ?= 2
# A file of versions to install, such as constraints/exact.txt; pip's choice without.
CONSTRAINTS ?=
PIP_ARGS ?=

.DEFAULT_GOAL := help
# Without bytecode on disk every process would compile the library's sources anew.
unexport PYTHONDONTWRITEBYTECODE
# Two installations into one environment must not run at the same time.
.NOTPARALLEL:
.PHONY: help demo demo-large reproduce test test-processors test-peers test-floor test-latest
.PHONY: constraints fuzz attack coverage lint format docs news package clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo "  Settings: PYTHON=$(PYTHON) (3.11 or newer), VENV=$(VENV), CONSTRAINTS=constraints/exact.txt"

demo: $(VENV)/.stamp-demo ## Run the demonstration; results go to demo-output/
	$(VENV)/bin/mklearn demo --out demo-output

demo-large: $(VENV)/.stamp-large ## Learn from a million rows on two Dask workers (minutes)
	$(VENV)/bin/python examples/demo_large.py

reproduce: $(VENV)/.stamp-reproduce ## Run a paper's tables: make reproduce PAPER=dkl ARGS=--quick
	$(VENV)/bin/python -m reproduction $(PAPER) $(ARGS)

test: $(VENV)/.stamp-test ## Run the tests and the examples in the docstrings
	$(VENV)/bin/python -m pytest $(PYTEST_ARGS)

test-processors: $(VENV)/.stamp-test ## Run the tests on imitated processors (hours)
	$(VENV)/bin/python tests/processors.py $(PROCESSORS_ARGS)

fuzz: $(VENV)/.stamp-test ## Fuzz the readers of files: make fuzz SECONDS=10
	@$(VENV)/bin/python -c 'import atheris' 2>/dev/null || $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]' || echo "atheris cannot be installed here"
	$(VENV)/bin/python benchmarks/fuzz.py --seconds $(or $(SECONDS),10)

attack: $(VENV)/.stamp-test ## Attack model files and the command line: make attack ARGS=--quick
	$(VENV)/bin/python benchmarks/attack.py $(ARGS)

PEERS = tests/test_inference_peers.py tests/test_event_time_tests.py tests/test_survival.py tests/test_groups.py tests/test_score_by_view.py
test-peers: $(VENV)/.stamp-peers ## Run the comparisons with other packages, which it installs
	$(VENV)/bin/python -m pytest $(PEERS) -k "peers or ridge_cox or statsmodels or survival_svm or scikit_survival or latent_group or shapiq" $(PYTEST_ARGS)

test-floor: ## Run the tests on the oldest versions that pyproject.toml allows
	$(MAKE) test VENV=$(VENV)-floor CONSTRAINTS=constraints/floor.txt

test-latest: ## Run the tests on the newest versions of everything, in a separate environment
	rm -f $(VENV)-latest/.stamp-test
	$(MAKE) test VENV=$(VENV)-latest PIP_ARGS="--upgrade --upgrade-strategy eager"

coverage: $(VENV)/.stamp-coverage ## Run the tests and measure which lines they reach
	$(VENV)/bin/python -m pytest $(PYTEST_ARGS) --cov --cov-report=term --cov-report=xml

constraints: ## Regenerate constraints/ from pyproject.toml and the newest versions that fit
	$(PYTHON) tests/versions.py

lint: $(VENV)/.stamp-lint ## Check style, formatting, types, spelling, prose and links
	$(VENV)/bin/python -m ruff check .
	$(VENV)/bin/python -m ruff format --check .
	$(VENV)/bin/python -m mypy
	$(VENV)/bin/python -m codespell_lib
	$(VENV)/bin/python tests/prose.py

format: $(VENV)/.stamp-lint ## Format the code and apply the safe fixes
	$(VENV)/bin/python -m ruff check --fix .
	$(VENV)/bin/python -m ruff format .

docs: $(VENV)/.stamp-docs ## Build the documentation into docs/_build/html
	$(VENV)/bin/python -m sphinx --fail-on-warning --keep-going --jobs $(DOCS_JOBS) --quiet docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

news: $(VENV)/.stamp-release ## Show the news fragments as the next section of the changelog
	$(VENV)/bin/towncrier build --draft --version next

package: $(VENV)/.stamp-release ## Build the wheel and the sdist into dist/
	$(VENV)/bin/python -m build

clean: ## Remove caches, builds and demo-output/, but not the environment
	rm -rf docs/_build docs/gallery docs/api/generated docs/api/backreferences
	rm -rf build dist demo-output coverage.xml .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find $(wildcard src tests examples docs benchmarks reproduction) -name __pycache__ -prune -exec rm -rf {} +

# One stamp for each set of extras, so that a target installs only what it needs.
$(VENV)/.stamp-demo: EXTRAS = cli,plot
$(VENV)/.stamp-large: EXTRAS = distributed,dashboard
$(VENV)/.stamp-reproduce: EXTRAS = conic,plot
$(VENV)/.stamp-test: EXTRAS = test
$(VENV)/.stamp-peers: EXTRAS = test,peers
$(VENV)/.stamp-lint: EXTRAS = lint
$(VENV)/.stamp-docs: EXTRAS = docs
# All that .ci/run needs, in one installation.
$(VENV)/.stamp-ci: EXTRAS = lint,test,peers,docs
$(VENV)/.stamp-coverage: EXTRAS = coverage
$(VENV)/.stamp-release: EXTRAS = release
$(VENV)/.stamp-%: pyproject.toml | $(VENV)/bin/pip
	@echo "Installing mklearn[$(EXTRAS)] into $(VENV)"
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) \
	  $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS)) --editable '.[$(EXTRAS)]'
	@touch $@

# pip is the last thing that venv installs: an interrupted creation is started again.
$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "error: mklearn needs Python 3.11 or newer, but PYTHON=$(PYTHON) is $$($(PYTHON) --version 2>/dev/null || echo missing); try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; \
	  exit 1; }
	@echo "Creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)
