"""The `hotrail` command."""
