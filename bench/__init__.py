"""Every figure that is promised, each measured by one command. Run `hotrail bench` or `python -m bench`."""
