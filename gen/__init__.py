"""The flow: from a preset to Verilog, and from a log to a plan."""
