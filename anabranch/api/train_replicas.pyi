from anabranch.train.replicas import (
    MAX_WORKERS as MAX_WORKERS,
    WorkerStatus as WorkerStatus,
    asynchronous as asynchronous,
    averaging as averaging,
    downpour as downpour,
    synchronous as synchronous,
)
