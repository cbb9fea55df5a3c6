"""Open-source synthesis, logic depth and lint of the cores, and an ECP5's bitstream."""
