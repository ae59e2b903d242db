"""Answers prompts with a model and with what was trained of it: one load of the base for both."""
