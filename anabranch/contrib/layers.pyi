from anabranch.contrib.layer_functions import (
    flatten as flatten,
    variance_scaling_initializer as variance_scaling_initializer,
    xavier_initializer as xavier_initializer,
)
from anabranch.contrib.regularizers import (
    apply_regularization as apply_regularization,
    l1_l2_regularizer as l1_l2_regularizer,
    l1_regularizer as l1_regularizer,
    l2_regularizer as l2_regularizer,
    sum_regularizer as sum_regularizer,
)
from anabranch.tools.contributed_names import layers

xavier_initializer_conv2d = xavier_initializer

__getattr__ = layers
