"""Looking into checkpoints, waiting for them, and starting variables from them  (§4.3)."""

from __future__ import annotations

import contextlib
import difflib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from anabranch.core.compat import as_text
from anabranch.frontend.platform import logging
from anabranch.frontend.variables.partitioned import PartitionedVariable
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.io import checkpoint_store
from anabranch.io.tensor_reader import TensorReader
from anabranch.ops import raw
from anabranch.train import checkpoint_management


def NewCheckpointReader(filepattern: str) -> TensorReader:
    """A reader of the checkpoint of that prefix, ours or one that TensorFlow saved.

    Args:
        filepattern: prefix of the checkpoint.

    Returns:
        A reader with `get_tensor(name)`, `has_tensor(name)` and `get_variable_to_shape_map()`.

    Raises:
        NotFoundError: there is none.
        DataLossError: its list of contents is damaged.

    Example:
        >>> v = tf.get_variable("v", initializer=[1.0, 2.0])
        >>> sess.run(v.initializer)
        >>> path = tf.train.Saver().save(sess, "runs/model")
        >>> tf.train.NewCheckpointReader(path).get_tensor("v")
        array([1., 2.], dtype=float32)
    """
    return checkpoint_store.open_checkpoint(as_text(os.fsdecode(filepattern)))


def load_checkpoint(ckpt_dir_or_file: str) -> TensorReader:
    """A reader of a checkpoint: that of the prefix, or the latest of the directory.

    Raises:
        ValueError: the directory has no checkpoint.
        NotFoundError: there is no checkpoint of that prefix.
    """
    return NewCheckpointReader(prefix_of(ckpt_dir_or_file))


def load_variable(ckpt_dir_or_file: str, name: str) -> np.ndarray[Any, Any] | np.generic | bytes:
    """The value of a variable in a checkpoint, an array or a scalar; ":0" at the end of the name is ignored.

    Raises:
        NotFoundError: the checkpoint has no such variable.
        ValueError, NotFoundError: as `load_checkpoint`.
    """
    with load_checkpoint(ckpt_dir_or_file) as reader:
        value: np.ndarray[Any, Any] | np.generic | bytes = reader.get_tensor(name.removesuffix(":0"))
        return value


def list_variables(ckpt_dir_or_file: str) -> list[tuple[str, list[int]]]:
    """Name and shape of everything in a checkpoint, sorted by name.

    Args:
        ckpt_dir_or_file: prefix of a checkpoint, or a directory, of which the latest is taken.

    Returns:
        A list of pairs (name, list of sizes).

    Raises:
        ValueError, NotFoundError: as `load_checkpoint`.

    Example:
        >>> v = tf.get_variable("v", initializer=[1.0, 2.0])
        >>> sess.run(v.initializer)
        >>> path = tf.train.Saver().save(sess, "runs/model")
        >>> tf.train.list_variables("runs")
        [('v', [2])]
    """
    with load_checkpoint(ckpt_dir_or_file) as reader:
        return sorted(reader.get_variable_to_shape_map().items())


def prefix_of(ckpt_dir_or_file: str) -> str:
    """The prefix of a checkpoint: the given one, or that of the latest in a directory."""
    path = as_text(os.fsdecode(ckpt_dir_or_file))
    if not os.path.isdir(path):
        return path
    latest = checkpoint_management.latest_checkpoint(path)
    if latest is None:
        raise ValueError(f"Couldn't find 'checkpoint' file or checkpoints in given directory {path}")
    return latest


