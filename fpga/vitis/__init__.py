"""The Vitis package of a core: everything between its Verilog and an .xclbin, and what can be checked of it here."""
