"""The few names of `tf.contrib` that public programs need, written with the public package only."""

from __future__ import annotations

from anabranch.contrib import layers, rnn

__all__ = ["layers", "rnn"]
