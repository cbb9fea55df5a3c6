"""The systolic array's oracle."""
