"""The ports of a core, cycle by cycle."""
