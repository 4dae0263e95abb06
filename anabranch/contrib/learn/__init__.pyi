from anabranch.contrib.learn import (
    datasets as datasets,
    graph_actions as graph_actions,
    head as head,
    io as io,
    learn_runner as learn_runner,
    models as models,
    monitors as monitors,
    ops as ops,
    preprocessing as preprocessing,
    utils as utils,
)
from anabranch.contrib.learn.class_heads import (
    binary_svm_head as binary_svm_head,
    multi_class_head as multi_class_head,
    multi_label_head as multi_label_head,
)
from anabranch.contrib.learn.estimators import LearnEstimator
from anabranch.contrib.learn.experiments import Experiment as Experiment
from anabranch.contrib.learn.export_strategies import (
    ExportStrategy as ExportStrategy,
    make_export_strategy as make_export_strategy,
)
from anabranch.contrib.learn.extracted import (
    extract_dask_data as extract_dask_data,
    extract_dask_labels as extract_dask_labels,
    extract_pandas_data as extract_pandas_data,
    extract_pandas_labels as extract_pandas_labels,
    extract_pandas_matrix as extract_pandas_matrix,
)
from anabranch.contrib.learn.graph_actions import (
    evaluate as evaluate,
    infer as infer,
    run_feeds as run_feeds,
    run_n as run_n,
    train as train,
)
from anabranch.contrib.learn.heads import (
    LearnHead,
    loss_only_head as loss_only_head,
    multi_head as multi_head,
    no_op_train_fn as no_op_train_fn,
    poisson_regression_head as poisson_regression_head,
    regression_head as regression_head,
)
from anabranch.contrib.learn.interfaces import (
    BaseEstimator as BaseEstimator,
    Evaluable as Evaluable,
    Trainable as Trainable,
)
from anabranch.contrib.learn.keys import (
    LearnEnvironment,
    LearnMetricKey,
    LearnPredictionKey,
    LearnPredictionType,
    LearnProblemType,
    LearnTaskType,
)
from anabranch.contrib.learn.model_operations import MetricSpec as MetricSpec, ModelFnOps as ModelFnOps
from anabranch.contrib.learn.reading import (
    read_batch_examples as read_batch_examples,
    read_batch_features as read_batch_features,
    read_batch_record_features as read_batch_record_features,
    read_keyed_batch_examples as read_keyed_batch_examples,
    read_keyed_batch_examples_shared_queue as read_keyed_batch_examples_shared_queue,
    read_keyed_batch_features as read_keyed_batch_features,
    read_keyed_batch_features_shared_queue as read_keyed_batch_features_shared_queue,
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
    NotFittedError as NotFittedError,
)
from anabranch.contrib.learn.serving_inputs import (
    InputFnOps as InputFnOps,
    build_parsing_serving_input_fn as build_parsing_serving_input_fn,
)
from anabranch.contrib.mode_keys import LearnModeKeys
from anabranch.estimator.learn_models import (
    LearnDNNEstimator,
    LearnDNNLinearCombinedEstimator,
    LearnKMeansClustering,
    LearnLinearEstimator,
    LearnSVM,
    LogisticRegressor as LogisticRegressor,
)
from anabranch.train.basic_session_run_hooks import NanLossDuringTrainingError as NanLossDuringTrainingError

DNNEstimator = LearnDNNEstimator
DNNLinearCombinedEstimator = LearnDNNLinearCombinedEstimator
Head = LearnHead
KMeansClustering = LearnKMeansClustering
LinearEstimator = LearnLinearEstimator
SVM = LearnSVM
Environment = LearnEnvironment
MetricKey = LearnMetricKey
PredictionType = LearnPredictionType
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
