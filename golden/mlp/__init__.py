"""The MLP core's oracle: programs, networks and the cycles they take."""
