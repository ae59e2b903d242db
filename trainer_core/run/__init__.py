"""One rank's run from its config to its exit code: how it begins, speaks, stops and ends."""
