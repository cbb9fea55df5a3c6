"""Malformed files of every kind that is read, made by the number, tried by the thousand in child processes."""
