"""A job's DeepSpeed configuration: the schema, the owners of its numbers, the clashes, and what is handed over."""
