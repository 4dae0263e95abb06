"""`tf.distribute.cluster_resolver`: where a program learns of its cluster."""

from __future__ import annotations

import abc
import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

from anabranch.core.values import PassedOn
from anabranch.distributed.cluster_spec import ClusterSpec
from anabranch.distributed.tf_config import TaskConfig, read_tf_config
from anabranch.graph.graph import Graph
from anabranch.proto.config_pb2 import ConfigProto
from anabranch.session import Session


class ClusterResolver(abc.ABC):
    """Tells which tasks a cluster has, which of them this is, and where sessions are opened. Base class.

    A subclass answers `cluster_spec` and `master` anew whenever it is asked, since clusters change. It may set
    `_task_type`, `_task_id` and `_rpc_layer`, or override the properties.

    Attributes:
        task_type: the job of this task, or None.
        task_id: the number of this task in its job, or None.
    """

    _task_type: str | None = None
    _task_id: int | None = None
    _rpc_layer: str | None = None

    @abc.abstractmethod
    def cluster_spec(self) -> ClusterSpec:
        """The cluster as it is now."""

    @abc.abstractmethod
    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """The target for a session.

        Args:
            task_type, task_id: the task to talk to; default: as the resolver was told.
            rpc_layer: the protocol, which comes before the address, as in "grpc://host:2222".

        Raises:
            ValueError: there is no such task.
        """

    def num_accelerators(
        self, task_type: str | None = None, task_id: int | None = None, config_proto: ConfigProto | None = None
    ) -> Mapping[str, int]:
        """How many accelerators of each type a task has. Opens a session at `master` to see its devices; CPUs are none.

        Args:
            task_type, task_id: the task; default: all devices that the session sees.
            config_proto: a `ConfigProto` for the session.

        Raises:
            ValueError: there is no such task.
            OpError: no session can be opened.
        """
        parts = () if task_type is None or task_id is None else (f"/job:{task_type}/", f"/task:{task_id}/")
        with Session(self.master(task_type, task_id), graph=Graph(), config=config_proto) as session:
            devices = [(f"{device.name}/", device.device_type) for device in session.list_devices()]
        return Counter(kind for name, kind in devices if kind != "CPU" and all(part in name for part in parts))

    @property
    def environment(self) -> str:
        """The empty string: the environment is none of those that TensorFlow distinguishes."""
        return ""

    @property
    def task_type(self) -> str | None:
        return self._task_type

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._task_type = task_type

    @property
    def task_id(self) -> int | None:
        return self._task_id

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._task_id = task_id


class SimpleClusterResolver(ClusterResolver):
    """Tells what it was given.

    Args:
        cluster_spec: the cluster.
        master: the target for sessions.
        task_type, task_id: which task this is.
        environment: see `ClusterResolver`.
        num_accelerators: device type -> how many each task has.
        rpc_layer: the protocol, which `master` puts before addresses.

    Raises:
        TypeError: `cluster_spec` is no `ClusterSpec`, or `master` no string.

    Example:
        >>> cluster = tf.train.ClusterSpec({"worker": ["w0:2222", "w1:2222"]})
        >>> resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
        >>> resolver.master("worker", 1)
        'grpc://w1:2222'
    """

    def __init__(
        self,
        cluster_spec: ClusterSpec,
        master: str = "",
        task_type: str | None = None,
        task_id: int | None = None,
        environment: str = "",
        num_accelerators: Mapping[str, int] | None = None,
        rpc_layer: str | None = None,
    ) -> None:
        if not isinstance(cluster_spec, ClusterSpec):
            raise TypeError(f"cluster_spec must be a `tf.train.ClusterSpec`, got {type(cluster_spec).__name__}")
        if not isinstance(master, str):
            raise TypeError(f"master must be a string, got {type(master).__name__}")
        self._cluster_spec = cluster_spec
        self._master = master
        self._task_type = task_type
        self._task_id = task_id
        self._environment = environment
        self._num_accelerators = dict(num_accelerators or {})
        self._rpc_layer = rpc_layer

    def cluster_spec(self) -> ClusterSpec:
        """The cluster that was given."""
        return self._cluster_spec

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """The address of a task, or the `master` that was given.

        Args:
            task_type, task_id: the task; default: `master`.
            rpc_layer: the protocol; default: as given.

        Raises:
            ValueError: there is no such task.
        """
        if task_type is not None and task_id is not None:
            return _target(self._cluster_spec.task_address(task_type, task_id), rpc_layer or self._rpc_layer)
        return _target(self._master, rpc_layer or self._rpc_layer)

    def num_accelerators(
        self, task_type: str | None = None, task_id: int | None = None, config_proto: ConfigProto | None = None
    ) -> Mapping[str, int]:
        """The numbers that were given; the arguments are not used."""
        return dict(self._num_accelerators)

    @property
    def environment(self) -> str:
        """What was given."""
        return self._environment

    @property
    def rpc_layer(self) -> str | None:
        """The protocol."""
        return self._rpc_layer

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = rpc_layer


