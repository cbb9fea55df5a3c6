"""A board of its own around a core: serial line, block memory, lamps."""
