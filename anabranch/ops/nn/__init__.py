"""Operations of neural networks: convolutions, pooling, normalization, activations, losses of sequences."""
