from anabranch.contrib.learn.reading import read_batch_features as read_batch_features
from anabranch.estimator.array_inputs import numpy_input_fn as numpy_input_fn, pandas_input_fn as pandas_input_fn
