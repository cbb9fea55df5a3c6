"""What the commands show: lines on the terminal, and pages of the components in `hotrail.report.page`."""
