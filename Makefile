# The commands of the project; `make help` lists them. Every target first installs what it needs (tools/setup.sh), so that
# `make demo` and `make test` work on a fresh Debian or Ubuntu machine with Python 3.10+ and make. Later runs find the
# stamps of the set-up and start at once.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
export PYTHON VENV

.DEFAULT_GOAL := help
.PHONY: help demo demo-gpt test test-distributed test-recorded smoke conformance suites fuzz bench bench-models gpu-check build wheel wheel-cuda wheel-aarch64 release-check asan tsan lint format docs meter clean

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|' 2>/dev/null \
	  || sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1  \2/p' $(MAKEFILE_LIST)

demo:  ## train a small convolutional network on handwritten digits (ARGS="--resume" continues)
	@tools/setup.sh build demo
	@tools/build.sh cpu _C
	@PYTHONPATH=build/python $(VENV)/bin/python examples/mnist.py $(ARGS)

demo-gpt:  ## train a small GPT on Shakespeare, character by character, and generate text (ARGS="--resume" continues)
	@tools/setup.sh build demo
	@tools/build.sh cpu _C
	@PYTHONPATH=build/python $(VENV)/bin/python examples/gpt.py $(ARGS)

test:  ## build, C++ tests (plain and under sanitizers), budgets, Python tests (ARGS go to pytest)
	@tools/setup.sh build test torch cuda-build
	@tools/test.sh $(ARGS)

smoke:  ## build and run the tests marked as smoke tests: five seconds
	@tools/setup.sh build test
	@tools/build.sh cpu _C
	@$(VENV)/bin/python -m pytest -q -m smoke $(ARGS)

test-distributed:  ## all tests of many processes, with those that are too long for make test
	@tools/setup.sh build test torch
	@tools/build.sh cpu _C
	@TAPEGRAD_LONG_TESTS=1 $(VENV)/bin/python -m pytest -q -n "$${JOBS:-$$(nproc)}" --dist worksteal test/python/distributed $(ARGS)

test-recorded:  ## tests of layers and examples with all modules compiled
	@tools/setup.sh build test torch
	@tools/build.sh cpu _C
	@TAPEGRAD_RECORD=1 $(VENV)/bin/python -m pytest -q -n "$${JOBS:-$$(nproc)}" --dist worksteal test/python/nn test/python/examples $(ARGS)

fuzz:  ## 10,000 broken calls of every operator under AddressSanitizer and UBSan: hours (ARGS="--calls 200 conv2d sort")
	@tools/setup.sh build test
	@tools/fuzz.sh $(ARGS)

conformance:  ## run PyTorch's sample inputs through both libraries; writes docs/conformance.md (ARGS="--show add 'nn.*'")
	@tools/setup.sh build test torch
	@tools/build.sh cpu _C
	@PYTHONPATH=build/python:test $(VENV)/bin/python -m conformance $(if $(ARGS),$(ARGS),--report docs/conformance.md)

suites:  ## other people's test suites on torch and here (ARGS="--folder CHECKOUTS --python PYTHON", see docs/compat.md)
	@tools/setup.sh build test torch
	@tools/build.sh cpu _C
	@PYTHONPATH=build/python:test $(VENV)/bin/python -m suites $(ARGS)

bench:  ## time tapegrad against torch and NumPy; writes a table and a plot
	@tools/setup.sh build bench torch
	@tools/build.sh cpu _C
	@PYTHONPATH=build/python $(VENV)/bin/python -m benchmarks $(ARGS)

bench-models:  ## time whole models against torch (and JAX, where .venv-jax has it); writes a table, JSON and plots (ARGS="--help")
	@tools/setup.sh build bench torch
	@tools/build.sh cpu _C
	@PYTHONPATH=build/python $(VENV)/bin/python -m benchmarks.models $(ARGS)

gpu-check:  ## on a machine with a GPU: build with CUDA, run the tests there, time against its torch (ARGS="--help")
	@tools/gpu_check.sh $(ARGS)

build:  ## build libtapegrad, the Python package and the examples for the CPU into build/
	@tools/setup.sh build
	@tools/build.sh cpu

wheel:  ## wheels for every CPython found (PYTHONS="python3.11 ..."), each tried in an empty environment, and the sdist: dist/
	@tools/setup.sh build wheel
	@. tools/common.sh && $(VENV)/bin/python tools/wheel.py

wheel-cuda:  ## after make wheel: the wheel of tapegrad-cuda, tried without a card
	@tools/setup.sh build wheel cuda-build
	@. tools/common.sh && $(VENV)/bin/python tools/wheel_cuda.py

wheel-aarch64:  ## on Debian: the wheel for aarch64, cross-compiled, and tried under qemu
	@tools/setup.sh build wheel aarch64
	@tools/sysroot.sh build-aarch64
	@. tools/common.sh && TG_SYSROOT=build-aarch64/sysroot $(VENV)/bin/python tools/wheel.py

release-check:  ## what must hold before a release: version, documents, links, examples, and what make wheel left in dist/
	@tools/setup.sh build wheel
	@$(VENV)/bin/python tools/release_check.py $(ARGS)

asan:  ## run the C++ tests under AddressSanitizer and UBSan
	@tools/setup.sh build
	@tools/ctest.sh asan

tsan:  ## run the C++ tests of what threads and processes share under ThreadSanitizer
	@tools/setup.sh build
	@tools/sanitizers/tsan.sh

lint:  ## clang-format and ruff on everything, clang-tidy on what changed since main
	@tools/setup.sh build dev
	@tools/lint.sh

format:  ## let clang-format and ruff rewrite the files that make lint complains about
	@tools/setup.sh dev
	@tools/lint.sh --fix

docs:  ## write the operator reference and the pages as HTML into build/docs
	@tools/setup.sh build docs
	@tools/build.sh cpu --configure
	@$(VENV)/bin/python tools/docs.py build build/docs

meter:  ## compare the budgets with what this checkout measures
	@tools/setup.sh build
	@tools/build.sh cpu
	@$(VENV)/bin/python tools/meter.py --build build --full

clean:  ## remove every build folder (.venv stays)
	rm -rf build build-*
