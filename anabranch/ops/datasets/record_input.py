"""`RecordInput`: batches of records of many files, as programs read them before there were datasets."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.graph.kernel_contexts import StepHostContext
from anabranch.ops.resources.shared_objects import make_object, object_behind
from anabranch.state.record_input import RecordInput as _Records

RecordInput = define_op(
    "RecordInput",
    "-> records: string",
    "file_pattern: string, file_random_seed: int = 301, file_shuffle_shift_ratio: float = 0.0, "
    "file_buffer_size: int = 10000, file_parallelism: int = 16, batch_size: int = 32, compression_type: string = ''",
    stateful=True,
    blocking=True,
)
RecordInput.not_differentiable()

_KIND = "input of records"


@RecordInput.shape
def _(*, batch_size: int) -> TensorShape:
    if batch_size < 0:
        raise ValueError(f"batch_size must not be negative, got {batch_size}")
    return TensorShape([batch_size])


@RecordInput.host_kernel
def _(*, batch_size: int, file_parallelism: int, ctx: StepHostContext) -> Any:
    if file_parallelism < 1:
        raise InvalidArgumentError(None, ctx.op, f"file_parallelism must be positive, got {file_parallelism}")
    handle = ResourceHandle("", ctx.private_name, _KIND, task=ctx.task)
    attrs = ctx.op.attrs
    make_object(
        ctx,
        handle,
        _KIND,
        lambda: _Records(
            attrs["file_pattern"].decode(),
            attrs["file_random_seed"],
            attrs["file_shuffle_shift_ratio"],
            attrs["file_buffer_size"],
            attrs["compression_type"].decode(),
        ),
    )
    records: _Records = object_behind(ctx, handle, _KIND)
    batch = np.empty(batch_size, np.object_)
    batch[:] = records.take(batch_size)
    return batch
