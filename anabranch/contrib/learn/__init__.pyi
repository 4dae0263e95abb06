from anabranch.contrib.learn import (
    datasets as datasets,
    io as io,
    learn_runner as learn_runner,
    monitors as monitors,
    preprocessing as preprocessing,
    utils as utils,
)
from anabranch.contrib.learn.estimators import LearnEstimator
from anabranch.contrib.learn.experiments import Experiment as Experiment
from anabranch.contrib.learn.export_strategies import (
    ExportStrategy as ExportStrategy,
    make_export_strategy as make_export_strategy,
)
from anabranch.contrib.learn.graph_actions import infer as infer, run_feeds as run_feeds, run_n as run_n
from anabranch.contrib.learn.model_operations import MetricSpec as MetricSpec, ModelFnOps as ModelFnOps
from anabranch.contrib.learn.reading import (
    read_batch_examples as read_batch_examples,
    read_batch_features as read_batch_features,
    read_batch_record_features as read_batch_record_features,
    read_keyed_batch_examples as read_keyed_batch_examples,
    read_keyed_batch_features as read_keyed_batch_features,
)
from anabranch.contrib.learn.ready_made import (
    LearnDNNClassifier,
    LearnDNNLinearCombinedClassifier,
    LearnDNNLinearCombinedRegressor,
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
from anabranch.contrib.learn.serving_inputs import (
    InputFnOps as InputFnOps,
    build_parsing_serving_input_fn as build_parsing_serving_input_fn,
)
from anabranch.contrib.mode_keys import LearnModeKeys
from anabranch.train.basic_session_run_hooks import NanLossDuringTrainingError as NanLossDuringTrainingError

DNNClassifier = LearnDNNClassifier
DNNLinearCombinedClassifier = LearnDNNLinearCombinedClassifier
DNNLinearCombinedRegressor = LearnDNNLinearCombinedRegressor
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
