"""What stream parts do, cycle by cycle."""
