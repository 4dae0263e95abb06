"""What optimizers share that train a copy of the variables in each worker and, apart from them, common centers.

A getter of variables (`custom_getter` of `tf.variable_scope`) makes, for each trainable variable, the worker's own
copy, which is a local variable, the center beside the parameters of all, and what else a worker keeps of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import anabranch as tf
from anabranch.contrib.arguments import PassedOn

#: the name scope of the centers
GLOBAL_VARIABLE_NAME: Final = "global_center_variable"


class CenterGetter:
    """Makes a local copy, a center and a third variable, beside the copy, of what a model gets as trainable variable.

    Args:
        worker_device: the device of the copies; the centers stand where a device function puts them, such as
            `tf.train.replica_device_setter`'s.
        third: the name scope of the third variables.
        places_locals: whether other local variables are put on the worker's device, too.
    """

    def __init__(self, worker_device: str, third: str, places_locals: bool) -> None:
        self._worker_device = worker_device
        self._third = third
        self._places_locals = places_locals
        self._global_map: dict[Any, Any] = {}
        self._third_map: dict[Any, Any] = {}

    def __call__(
        self,
        getter: Callable[..., tf.Variable | Iterable[tf.Variable]],
        name: str,
        trainable: bool | None,
        collections: Sequence[str] | None,
        *args: PassedOn,
        **kwargs: PassedOn,
    ) -> tf.Variable | Iterable[tf.Variable]:
        """The worker's own copy of a trainable variable; other variables as they are."""
        if not trainable:
            is_placed = self._places_locals and tf.GraphKeys.LOCAL_VARIABLES in (collections or ())
            with tf.device(self._worker_device) if is_placed else contextlib.nullcontext():
                return getter(name, *args, trainable=trainable, collections=collections, **kwargs)
        local = [tf.GraphKeys.LOCAL_VARIABLES]
        with tf.device(self._worker_device):
            copy = getter(name, *args, trainable=True, collections=local, **kwargs)
        if kwargs.get("reuse") is True:
            return copy
        others = {**kwargs, "trainable": False}
        center = getter(f"{GLOBAL_VARIABLE_NAME}/{name}", *args, collections=[tf.GraphKeys.GLOBAL_VARIABLES], **others)
        with tf.device(self._worker_device):
            third = getter(f"{self._third}/{name}", *args, collections=local, **others)
        for own, common, other in zip(parts_of(copy), parts_of(center), parts_of(third), strict=True):
            self._global_map[own] = common
            self._third_map[own] = other
        return copy


class CentersHook(tf.train.SessionRunHook):
    """Gives a worker's variables their values from the centers when a session begins.

    Args:
        make_init_op: makes the operation that does so, while the graph can still be changed.
    """

    def __init__(self, make_init_op: Callable[[], tf.Operation]) -> None:
        self._make_init_op = make_init_op

    def begin(self) -> None:
        """Makes the operation."""
        self._init_op = self._make_init_op()

    def after_create_session(self, session: tf.Session, coord: tf.train.Coordinator) -> None:
        """Runs it."""
        session.run(self._init_op)


def parts_of(variable: PassedOn) -> list[Any]:
    """The parts of a partitioned variable; another stands for itself."""
    return [variable] if isinstance(variable, tf.Variable) else list(variable)


def local_counter() -> Any:
    """The variable "local_step" in which a worker counts its steps."""
    return tf.get_variable("local_step", initializer=0, trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES])


def is_every(period: int, count: tf.Tensor) -> tf.Tensor:
    """Whether the count is a multiple of the period."""
    return tf.equal(tf.math.floormod(count, period), 0)


@contextlib.contextmanager
def kept_local() -> Iterator[None]:
    """Global variables that are made within are local ones: the state of an optimizer belongs to its worker."""
    before = set(tf.global_variables())
    yield
    made = [var for var in tf.global_variables() if var not in before]
    held = tf.get_collection_ref(tf.GraphKeys.GLOBAL_VARIABLES)
    held[:] = [var for var in held if var not in made]
    tf.get_collection_ref(tf.GraphKeys.LOCAL_VARIABLES).extend(made)


def centers_of(variables: Iterable[Any], centers: Mapping[Any, Any], made_by: str) -> list[Any]:
    """The centers of variables.

    Raises:
        ValueError: there are no variables, or one has no center.
    """
    variables = list(variables)
    if not variables:
        raise ValueError("The list of local variables should not be empty")
    without = [var.name for var in variables if var not in centers]
    if without:
        raise ValueError(
            f"{without} have no center: make them by tf.get_variable in a tf.variable_scope whose custom_getter is the "
            f"{made_by} that the optimizer was given"
        )
    return [centers[var] for var in variables]


def named_variables(var_list: Iterable[tf.Variable] | Mapping[str, Any]) -> dict[str, Any]:
    """What a saver is to save, by names: variables, and lists of the parts of partitioned ones."""
    if isinstance(var_list, Mapping):
        return {name: _parts_if_several(value) for name, value in var_list.items()}
    named: dict[str, Any] = {}
    for var in var_list:
        info = getattr(var, "_save_slice_info", None)
        if info is not None:
            named.setdefault(info.full_name, []).append(var)
        elif isinstance(var, tf.Variable):
            named[var.op.name] = var
        else:
            named[var.name] = _parts_if_several(var)
    return named


def _parts_if_several(value: PassedOn) -> Any:
    return value if isinstance(value, tf.Variable) or not isinstance(value, Iterable) else list(value)
