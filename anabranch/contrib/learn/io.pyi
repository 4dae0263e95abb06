from anabranch.contrib.learn.reading import (
    read_batch_examples as read_batch_examples,
    read_batch_features as read_batch_features,
    read_batch_record_features as read_batch_record_features,
    read_keyed_batch_examples as read_keyed_batch_examples,
    read_keyed_batch_features as read_keyed_batch_features,
)
from anabranch.estimator.array_inputs import numpy_input_fn as numpy_input_fn, pandas_input_fn as pandas_input_fn
