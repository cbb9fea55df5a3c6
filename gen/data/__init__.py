"""From a click log to a profile and to remapped indices."""
