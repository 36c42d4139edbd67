# Two commands: `make demo` and `make test`. Each sets everything up on a machine that has Python 3.11, make and gcc.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := .peers
LAPLACE := .peers-laplace

.PHONY: demo test lint nightly docs scoreboard peers peers-laplace peers-tables clean

demo: $(READY)
	$(BIN)/nescio demo --out build/demo

test: lint
	$(BIN)/python -m pytest -n 2 -m "not nightly" tests

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyrefly check

nightly: $(READY)
	$(BIN)/python -m pytest -m nightly --keep reproduce/results tests

# The docs site, in build/site, and the scoreboard, from the kept results.
docs: $(READY)
	test -x .docs/bin/zensical || ($(PYTHON) -m venv .docs && .docs/bin/python -m pip install --quiet --disable-pip-version-check zensical==0.0.73)
	rm -rf build/docs build/site && mkdir -p build && cp -r docs build/docs
	$(BIN)/python docs/reference.py build/docs/api.md
	.docs/bin/zensical build --clean

scoreboard: $(READY)
	$(BIN)/python reproduce/scoreboard.py
	$(BIN)/python docs/measured.py
	$(BIN)/python docs/findings.py

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

# NGBoost and bde, for benchmarks/tables.py.
peers-tables: .peers-tables/.ready

.peers-tables/.ready: benchmarks/peers_tables.txt
	test -x .peers-tables/bin/python || $(PYTHON) -m venv .peers-tables
	.peers-tables/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/peers_tables.txt
	touch $@

clean:
	rm -rf $(VENV) $(PEERS) $(LAPLACE) build .pytest_cache .ruff_cache
