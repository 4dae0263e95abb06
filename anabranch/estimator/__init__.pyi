from anabranch.api.train import (
    CheckpointSaverHook as CheckpointSaverHook,
    CheckpointSaverListener as CheckpointSaverListener,
    FeedFnHook as FeedFnHook,
    FinalOpsHook as FinalOpsHook,
    GlobalStepWaiterHook as GlobalStepWaiterHook,
    LoggingTensorHook as LoggingTensorHook,
    NanLossDuringTrainingError as NanLossDuringTrainingError,
    NanTensorHook as NanTensorHook,
    ProfilerHook as ProfilerHook,
    SecondOrStepTimer as SecondOrStepTimer,
    SessionRunArgs as SessionRunArgs,
    SessionRunContext as SessionRunContext,
    SessionRunHook as SessionRunHook,
    SessionRunValues as SessionRunValues,
    StepCounterHook as StepCounterHook,
    StopAtStepHook as StopAtStepHook,
    SummarySaverHook as SummarySaverHook,
    VocabInfo as VocabInfo,
)
from anabranch.estimator import experimental as experimental, export as export, inputs as inputs, tpu as tpu
from anabranch.estimator.added_metrics import add_metrics as add_metrics
from anabranch.estimator.baseline import (
    BaselineClassifier as BaselineClassifier,
    BaselineEstimator as BaselineEstimator,
    BaselineRegressor as BaselineRegressor,
)
from anabranch.estimator.boosted_trees import (
    BoostedTreesClassifier as BoostedTreesClassifier,
    BoostedTreesEstimator as BoostedTreesEstimator,
    BoostedTreesRegressor as BoostedTreesRegressor,
)
from anabranch.estimator.canned import (
    DNNClassifier as DNNClassifier,
    DNNEstimator as DNNEstimator,
    DNNLinearCombinedClassifier as DNNLinearCombinedClassifier,
    DNNLinearCombinedEstimator as DNNLinearCombinedEstimator,
    DNNLinearCombinedRegressor as DNNLinearCombinedRegressor,
    DNNRegressor as DNNRegressor,
    LinearClassifier as LinearClassifier,
    LinearEstimator as LinearEstimator,
    LinearRegressor as LinearRegressor,
)
from anabranch.estimator.class_heads import (
    BinaryClassHead as BinaryClassHead,
    MultiClassHead as MultiClassHead,
    MultiLabelHead as MultiLabelHead,
)
from anabranch.estimator.estimators import Estimator as Estimator
from anabranch.estimator.exporters import (
    BestExporter as BestExporter,
    Exporter as Exporter,
    FinalExporter as FinalExporter,
    LatestExporter as LatestExporter,
)
from anabranch.estimator.heads import Head as Head
from anabranch.estimator.model_functions import (
    EstimatorSpec as EstimatorSpec,
    ModeKeys as ModeKeys,
    WarmStartSettings as WarmStartSettings,
)
from anabranch.estimator.multi_head import MultiHead as MultiHead
from anabranch.estimator.parsing import (
    classifier_parse_example_spec as classifier_parse_example_spec,
    regressor_parse_example_spec as regressor_parse_example_spec,
)
from anabranch.estimator.regression_heads import (
    LogisticRegressionHead as LogisticRegressionHead,
    PoissonRegressionHead as PoissonRegressionHead,
    RegressionHead as RegressionHead,
)
from anabranch.estimator.run_config import RunConfig as RunConfig
from anabranch.estimator.training import (
    EvalSpec as EvalSpec,
    TrainSpec as TrainSpec,
    train_and_evaluate as train_and_evaluate,
)
