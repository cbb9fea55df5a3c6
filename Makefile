# `make demo` or `make test` on a machine with Python 3.11, make and g++ sets everything up by itself.
VENV   := .venv
PY     := $(VENV)/bin/python
RUN    := $(VENV)/bin/hotrail
READY  := $(VENV)/.ready
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)
PRESET ?=

.PHONY: help setup verilog test regress demo bench lint bitstream bitstream-ecp5 clean
help:
	@echo "make demo       rows of a real table through the RTL, bit for bit; build/demo/index.html"
	@echo "make test       lint-free quick checks: tests/ and the benches of every unit"
	@echo "make regress    the same with many seeds and the long sweeps"
	@echo "make verilog    build/<preset>/*.v with metadata (PRESET=name for one)"
	@echo "make lint       ruff, mypy, import law; Verilator, Yosys and Icarus on the Verilog"
	@echo "make bench      every figure with its target; build/bench.json"
	@echo "make bitstream  what is missing for one"
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
	@$(PY) -m pytest -n $(JOBS)

regress: $(READY)
	@HOTRAIL_REGRESS=1 HOTRAIL_SEEDS=$${HOTRAIL_SEEDS:-10} $(PY) -m pytest -n $(JOBS)

demo: $(READY)
	@$(RUN) demo

bench: $(READY)
	@$(RUN) bench

lint: $(READY)
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy
	@$(RUN) lint

bitstream:
	@echo "bitstream: needs AMD Vitis 2022.1 or 2022.2 with the platform xilinx_u2_gen3x4_xdma_gc_2_202110_1, and the kernel packaging (an .xo from the Verilog of make verilog), which this version does not have yet." >&2
	@exit 1

bitstream-ecp5: $(READY)
	@$(RUN) ecp5

clean:
	rm -rf build $(VENV) hotrail.egg-info
