from anabranch.api import train_experimental, train_queue_runner, train_replicas
from anabranch.distributed.cluster_spec import ClusterSpec as ClusterSpec
from anabranch.distributed.server import Server as Server
from anabranch.frontend.arithmetic.dual_ascent import (
    sdca_fprint as sdca_fprint,
    sdca_optimizer as sdca_optimizer,
    sdca_shrink_l1 as sdca_shrink_l1,
)
from anabranch.frontend.storage.graph_io import write_graph as write_graph
from anabranch.io.event_files import summary_iterator as summary_iterator
from anabranch.proto.config_pb2 import ClusterDef as ClusterDef, JobDef as JobDef, ServerDef as ServerDef
from anabranch.proto.example_pb2 import (
    BytesList as BytesList,
    Example as Example,
    Feature as Feature,
    FeatureList as FeatureList,
    FeatureLists as FeatureLists,
    Features as Features,
    FloatList as FloatList,
    Int64List as Int64List,
    SequenceExample as SequenceExample,
)
from anabranch.proto.training_pb2 import QueueRunnerDef as QueueRunnerDef, SaverDef as SaverDef
from anabranch.train.basic_loops import basic_train_loop as basic_train_loop
from anabranch.train.basic_session_run_hooks import (
    FeedFnHook as FeedFnHook,
    FinalOpsHook as FinalOpsHook,
    GlobalStepWaiterHook as GlobalStepWaiterHook,
    LoggingTensorHook as LoggingTensorHook,
    NanLossDuringTrainingError as NanLossDuringTrainingError,
    NanTensorHook as NanTensorHook,
    SecondOrStepTimer as SecondOrStepTimer,
    StopAtStepHook as StopAtStepHook,
)
from anabranch.train.batching import (
    batch as batch,
    batch_join as batch_join,
    maybe_batch as maybe_batch,
    maybe_batch_join as maybe_batch_join,
    maybe_shuffle_batch as maybe_shuffle_batch,
    maybe_shuffle_batch_join as maybe_shuffle_batch_join,
    shuffle_batch as shuffle_batch,
    shuffle_batch_join as shuffle_batch_join,
)
from anabranch.train.best_checkpoints import BestCheckpoints as BestCheckpoints
from anabranch.train.checkpoint_management import (
    checkpoint_exists as checkpoint_exists,
    generate_checkpoint_state_proto as generate_checkpoint_state_proto,
    get_checkpoint_mtimes as get_checkpoint_mtimes,
    get_checkpoint_state as get_checkpoint_state,
    latest_checkpoint as latest_checkpoint,
    remove_checkpoint as remove_checkpoint,
    update_checkpoint_state as update_checkpoint_state,
)
from anabranch.train.checkpoint_manager import CheckpointManager as CheckpointManager
from anabranch.train.checkpoint_utils import (
    NewCheckpointReader as NewCheckpointReader,
    checkpoints_iterator as checkpoints_iterator,
    init_from_checkpoint as init_from_checkpoint,
    list_variables as list_variables,
    load_checkpoint as load_checkpoint,
    load_variable as load_variable,
)
from anabranch.train.coordinator import Coordinator as Coordinator, LooperThread as LooperThread
from anabranch.train.device_setter import replica_device_setter as replica_device_setter
from anabranch.train.growing_tables import GrowingTable as GrowingTable
from anabranch.train.input_producers import (
    input_producer as input_producer,
    limit_epochs as limit_epochs,
    match_filenames_once as match_filenames_once,
    range_input_producer as range_input_producer,
    slice_input_producer as slice_input_producer,
    string_input_producer as string_input_producer,
)
from anabranch.train.lbfgs import LBFGSOptimizer as LBFGSOptimizer
from anabranch.train.learning_rate import (
    cosine_decay as cosine_decay,
    cosine_decay_restarts as cosine_decay_restarts,
    exponential_decay as exponential_decay,
    inverse_time_decay as inverse_time_decay,
    linear_cosine_decay as linear_cosine_decay,
    natural_exp_decay as natural_exp_decay,
    noisy_linear_cosine_decay as noisy_linear_cosine_decay,
    piecewise_constant as piecewise_constant,
    piecewise_constant_decay as piecewise_constant_decay,
    polynomial_decay as polynomial_decay,
)
from anabranch.train.meta_graph import export_meta_graph as export_meta_graph
from anabranch.train.monitored_session import (
    ChiefSessionCreator as ChiefSessionCreator,
    MonitoredSession as MonitoredSession,
    MonitoredTrainingSession as MonitoredTrainingSession,
    SessionCreator as SessionCreator,
    SingularMonitoredSession as SingularMonitoredSession,
    WorkerSessionCreator as WorkerSessionCreator,
)
from anabranch.train.moving_averages import ExponentialMovingAverage as ExponentialMovingAverage
from anabranch.train.object_checkpoints import Checkpoint as Checkpoint
from anabranch.train.optimizer import Optimizer as Optimizer
from anabranch.train.optimizers.adadelta import AdadeltaOptimizer as AdadeltaOptimizer
from anabranch.train.optimizers.adagrad import (
    AdagradDAOptimizer as AdagradDAOptimizer,
    AdagradOptimizer as AdagradOptimizer,
    ProximalAdagradOptimizer as ProximalAdagradOptimizer,
)
from anabranch.train.optimizers.adam import AdamOptimizer as AdamOptimizer
from anabranch.train.optimizers.ftrl import FtrlOptimizer as FtrlOptimizer
from anabranch.train.optimizers.gradient_descent import (
    GradientDescentOptimizer as GradientDescentOptimizer,
    ProximalGradientDescentOptimizer as ProximalGradientDescentOptimizer,
)
from anabranch.train.optimizers.momentum import MomentumOptimizer as MomentumOptimizer
from anabranch.train.optimizers.rmsprop import RMSPropOptimizer as RMSPropOptimizer
from anabranch.train.preemption import PreemptionHook as PreemptionHook
from anabranch.train.progress import ProgressDisplay as ProgressDisplay, ProgressHook as ProgressHook
from anabranch.train.queue_runner import (
    QueueRunner as QueueRunner,
    add_queue_runner as add_queue_runner,
    start_queue_runners as start_queue_runners,
)
from anabranch.train.recording_hooks import (
    CheckpointSaverHook as CheckpointSaverHook,
    CheckpointSaverListener as CheckpointSaverListener,
    ProfilerHook as ProfilerHook,
    StepCounterHook as StepCounterHook,
    SummarySaverHook as SummarySaverHook,
)
from anabranch.train.restoring import (
    RestoreReport as RestoreReport,
    restore_partial as restore_partial,
    restore_report as restore_report,
)
from anabranch.train.saver import Saver as Saver, import_meta_graph as import_meta_graph
from anabranch.train.scaffold import Scaffold as Scaffold
from anabranch.train.session_manager import SessionManager as SessionManager
from anabranch.train.session_run_hook import (
    SessionRunArgs as SessionRunArgs,
    SessionRunContext as SessionRunContext,
    SessionRunHook as SessionRunHook,
    SessionRunValues as SessionRunValues,
)
from anabranch.train.supervisor import Supervisor as Supervisor
from anabranch.train.sync_replicas import SyncReplicasOptimizer as SyncReplicasOptimizer
from anabranch.train.training_util import (
    assert_global_step as assert_global_step,
    create_global_step as create_global_step,
    get_global_step as get_global_step,
    get_or_create_global_step as get_or_create_global_step,
    global_step as global_step,
)
from anabranch.train.warm_start import VocabInfo as VocabInfo, warm_start as warm_start

experimental = train_experimental
queue_runner = train_queue_runner
replicas = train_replicas
