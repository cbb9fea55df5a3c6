"""The readers that fpga.vitis.check holds a package's files with: one of its own for each kind of file."""
