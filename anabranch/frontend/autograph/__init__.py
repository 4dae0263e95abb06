"""tf.autograph: Python's `if`, `while` and `for` over tensors become operations  (docs/decisions/0071)."""
