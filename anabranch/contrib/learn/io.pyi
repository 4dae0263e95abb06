from anabranch.contrib.learn.extracted import (
    extract_dask_data as extract_dask_data,
    extract_dask_labels as extract_dask_labels,
    extract_pandas_data as extract_pandas_data,
    extract_pandas_labels as extract_pandas_labels,
    extract_pandas_matrix as extract_pandas_matrix,
)
from anabranch.contrib.learn.reading import (
    read_batch_examples as read_batch_examples,
    read_batch_features as read_batch_features,
    read_batch_record_features as read_batch_record_features,
    read_keyed_batch_examples as read_keyed_batch_examples,
    read_keyed_batch_examples_shared_queue as read_keyed_batch_examples_shared_queue,
    read_keyed_batch_features as read_keyed_batch_features,
    read_keyed_batch_features_shared_queue as read_keyed_batch_features_shared_queue,
)
from anabranch.estimator.array_inputs import numpy_input_fn as numpy_input_fn, pandas_input_fn as pandas_input_fn