# ---------------------------------------------------------------------- waiting
def wait_for_new_checkpoint(
    checkpoint_dir: str,
    last_checkpoint: str | None = None,
    seconds_to_sleep: float = 1,
    timeout: float | None = None,
) -> str | None:
    """Waits until a directory's latest checkpoint is another than `last_checkpoint`.

    Args:
        checkpoint_dir: the directory; it need not exist yet.
        last_checkpoint: the one known already.
        seconds_to_sleep: how long to wait between looks.
        timeout: in seconds; None waits for ever.

    Returns:
        The new checkpoint's prefix; None if the time ran out.
    """
    logging.info("Waiting for new checkpoint at %s", checkpoint_dir)
    stop = None if timeout is None else time.monotonic() + timeout
    while True:
        latest = checkpoint_management.latest_checkpoint(checkpoint_dir)
        if latest is not None and latest != last_checkpoint:
            return latest
        if stop is not None and time.monotonic() + seconds_to_sleep > stop:
            return None
        time.sleep(seconds_to_sleep)


def checkpoints_iterator(
    checkpoint_dir: str,
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
) -> Iterator[str]:
    """Yields each new latest checkpoint of a directory as it appears; those overtaken meanwhile are left out.

    Args:
        checkpoint_dir: the directory.
        min_interval_secs: at least so many seconds lie between two yields.
        timeout: how long to wait for a new one, in seconds; None for ever.
        timeout_fn: asked when the time has run out whether to stop; default: stop.
    """
    latest: str | None = None
    while True:
        newest = wait_for_new_checkpoint(checkpoint_dir, latest, timeout=timeout)
        if newest is None:
            if timeout_fn is None or timeout_fn():
                logging.info("No new checkpoints in %s for %s seconds: stopping.", checkpoint_dir, timeout)
                return
            continue
        begun = time.monotonic()
        latest = newest
        yield newest
        remaining = begun + min_interval_secs - time.monotonic()
        if remaining > 0:
            time.sleep(remaining)


# ---------------------------------------------------------------------- starting from a checkpoint
def init_from_checkpoint(ckpt_dir_or_file: str, assignment_map: Mapping[str, Any]) -> None:
    """Lets the initializers of variables take their values from a checkpoint. Call it before the session initializes.

    Args:
        ckpt_dir_or_file: prefix of a checkpoint, or a directory, of which the latest is taken.
        assignment_map: a dictionary, or a list of pairs: ``{"name in the checkpoint": variable}``, where the variable
            is given as such, by name, as a partitioned variable or as a list of its parts; ``{"scope in the
            checkpoint/": "scope in the graph/"}``, where all variables of the graph's scope are taken from the
            checkpoint's scope; "/" stands for the root.

    Raises:
        NotFoundError: there is no such checkpoint.
        ValueError: the checkpoint lacks a tensor, a variable is not in the graph or has another shape than the
            checkpoint's tensor, or a directory has no checkpoint.

    Example:
        >>> v = tf.get_variable("v", initializer=[1.0, 2.0])
        >>> sess.run(v.initializer)
        >>> path = tf.train.Saver().save(sess, "runs/model")
        >>> w = tf.get_variable("w", [2])
        >>> tf.train.init_from_checkpoint(path, {"v": w})
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(w)
        array([1., 2.], dtype=float32)
    """
    pairs = assignment_map.items() if isinstance(assignment_map, Mapping) else assignment_map
    prefix = prefix_of(ckpt_dir_or_file)
    with checkpoint_store.open_checkpoint(prefix) as reader:
        shapes = reader.get_variable_to_shape_map()
    planned: list[tuple[str, list[Variable]]] = []
    for source, target in sorted(pairs, key=lambda pair: str(pair[0])):
        planned += _planned(str(source), target, shapes, prefix)
    for name, parts in planned:
        _check_shape(name, parts, shapes, prefix)
    for name, parts in planned:
        for part in parts:
            _take_initializer_from(part, prefix, name)


