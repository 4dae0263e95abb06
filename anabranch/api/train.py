"""`tf.train`."""

from __future__ import annotations

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
    SaverDef,
    SequenceExample,
    ServerDef,
)
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
    "ProximalAdagradOptimizer",
    "ProximalGradientDescentOptimizer",
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
    "WorkerSessionCreator",
    "assert_global_step",
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
    "inverse_time_decay",
    "latest_checkpoint",
    "linear_cosine_decay",
    "list_variables",
    "load_checkpoint",
    "load_variable",
    "natural_exp_decay",
    "noisy_linear_cosine_decay",
    "piecewise_constant",
    "piecewise_constant_decay",
    "polynomial_decay",
    "remove_checkpoint",
    "restore_partial",
    "restore_report",
    "summary_iterator",
    "update_checkpoint_state",
    "write_graph",
]
