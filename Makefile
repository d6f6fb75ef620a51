# Everything runs in two virtual environments made here: .venv (compiler, torch, tests) and .venv-runtime (numpy only).
PYTHON ?= python3
VENV := .venv
RUNTIME_VENV := .venv-runtime
BIN := $(VENV)/bin
JOBS ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo test test-full check format docs bench clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# torch: a CPU build where pip finds one (PyPI's own is the CUDA build on Linux), else from PyTorch's index of CPU builds.
$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check "torch==2.13.0+cpu" 2>/dev/null \
	  || $(BIN)/python -m pip install -q "torch==2.13.0" --index-url https://download.pytorch.org/whl/cpu
	$(BIN)/python -m pip install -q --disable-pip-version-check -e ".[dev]" -c constraints.txt
	touch $@

$(RUNTIME_VENV)/ready: pyproject.toml $(wildcard *.py runtime/*.py runtime/gpu/*.py tools/*.py)
	$(PYTHON) -m venv $(RUNTIME_VENV)
	$(RUNTIME_VENV)/bin/python -m pip install -q --disable-pip-version-check .
	rm -rf build *.egg-info
	touch $@

demo: $(VENV)/ready $(RUNTIME_VENV)/ready ## export ResNet-18, compile the .pt2, run the artifact without torch, compare and time
	$(BIN)/python examples/demo.py --runtime-python $(RUNTIME_VENV)/bin/python --out out/demo

test: $(VENV)/ready ## run the tests (about 10 minutes on two cores)
	$(BIN)/python -m pytest -n $(JOBS) -m "not full"

test-full: $(VENV)/ready ## run everything, the exhaustive OpInfo sweep included
	$(BIN)/python -m pytest -n $(JOBS)

check: $(VENV)/ready ## lint, types, tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(MAKE) test

format: $(VENV)/ready ## format and fix imports
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/ready ## write the generated pages: docs/ops.md, docs/passes.md, the tour in ARCHITECTURE.md
	$(BIN)/python docs/tables.py
	$(BIN)/python docs/tour.py

bench: $(VENV)/ready ## the CPU benchmarks; writes benchmarks/results/
	for script in kernels rows models aot_models overhead compile_time; do $(BIN)/python benchmarks/$$script.py || exit 1; done

clean: ## remove what the targets above made
	rm -rf $(VENV) $(RUNTIME_VENV) out build dist *.egg-info
