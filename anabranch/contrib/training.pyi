from anabranch.contrib.example_sampling import (
    rejection_sample as rejection_sample,
    resample_at_rate as resample_at_rate,
    stratified_sample as stratified_sample,
    weighted_resample as weighted_resample,
)
from anabranch.contrib.hparams import HParams as HParams, parse_values as parse_values
from anabranch.contrib.load_balancing import (
    GreedyLoadBalancingStrategy as GreedyLoadBalancingStrategy,
    RandomStrategy as RandomStrategy,
    byte_size_load_fn as byte_size_load_fn,
)
from anabranch.contrib.sequence_queues import (
    NextQueuedSequenceBatch as NextQueuedSequenceBatch,
    SequenceQueueingStateSaver as SequenceQueueingStateSaver,
    batch_sequences_with_states as batch_sequences_with_states,
)
from anabranch.tools.contributed_names import training
from anabranch.train.bucketing import (
    bucket as bucket,
    bucket_by_sequence_length as bucket_by_sequence_length,
)

__getattr__ = training
