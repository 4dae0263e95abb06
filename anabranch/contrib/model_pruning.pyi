from anabranch.contrib.pruning_export import (
    graph_def_from_checkpoint as graph_def_from_checkpoint,
    strip_pruning_vars_fn as strip_pruning_vars_fn,
)
from anabranch.contrib.pruning_layers import (
    MaskedBasicLSTMCell as MaskedBasicLSTMCell,
    MaskedLSTMCell as MaskedLSTMCell,
    masked_convolution as masked_convolution,
    masked_fully_connected as masked_fully_connected,
)
from anabranch.contrib.pruning_masks import (
    Pruning as Pruning,
    apply_mask as apply_mask,
    get_masked_weights as get_masked_weights,
    get_masks as get_masks,
    get_pruning_hparams as get_pruning_hparams,
    get_thresholds as get_thresholds,
    get_weight_sparsity as get_weight_sparsity,
    get_weights as get_weights,
)
from anabranch.contrib.pruning_training import train as train

masked_conv2d = masked_convolution
