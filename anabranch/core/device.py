"""Device names: `/job:worker/replica:0/task:17/device:GPU:3`, in part or in full, and how nested scopes merge them.

A name constrains where a node may run; a part that is missing, or written `*`, leaves that choice open (section 3.3 of
the paper). `/cpu:0` and `/gpu:0` are old spellings of `/device:CPU:0` and `/device:GPU:0`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, Protocol

_JOB = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_DEVICE_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_FIELDS = ("job", "replica", "task", "device_type", "device_index")


class DeviceSpec:
    """A device's name, in full or in part; None stands for a part that is left open.

    Attributes:
      job: name of the job, such as `"worker"`.
      replica: number of the replica.
      task: number of the task in its job.
      device_type: such as `"CPU"` or `"GPU"`.
      device_index: number of the device among those of its type on its task.
    """

    __slots__ = ("__dict__", "_device_index", "_device_type", "_job", "_replica", "_task")

    _job: str | None
    _replica: int | None
    _task: int | None
    _device_type: str | None
    _device_index: int | None

    def __init__(
        self,
        job: str | None = None,
        replica: int | None = None,
        task: int | None = None,
        device_type: str | None = None,
        device_index: int | None = None,
    ) -> None:
        self.job = job
        self.replica = replica
        self.task = task
        self.device_type = device_type
        self.device_index = device_index

    @property
    def job(self) -> str | None:
        """The job's name, or None."""
        return self._job

    @job.setter
    def job(self, job: str | None) -> None:
        self._job = None if job is None else str(job)

    @property
    def replica(self) -> int | None:
        """The replica's number, or None."""
        return self._replica

    @replica.setter
    def replica(self, replica: int | None) -> None:
        self._replica = None if replica is None else int(replica)

    @property
    def task(self) -> int | None:
        """The task's number in its job, or None."""
        return self._task

    @task.setter
    def task(self, task: int | None) -> None:
        self._task = None if task is None else int(task)

    @property
    def device_type(self) -> str | None:
        """The device's type, or None. `cpu` and `gpu` are turned into capitals."""
        return self._device_type

    @device_type.setter
    def device_type(self, device_type: str | None) -> None:
        text = None if device_type is None else str(device_type)
        self._device_type = text.upper() if text in ("cpu", "gpu") else text

    @property
    def device_index(self) -> int | None:
        """The device's number among those of its type on its task, or None."""
        return self._device_index

    @device_index.setter
    def device_index(self, device_index: int | None) -> None:
        self._device_index = None if device_index is None else int(device_index)

    @classmethod
    def from_string(cls, spec: str) -> DeviceSpec:
        """The spec that a name such as `/job:ps/task:0/device:CPU:0` states; the empty name leaves all open.

        Raises:
          ValueError: a part of the name is malformed, unknown, or given twice.
        """
        return cls().parse_from_string(spec)

    def parse_from_string(self, spec: str) -> DeviceSpec:
        """Replaces all parts of this spec by those that a name states, and returns this spec.

        Raises:
          ValueError: a part of the name is malformed, unknown, or given twice.
        """
        fields: dict[str, Any] = {}
        for part in spec.split("/"):
            for field, value in _parse_part(part, spec):
                if field in fields:
                    raise ValueError(f"Cannot specify multiple {field.replace('_', ' ')}s in the device {spec!r}")
                fields[field] = value
        for field in _FIELDS:
            setattr(self, field, fields.get(field))
        return self

    def merge_from(self, dev: DeviceSpec) -> None:
        """Takes over every part that `dev` states; the others stay."""
        for field in _FIELDS:
            value = getattr(dev, field)
            if value is not None:
                setattr(self, field, value)

    def make_merged_spec(self, dev: DeviceSpec) -> DeviceSpec:
        """A new spec with every part that `dev` states; the others are this one's."""
        merged = DeviceSpec(**{field: getattr(self, field) for field in _FIELDS})
        merged.merge_from(dev)
        return merged

    def replace(self, **kwargs: str | int | None) -> DeviceSpec:
        """A new spec with the parts given by keyword; the others are this one's."""
        return DeviceSpec(**{**{field: getattr(self, field) for field in _FIELDS}, **kwargs})

    def covers(self, dev: DeviceSpec) -> bool:
        """Whether `dev` lies within this spec: every part that this one states, `dev` states alike."""
        return all(getattr(self, field) in (None, getattr(dev, field)) for field in _FIELDS)

    def to_string(self) -> str:
        """The name, in canonical spelling; empty if all parts are open."""
        name = "" if self._job is None else f"/job:{self._job}"
        if self._replica is not None:
            name += f"/replica:{self._replica}"
        if self._task is not None:
            name += f"/task:{self._task}"
        if self._device_type is not None:
            name += f"/device:{self._device_type}:{'*' if self._device_index is None else self._device_index}"
        return name

    def __repr__(self) -> str:
        return f"DeviceSpec.from_string({self.to_string()!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceSpec) and self.to_string() == other.to_string()

    def __hash__(self) -> int:
        return hash(self.to_string())


