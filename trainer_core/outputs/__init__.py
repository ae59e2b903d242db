"""The files of a finished run: results, plots and the model card."""
