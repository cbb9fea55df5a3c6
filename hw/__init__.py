"""The units, in Amaranth. This room imports amaranth and nothing else but the standard library."""
