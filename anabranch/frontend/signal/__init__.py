"""Signals: windows, frames, short-time Fourier and cosine transforms, mel scales."""
