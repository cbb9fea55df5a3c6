"""A core on an AWS F2 instance: custom logic between the ports of Amazon's Small Shell."""
