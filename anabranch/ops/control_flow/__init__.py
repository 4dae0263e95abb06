"""Conditionals, loops, calls, transfers between devices, checks and calls of Python while a step runs."""
