"""`tf.train.replica_device_setter`: variables go to parameter-server tasks, the rest to the worker (§3.3, §4.4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from anabranch.core.device import DeviceSpec, canonical_name
from anabranch.distributed.cluster_spec import ClusterLike, ClusterSpec
from anabranch.graph.operation import Operation
from anabranch.proto.graph_pb2 import NodeDef

#: operations that hold state, which parameter servers keep
STANDARD_PS_OPS: Final = (
    *("Variable", "VariableV2", "AutoReloadVariable", "VarHandleOp"),
    *("MutableHashTable", "MutableHashTableV2", "MutableHashTableOfTensors", "MutableHashTableOfTensorsV2"),
    *("MutableDenseHashTable", "MutableDenseHashTableV2"),
)

Strategy = Callable[[Any], int]


class RoundRobinStrategy:
    """Gives each operation the next task, and after the last the first again."""

    def __init__(self, num_tasks: int) -> None:
        self._num_tasks = num_tasks
        self._next = 0

    def __call__(self, op: Operation) -> int:
        task = self._next
        self._next = (task + 1) % self._num_tasks
        return task


class ReplicaDeviceChooser:
    """The device function that `replica_device_setter` returns; see there."""

    def __init__(
        self,
        ps_tasks: int,
        ps_device: str,
        worker_device: str,
        merge_devices: bool,
        ps_ops: Sequence[str],
        ps_strategy: Strategy,
    ) -> None:
        self._ps_tasks = ps_tasks
        self._ps_device = DeviceSpec.from_string(ps_device or "")
        self._worker_device = DeviceSpec.from_string(worker_device or "")
        self._merge_devices = merge_devices
        self._ps_ops = frozenset(ps_ops)
        self._ps_strategy = ps_strategy

    def device_function(self, op: Operation | NodeDef) -> str:
        """The device of a new operation, as what it already asks for and its type decide."""
        if not self._merge_devices and op.device:
            return canonical_name(op.device)
        asked = DeviceSpec.from_string(op.device or "")
        return self._base(op, asked).make_merged_spec(asked).to_string()

    def _base(self, op: Operation | NodeDef, asked: DeviceSpec) -> DeviceSpec:
        kind = op.type if isinstance(op, Operation) else op.op
        if not self._ps_tasks or not self._ps_device.to_string() or kind not in self._ps_ops:
            return self._worker_device
        job = self._ps_device.job
        if not job or asked.job not in (None, job):
            return self._ps_device  # a task number would mean nothing
        return self._ps_device.replace(task=self._ps_strategy(op))


def replica_device_setter(
    ps_tasks: int = 0,
    ps_device: str = "/job:ps",
    worker_device: str = "/job:worker",
    merge_devices: bool = True,
    cluster: ClusterLike | None = None,
    ps_ops: Sequence[str] | None = None,
    ps_strategy: Strategy | None = None,
) -> Callable[[Any], str] | None:
    """A device function for `tf.device` that spreads variables over parameter-server tasks.

    Args:
        ps_tasks: number of parameter-server tasks; 0 with no `cluster`: there are none, and the result is None.
        ps_device: device of the parameter servers; its job is looked up in `cluster`.
        worker_device: device of everything else.
        merge_devices: whether parts that scopes further in leave open are filled in; otherwise an operation that asks
            for any device keeps it as it is.
        cluster: a `ClusterDef`, a `ClusterSpec`, or a dictionary from jobs to lists of tasks; says `ps_tasks`.
        ps_ops: types of the operations that hold state; default: variables and tables.
        ps_strategy: operation -> number of its parameter-server task; default: round robin.

    Returns:
        A device function; None where there are no parameter servers.

    Raises:
        TypeError: `ps_strategy` is not callable, or `cluster` is none of these (see `ClusterSpec`).
        ValueError: a device is malformed, or `ps_device` names no job while there is a `cluster`.

    Example:
        >>> with tf.device(tf.train.replica_device_setter(ps_tasks=2)):
        ...     a = tf.get_variable("a", [2])
        ...     b = tf.get_variable("b", [2])
        >>> a.device, b.device
        ('/job:ps/task:0', '/job:ps/task:1')
    """
    if cluster is not None:
        job = DeviceSpec.from_string(ps_device).job
        if not job:
            raise ValueError(f"ps_device {ps_device!r} names no job to look up in the cluster; write it like '/job:ps'")
        spec = ClusterSpec(cluster)
        ps_tasks = spec.num_tasks(job) if job in spec.jobs else 0
    if ps_tasks == 0:
        return None
    strategy = RoundRobinStrategy(ps_tasks) if ps_strategy is None else ps_strategy
    if not callable(strategy):
        raise TypeError(f"ps_strategy must be callable, got {strategy!r}")
    kinds = STANDARD_PS_OPS if ps_ops is None else ps_ops
    chooser = ReplicaDeviceChooser(ps_tasks, ps_device, worker_device, merge_devices, kinds, strategy)
    return chooser.device_function
