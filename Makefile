# `make demo` or `make test` on a machine with Python 3.11, make and g++ sets everything up by itself.
VENV   := .venv
PY     := $(VENV)/bin/python
RUN    := $(VENV)/bin/hotrail
READY  := $(VENV)/.ready
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)
PRESET ?=
CORE   ?=
# Of the package and what Vitis makes of it.
TARGET    ?= hw
PLATFORM  ?= xilinx_u2_gen3x4_xdma_gc_2_202110_1
CLOCK     ?= 300
INSTANCES ?= 1
KERNEL = --clock $(CLOCK) --instances $(INSTANCES) $(FLAGS)
ONE    = $(or $(PRESET),smartssd) $(or $(CORE),emb)

.PHONY: help setup verilog test regress demo bench lint package xo bitstream bitstream-ecp5 clean
help:
	@echo "make demo       rows of a real table through the RTL, bit for bit; build/demo/index.html"
	@echo "make test       lint-free quick checks: tests/ and the benches of every unit"
	@echo "make regress    the same with many seeds and the long sweeps"
	@echo "make verilog    build/<preset>/*.v with metadata (PRESET=name for one)"
	@echo "make lint       ruff, mypy, import law; Verilator, Yosys and Icarus on the Verilog"
	@echo "make bench      every figure with its target; build/bench.json"
	@echo "make package    cores as Vitis kernels, build/<preset>/vitis/<core>/ (PRESET=smartssd CORE=emb CLOCK=300)"
	@echo "make xo         one of them and its .xo, with AMD Vivado"
	@echo "make bitstream  one of them and its .xclbin, with AMD Vitis (TARGET=hw|hw_emu PLATFORM=...)"
	@echo "make bitstream-ecp5  the tiny EMB core on an ECP5 board with open tools alone; build/ecp5/*/*.bit, takes long"
	@echo "make setup      only the environment, .venv"
	@echo "make clean      removes build/ and .venv"

setup: $(READY)
$(READY): pyproject.toml .ci/setup
	@sh .ci/setup $(VENV)
	@touch $@

verilog: $(READY)
	@$(RUN) verilog $(PRESET)

test: $(READY)
	@$(PY) -m pytest -n $(JOBS) --dist worksteal

regress: $(READY)
	@HOTRAIL_REGRESS=1 HOTRAIL_SEEDS=$${HOTRAIL_SEEDS:-10} $(PY) -m pytest -n $(JOBS) --dist worksteal

demo: $(READY)
	@$(RUN) demo

bench: $(READY)
	@$(RUN) bench

lint: $(READY)
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy
	@$(RUN) lint

# FLAGS: further options, as --force; hotrail package --help names them.
package: $(READY)
	@$(RUN) package $(or $(PRESET),smartssd) $(CORE) $(KERNEL)

xo: $(READY)
	@$(RUN) xo $(ONE) $(KERNEL)

bitstream: $(READY)
	@$(RUN) bitstream $(ONE) $(KERNEL) --target $(TARGET) --platform $(PLATFORM)

bitstream-ecp5: $(READY)
	@$(RUN) ecp5

clean:
	rm -rf build $(VENV) hotrail.egg-info
