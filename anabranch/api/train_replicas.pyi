from anabranch.train.input_ranges import InputRange as InputRange, InputRanges as InputRanges
from anabranch.train.membership import MembershipHook as MembershipHook
from anabranch.train.replica_status import WorkerStatus as WorkerStatus
from anabranch.train.replicas import (
    MAX_WORKERS as MAX_WORKERS,
    asynchronous as asynchronous,
    averaging as averaging,
    downpour as downpour,
    synchronous as synchronous,
)
from anabranch.train.shard_mirrors import mirrored as mirrored
