"""The op vocabulary: a folder per subject, a file per family, one adjacent block per operation (design D2, D3)."""
