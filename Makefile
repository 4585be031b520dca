# make, on a machine with gcc, make and python3 (with venv): everything else is installed into .venv.
# SPDX-License-Identifier: Apache-2.0
SHELL := /bin/bash
.SHELLFLAGS := -e -o pipefail -c
.DEFAULT_GOAL := build

SYSTEM_PYTHON ?= python3
PRESET ?= dev
JOBS ?= $(shell nproc)
BUILD := build/$(PRESET)
ENV := build/env.mk
CMAKE_FLAGS ?=
# What `make install` installs, and where.
INSTALL_PRESET ?= release
PREFIX ?= /usr/local
DESTDIR ?=
NINJA_FLAGS ?= $(if $(MAKE_TERMOUT),,--quiet)
export MILLPOND_EP_LIBRARY ?= $(CURDIR)/$(BUILD)/lib/libonnxruntime_providers_cuda_plugin.so

# Written by tools/setup.py before any goal that needs it: PYTHON, CMAKE, NINJA, PYTHON_HEADERS. A file that names a
# Python which is gone (.venv was deleted) is made again.
$(shell sed -n 's/^PYTHON := //p' $(ENV) 2>/dev/null | xargs -r test -x || rm -f $(ENV))
ifneq ($(filter-out help clean distclean,$(or $(MAKECMDGOALS),build)),)
include $(ENV)
endif

$(ENV): requirements.txt tools/setup.py
	@$(SYSTEM_PYTHON) tools/setup.py --out $@

.PHONY: setup configure build demo test test-all test-quick test-versions test-hostile bench bench-gate kernels install deb wheel release lint format docs site test-gpu bench-gpu clean distclean help

setup: $(ENV) ## Install pinned tools and packages into .venv (every other target does this too)
	@:

configure: setup
	@test -f $(BUILD)/build.ninja || { mkdir -p $(BUILD); \
	    echo "build: compiling into $(BUILD), which takes some minutes the first time ..."; $(CMAKE) --preset $(PRESET) \
	    -DCMAKE_MAKE_PROGRAM=$(NINJA) -DPython3_EXECUTABLE=$(PYTHON) -DMILLPOND_PYTHON_HEADERS=$(PYTHON_HEADERS) $(CMAKE_FLAGS) \
	    > $(BUILD)/configure.log \
	    || { cat $(BUILD)/configure.log; exit 1; }; }

build: configure ## Build the libraries and C tests (PRESET=dev, asan, tsan, clang, clang-tsan, release or cuda)
	@$(NINJA) -C $(BUILD) -j $(JOBS) $(NINJA_FLAGS)

demo: build ## Read the text in a real picture on the device at hand (PICTURE=file.png for yours)
	@$(PYTHON) tools/fetch_models.py --group demo
	@$(PYTHON) demo/ocr.py $(if $(PICTURE),--picture $(PICTURE))

test: build ## Run the tests that need no GPU; the last lines say what is left out, and count them
	@$(PYTHON) tools/run_tests.py --build $(BUILD) $(TEST_FLAGS)

test-all: build ## The same in full, and lint, sanitizers, valgrind, clang, other versions of ONNX Runtime
	@$(PYTHON) tools/run_tests.py --build $(BUILD) --all $(TEST_FLAGS)

test-quick: build ## The C tests and checks only, in some seconds
	@$(PYTHON) tools/run_tests.py --build $(BUILD) --quick $(TEST_FLAGS)

test-versions: build ## The provider in the oldest ONNX Runtime, one between, and the newest on PyPI
	@$(PYTHON) tools/test_versions.py --build $(BUILD) $(VERSION_FLAGS)

test-hostile: build ## Models that nobody would write, 20,000 of them (HOSTILE_FLAGS="--count N --seed N --operators A,B")
	@MILLPOND_DEVICE=$(or $(MILLPOND_DEVICE),host) PYTHONPATH=$(BUILD)/python:demo $(PYTHON) tests/ep/hostile.py $(HOSTILE_FLAGS)

bench: build ## Time the pool, the models and a chain of small operators; writes bench/results/*.json
	@$(PYTHON) bench/bench_pool.py --build $(BUILD) --repeats 3 --budget-s 120 $(POOL_FLAGS)
	@PYTHONPATH=$(BUILD)/python $(PYTHON) bench/bench_binding.py
	@$(PYTHON) tools/fetch_models.py --group test
	@$(PYTHON) bench/bench_models.py $(BENCH_FLAGS)

