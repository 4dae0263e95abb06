"""Gradients of the first steps of programs that others wrote, in genuine TensorFlow and here, from the same state."""
