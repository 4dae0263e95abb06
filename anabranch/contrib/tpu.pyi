from anabranch.estimator.tpu_config import (
    InputPipelineConfig as InputPipelineConfig,
    TPUConfig as TPUConfig,
    TPURunConfig,
)
from anabranch.estimator.tpu_estimators import TPUEstimator as TPUEstimator, TPUEstimatorSpec as TPUEstimatorSpec
from anabranch.train.cross_shard_optimizer import (
    CrossShardOptimizer as CrossShardOptimizer,
    bfloat16_scope as bfloat16_scope,
    cross_replica_sum as cross_replica_sum,
    outside_compilation as outside_compilation,
)

RunConfig = TPURunConfig
