"""Clusters: which tasks there are, how messages go between their processes, and how they work on one graph."""
