"""The functions and options by which programs counted a model before there was `tf.profiler`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import anabranch as tf

write_op_log = tf.profiler.write_op_log

#: the type under which trainable variables are counted
TRAINABLE_VARIABLES: Final = "_trainable_variables"

#: how many parameters the trainable variables have
TRAINABLE_VARS_PARAMS_STAT_OPTIONS: Final[dict[str, Any]] = {
    **tf.profiler.ProfileOptionBuilder.trainable_variables_parameter(),
    "account_displayed_op_only": True,
}

#: how many floating-point operations there are
FLOAT_OPS_OPTIONS: Final[dict[str, Any]] = {
    **tf.profiler.ProfileOptionBuilder.float_operation(),
    "account_displayed_op_only": True,
}

#: how long a step took, and how large its results were
PRINT_ALL_TIMING_MEMORY: Final[dict[str, Any]] = {
    **tf.profiler.ProfileOptionBuilder.time_and_memory(),
    "order_by": "name",
    "account_displayed_op_only": True,
}


def print_model_analysis(
    graph: tf.Graph,
    run_meta: tf.RunMetadata | None = None,
    op_log: tf.profiler.OpLogProto | None = None,
    tfprof_cmd: str = "scope",
    tfprof_options: Mapping[str, Any] | None = None,
) -> tf.profiler.GraphNodeProto | tf.profiler.MultiGraphNodeProto:
    """Prints a model's parameters, floating-point operations or times: `tf.profiler.profile` by its former name.

    Args:
        graph, run_meta, op_log: as of `tf.profiler.profile`.
        tfprof_cmd: "scope", "graph", "op" or "code".
        tfprof_options: one of the dictionaries here, or one that programs made themselves; what it does not say is
            not limited. Default: the parameters of trainable variables.

    Returns:
        The root, with `total_parameters` and `total_float_ops`.

    Raises:
        ValueError: another command, or options that select what there is not.
    """
    options = dict(tfprof_options or TRAINABLE_VARS_PARAMS_STAT_OPTIONS)
    return tf.profiler.profile(graph, run_meta, op_log, tfprof_cmd, options)


def advise(
    graph: tf.Graph, run_meta: tf.RunMetadata | None = None, tfprof_options: Mapping[str, Any] | None = None
) -> tf.profiler.AdviceProto:
    """What is worth a look in a step: `tf.profiler.advise` by its former name, with its errors."""
    return tf.profiler.advise(graph, run_meta, tfprof_options or None)
