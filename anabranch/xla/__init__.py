"""From islands of a step to XLA executables (design D7)."""
