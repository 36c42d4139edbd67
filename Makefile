# Two commands: `make demo` and `make test`. Each sets everything up on a machine that has Python 3.11, make and gcc.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint nightly clean

demo: $(READY)
	$(BIN)/nescio demo --out build/demo

test: lint
	$(BIN)/python -m pytest -n 2 -m "not nightly" tests

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyrefly check

nightly: $(READY)
	$(BIN)/python -m pytest -m nightly tests

# The environment: rebuilt when the requirements change, and only then.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) build .pytest_cache .ruff_cache