def _planned(
    source: str,
    target: Variable | PartitionedVariable | Sequence[Variable] | str,
    shapes: Mapping[str, list[int]],
    prefix: str,
) -> list[tuple[str, list[Variable]]]:
    if not isinstance(target, str):
        return [(_stored(source, shapes, prefix), _parts(target))]
    by_name = _variables_by_name()
    if not target.endswith("/") and not source.endswith("/"):
        if target not in by_name:
            raise ValueError(
                f"Assignment map with name {source!r} maps to {target!r}, which is no variable of the graph"
            )
        return [(_stored(source, shapes, prefix), by_name[target])]
    if not (target.endswith("/") and source.endswith("/")):
        raise ValueError(
            f"Assignment map with scope only name {source} should map to scope only {target}. Should be 'scope/': "
            "'other_scope/'."
        )
    inside = {name: parts for name, parts in by_name.items() if target == "/" or name.startswith(target)}
    if not inside:
        raise ValueError(f"Assignment map with scope only name {target} has no variables in the graph")
    start, root = ("" if target == "/" else target), ("" if source == "/" else source)
    return [(_stored(root + n.removeprefix(start), shapes, prefix), parts) for n, parts in inside.items()]


def _stored(name: str, shapes: Mapping[str, list[int]], prefix: str) -> str:
    if name not in shapes:
        close = difflib.get_close_matches(name, shapes, n=3, cutoff=0.6)
        hint = f"; the closest: {', '.join(close)}" if close else ""
        raise ValueError(f"Tensor {name} is not found in {prefix} checkpoint {dict(sorted(shapes.items()))}{hint}")
    return name


def _parts(target: Variable | PartitionedVariable | Sequence[Variable] | str) -> list[Variable]:
    parts: list[Any] = list(target) if isinstance(target, list | tuple | PartitionedVariable) else [target]
    wrong = [part for part in parts if not isinstance(part, Variable)]
    if wrong or not parts:
        raise TypeError(f"Assignment map must map to variables, their names or lists of their parts, got {target!r}")
    return parts


def _variables_by_name() -> dict[str, list[Variable]]:
    """The variables of the default graph by name; the parts of a partitioned one under the name of the whole."""
    variables: dict[str, list[Variable]] = {}
    graph = get_default_graph()
    for key in ("variables", "local_variables"):
        for variable in graph.get_collection(key):
            info = variable._get_save_slice_info()
            name = variable._shared_name if info is None else info.full_name
            parts = variables.setdefault(name, [])
            if variable not in parts:
                parts.append(variable)
    return variables


def _check_shape(name: str, parts: list[Variable], shapes: Mapping[str, list[int]], prefix: str) -> None:
    for part in parts:
        info = part._get_save_slice_info()
        wanted = part.shape.as_list() if info is None and part.shape.ndims is not None else None
        if info is not None:
            wanted = list(info.full_shape)
        if wanted is not None and not part.shape.__class__(wanted).is_compatible_with(shapes[name]):
            raise ValueError(
                f"Shape of variable {part.name} ({wanted}) doesn't match with shape of tensor {name} ({shapes[name]}) "
                f"from checkpoint reader of {prefix}."
            )


def _take_initializer_from(variable: Variable, prefix: str, name: str) -> None:
    """Replaces a variable's initializer by a restore from a checkpoint."""
    info = variable._get_save_slice_info()
    with at_place_of(variable):
        value = raw.RestoreV2(
            prefix, [name], ["" if info is None else info.spec], dtypes=[variable.dtype], name="RestoreV2"
        )[0]
    value.set_shape(variable.shape)
    replace_initializer(variable, value)


@contextlib.contextmanager
def at_place_of(variable: Variable) -> Iterator[None]:
    """New operations belong to a variable's graph, on its device, in the scope of what checkpoints initialize."""
    graph = variable.graph
    with (
        graph.as_default(),
        graph.name_scope(None),
        graph.device(variable.device or None),
        graph.name_scope("checkpoint_initializer"),
    ):
        yield


def replace_initializer(variable: Variable, value: Tensor) -> None:
    """Lets a variable begin with another value than the one that it was made with."""
    graph = variable.graph
    with graph.as_default(), graph.name_scope(None), graph.device(variable.device or None):
        variable._initializer_op = raw.AssignVariableOp(variable.handle, value, name=f"{variable._shared_name}/Assign")
        variable._initial_value = value
