# Everything runs in .venv, which these targets make by themselves.
PYTHON ?= python3
SECONDS ?= 600
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV := $(VENV)/.developed
FUZZ := $(VENV)/.fuzzed
SOURCES := $(shell find src -name '*.c')

CHROMIUM := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)

.PHONY: demo test fuzz bench growth site pictures dist browser clean

demo: $(STAMP) ## everything on a small corpus: five findings and a report
	@$(BIN)/rankproof demo

test: $(DEV) browser ## linters, types, and the whole suite
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@$(BIN)/python -m compileall -q src # many tests start the command; some systems keep no bytecode
	$(BIN)/python -m pytest -q --numprocesses auto --dist loadfile --no-loadscope-reorder

fuzz: $(DEV) $(FUZZ) ## what the tests do not think of: make fuzz SECONDS=600 [SEED=7]
	$(BIN)/python fuzz/run.py --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

bench: $(DEV) ## speed and memory beside the peers; writes bench/RESULTS.md
	$(BIN)/python bench/peers.py
	$(BIN)/python bench/fusion.py
	$(BIN)/python bench/shims.py
	$(BIN)/python bench/golden.py
	OMP_NUM_THREADS=1 $(BIN)/python bench/refine.py

growth: $(DEV) ## how the cost of every verb grows with its input; fails where it is more than linear
	$(BIN)/python bench/growth.py

site: $(DEV) ## the documents as a site, in site/
	$(BIN)/mkdocs build --strict

pictures: $(DEV) ## docs/images, drawn anew from the demo
	$(BIN)/python examples/pictures.py

dist: $(DEV) ## wheel and sdist in dist/, installed and tried in environments of their own
	$(BIN)/python -m pip install --quiet --group dist
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python examples/distribute.py

# Pages are tested in a real browser: one that is there, or Debian's where it may be installed.
browser:
ifeq ($(CHROMIUM),)
	-@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get -qq -o Acquire::Retries=0 -o Acquire::http::Timeout=20 update && \
	    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium; fi
endif

clean:
	rm -rf $(VENV) build dist bench/data
	find src -name '*.so' -delete

$(STAMP): pyproject.toml setup.py $(SOURCES) constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[demo]' --constraint constraints.txt
	@touch $@

$(DEV): $(STAMP)
	RANKPROOF_REQUIRE_NATIVE=1 $(BIN)/python -m pip install --quiet --editable '.[all]' \
	    --group test --group peers --group lint --group docs --constraint constraints.txt
	@touch $@

# atheris has wheels for some versions of Python only; without it that part is passed over.
$(FUZZ): $(DEV)
	-$(BIN)/python -m pip install --quiet --only-binary :all: --group fuzz
	@touch $@
