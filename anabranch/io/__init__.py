"""Bytes on disk: files, record files, event files, checkpoints. Plain Python and NumPy; nothing here knows a graph."""