class TFConfigClusterResolver(ClusterResolver):
    """Tells what the environment variable TF_CONFIG says, read anew whenever it is asked.

    Args:
        task_type, task_id, rpc_layer: take the place of what the variable says.
        environment: see `ClusterResolver`.

    Raises:
        nothing; its methods and properties raise ValueError if the variable is malformed, and say where.

    Example:
        >>> import os
        >>> os.environ["TF_CONFIG"] = '{"cluster": {"worker": ["w0:1", "w1:1"]}, "task": {"type": "worker"}}'
        >>> resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver(task_id=1)
        >>> resolver.task_type, resolver.task_id, resolver.master()
        ('worker', 1, 'w1:1')
        >>> del os.environ["TF_CONFIG"]
    """

    def __init__(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
        environment: str | None = None,
    ) -> None:
        self._task_type = task_type
        self._task_id = task_id
        self._rpc_layer = rpc_layer
        self._environment = environment

    def _config(self) -> TaskConfig:
        return read_tf_config(os.environ)

    def cluster_spec(self) -> ClusterSpec:
        """The cluster; without tasks if the variable says nothing of one.

        Raises:
            ValueError: the variable is malformed.
        """
        return self._config().cluster

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """The variable's "session_master"; else the empty string for a lone task; else the address of a task.

        Args:
            task_type, task_id: the task; default: this one.
            rpc_layer: the protocol; default: this one's.

        Raises:
            ValueError: the variable is malformed, does not say which task this is, or there is no such task.
        """
        config = self._config()
        if config.session_master is not None:
            return config.session_master
        if sum(config.cluster.num_tasks(job) for job in config.cluster.jobs) <= 1:
            return ""
        task_type = self.task_type if task_type is None else task_type
        task_id = self.task_id if task_id is None else task_id
        if task_type is None or task_id is None:
            missing = "type" if task_type is None else "index"
            raise ValueError(f'TF_CONFIG["task"]["{missing}"] is missing, and the program does not say it either')
        return _target(config.cluster.task_address(task_type, task_id), rpc_layer or self.rpc_layer)

    def num_accelerators(
        self, task_type: str | None = None, task_id: int | None = None, config_proto: ConfigProto | None = None
    ) -> Mapping[str, int]:
        """As of `ClusterResolver`; by default of this task."""
        task_type = self.task_type if task_type is None else task_type
        task_id = self.task_id if task_id is None else task_id
        return super().num_accelerators(task_type, task_id, config_proto)

    @property
    def environment(self) -> str:
        """What was given."""
        return self._environment or ""

    @property
    def task_type(self) -> str | None:
        return self._config().task_type if self._task_type is None else str(self._task_type)

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._task_type = task_type

    @property
    def task_id(self) -> int | None:
        return self._config().task_id if self._task_id is None else int(self._task_id)

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._task_id = task_id

    @property
    def rpc_layer(self) -> str | None:
        """The protocol."""
        return self._config().rpc_layer if self._rpc_layer is None else self._rpc_layer

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = rpc_layer


