"""Benchmarks: anabranch beside hand-written JAX, TensorFlow's session and PyTorch, in one run on one machine."""
