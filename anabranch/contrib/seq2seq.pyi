from anabranch.contrib.seq2seq_decoders import (
    BasicDecoder as BasicDecoder,
    BasicDecoderOutput as BasicDecoderOutput,
    Decoder as Decoder,
    dynamic_decode as dynamic_decode,
)
from anabranch.contrib.seq2seq_helpers import (
    CustomHelper as CustomHelper,
    GreedyEmbeddingHelper as GreedyEmbeddingHelper,
    Helper as Helper,
    InferenceHelper as InferenceHelper,
    SampleEmbeddingHelper as SampleEmbeddingHelper,
)
from anabranch.contrib.seq2seq_loss import sequence_loss as sequence_loss, tile_batch as tile_batch
from anabranch.contrib.seq2seq_training_helpers import (
    ScheduledEmbeddingTrainingHelper as ScheduledEmbeddingTrainingHelper,
    ScheduledOutputTrainingHelper as ScheduledOutputTrainingHelper,
    TrainingHelper as TrainingHelper,
)
