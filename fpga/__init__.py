"""Open-source synthesis, packaging and the host side."""
