"""C++ for Vitis HLS: the units and the EMB kernel, sized by a preset, with vectors of the oracle."""
