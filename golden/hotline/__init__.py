"""The Hotline accelerator, bit for bit."""
