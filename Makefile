# Everything here needs only Python 3.11 or newer with pip, and make; the tests of the dashboard also
# need Chromium, which they install by apt where root runs them.
# Another interpreter: make PYTHON=/path/to/python test. More options: make test ARGS="-k greedy -x".

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
ARGS ?=
EXTRAS := dev,docs,cnn,dashboard,flower,mlflow,postgres,tables,tensorboard

# The interpreter that makes the environment: PYTHON if given, else the first that is new enough.
PYTHON ?=
CANDIDATES := $(if $(PYTHON),"$(PYTHON)",python3 python3.13 python3.12 python3.11)
NEW_ENOUGH := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))

# A shell function `find_python`, used by the recipes that need an interpreter from outside.
define FIND_PYTHON
find_python() { \
	for candidate in $(CANDIDATES); do \
		if "$$candidate" -c '$(NEW_ENOUGH)' 2>/dev/null; then echo "$$candidate"; return; fi; \
	done; \
	echo "noisemarket needs Python 3.11 or newer with its venv module (on Debian: python3-venv)," \
		"and found none under: $(subst ",,$(CANDIDATES))." \
		"Install one, or name it: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; \
	return 1; \
}
endef

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo quick test lint types docs dist bench pictures torture constraints clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

venv: $(VENV)/.installed ## make .venv with the package, all extras and their pinned versions

# What the demo and the commands of the README need: the package, tables and the dashboard.
$(VENV)/.core: pyproject.toml constraints.txt
	@$(FIND_PYTHON); \
	"$(BIN)/python" -c '$(NEW_ENOUGH)' 2>/dev/null || { \
		python=$$(find_python) && \
		echo "Making $(VENV) with $$python (once; takes a minute) ..." && \
		"$$python" -m venv --clear "$(VENV)"; \
	}
	@$(PIP) install --upgrade pip
	@$(PIP) install --editable '.[tables,dashboard]' --constraint constraints.txt
	@touch $@

$(VENV)/.installed: $(VENV)/.core
	@echo "Installing what the tests need (once; takes some minutes) ..."
	@$(PIP) install --editable '.[$(EXTRAS)]' --constraint constraints.txt
	@touch $@

$(VENV)/.bench: $(VENV)/.installed
	@$(PIP) install --editable '.[bench]' --constraint constraints.txt
	@touch $@

demo: $(VENV)/.core ## run the whole market on MNIST into runs/demo (under a minute)
	$(BIN)/noisemarket run --out runs/demo --overwrite $(ARGS)

# Compiled Python is kept, also where the environment says otherwise: every process would compile anew.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

quick: $(VENV)/.installed ## run the tests that need no process, no training and no compiled code (under a minute)
	$(PYTEST) --quick --durations 10 $(ARGS)

test: $(VENV)/.installed ## run all tests (some eight minutes on two cores)
	$(PYTEST) $(ARGS)

lint: $(VENV)/.installed ## check style and formatting
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.installed ## check types, strictly
	$(BIN)/mypy

docs: $(VENV)/.installed ## build the documentation into build/site; a broken link is an error
	$(BIN)/mkdocs build --strict --quiet

# What `noisemarket flower app` copies, one file of which is no Python.
MARKET_APP := noisemarket/flower/market_app

dist: $(VENV)/.installed ## build sdist and wheel into dist/, and try the wheel in a fresh environment
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist
	@held=$$($(BIN)/python -m zipfile --list dist/*.whl); \
	for name in app.toml __init__.py client_app.py server_app.py; do \
		case "$$held" in *"$(MARKET_APP)/$$name "*) ;; *) \
			echo "The wheel lacks $(MARKET_APP)/$$name: have pyproject.toml put it in." >&2; exit 1 ;; \
		esac; \
	done
	@set -e; fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	$(BIN)/python -m venv "$$fresh/venv"; \
	"$$fresh/venv/bin/python" -m pip --disable-pip-version-check --quiet install dist/*.whl --constraint constraints.txt; \
	cd "$$fresh"; \
	./venv/bin/noisemarket --version; \
	./venv/bin/noisemarket run --set owners=5 --set rounds=2 --draws 1 --out run

bench: $(VENV)/.bench ## run a benchmark, as in: make bench ARGS="game --million"; without ARGS, list them
	$(BIN)/python -m benchmarks $(ARGS)

pictures: $(VENV)/.installed ## remake the pictures of the dashboard in docs/images from a run of the default market
	$(BIN)/python -m tests.show.dashboard.pictures

torture: $(VENV)/.installed ## kill jobs at random moments and resume them; 10,000 changed messages each way and histories of a wallet (an hour)
	$(BIN)/python -m tests.market.torture $(ARGS)
	$(BIN)/python -m tests.market.curators --kills 300
	$(BIN)/python -m tests.market.curators --kills 300 --curators 2
	$(BIN)/python -m tests.market.curators --kills 100 --curators 2 --engine flower
	NOISEMARKET_FUZZ=10000 $(PYTEST) --numprocesses 0 tests/owner/test_hostile_messages.py tests/owner/test_wallet.py

define CONSTRAINTS_HEADER
# The exact versions that CI and `make venv` install, transitive ones included.
# Made from a fresh environment by `make constraints`; do not edit by hand.
endef
export CONSTRAINTS_HEADER

# One version of torch for all: a free range would bring gigabytes of accelerator libraries.
TORCH := torch==2.13.0

constraints: ## renew constraints.txt from a fresh install of all extras but bench-fl
	@$(FIND_PYTHON); \
	set -e; python=$$(find_python); \
	fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	"$$python" -m venv "$$fresh/venv"; pip="$$fresh/venv/bin/python -m pip --disable-pip-version-check"; \
	$$pip install --quiet --upgrade pip; \
	$$pip install --quiet '$(TORCH)' '.[$(EXTRAS),bench]'; \
	$$pip freeze --exclude noisemarket --exclude pip --exclude setuptools --exclude wheel | sed 's/^\(torch==[0-9.]*\)+.*/\1/' > "$$fresh/pins"; \
	if grep -vE '^[A-Za-z0-9._-]+==[^ +]+$$' "$$fresh/pins"; then \
		echo "Not plain name==version pins (above): constraints.txt is left as it was." >&2; exit 1; \
	fi; \
	{ echo "$$CONSTRAINTS_HEADER"; cat "$$fresh/pins"; } > "$$fresh/new"; \
	cp "$$fresh/new" constraints.txt

clean: ## remove the environment, caches and built files (runs/ stays)
	rm -rf $(VENV) .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache .coverage htmlcov build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
