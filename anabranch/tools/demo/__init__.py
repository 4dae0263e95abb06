"""The demonstration: a convolutional network that learns to read 1,797 real handwritten digits."""
