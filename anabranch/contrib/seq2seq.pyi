from anabranch.contrib.seq2seq_attention import (
    AttentionMechanism as AttentionMechanism,
    BahdanauAttention as BahdanauAttention,
    LuongAttention as LuongAttention,
    hardmax as hardmax,
)
from anabranch.contrib.seq2seq_attention_wrapper import (
    AttentionWrapper as AttentionWrapper,
    AttentionWrapperState as AttentionWrapperState,
)
from anabranch.contrib.seq2seq_beam_search import (
    BeamSearchDecoder as BeamSearchDecoder,
    BeamSearchDecoderOutput as BeamSearchDecoderOutput,
    BeamSearchDecoderState as BeamSearchDecoderState,
    FinalBeamSearchDecoderOutput as FinalBeamSearchDecoderOutput,
)
from anabranch.contrib.seq2seq_beams import (
    gather_tree as gather_tree,
    gather_tree_from_array as gather_tree_from_array,
)
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
from anabranch.contrib.seq2seq_loss import (
    SequenceLoss as SequenceLoss,
    sequence_loss as sequence_loss,
    tile_batch as tile_batch,
)
from anabranch.contrib.seq2seq_monotonic import (
    BahdanauMonotonicAttention as BahdanauMonotonicAttention,
    LuongMonotonicAttention as LuongMonotonicAttention,
    monotonic_attention as monotonic_attention,
    safe_cumprod as safe_cumprod,
)
from anabranch.contrib.seq2seq_training_helpers import (
    ScheduledEmbeddingTrainingHelper as ScheduledEmbeddingTrainingHelper,
    ScheduledOutputTrainingHelper as ScheduledOutputTrainingHelper,
    TrainingHelper as TrainingHelper,
)
