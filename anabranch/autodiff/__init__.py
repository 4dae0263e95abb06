"""Differentiation: gradients as nodes of the graph (§4.1, WP4.1)."""
