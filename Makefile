# The two commands of the README: make demo, make test. For the work between: make test-quick.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
# An index with PyTorch builds for CPU only saves gigabytes: make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))

.PHONY: venv demo test test-quick lint types unit docs dist bench gpu

# Made again whenever what is installed changes.
$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || python3 -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e ".[cpu,dev]"
	touch $@

venv: $(VENV)/.installed

demo: venv
	$(BIN)/python -m pytest example_suites/quickstart --ngraph-device=local $(DEMO_OPTIONS)

test: lint types unit

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: venv
	$(BIN)/mypy

# A process for each CPU; tests/sharing.py says which tests run beside which. Everything runs, in one run. What stands on
# real launches is tried once more where it fails, as long as that is rare; -rR lists it.
PYTEST := $(BIN)/python -m pytest -n logical --maxprocesses=8 --dist=loadgroup -rR --max-suite-reruns=4

unit: venv
	$(PYTEST) $(TEST_OPTIONS)

# Without real runtimes, hubs and agents, suites in a pytest of their own, what is held to the clock, and what takes long.
test-quick: venv
	$(PYTEST) -m "not real and not lab and not suites and not measures and not slow" $(TEST_OPTIONS)

# Every page and docstring as a site, without a network; a warning is an error.
docs: venv
	rm -rf site
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --fresh-env --conf-dir docs . site
	@echo "open site/index.html"

# The wheel is built of the sdist, and tried in an environment that has nothing else.
dist: venv
	rm -rf build dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python -m tests.support.built_package dist

bench: venv
	$(BIN)/python -m benchmarks.overhead
	$(BIN)/python -m benchmarks.collection
	$(BIN)/python -m benchmarks.agreement
	$(BIN)/python -m benchmarks.scale

# With the Python whose PyTorch sees the GPU; nothing is installed: make gpu GPU_PYTHON=/opt/torch/bin/python
GPU_PYTHON ?= python3

gpu:
	$(GPU_PYTHON) -m benchmarks.gpu
