# Two commands: `make demo` and `make test`. Each sets everything up on a machine that has Python 3.11, make and gcc.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := .peers
LAPLACE := .peers-laplace

.PHONY: demo test lint nightly peers peers-laplace clean

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

# Other libraries, for benchmarks/ only, in an environment of their own.
peers: $(PEERS)/.ready

$(PEERS)/.ready: benchmarks/peers.txt
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/peers.txt
	touch $@

# laplace-torch brings torchvision, which breaks it: apart, and with nothing but what is listed.
peers-laplace: $(LAPLACE)/.ready

$(LAPLACE)/.ready: benchmarks/peers_laplace.txt
	test -x $(LAPLACE)/bin/python || $(PYTHON) -m venv $(LAPLACE)
	$(LAPLACE)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r benchmarks/peers_laplace.txt
	touch $@

clean:
	rm -rf $(VENV) $(PEERS) $(LAPLACE) build .pytest_cache .ruff_cache
