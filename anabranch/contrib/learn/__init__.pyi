from anabranch.contrib.learn import (
    datasets as datasets,
    io as io,
    learn_runner as learn_runner,
    monitors as monitors,
    preprocessing as preprocessing,
)
from anabranch.contrib.learn.estimators import LearnEstimator
from anabranch.contrib.learn.experiments import Experiment as Experiment
from anabranch.contrib.learn.model_operations import MetricSpec as MetricSpec, ModelFnOps as ModelFnOps
from anabranch.contrib.learn.ready_made import (
    LearnDNNClassifier,
    LearnDNNLinearCombinedClassifier,
    LearnDNNRegressor,
    LearnLinearClassifier,
    LearnLinearRegressor,
    infer_real_valued_columns_from_input as infer_real_valued_columns_from_input,
    infer_real_valued_columns_from_input_fn as infer_real_valued_columns_from_input_fn,
)
from anabranch.contrib.learn.run_settings import LearnRunConfig
from anabranch.contrib.learn.scikit import (
    ArrayCompatibleEstimator,
    LearnPredictionKey,
    LearnProblemType,
    LearnTaskType,
    NotFittedError as NotFittedError,
)
from anabranch.contrib.mode_keys import LearnModeKeys
from anabranch.train.basic_session_run_hooks import NanLossDuringTrainingError as NanLossDuringTrainingError

DNNClassifier = LearnDNNClassifier
DNNLinearCombinedClassifier = LearnDNNLinearCombinedClassifier
DNNRegressor = LearnDNNRegressor
Estimator = LearnEstimator
LinearClassifier = LearnLinearClassifier
LinearRegressor = LearnLinearRegressor
ModeKeys = LearnModeKeys
RunConfig = LearnRunConfig
PredictionKey = LearnPredictionKey
ProblemType = LearnProblemType
SKCompat = ArrayCompatibleEstimator
TaskType = LearnTaskType
