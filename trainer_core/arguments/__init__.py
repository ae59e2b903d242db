"""A job's training options: the table of every name, how each is read, what clashes, and what becomes of it."""
