"""Switches of other versions of the API: there is one behaviour here, that of graphs with resource variables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from anabranch.core.values import PassedOn
from anabranch.graph.graph import get_default_graph


def executing_eagerly() -> bool:
    """Whether tensors have values: they do in the function of a `py_function` only."""
    return get_default_graph().computes_at_once


executing_eagerly_outside_functions = executing_eagerly


def resource_variables_enabled() -> bool:
    """True: all variables are resources."""
    return True


def control_flow_v2_enabled() -> bool:
    """True: users build functional control flow, whatever runs it."""
    return True


def disable_v2_behavior() -> None:
    """Nothing to do: this is the behaviour of version 1.

    Raises:
        nothing

    Example:
        >>> tf.disable_v2_behavior()
    """


def disable_eager_execution() -> None:
    """Nothing to do: execution is never eager."""


def disable_v2_tensorshape() -> None:
    """Nothing to do: dimensions are `Dimension` objects."""


def disable_tensor_equality() -> None:
    """Nothing to do: tensors compare by identity."""


def enable_resource_variables() -> None:
    """Nothing to do: all variables are resources."""


def disable_resource_variables() -> None:
    """Accepted: reference variables do not exist here, and programs that use the public methods see no difference."""


def enable_control_flow_v2() -> None:
    """Nothing to do: control flow is functional."""


def disable_control_flow_v2() -> None:
    """Accepted: programs see no difference."""


def enable_eager_execution(*_: PassedOn, **__: PassedOn) -> None:
    """Raises NotImplementedError: graphs are what this system is about."""
    raise NotImplementedError("anabranch runs graphs only; build operations and run them with a tf.Session")


@contextlib.contextmanager
def function_executor_type(executor_type: str | None) -> Iterator[None]:
    """Accepted: functions are copied into the step that calls them, which has one executor.

    Args:
        executor_type: its name; "" or None for the usual one.
    """
    yield


def output_all_intermediates(state: bool | None) -> None:
    """Accepted: what gradients of conditionals and loops need is recorded where they are asked for, and nowhere else.

    Args:
        state: whether to output all intermediate tensors; None: as it was.
    """
