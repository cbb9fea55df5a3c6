"""What every core that is a Vitis kernel has besides its own work: the run, the counters, the report."""
