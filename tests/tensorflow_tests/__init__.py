"""TensorFlow 1.15's own unit tests, run on anabranch beside the counts of genuine TensorFlow."""
