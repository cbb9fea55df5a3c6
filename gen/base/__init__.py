"""Ground of the flow: files that are written whole and checked when they are read, and external programs."""