bench-gate: build ## Measure ratios beside peers here, and compare them with the most that bench/gates.tsv allows
	@PYTHONPATH=$(BUILD)/python $(PYTHON) bench/gate.py --build $(BUILD) $(GATE_FLAGS)

kernels: build ## Compile the kernels for GPUs ahead of time, into the folder where they are found (KERNEL_FLAGS="--archs 90")
	@$(PYTHON) tools/ready_kernels.py --build $(BUILD) --out $(BUILD)/lib/kernels $(KERNEL_FLAGS)

install: setup ## Install libraries, header, pkg-config and CMake files, manual pages (PREFIX=/usr/local DESTDIR=)
	@$(MAKE) --no-print-directory build PRESET=$(INSTALL_PRESET)
	@DESTDIR=$(DESTDIR) $(CMAKE) --install build/$(INSTALL_PRESET) --prefix $(PREFIX) --strip

deb: setup ## Build Debian packages into dist/: the library, its header, the provider
	@$(PYTHON) tools/deb.py --out dist $(DEB_FLAGS)

wheel: setup ## Build the Python wheel and its source archive into dist/, and check them
	@$(PYTHON) tools/wheel.py --out dist $(WHEEL_FLAGS)

release: build ## Make a release into dist/: wheels, source archive, Debian packages, SBOM, sums
	@$(PYTHON) tools/release.py --out dist --gpu-kernels $(BUILD) $(RELEASE_FLAGS)

lint: configure ## Check format, clang-tidy, Python style, spelling and layers
	@$(PYTHON) tools/lint.py --build $(BUILD) $(LINT_FLAGS)

format: setup ## Rewrite C and Python files in the house's format
	@$(PYTHON) tools/lint.py --build $(BUILD) --fix

docs: build ## Rewrite docs/operators.md from what is registered, the manual pages and the pictures
	@$(PYTHON) tools/operators_doc.py
	@PYTHONPATH=$(BUILD)/python $(PYTHON) tools/man_pages.py
	@$(PYTHON) tools/pictures.py

site: setup ## Build the documents' site into build/site (SITE_FLAGS=--check looks at it in Chromium, too)
	@$(PYTHON) tools/build_site.py $(SITE_FLAGS)

# The library is named again, since this make has exported the one of its own preset.
GPU_BUILD = PRESET=cuda MILLPOND_EP_LIBRARY=$(CURDIR)/build/cuda/lib/libonnxruntime_providers_cuda_plugin.so

test-gpu: ## Run the tests on this machine's GPU, some of them under compute-sanitizer, too
	@$(MAKE) --no-print-directory build PRESET=cuda
	@$(MAKE) --no-print-directory gpu-tests $(GPU_BUILD)

bench-gpu: ## Time the pool and the models on this machine's GPU; writes bench/results/*.json
	@$(MAKE) --no-print-directory build PRESET=cuda
	@$(MAKE) --no-print-directory gpu-bench $(GPU_BUILD)

.PHONY: gpu-tests gpu-bench
gpu-tests: setup
	@$(PYTHON) tools/fetch_models.py --group test || echo "models not fetched: tests of those absent are skipped"
	@MILLPOND_DEVICE=cuda $(PYTHON) tools/run_tests.py --build $(BUILD) --gpu $(TEST_FLAGS)

gpu-bench: setup
	@$(PYTHON) bench/bench_pool.py --build $(BUILD) --stage cuda $(POOL_FLAGS)
	@MILLPOND_DEVICE=cuda PYTHONPATH=$(BUILD)/python $(PYTHON) bench/bench_binding.py
	@$(PYTHON) tools/fetch_models.py --group test || echo "models not fetched: those absent are left out"
	@MILLPOND_DEVICE=cuda $(PYTHON) bench/bench_models.py $(BENCH_FLAGS)
	@MILLPOND_DEVICE=cuda $(PYTHON) bench/bench_runtime.py --build $(BUILD)
	@MILLPOND_DEVICE=cuda $(PYTHON) bench/bench_bandwidth.py

clean: ## Delete what was built
	rm -rf build

distclean: clean ## Delete also the installed packages and the downloaded models
	rm -rf .venv .cache

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20
