"""Libraries of TensorFlow 1's time, unmodified, on anabranch: `python -m tests.libraries`."""
