# Everything one does with this repository. `make` alone lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH := $(shell sed -n 's/^torch==//p' constraints.txt)
PEERS := .venv-peers
LOGGERS := .venv-loggers
SOURCES := pyproject.toml setup.py constraints.txt $(wildcard csrc/*.h csrc/*.pyx csrc/*.pxd csrc/core/* csrc/kernels/* csrc/environments/*)
# Compiled modules are kept: each of the tests' hundreds of processes would compile torch anew.
unexport PYTHONDONTWRITEBYTECODE
# pytest options, for example: make test ARGS='-k noise -x'
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-slurm test-learning test-loggers soak test-c test-arm64 lint types check bench peers site wheel clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-15s%s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# --- use ---

demo: DEMO := runs/demo-$(shell date +%Y-%m-%d-%H-%M-%S)
demo: $(VENV)/.installed-box2d,video ## train the default policy; draw its learning curve and film it
	$(BIN)/pyes train run_dir=$(DEMO)
	$(BIN)/pyes video $(DEMO) -o $(DEMO)/video.mp4
	@printf '\nthe run:             %s\nits learning curve:  %s\nits video:           %s\n' \
		$(DEMO) $(DEMO)/learning_curve.png $(DEMO)/video.mp4

bench: $(VENV)/.installed-dev ## measure kernels, rollouts and the node against this machine's limits
	$(BIN)/pyes bench --full
	$(BIN)/python benchmarks/node.py

peers: $(PEERS)/.installed ## measure pyes, EvoTorch, Stable-Baselines3 and others side by side (hours; ARGS=--help)
	$(PEERS)/bin/python benchmarks/peers.py $(ARGS)

# --- develop ---

# More processes than cores: a fifth of the tests' time is waiting for sockets, processes and faults to be noticed.
# A test that its own time limit cannot end, since C code or a fixture hangs, ends its process, which says where it was.
PYTEST := $(BIN)/pytest -n 4 --dist worksteal -o faulthandler_timeout=400 -o faulthandler_exit_on_timeout=true

test: $(VENV)/.installed-dev ## run the quick tests, which touch every part (about three minutes on two cores)
	$(PYTEST) -m "not slow and not learning and not soak and not slurm and not loggers" $(ARGS)

test-slow: $(VENV)/.installed-dev ## run the others: long faults, every simulator, many seeds
	$(PYTEST) -m "slow and not learning and not soak and not loggers" $(ARGS)

test-learning: $(VENV)/.installed-dev ## train on real tasks until policies are good (minutes)
	$(BIN)/pytest -m learning $(ARGS)

test-loggers: $(LOGGERS)/.installed ## log to W&B, MLflow and trackio themselves, which it installs (minutes)
	$(LOGGERS)/bin/pytest -m loggers tests/conformance/test_loggers.py $(ARGS)

test-slurm: $(VENV)/.installed-dev ## run jobs on a Slurm that the tests start (needs slurm-wlm and munge; a minute or two)
	$(BIN)/pytest -m slurm $(ARGS)

soak: $(VENV)/.installed-dev ## kill runs fifty times, replay whole runs, run ten thousand generations, hurt three nodes for two hours (three hours)
	$(BIN)/pytest -m soak $(ARGS)

test-c: ## run the tests of the C kernels under sanitizers
	$(MAKE) -C csrc/tests

test-arm64: ## run the tests of the C kernels on an emulated 64-bit ARM: the same known answers
	$(MAKE) -C csrc/tests arm64

lint: $(VENV)/.installed-dev ## check style and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.installed-dev ## check types
	$(BIN)/mypy

check: lint types site test-c test test-slow ## all that CI checks but test-arm64

site: $(VENV)/.installed-dev ## build the documentation as a site, into build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

wheel: $(VENV)/.installed-dev ## build sdist and wheel into dist/
	$(BIN)/python -m build

clean: ## remove what was built, but neither runs nor environments
	rm -rf build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis csrc/_core.c
	rm -f pyes/_core*.so $(VENV)/.installed-* $(PEERS)/.installed $(LOGGERS)/.installed
	find pyes conf tests benchmarks examples tools -name __pycache__ -prune -exec rm -rf {} +
	$(MAKE) -C csrc/tests clean

# The environment: made once; made again when the build's inputs are newer. `.installed-dev` has the extra `dev`, and so on.
$(VENV)/.installed-%: $(SOURCES)
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { \
		echo "pyes needs Python 3.11, 3.12 or 3.13, but $(PYTHON) is $$($(PYTHON) --version 2>&1); try make PYTHON=python3.11" >&2; \
		exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(if $(filter dev torch all,$*),$(has-torch) 2>/dev/null || $(install-torch))
	$(install) -e '.[$*]'
	$(if $(filter dev,$*),$(BIN)/pytest --collect-only --quiet > /dev/null)
	@touch $@

# The peers' environment is one of its own: what they pin must not decide what pyes is tested with.
# The first trainings of all methods compile the modules that they use: else the first measurement would.
$(PEERS)/.installed: BIN := $(PEERS)/bin
$(PEERS)/.installed: $(SOURCES) benchmarks/peers.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(PEERS)
	$(has-torch) 2>/dev/null || $(install-torch)
	$(install) -r benchmarks/peers.txt -e '.[box2d,mujoco]'
	rm -rf $(PEERS)/try
	$(BIN)/python benchmarks/peers.py learning --tasks lunar_lander hopper --seeds 1 --minutes 0.05 --folder $(PEERS)/try > /dev/null
	@touch $@

# Loggers come as users get them, into an environment of their own: without them is how pyes is tested otherwise. The server of
# MLflow, which the tests start, needs all of it.
$(LOGGERS)/.installed: BIN := $(LOGGERS)/bin
$(LOGGERS)/.installed: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(LOGGERS)
	$(install) -e '.[box2d,video,wandb,mlflow,trackio]' mlflow hypothesis pytest pytest-timeout
	@touch $@

# A module is compiled when it is first imported; pip would compile all of them, in one process, and most are never used.
# Collecting the tests imports what they use, once: else each of their processes would compile it anew.
install = $(BIN)/python -m pip install --quiet --no-compile -c constraints.txt
has-torch = $(BIN)/python -c 'import torch; assert torch.__version__.split("+")[0] == "$(TORCH)"'
# The CPU build where pip has it (its version then ends in +cpu); else the version alone, as the platform's own.
install-torch = $(install) 'torch==$(TORCH)+cpu' 2>/dev/null || $(install) 'torch==$(TORCH)'
