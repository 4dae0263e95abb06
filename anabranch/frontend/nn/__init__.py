"""Neural networks: convolutions, pooling, activations, recurrent networks, embeddings."""