class UnionResolver(ClusterResolver):
    """Joins the clusters of several resolvers; for the rest, the first of them answers.

    Args:
        *args: the resolvers.
        **kwargs: `rpc_layer`, `task_type`, `task_id`: take the place of what the first one says.

    Raises:
        TypeError: an argument is no `ClusterResolver`.
        ValueError: there are none, or a keyword is another.

    Example:
        >>> resolvers = [tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(jobs))
        ...              for jobs in ({"ps": ["p0:1"]}, {"worker": ["w0:1"]})]
        >>> tf.distribute.cluster_resolver.UnionResolver(*resolvers).cluster_spec()
        ClusterSpec({'ps': ['p0:1'], 'worker': ['w0:1']})
    """

    def __init__(self, *args: ClusterResolver, **kwargs: PassedOn) -> None:
        self._rpc_layer = kwargs.pop("rpc_layer", None)
        self._task_type = kwargs.pop("task_type", None)
        self._task_id = kwargs.pop("task_id", None)
        if kwargs:
            raise ValueError(f"Unexpected kwargs provided {kwargs!r}; there are rpc_layer, task_type and task_id")
        if not args:
            raise ValueError("At least one ClusterResolver is required.")
        if others := [arg for arg in args if not isinstance(arg, ClusterResolver)]:
            raise TypeError(f"All arguments must be a sub-class of `ClusterResolver.`, got {others[0]!r}")
        self._cluster_resolvers = args

    def cluster_spec(self) -> ClusterSpec:
        """The tasks of all of the clusters.

        Where all state a job as a list, the lists follow one another; where one states it by number, the numbers stay.

        Raises:
            KeyError: two clusters have a task of one number in a job that is stated by number.
        """
        specs = [resolver.cluster_spec().as_dict() for resolver in self._cluster_resolvers]
        merged: dict[str, Any] = {}
        for job in dict.fromkeys(job for spec in specs for job in spec):
            parts = [spec[job] for spec in specs if job in spec]
            if all(isinstance(part, list) for part in parts):
                merged[job] = [address for part in parts for address in part]
            else:
                merged[job] = _joined(job, parts)
        return ClusterSpec(merged)

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """The address of a task, or what the first resolver says.

        Args:
            task_type, task_id: the task.
            rpc_layer: the protocol.

        Raises:
            ValueError: there is no such task.
        """
        if task_type is not None and task_id is not None:
            return _target(self.cluster_spec().task_address(task_type, task_id), rpc_layer or self._rpc_layer)
        return self._cluster_resolvers[0].master(rpc_layer=rpc_layer)

    def num_accelerators(
        self, task_type: str | None = None, task_id: int | None = None, config_proto: ConfigProto | None = None
    ) -> Mapping[str, int]:
        """What the first resolver says."""
        return self._cluster_resolvers[0].num_accelerators(task_type, task_id, config_proto)

    @property
    def environment(self) -> str:
        """What the first resolver says."""
        return self._cluster_resolvers[0].environment

    @property
    def task_type(self) -> str | None:
        return self._cluster_resolvers[0].task_type if self._task_type is None else self._task_type

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._task_type = task_type

    @property
    def task_id(self) -> int | None:
        return self._cluster_resolvers[0].task_id if self._task_id is None else self._task_id

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._task_id = task_id

    @property
    def rpc_layer(self) -> str | None:
        """The protocol: what was given, or what the first resolver says."""
        return self._rpc_layer or getattr(self._cluster_resolvers[0], "rpc_layer", None)

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = rpc_layer


def _joined(job: str, parts: list[Any]) -> dict[int, str]:
    merged: dict[int, str] = {}
    for part in parts:
        tasks = dict(enumerate(part)) if isinstance(part, list) else part
        if repeated := merged.keys() & tasks.keys():
            raise KeyError(f"Duplicate keys detected when merging two ClusterSpecs: {sorted(repeated)} of job {job!r}")
        merged.update(tasks)
    return merged


def _target(address: str, rpc_layer: str | None) -> str:
    return f"{rpc_layer}://{address}" if rpc_layer else address
