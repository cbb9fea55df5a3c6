"""From tables, networks and batches to memory images and programs of the cores."""
