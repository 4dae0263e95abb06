from anabranch.train.loss_scale import (
    DynamicLossScale as DynamicLossScale,
    FixedLossScale as FixedLossScale,
    LossScale as LossScale,
)
from anabranch.train.loss_scale_optimizer import (
    MixedPrecisionLossScaleOptimizer as MixedPrecisionLossScaleOptimizer,
    auto_mixed_precision_scope as auto_mixed_precision_scope,
    disable_mixed_precision_graph_rewrite as disable_mixed_precision_graph_rewrite,
    enable_mixed_precision_graph_rewrite as enable_mixed_precision_graph_rewrite,
)
from anabranch.train.python_state import PythonState as PythonState
