"""Arithmetic on dense tensors: elementwise, reductions, linear algebra, transforms, random numbers."""
