# Two commands: `make demo` shows Grid at work on this machine, `make test` checks everything.
# Both set up their own virtual environment; .ci/setup says in one sentence what is missing where it cannot.

SHELL := /bin/bash
PY := .venv/bin/python
TESTS ?= tests
DEMO ?=
BENCH ?=
UPGRADE ?= --upgrade

.PHONY: demo test lint types imports unit coverage bench schemas balancing lock clean help

help:  ## this list
	@grep -hE '^[a-z]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

demo:  ## everything on one machine: bus, sites, daemon, gateways, load, a live table
	@.ci/setup demo
	@$(PY) -m grid demo $(DEMO)

test:  ## lint, types, import contracts, tests on real servers, coverage
	@.ci/setup test
	@$(MAKE) --no-print-directory lint types imports unit coverage

lint:
	$(PY) -m ruff check grid tests
	$(PY) -m ruff format --check grid tests

types:
	$(PY) -m mypy

imports:
	$(PY) -c 'from importlinter.cli import lint_imports_command; lint_imports_command()'

unit:
	@rm -f .coverage .coverage.*
	$(PY) -m pytest -n 2 --dist worksteal --cov=grid --cov-branch --cov-report= $(TESTS)

coverage:  # the pure rooms are covered to the last branch
	$(PY) -m coverage report --fail-under=100 \
	  --include='grid/policy/*,grid/overlay/*,grid/flow/*,grid/gateway/*' \
  --omit='grid/gateway/client.py,grid/gateway/sync.py'

bench:  ## hold ratios and growth against tests/bench/baseline.json; fails at 1.3 times worse
	@.ci/setup test
	$(PY) -m grid bench compare $(BENCH)

schemas:  ## write schemas/ and the generated pages of docs/ anew
	$(PY) -m grid schema write

balancing:  ## simulate everything at its full size, and write docs/balancing.md anew
	@.ci/setup test
	$(PY) -m grid simulate report --size weekly

LOCK := uv pip compile --universal --python-version 3.11 --no-emit-index-url --no-header -q
EXTRAS := --extra embedded --extra gateway --extra signing --extra plots

lock:  ## resolve both lock files anew (needs uv); UPGRADE= keeps what still fits
	$(LOCK) $(UPGRADE) $(EXTRAS) -o requirements.lock pyproject.toml
	$(LOCK) $(UPGRADE) $(EXTRAS) --group dev -c requirements.lock -o requirements-dev.lock pyproject.toml

clean:  ## remove what the commands made
	rm -rf .venv .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
