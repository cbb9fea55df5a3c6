"""Click logs as they come: readers that stream, in constant memory."""
