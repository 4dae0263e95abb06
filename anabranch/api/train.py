"""`tf.train`."""

from __future__ import annotations

from anabranch.api import train_queue_runner as queue_runner
from anabranch.frontend.graph_io import write_graph
from anabranch.io.event_files import summary_iterator
from anabranch.proto import (
    BytesList,
    ClusterDef,
    Example,
    Feature,
    FeatureList,
    FeatureLists,
    Features,
    FloatList,
    Int64List,
    JobDef,
    QueueRunnerDef,
    SaverDef,
    SequenceExample,
    ServerDef,
)
from anabranch.train.basic_loops import basic_train_loop
from anabranch.train.basic_session_run_hooks import (
    FeedFnHook,
    FinalOpsHook,
    GlobalStepWaiterHook,
    LoggingTensorHook,
    NanLossDuringTrainingError,
    NanTensorHook,
    SecondOrStepTimer,
    StopAtStepHook,
)
from anabranch.train.batching import (
    batch,
    batch_join,
    maybe_batch,
    maybe_batch_join,
    maybe_shuffle_batch,
    maybe_shuffle_batch_join,
    shuffle_batch,
    shuffle_batch_join,
)
from anabranch.train.best_checkpoints import BestCheckpoints
from anabranch.train.checkpoint_management import (
    checkpoint_exists,
    generate_checkpoint_state_proto,
    get_checkpoint_mtimes,
    get_checkpoint_state,
    latest_checkpoint,
    remove_checkpoint,
    update_checkpoint_state,
)
from anabranch.train.checkpoint_utils import (
    NewCheckpointReader,
    checkpoints_iterator,
    init_from_checkpoint,
    list_variables,
    load_checkpoint,
    load_variable,
)
from anabranch.train.coordinator import Coordinator, LooperThread
from anabranch.train.device_setter import replica_device_setter
from anabranch.train.input_producers import (
    input_producer,
    limit_epochs,
    match_filenames_once,
    range_input_producer,
    slice_input_producer,
    string_input_producer,
)
from anabranch.train.lbfgs import LBFGSOptimizer
from anabranch.train.learning_rate import (
    cosine_decay,
    cosine_decay_restarts,
    exponential_decay,
    inverse_time_decay,
    linear_cosine_decay,
    natural_exp_decay,
    noisy_linear_cosine_decay,
    piecewise_constant,
    piecewise_constant_decay,
    polynomial_decay,
)
from anabranch.train.meta_graph import export_meta_graph
from anabranch.train.monitored_session import (
    ChiefSessionCreator,
    MonitoredSession,
    MonitoredTrainingSession,
    SessionCreator,
    SingularMonitoredSession,
    WorkerSessionCreator,
)
from anabranch.train.moving_averages import ExponentialMovingAverage
from anabranch.train.optimizer import Optimizer
from anabranch.train.optimizers.adadelta import AdadeltaOptimizer
from anabranch.train.optimizers.adagrad import AdagradDAOptimizer, AdagradOptimizer, ProximalAdagradOptimizer
from anabranch.train.optimizers.adam import AdamOptimizer
from anabranch.train.optimizers.ftrl import FtrlOptimizer
from anabranch.train.optimizers.gradient_descent import GradientDescentOptimizer, ProximalGradientDescentOptimizer
from anabranch.train.optimizers.momentum import MomentumOptimizer
from anabranch.train.optimizers.rmsprop import RMSPropOptimizer
from anabranch.train.progress import ProgressDisplay, ProgressHook
from anabranch.train.queue_runner import QueueRunner, add_queue_runner, start_queue_runners
from anabranch.train.recording_hooks import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    ProfilerHook,
    StepCounterHook,
    SummarySaverHook,
)
from anabranch.train.restoring import RestoreReport, restore_partial, restore_report
from anabranch.train.saver import Saver, import_meta_graph
from anabranch.train.scaffold import Scaffold
from anabranch.train.session_manager import SessionManager
from anabranch.train.session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues
from anabranch.train.supervisor import Supervisor
from anabranch.train.training_util import (
    assert_global_step,
    create_global_step,
    get_global_step,
    get_or_create_global_step,
    global_step,
)
from anabranch.train.warm_start import VocabInfo, warm_start

__all__ = [
    "AdadeltaOptimizer",
    "AdagradDAOptimizer",
    "AdagradOptimizer",
    "AdamOptimizer",
    "BestCheckpoints",
    "BytesList",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "ChiefSessionCreator",
    "ClusterDef",
    "Coordinator",
    "Example",
    "ExponentialMovingAverage",
    "Feature",
    "FeatureList",
    "FeatureLists",
    "Features",
    "FeedFnHook",
    "FinalOpsHook",
    "FloatList",
    "FtrlOptimizer",
    "GlobalStepWaiterHook",
    "GradientDescentOptimizer",
    "Int64List",
    "JobDef",
    "LBFGSOptimizer",
    "LoggingTensorHook",
    "LooperThread",
    "MomentumOptimizer",
    "MonitoredSession",
    "MonitoredTrainingSession",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "NewCheckpointReader",
    "Optimizer",
    "ProfilerHook",
    "ProgressDisplay",
    "ProgressHook",
    "ProximalAdagradOptimizer",
    "ProximalGradientDescentOptimizer",
    "QueueRunner",
    "QueueRunnerDef",
    "RMSPropOptimizer",
    "RestoreReport",
    "Saver",
    "SaverDef",
    "Scaffold",
    "SecondOrStepTimer",
    "SequenceExample",
    "ServerDef",
    "SessionCreator",
    "SessionManager",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "SingularMonitoredSession",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "Supervisor",
    "VocabInfo",
    "WorkerSessionCreator",
    "add_queue_runner",
    "assert_global_step",
    "basic_train_loop",
    "batch",
    "batch_join",
    "checkpoint_exists",
    "checkpoints_iterator",
    "cosine_decay",
    "cosine_decay_restarts",
    "create_global_step",
    "exponential_decay",
    "export_meta_graph",
    "generate_checkpoint_state_proto",
    "get_checkpoint_mtimes",
    "get_checkpoint_state",
    "get_global_step",
    "get_or_create_global_step",
    "global_step",
    "import_meta_graph",
    "init_from_checkpoint",
    "input_producer",
    "inverse_time_decay",
    "latest_checkpoint",
    "limit_epochs",
    "linear_cosine_decay",
    "list_variables",
    "load_checkpoint",
    "load_variable",
    "match_filenames_once",
    "maybe_batch",
    "maybe_batch_join",
    "maybe_shuffle_batch",
    "maybe_shuffle_batch_join",
    "natural_exp_decay",
    "noisy_linear_cosine_decay",
    "piecewise_constant",
    "piecewise_constant_decay",
    "polynomial_decay",
    "queue_runner",
    "range_input_producer",
    "remove_checkpoint",
    "replica_device_setter",
    "restore_partial",
    "restore_report",
    "shuffle_batch",
    "shuffle_batch_join",
    "slice_input_producer",
    "start_queue_runners",
    "string_input_producer",
    "summary_iterator",
    "update_checkpoint_state",
    "warm_start",
    "write_graph",
]
