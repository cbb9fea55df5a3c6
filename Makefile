# `make demo` or `make test` on a machine with Python 3.11, make and g++ sets everything up by itself.
VENV   := .venv
PY     := $(VENV)/bin/python
RUN    := $(VENV)/bin/hotrail
READY  := $(VENV)/.ready
# What tests, lint and benches need besides: dev tools, some of them under licences that nothing of ours may depend on.
DEV    := $(VENV)/.ready-dev
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)
PRESET ?=
CORE   ?=
# Hundreds of processes import the same modules: each would compile them anew.
unexport PYTHONDONTWRITEBYTECODE
# As one word of the shell. An option is given when it has a value; the commands know what is taken otherwise.
quoted = $(if $(strip $1),'$(subst ','\'',$1)')
option = $(if $(strip $2),--$1 $(call quoted,$2))
# Of the package and what Vitis makes of it. FLAGS: further options, as --force; hotrail package --help names them.
KERNEL = $(call quoted,$(or $(PRESET),smartssd)) $(CORE) $(call option,platform,$(PLATFORM)) \
	$(call option,clock,$(CLOCK)) $(call option,instances,$(INSTANCES)) $(FLAGS)

# Environments are set up and builds share a folder: one target after the other.
.NOTPARALLEL:
.PHONY: help setup lock verilog test regress mutants fuzz proofs coverage portable clean-install demo bench lint docs package xo bitstream bitstream-ecp5 clean
help:
	@echo "make demo       a model trained on a real log, on one, two and three memories; build/demo/index.html"
	@echo "make test       lint-free quick checks: tests/ and the benches of every unit"
	@echo "make regress    the same with more seeds and the long sweeps, before a release (PART=\"verif tests/golden\": these"
	@echo "                folders or files alone; HOTRAIL_SEEDS=3; HOTRAIL_TURNS=all: whole tables of mutants too)"
	@echo "make mutants    changes of one place of the hardware, drawn at random, that its benches must find (FLAGS=\"--count"
	@echo "                300 --seed 2\", or files of hw); goes on where it was ended"
	@echo "make fuzz       malformed files of every format (FLAGS=\"--count 1000000 --seed 2\"), or drawn programs of the cores"
	@echo "                (WHAT=programs FLAGS=\"--core mlp --seconds 3600\")"
	@echo "make proofs     every property of every unit (FLAGS=\"--mutants 8\": mutants against properties instead)"
	@echo "make coverage   bits of ports and counters that no bench has seen change (FLAGS=\"verif/axi\": of these benches)"
	@echo "make portable   the tests under conditions of other machines (CONDITIONS=\"no-avx2 spaces\": these alone)"
	@echo "make clean-install  sdist and wheel, and the commands of an installation from it (FLAGS=--keep=dist: keeps both)"
	@echo "make verilog    build/<preset>/*.v with metadata (PRESET=name for one)"
	@echo "make lint       ruff, the shape of statements in hw, mypy; Verilator, Yosys, slang and Icarus on the Verilog"
	@echo "                (PRESET=\"tiny screc\": of these alone)"
	@echo "make bench      every figure with its target; build/bench.json"
	@echo "make docs       the guide as a site that works from disk, build/site/index.html"
	@echo "make package    cores as Vitis kernels, build/<preset>/vitis/<core>/ (PRESET=smartssd, CORE=all that it has,"
	@echo "                CLOCK=250 INSTANCES=1 PLATFORM=...; FLAGS=--no-gate: without minutes of Yosys)"
	@echo "make xo         one of them (CORE=its first kernel) and its .xo, with AMD Vivado"
	@echo "make bitstream  one of them and its .xclbin, with AMD Vitis (the same and TARGET=hw|hw_emu)"
	@echo "make bitstream-ecp5  a core on an ECP5 board with open tools alone; build/ecp5/*/*.bit, takes long"
	@echo "                (CORE=emb|none|... PRESET=ecp5 BOARD=ulx3s_85f)"
	@echo "make setup      only the environment, .venv, from requirements.lock; tests, lint and benches add the rest"
	@echo "make lock       requirements.lock and requirements-dev.lock anew, after a change of pyproject.toml's packages"
	@echo "                (FLAGS=--upgrade: newer versions of what these packages bring with them)"
	@echo "make clean      removes build/ and .venv"

setup: $(READY)
$(READY): pyproject.toml requirements.lock .ci/setup
	@sh .ci/setup $(VENV) requirements.lock
	@touch $@

# With what the other lock file names among it.
$(DEV): pyproject.toml requirements.lock requirements-dev.lock .ci/setup
	@sh .ci/setup $(VENV) requirements-dev.lock
	@touch $(READY) $@

lock:
	@sh .ci/lock $(FLAGS)

verilog: $(READY)
	@$(RUN) verilog $(call quoted,$(PRESET))

test: $(DEV)
	@$(PY) -m pytest -rfEs -n $(JOBS) --dist worksteal

regress: $(DEV)
	@HOTRAIL_REGRESS=1 HOTRAIL_SEEDS=$${HOTRAIL_SEEDS:-3} HOTRAIL_FIRST_SEED=$${HOTRAIL_FIRST_SEED:-$$(.ci/seed)} \
		$(PY) -m pytest -rfEs -n $(JOBS) --dist worksteal $(PART)

mutants: $(DEV)
	@$(PY) -m tests.mutants $(FLAGS)

fuzz: $(DEV)
	@$(PY) -m tests.fuzz.$(or $(WHAT),campaign) $(FLAGS)

proofs: $(DEV)
	@$(PY) -m verif.formal $(FLAGS)

coverage: $(DEV)
	@rm -rf build/coverage
	@HOTRAIL_COVERAGE=build/coverage $(PY) -m pytest -q -n $(JOBS) --dist worksteal $(or $(FLAGS),verif)
	@$(PY) -m verif.coverage build/coverage

portable: $(DEV)
	@$(PY) .ci/portable.py $(CONDITIONS)

clean-install: $(DEV)
	@$(PY) .ci/clean_install.py $(FLAGS)

demo: $(READY)
	@$(RUN) demo

bench: $(DEV)
	@$(RUN) bench

lint: $(DEV)
	@$(VENV)/bin/ruff check .
	@$(PY) .ci/statements.py
	@$(VENV)/bin/mypy
	@$(RUN) lint $(foreach preset,$(PRESET),$(call quoted,$(preset)))

docs: $(DEV)
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build -q -f .ci/mkdocs.yml
	@echo build/site/index.html

package: $(READY)
	@$(RUN) package $(KERNEL)

xo: $(READY)
	@$(RUN) xo $(KERNEL)

bitstream: $(READY)
	@$(RUN) bitstream $(KERNEL) $(call option,target,$(TARGET))

bitstream-ecp5: $(READY)
	@$(RUN) ecp5 $(CORE) $(call option,preset,$(PRESET)) $(call option,board,$(BOARD)) $(FLAGS)

clean:
	rm -rf build $(VENV) hotrail.egg-info
