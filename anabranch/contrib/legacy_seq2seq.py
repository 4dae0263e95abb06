"""`tf.contrib.legacy_seq2seq`: sequence-to-sequence networks over lists of tensors.

A sequence is a list with one tensor per time step: [batch, depth], or [batch] of symbols (int32) to be embedded.
Networks are written out step by step; `tf.nn.dynamic_rnn` and `tf.nn.raw_rnn` make loops.
"""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
