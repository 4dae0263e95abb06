"""Conditionals, loops, tensor arrays, checks, and calls of Python."""
