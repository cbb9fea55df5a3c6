"""What a user brings beside the log: networks, recommendation models, parameters, devices."""
