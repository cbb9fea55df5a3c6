"""Stream parts: the small toolbox that units are wired with."""
