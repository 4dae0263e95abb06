"""`tf.contrib.seq2seq` without attention: decoding loops, the helpers that feed them, and their loss (WP4.5).

A `Decoder` says how one step is taken, `dynamic_decode` repeats it in one `tf.while_loop`, and a helper says what the
next step is given: the inputs of the training data (`TrainingHelper`), or what was chosen from the outputs of the last
step.
"""

from __future__ import annotations

from anabranch.contrib.seq2seq_decoders import BasicDecoder, BasicDecoderOutput, Decoder, dynamic_decode
from anabranch.contrib.seq2seq_helpers import (
    CustomHelper,
    GreedyEmbeddingHelper,
    Helper,
    InferenceHelper,
    SampleEmbeddingHelper,
)
from anabranch.contrib.seq2seq_loss import sequence_loss, tile_batch
from anabranch.contrib.seq2seq_training_helpers import (
    ScheduledEmbeddingTrainingHelper,
    ScheduledOutputTrainingHelper,
    TrainingHelper,
)

__all__ = [
    "BasicDecoder",
    "BasicDecoderOutput",
    "CustomHelper",
    "Decoder",
    "GreedyEmbeddingHelper",
    "Helper",
    "InferenceHelper",
    "SampleEmbeddingHelper",
    "ScheduledEmbeddingTrainingHelper",
    "ScheduledOutputTrainingHelper",
    "TrainingHelper",
    "dynamic_decode",
    "sequence_loss",
    "tile_batch",
]
