from anabranch.estimator.tpu_config import (
    InputPipelineConfig as InputPipelineConfig,
    TPUConfig as TPUConfig,
    TPURunConfig,
)
from anabranch.estimator.tpu_estimators import TPUEstimator as TPUEstimator, TPUEstimatorSpec as TPUEstimatorSpec

RunConfig = TPURunConfig
