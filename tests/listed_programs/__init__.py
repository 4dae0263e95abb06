"""Public programs, unmodified, with genuine TensorFlow and with anabranch: what came of each."""
