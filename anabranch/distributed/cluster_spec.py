"""`tf.train.ClusterSpec`: which tasks a cluster has, and the addresses at which they listen (§3.3, WP3).

A cluster is a value: jobs by name, in each job tasks by number, for each task an address. It is stated in a program, in
the environment, or in a file, the same for all tasks; nothing here connects to anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from anabranch.core.compat import as_text
from anabranch.core.device import DeviceSpec
from anabranch.distributed.addresses import Address, AddressMap, parse_address
from anabranch.proto.config_pb2 import ClusterDef

#: more than any cluster has, and few enough that a list of one address per number fits into memory
MAX_TASKS: Final = 100_000
_MAX_ADDRESS: Final = 1024  # characters
_DEVICE_FIELDS: Final = ("job", "replica", "task", "device_type", "device_index")


class ClusterSpec:
    """The tasks of a cluster: jobs by name, tasks by number, an address for each task.

    It cannot be changed. Two of them are equal if they have the same tasks at the same addresses; one is also equal to
    a dictionary of that content, ``{job: {number: address}}``.

    Args:
        cluster: a dictionary from jobs' names to (i) lists of addresses, or (ii) dictionaries from tasks' numbers to
            addresses; a `ClusterDef`; or another `ClusterSpec`. An address is commonly "host:port"; it is looked at
            when a server starts (`check`), not here.

    Raises:
        TypeError: `cluster` is none of these, or a name or an address is not a string.
        ValueError: a task's number is negative, is 100,000 or more, or is no number; there are more than 100,000 tasks;
            an address has more than 1,024 characters; or a `ClusterDef` has two jobs of one name.

    Example:
        >>> cluster = tf.train.ClusterSpec({"ps": ["ps0:2222", "ps1:2222"], "worker": {1: "worker1:2222"}})
        >>> cluster.as_dict()
        {'ps': ['ps0:2222', 'ps1:2222'], 'worker': {1: 'worker1:2222'}}
        >>> cluster.task_address("worker", 1)
        'worker1:2222'
        >>> cluster.num_tasks("ps")
        2
    """

    def __init__(self, cluster: Mapping[str, Any] | ClusterDef | ClusterSpec) -> None:
        self._jobs = {name: dict(sorted(tasks.items())) for name, tasks in _jobs_of(cluster)}
        if (count := sum(map(len, self._jobs.values()))) > MAX_TASKS:
            raise ValueError(f"A cluster has at most {MAX_TASKS} tasks, got {count}")

    # ------------------------------------------------------------------------------------- what TensorFlow's has
    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ClusterSpec):
            return self._jobs == other._jobs
        return self._jobs == other if isinstance(other, Mapping) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset((job, frozenset(tasks.items())) for job, tasks in self._jobs.items()))

    def __repr__(self) -> str:
        return f"ClusterSpec({dict(sorted(self.as_dict().items()))!r})"

    def as_dict(self) -> dict[str, Any]:
        """Job -> its addresses: a list if its tasks are numbered from 0 without gaps, else a dictionary by number."""
        return {
            job: list(tasks.values()) if tasks and max(tasks) + 1 == len(tasks) else dict(tasks)
            for job, tasks in self._jobs.items()
        }

    def as_cluster_def(self) -> ClusterDef:
        """A new `ClusterDef` of the same content, with its jobs in the order of their names."""
        message = ClusterDef()
        for name, tasks in sorted(self._jobs.items()):
            message.job.add(name=name).tasks.update(tasks)
        return message

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs, as `cluster` had them."""
        return list(self._jobs)

    def num_tasks(self, job_name: str) -> int:
        """How many tasks a job has.

        Raises:
            ValueError: there is no such job.
        """
        return len(self._tasks(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """The numbers of a job's tasks, ascending.

        Raises:
            ValueError: there is no such job.
        """
        return list(self._tasks(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        """The address of a task.

        Raises:
            ValueError: there is no such job, or it has no such task.
        """
        tasks = self._tasks(job_name)
        if task_index not in tasks:
            raise ValueError(f"No task with index {task_index!r} in job {job_name!r}, which has {_numbers(tasks)}")
        return tasks[task_index]

    def job_tasks(self, job_name: str) -> list[str | None]:
        """The addresses of a job's tasks by number, with None for the numbers that no task has.

        Raises:
            ValueError: there is no such job.
        """
        tasks = self._tasks(job_name)
        return [tasks.get(index) for index in range(max(tasks, default=-1) + 1)]

    def _tasks(self, job_name: str) -> dict[int, str]:
        if job_name not in self._jobs:
            raise ValueError(
                f"No such job in cluster: {job_name!r}; there are {', '.join(sorted(self._jobs)) or 'none'}"
            )
        return self._jobs[job_name]

    # ----------------------------------------------------------------------------------------- what servers need
    def tasks(self) -> Iterator[tuple[str, int, str]]:
        """Job, number and address of each task, in the order of names and numbers."""
        for job, tasks in sorted(self._jobs.items()):
            for index, address in tasks.items():
                yield job, index, address

    def task_names(self) -> list[str]:
        """The full name of each task, in the order of names and numbers.

        Example:
            >>> tf.train.ClusterSpec({"ps": ["ps0:2222"]}).task_names()
            ['/job:ps/replica:0/task:0']
        """
        return [task_name(job, index) for job, index, _ in self.tasks()]

    def address_of(self, name: str, addresses: AddressMap | None = None) -> Address:
        """Where a task listens.

        Args:
            name: the task's full name.
            addresses: maps the addresses that are written here to real ones.

        Raises:
            ValueError: there is no such task, or its address is malformed.
        """
        written = parse_address(self.task_address(*parse_task_name(name)))
        return written if addresses is None else addresses.real(written)

    def real(self, addresses: AddressMap) -> ClusterSpec:
        """The same tasks at the addresses where they listen.

        Raises:
            ValueError: an address is malformed.
        """
        jobs: dict[str, dict[int, str]] = {job: {} for job in self._jobs}
        for job, index, address in self.tasks():
            jobs[job][index] = str(addresses.real(parse_address(address)))
        return ClusterSpec(jobs)

    def visible(self, device_filters: Iterable[str], own: str) -> ClusterSpec:
        """The tasks that a session sees: those that match one of its filters, and the one that it talks to.

        Args:
            device_filters: `ConfigProto.device_filters`; without any, a session sees all tasks.
            own: the full name of the task that the session talks to.

        Raises:
            ValueError: a filter is malformed.

        Example:
            >>> cluster = tf.train.ClusterSpec({"ps": ["ps0:2222"], "worker": ["w0:2222", "w1:2222"]})
            >>> cluster.visible(["/job:ps"], "/job:worker/replica:0/task:1").as_dict()
            {'ps': ['ps0:2222'], 'worker': {1: 'w1:2222'}}
        """
        filters = list(device_filters)
        jobs: dict[str, dict[int, str]] = {}
        for job, index, address in self.tasks():
            name = task_name(job, index)
            if name == own or matches_filters(name, filters):
                jobs.setdefault(job, {})[index] = address
        return ClusterSpec(jobs)

    def check(self) -> None:
        """Checks what a server needs of it: names that devices can have, and addresses of their own that can be read.

        Raises:
            ValueError: there are no tasks, a job's name or an address is malformed, or two tasks have one address. (All
                may have port 0, which the system replaces.)
        """
        if not any(self._jobs.values()):
            raise ValueError("The cluster has no tasks")
        seen: dict[Address, str] = {}
        for job, index, written in self.tasks():
            name = task_name(job, index)
            try:
                DeviceSpec.from_string(name)
                address = parse_address(written)
            except ValueError as error:
                raise ValueError(f"Task {index} of job {job!r}: {error}") from None
            if address.port and seen.setdefault(address, name) != name:
                raise ValueError(f"{seen[address]} and {name} have one address, {address}")


#: what a `ClusterSpec` is made from: tasks of each job as a list, or by number
ClusterLike: TypeAlias = Mapping[str, Any] | ClusterDef | ClusterSpec


def task_of_device(device: str) -> str:
    """The full name of the task that a device is of; "" where the device names no task.

    Example:
        >>> task_of_device("/job:ps/task:1/device:CPU:0")
        '/job:ps/replica:0/task:1'
    """
    spec = DeviceSpec.from_string(device)
    return "" if spec.job is None or spec.task is None else task_name(spec.job, spec.task)


def task_name(job: str, index: int) -> str:
    """The full name of a task, with which its devices' names begin."""
    return f"/job:{job}/replica:0/task:{index}"


def parse_task_name(name: str) -> tuple[str, int]:
    """The job and the number in the name of a task or of one of its devices.

    Raises:
        ValueError: the name is malformed, or states no job or no task.
    """
    spec = DeviceSpec.from_string(name)
    if spec.job is None or spec.task is None:
        raise ValueError(f"{name!r} is not a task's name; write it like '/job:worker/replica:0/task:1'")
    return spec.job, spec.task


def matches_filters(name: str, device_filters: Iterable[str]) -> bool:
    """Whether a task or a device matches one of some filters: no part that both state differs. No filters match all.

    Raises:
        ValueError: a filter is malformed.

    Example:
        >>> matches_filters("/job:worker/replica:0/task:3", ["/job:ps", "/job:worker/task:3"])
        True
    """
    specs = []
    for text in device_filters:
        try:
            specs.append(DeviceSpec.from_string(text))
        except ValueError as error:
            raise ValueError(f"ConfigProto.device_filters: {error}") from None
    own = DeviceSpec.from_string(name)
    return not specs or any(_agree(spec, own) for spec in specs)


def _agree(first: DeviceSpec, second: DeviceSpec) -> bool:
    pairs = ((getattr(first, field), getattr(second, field)) for field in _DEVICE_FIELDS)
    return all(a is None or b is None or a == b for a, b in pairs)


def _jobs_of(cluster: Mapping[str, Any] | ClusterDef | ClusterSpec) -> Iterator[tuple[str, dict[int, str]]]:
    if isinstance(cluster, ClusterSpec):
        yield from cluster._jobs.items()
    elif isinstance(cluster, ClusterDef):
        seen = set()
        for job in cluster.job:
            if job.name in seen:
                raise ValueError(f"The ClusterDef has two jobs named {job.name!r}")
            seen.add(job.name)
            yield job.name, _checked_tasks(job.name, job.tasks)
    elif isinstance(cluster, Mapping):
        for name, tasks in cluster.items():
            job_name = _text(name, "Job name")
            if isinstance(tasks, (list, tuple)):
                yield job_name, _checked_tasks(job_name, dict(enumerate(tasks)))
            elif isinstance(tasks, Mapping):
                yield job_name, _checked_tasks(job_name, tasks)
            else:
                raise TypeError(
                    f"The tasks for job {job_name!r} must be a list or a dictionary from integers to strings, got "
                    f"{type(tasks).__name__}"
                )
    else:
        raise TypeError(
            "`cluster` must be a dictionary mapping one or more job names to lists of network addresses, or a "
            f"`ClusterDef` protocol buffer, got {type(cluster).__name__}"
        )


def _checked_tasks(job: str, tasks: Mapping[Any, Any]) -> dict[int, str]:
    checked: dict[int, str] = {}
    for key, value in tasks.items():
        try:
            index = int(key)
        except (TypeError, ValueError):
            raise ValueError(f"Task {key!r} of job {job!r} is not a number") from None
        if not 0 <= index < MAX_TASKS:
            raise ValueError(f"Tasks are numbered from 0 to {MAX_TASKS - 1}, got {index} in job {job!r}")
        address = _text(value, f"Address of task {index} of job {job!r}")
        if len(address) > _MAX_ADDRESS:
            raise ValueError(f"The address of task {index} of job {job!r} has more than {_MAX_ADDRESS} characters")
        checked[index] = address
    return checked


def _text(value: object, what: str) -> str:
    try:
        return as_text(value)
    except TypeError:
        raise TypeError(f"{what} {value!r} must be bytes or unicode") from None


def _numbers(tasks: Mapping[int, str]) -> str:
    shown = ", ".join(map(str, list(tasks)[:10]))
    return (shown + ", …" if len(tasks) > 10 else shown) or "none"
