"""The few names of `tf.contrib` that public programs need, written with the public package only."""

from __future__ import annotations

from anabranch.contrib import data, layers, legacy_seq2seq, lookup, rnn, seq2seq, slim, staging, training

__all__ = ["data", "layers", "legacy_seq2seq", "lookup", "rnn", "seq2seq", "slim", "staging", "training"]
