"""The optimizers, one file per family."""
