from anabranch.contrib.loss_scaling import (
    ExponentialUpdateLossScaleManager as ExponentialUpdateLossScaleManager,
    FixedLossScaleManager as FixedLossScaleManager,
    LossScaleManager as LossScaleManager,
    LossScaleOptimizer as LossScaleOptimizer,
)
