# Everything runs in .venv, which scripts/environment.py makes (uv or pip; versions: constraints.txt).
PYTHON ?= $(shell [ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)
SECONDS ?= 600
RUN := .venv/bin/python
ENVIRONMENT = @$(PYTHON) scripts/environment.py

CHROMIUM := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)

.PHONY: demo test slow versions lock fuzz bench growth site pictures dist browser clean

demo: ## everything on a small corpus: five findings and a report
	$(ENVIRONMENT) demo
	@$(RUN) -m rankproof demo

PYTEST = $(RUN) -m pytest -q --numprocesses auto --dist loadfile --no-loadscope-reorder

test: browser ## linters, types, and every test that is not slow
	$(ENVIRONMENT) test
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	@$(RUN) -m compileall -q src # many tests start the command; some systems keep no bytecode
	$(PYTEST) -m "not slow"

slow: browser ## the tests that take long
	$(ENVIRONMENT) test
	@$(RUN) -m compileall -q src
	$(PYTEST) -m slow

versions: ## the suite, without torch, on every other Python that is found
	$(ENVIRONMENT) versions

lock: ## constraints.txt from pyproject.toml and constraints.in; delete it first for the newest versions
	$(ENVIRONMENT) lock

fuzz: ## what the tests do not think of: make fuzz SECONDS=600 [SEED=7]
	$(ENVIRONMENT) test
	-$(ENVIRONMENT) fuzz
	$(RUN) fuzz/run.py --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

bench: ## speed and memory beside the peers; writes bench/RESULTS.md
	$(ENVIRONMENT) test
	$(RUN) bench/peers.py
	$(RUN) bench/fusion.py
	$(RUN) bench/shims.py
	$(RUN) bench/golden.py
	OMP_NUM_THREADS=1 $(RUN) bench/refine.py

growth: ## how the cost of every verb grows with its input; fails where it is more than linear
	$(ENVIRONMENT) test
	$(RUN) bench/growth.py

site: ## the documents as a site, in site/
	$(ENVIRONMENT) test
	$(RUN) -m mkdocs build --strict

pictures: ## docs/images, drawn anew from the demo
	$(ENVIRONMENT) test
	$(RUN) examples/pictures.py

dist: ## wheel and sdist in dist/, installed and tried in environments of their own
	$(ENVIRONMENT) dist
	PATH="$(CURDIR)/.venv/bin:$$PATH" $(RUN) examples/distribute.py

# Pages are tested in a real browser: one that is there, or Debian's where it may be installed.
browser:
ifeq ($(CHROMIUM),)
	-@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get -qq -o Acquire::Retries=0 -o Acquire::http::Timeout=20 update && \
	    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium; fi
endif

clean:
	rm -rf .venv .venv-* build dist bench/data
	find src -name '*.so' -delete
