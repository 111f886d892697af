# Everything runs in .venv, which these targets make by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV := $(VENV)/.developed

.PHONY: demo test bench lint clean

demo: $(STAMP) ## two small runs, and what their ties hide
	@$(BIN)/rankproof demo

test: $(DEV) ## linters, types, and the whole suite
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q

bench: $(DEV) ## speed and memory beside the peers; writes bench/RESULTS.md
	$(BIN)/python bench/peers.py

clean:
	rm -rf $(VENV) build bench/data src/rankproof/*.so

$(STAMP): pyproject.toml setup.py src/rankproof/_native.c constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable . --constraint constraints.txt
	@touch $@

$(DEV): $(STAMP)
	RANKPROOF_REQUIRE_NATIVE=1 $(BIN)/python -m pip install --quiet --editable '.[all]' \
	    --group test --group peers --group lint --constraint constraints.txt
	@touch $@
