"""Arithmetic on dense tensors, and random numbers."""
