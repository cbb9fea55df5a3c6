"""A model of a training step: stages, systems and the constants of machines."""
