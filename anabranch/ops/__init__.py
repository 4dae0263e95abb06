"""The op vocabulary: one file per family, one adjacent block per operation (design D2, D3)."""
