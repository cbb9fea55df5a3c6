"""AXI: masters that read and write card memory, and the control slave of a kernel."""
