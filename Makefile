# `make demo` and `make test` set up all that they need in .venv; nothing is installed globally.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# A Python whose torch already sees a GPU is used as it is. Elsewhere the CPU build of torch is
# pinned, because a plain `torch` pulls gigabytes of CUDA.
SEES_GPU := $(shell $(PYTHON) -c "import torch; print(int(torch.cuda.is_available()))" 2>/dev/null)
ifeq ($(SEES_GPU),1)
PINS := -c requirements/pins.txt
EXTRAS := gpu
else
PINS := -c requirements/pins.txt -c requirements/cpu.txt
EXTRAS := celery
endif
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PINS)
NO_TORCH := Without a GPU, Kernelwright is tested with the CPU build of torch. If pip cannot find it, \
    point PIP_EXTRA_INDEX_URL at the CPU index that the installation page of PyTorch names.

.PHONY: demo test venv lint benchmark clean

demo: venv
	$(BIN)/python examples/demo.py

test: $(VENV)/.tools
	$(BIN)/python -m pytest -n 2 --dist loadfile

venv: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml requirements/pins.txt requirements/cpu.txt
	$(PYTHON) -m venv $(VENV)
ifeq ($(SEES_GPU),1)
	# a venv of a venv sees nothing of it: name the packages of the Python that has torch
	$(PYTHON) -c "import sysconfig; print(sysconfig.get_path('purelib'))" \
	    > $$(echo $(VENV)/lib/python3*/site-packages)/borrowed.pth
endif
	$(INSTALL) "pip>=25.1"
	$(INSTALL) -e ".[$(EXTRAS)]" || { echo "$(NO_TORCH)"; exit 1; }
	touch $@

$(VENV)/.tools: $(VENV)/.ready
	$(INSTALL) --group dev
	touch $@

lint: $(VENV)/.tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

benchmark: venv
	$(BIN)/python benchmarks/judge.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
