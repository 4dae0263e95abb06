from anabranch.contrib.learn.monitor_hooks import (
    PrintTensor as PrintTensor,
    StopAtStep as StopAtStep,
    ValidationMonitor as ValidationMonitor,
    replace_monitors_with_hooks as replace_monitors_with_hooks,
)
from anabranch.contrib.learn.step_monitors import (
    BaseMonitor as BaseMonitor,
    CaptureVariable as CaptureVariable,
    CheckpointSaver as CheckpointSaver,
    EveryN as EveryN,
    LoggingTrainable as LoggingTrainable,
    NanLoss as NanLoss,
    RunHookAdapterForMonitors as RunHookAdapterForMonitors,
    StepCounter as StepCounter,
    SummarySaver as SummarySaver,
    get_default_monitors as get_default_monitors,
)
from anabranch.train.basic_session_run_hooks import NanLossDuringTrainingError as NanLossDuringTrainingError
