"""Graph to graph: what makes a step smaller before it is compiled (§3.2, §5, WP5)."""
