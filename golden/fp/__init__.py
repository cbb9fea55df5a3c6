"""FP32 arithmetic of the oracle."""
