"""TF_CONFIG: the environment variable in which a task is told of its cluster and of itself, as JSON.

    {"cluster": {"ps": ["host0:2222"], "worker": ["host1:2222", "host2:2222"]},
     "task": {"type": "worker", "index": 1}, "rpc_layer": "grpc", "session_master": "grpc://host2:2222"}

Each part may be missing. What another program wrote there is checked before it is used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from anabranch.distributed.cluster_spec import MAX_TASKS, ClusterSpec

#: the environment variable
TF_CONFIG_VARIABLE: Final = "TF_CONFIG"

_MAX_CHARACTERS: Final = 16 << 20


@dataclass(frozen=True)
class TaskConfig:
    """What TF_CONFIG says; None for what it does not say.

    Attributes:
        cluster: without tasks if it says nothing.
        task_type: the task's job.
        task_id: the task's number in its job.
        rpc_layer: the protocol, such as "grpc".
        session_master: the target of sessions.
    """

    cluster: ClusterSpec
    task_type: str | None = None
    task_id: int | None = None
    rpc_layer: str | None = None
    session_master: str | None = None


def read_tf_config(environ: Mapping[str, str]) -> TaskConfig:
    """What the variable says in an environment.

    Raises:
        ValueError: it is not JSON, has more than 16 million characters, or a part of it has another form. The message
            names the part.

    Example:
        >>> read_tf_config({"TF_CONFIG": '{"task": {"type": "ps", "index": 0}}'}).task_type
        'ps'
    """
    config = _object(_parsed(environ.get(TF_CONFIG_VARIABLE, "")), TF_CONFIG_VARIABLE)
    task = _object(config.get("task"), 'TF_CONFIG["task"]')
    return TaskConfig(
        cluster=_cluster(config.get("cluster")),
        task_type=_string(task, "type", 'TF_CONFIG["task"]'),
        task_id=_index(task),
        rpc_layer=_string(config, "rpc_layer", TF_CONFIG_VARIABLE),
        session_master=_string(config, "session_master", TF_CONFIG_VARIABLE),
    )


def _parsed(text: str) -> Any:
    if len(text) > _MAX_CHARACTERS:
        raise ValueError(f"TF_CONFIG has {len(text)} characters; at most {_MAX_CHARACTERS} are read")
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"TF_CONFIG is not JSON: {error.msg} at line {error.lineno}, column {error.colno}, near "
            f"{text[max(0, error.pos - 20) : error.pos + 20]!r}"
        ) from None
    except (RecursionError, ValueError):  # lists in lists without end, numbers of thousands of digits
        raise ValueError(
            "TF_CONFIG is not JSON of a usable size: it is nested too deeply, or a number is too long"
        ) from None


def _object(value: object, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be an object, such as {{...}}, got {_shown(value)}")
    return value


def _string(holder: Mapping[str, Any], key: str, where: str) -> str | None:
    value = holder.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f'{where}["{key}"] must be a string, got {_shown(value)}')
    return value


def _index(task: Mapping[str, Any]) -> int | None:
    value = task.get("index")
    if value is None:
        return None
    if isinstance(value, str) and len(value) <= 9 and value.isascii() and value.isdigit():
        value = int(value)  # as some launchers write it
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MAX_TASKS:
        raise ValueError(f'TF_CONFIG["task"]["index"] must be a number from 0 to {MAX_TASKS - 1}, got {_shown(value)}')
    return value


def _cluster(value: object) -> ClusterSpec:
    jobs = _object(value, 'TF_CONFIG["cluster"]')
    try:
        return ClusterSpec(jobs)
    except (TypeError, ValueError) as error:
        raise ValueError(f'TF_CONFIG["cluster"]: {error}') from None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + "…"
