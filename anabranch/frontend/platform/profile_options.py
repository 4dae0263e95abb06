"""The options of tf.profiler: what is counted, what is shown, and where it is written."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Self

from anabranch.core.values import PassedOn


class ProfileOptionBuilder:
    """Makes the options of `tf.profiler.profile`.

    Example:
        >>> builder = tf.profiler.ProfileOptionBuilder
        >>> options = builder(builder.float_operation()).with_empty_output().build()
        >>> options["select"], options["output"]
        (['float_ops'], 'none')
    """

    def __init__(self, options: dict[str, Any] | None = None) -> None:
        self._options = copy.deepcopy(options) if options is not None else profile_options(["params"], "params")

    @staticmethod
    def trainable_variables_parameter() -> dict[str, Any]:
        """Options that count the parameters of trainable variables, by name scope."""
        return {**profile_options(["params"], "name"), "account_type_regexes": ["_trainable_variables"]}

    @staticmethod
    def float_operation() -> dict[str, Any]:
        """Options that count floating-point operations, by name scope."""
        return {**profile_options(["float_ops"], "float_ops"), "min_float_ops": 1}

    @staticmethod
    def time_and_memory(
        min_micros: int = 1,
        min_bytes: int = 1,
        min_accelerator_micros: int = 0,
        min_cpu_micros: int = 0,
        min_peak_bytes: int = 0,
        min_residual_bytes: int = 0,
        min_output_bytes: int = 0,
    ) -> dict[str, Any]:
        """Options for the times and the sizes of a step that was traced, by name scope."""
        limits = {"min_micros": min_micros, "min_bytes": min_bytes, "min_peak_bytes": min_peak_bytes}
        limits |= {"min_accelerator_micros": min_accelerator_micros, "min_cpu_micros": min_cpu_micros}
        limits |= {"min_residual_bytes": min_residual_bytes, "min_output_bytes": min_output_bytes}
        return {**profile_options(["micros", "bytes"], "micros"), **limits}

    def build(self) -> dict[str, Any]:
        """The options."""
        return copy.deepcopy(self._options)

    def _with(self, **values: PassedOn) -> Self:
        self._options.update(values)
        return self

    def with_max_depth(self, max_depth: int) -> Self:
        """Shows so many levels of scopes."""
        return self._with(max_depth=max_depth)

    def with_min_memory(
        self, min_bytes: int = 0, min_peak_bytes: int = 0, min_residual_bytes: int = 0, min_output_bytes: int = 0
    ) -> Self:
        """Shows only what asked for so many bytes; peaks and what stays are not known, and are 0."""
        self._with(min_bytes=min_bytes, min_peak_bytes=min_peak_bytes)
        return self._with(min_residual_bytes=min_residual_bytes, min_output_bytes=min_output_bytes)

    def with_min_execution_time(
        self, min_micros: int = 0, min_accelerator_micros: int = 0, min_cpu_micros: int = 0
    ) -> Self:
        """Shows only what took so many microseconds."""
        self._with(min_micros=min_micros, min_cpu_micros=min_cpu_micros)
        return self._with(min_accelerator_micros=min_accelerator_micros)

    def with_min_parameters(self, min_params: int) -> Self:
        """Counts only what has so many parameters."""
        return self._with(min_params=min_params)

    def with_min_occurrence(self, min_occurrence: int) -> Self:
        """Shows only types with so many operations."""
        return self._with(min_occurrence=min_occurrence)

    def with_min_float_operations(self, min_float_ops: int) -> Self:
        """Counts only operations that take so many."""
        return self._with(min_float_ops=min_float_ops)

    def with_accounted_types(self, account_type_regexes: Sequence[str]) -> Self:
        """Counts only operations whose types match one of these regular expressions."""
        return self._with(account_type_regexes=list(account_type_regexes))

    def with_node_names(
        self,
        start_name_regexes: Sequence[str] | None = None,
        show_name_regexes: Sequence[str] | None = None,
        hide_name_regexes: Sequence[str] | None = None,
        trim_name_regexes: Sequence[str] | None = None,
    ) -> Self:
        """Counts only operations with names that match `show_name_regexes`, and none of `hide_name_regexes`."""
        given = {"start": start_name_regexes, "show": show_name_regexes}
        given |= {"hide": hide_name_regexes, "trim": trim_name_regexes}
        return self._with(**{f"{k}_name_regexes": list(v) for k, v in given.items() if v is not None})

    def account_displayed_op_only(self, is_true: bool) -> Self:
        """Kept; what is not shown is not counted."""
        return self._with(account_displayed_op_only=is_true)

    def with_empty_output(self) -> Self:
        """Writes nothing."""
        return self._with(output="none")

    def with_stdout_output(self) -> Self:
        """Writes to the standard output."""
        return self._with(output="stdout")

    def with_file_output(self, outfile: str) -> Self:
        """Writes to a file."""
        return self._with(output=f"file:outfile={outfile}")

    def with_step(self, step: int) -> Self:
        """Times of this step of a `Profiler`; -1: the mean of all steps."""
        return self._with(step=step)

    def order_by(self, attribute: str) -> Self:
        """Orders what is shown below one entry by this, the largest first; "name": by name."""
        return self._with(order_by=attribute)

    def select(self, attributes: Sequence[str]) -> Self:
        """Writes these: "params", "float_ops", "micros", "bytes", "occurrence" and their like."""
        return self._with(select=list(attributes))


def profile_options(select: list[str], order_by: str) -> dict[str, Any]:
    limits = ("bytes", "peak_bytes", "residual_bytes", "output_bytes", "micros", "accelerator_micros", "cpu_micros")
    return {
        "max_depth": 10000,
        **{f"min_{what}": 0 for what in (*limits, "params", "float_ops", "occurrence")},
        "order_by": order_by,
        "account_type_regexes": [".*"],
        "start_name_regexes": [".*"],
        "trim_name_regexes": [],
        "show_name_regexes": [".*"],
        "hide_name_regexes": [],
        "account_displayed_op_only": False,
        "select": select,
        "step": -1,
        "output": "stdout",
    }
