"""cocotb benches that hold the hardware against the oracle."""
