"""Clusters: which tasks there are, where they listen, and how they work on one graph."""
