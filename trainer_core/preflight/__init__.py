"""What a CPU can find out about a run before a device is spent."""
