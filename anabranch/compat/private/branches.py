"""What libraries call to choose branches while the graph is built: of `control_flow_ops`, of the wrapped C library."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.core.values import PassedOn, TensorLike

Function = Callable[[], Any]


def TF_TryEvaluateConstant_wrapper(graph: tf.Graph, output: tf.Tensor) -> np.ndarray[Any, Any] | None:
    """The value of a tensor where constants and known shapes tell it, else None.

    Args:
        graph, output: what `Graph._c_graph` and `Tensor._as_tf_output()` give.
    """
    value: np.ndarray[Any, Any] | None = tf.get_static_value(output)
    return value


def _case_helper(
    cond_fn: Callable[..., Any],
    pred_fn_pairs: Sequence[tuple[TensorLike, Function]] | Mapping[Any, Function],
    default: Function | None,
    exclusive: bool,
    name: str,
    allow_python_preds: bool = False,
    **cond_kwargs: PassedOn,
) -> Any:
    """The result of the first function whose predicate is true, by conditionals one inside the other.

    Args:
        cond_fn: called as ``cond_fn(pred, true_fn=..., false_fn=..., name=...)``.
        pred_fn_pairs, default, exclusive, name: as of `tf.case`.
        allow_python_preds: whether predicates may be Python's truth values.
        cond_kwargs: for `cond_fn`, too.

    Raises:
        TypeError: the pairs are not pairs of a predicate and a callable.
    """
    pairs = list(pred_fn_pairs.items() if isinstance(pred_fn_pairs, Mapping) else pred_fn_pairs)
    for pred, function in pairs:
        if not callable(function):
            raise TypeError(f"fn for pred {pred!r} must be callable.")
        if not (isinstance(pred, tf.Tensor) or (allow_python_preds and isinstance(pred, bool | np.bool_))):
            raise TypeError(f"pred must be Tensor, got {pred!r}")
    with tf.name_scope(name, "case", [pred for pred, _ in pairs]):
        preds = [tf.convert_to_tensor(pred) for pred, _ in pairs]
        checks = [_at_most_one(preds)] if exclusive else []
        if default is None:
            checks.append(_some(preds))
            pairs, default = pairs[:-1], pairs[-1][1]
        chosen = default
        for pred, function in reversed(pairs):
            chosen = functools.partial(cond_fn, pred, true_fn=function, false_fn=chosen, name=name, **cond_kwargs)
        with tf.control_dependencies(checks):
            return chosen()


def _at_most_one(preds: Sequence[tf.Tensor]) -> tf.Operation:
    true = tf.reduce_sum(tf.cast(tf.stack(preds), tf.int32))
    return tf.Assert(true <= 1, ["Input error: exclusive=True: more than 1 conditions are true", tf.stack(preds)])


def _some(preds: Sequence[tf.Tensor]) -> tf.Operation:
    return tf.Assert(tf.reduce_any(tf.stack(preds)), ["None of conditions evaluated as True", tf.stack(preds)])
