"""From a preset to Verilog, to a Verilator model and to headers."""