def _parse_part(part: str, spec: str) -> list[tuple[str, Any]]:
    """The fields that one part between slashes states; those that it leaves open as `*` are not among them."""
    key, *values = part.split(":")
    match key, values:
        case "", []:
            return []
        case "job", [value] if value == "*" or _JOB.fullmatch(value):
            stated: list[tuple[str, Any]] = [("job", value)]
        case (("replica" | "task"), [value]):
            stated = [(key, _number(value, part, spec))]
        case "device", [device_type, index] if device_type == "*" or _DEVICE_TYPE.fullmatch(device_type):
            stated = [("device_type", device_type), ("device_index", _number(index, part, spec))]
        case (("cpu" | "gpu" | "CPU" | "GPU"), [] | [_]):
            index = values[0] if values else "*"
            stated = [("device_type", key.upper()), ("device_index", _number(index, part, spec))]
        case _:
            raise ValueError(
                f"Unknown part {part!r} in device {spec!r}: write it like '/job:worker/replica:0/task:1/device:GPU:0'"
            )
    return [(field, value) for field, value in stated if value not in ("*", None)]


def _number(text: str, part: str, spec: str) -> int | None:
    if text == "*":
        return None
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"In device {spec!r}, part {part!r} needs a number or '*' after its last colon, got {text!r}")
    return int(text)


@functools.lru_cache(maxsize=4096)
def _canonical(name: str) -> str:
    return DeviceSpec.from_string(name).to_string()


def canonical_name(device: DeviceSpec | str | None) -> str:
    """The canonical spelling of a device's name; empty for None.

    Raises:
      ValueError: the name is malformed.
    """
    if device is None:
        return ""
    return device.to_string() if isinstance(device, DeviceSpec) else _canonical(str(device))


def check_valid(spec: str) -> None:
    """Raises ValueError unless `spec` is a well-formed device name."""
    _canonical(spec)


@functools.lru_cache(maxsize=4096)
def merge_names(outer: str, inner: str) -> str:
    """The canonical name of `outer` with every part that `inner` states put in its place.

    Raises:
      ValueError: one of the names is malformed.
    """
    merged = DeviceSpec.from_string(outer)
    merged.merge_from(DeviceSpec.from_string(inner))
    return merged.to_string()


class PlacedLike(Protocol):
    """What asks for a device: a node."""

    @property
    def device(self) -> str | None: ...


def merge_device(spec: DeviceSpec | str | None) -> Callable[[str | PlacedLike], str]:
    """The function by which a device scope changes the nodes within it.

    Args:
      spec: the scope's device; None leaves nodes as they are.

    Returns:
      A function of a node (an object with a `device` name) or of a name. It returns the name merged into the scope's:
      what the node already states, from scopes further in, stays.

    Raises:
      ValueError: the name is malformed.
    """
    outer = canonical_name(spec)

    def apply(node: str | PlacedLike) -> str:
        inner = node if isinstance(node, str) else node.device
        return merge_names(outer, inner or "")

    return apply
