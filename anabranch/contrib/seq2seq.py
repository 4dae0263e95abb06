"""`tf.contrib.seq2seq`: decoding loops, the helpers that feed them, attention, beam search, and the loss (WP4.5).

A `Decoder` says how one step is taken, `dynamic_decode` repeats it in one `tf.while_loop`, and a helper says what the
next step is given: the inputs of the training data (`TrainingHelper`), or what was chosen from the outputs of the last
step.
"""

from __future__ import annotations

from anabranch.api import publish

publish(__name__)
