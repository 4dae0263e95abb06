"""Datasets that are kept in files, and those that say what follows them (WP4.5)."""

from __future__ import annotations

import hashlib
import os
from typing import Final, Protocol

import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.attrs import FuncAttr
from anabranch.core.kernel_context import OperationContext
from anabranch.graph.kernel_contexts import StepHostContext
from anabranch.graph.step_nodes import StepNode
from anabranch.ops.datasets.sources import TYPED, dataset_of, define_dataset, made_by, random_seeds
from anabranch.state.dataset_assertions import FollowedDataset
from anabranch.state.dataset_snapshots import SnapshotDataset as _Snapshot, SnapshotOptions
from anabranch.state.datasets import Elements

_SNAPSHOT_ATTRS: Final = (
    f"{TYPED}, compression: string = '', reader_path_prefix: string = '', writer_path_prefix: string = '', "
    "shard_size_bytes: int = 10737418240, pending_snapshot_expiry_seconds: int = 86400, num_reader_threads: int = 1, "
    "reader_buffer_size: int = 1, num_writer_threads: int = 1, writer_buffer_size: int = 1, "
    "shuffle_on_read: bool = False, seed: int = 0, seed2: int = 0, mode: string = 'auto', snapshot_name: string = ''"
)
SnapshotDataset = define_dataset("SnapshotDataset", "input_dataset: variant, path: string", _SNAPSHOT_ATTRS)


@SnapshotDataset.host_kernel
def _(
    input_dataset: Array,
    path: Array,
    *,
    compression: bytes,
    shard_size_bytes: int,
    shuffle_on_read: bool,
    seed: int,
    seed2: int,
    mode: bytes,
    snapshot_name: bytes,
    ctx: StepHostContext,
) -> Elements:
    """Another pipeline has another folder below `path`, unless the snapshot has a name."""
    words = random_seeds(np.int64(seed), np.int64(seed2)) if shuffle_on_read else (0, 0)
    options = SnapshotOptions(
        compression.decode(), shard_size_bytes, mode.decode(), shuffle_on_read, words[0] << 32 ^ words[1]
    )
    name = snapshot_name.decode() or _Digests(ctx).of_inputs()
    folder = os.path.join(os.fsdecode(path.item()), name)
    return made_by(_Snapshot(dataset_of(input_dataset, ctx), folder, options), ctx)


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...


class _Digests:
    """What tells pipelines apart: types, attributes, constants, and the functions of elements, whatever their names."""

    def __init__(self, ctx: StepHostContext) -> None:
        self._ctx = ctx
        self._known: dict[StepNode, str] = {}

    def of_inputs(self) -> str:
        """Of the dataset that goes into the operation."""
        return self._of(self._ctx.op.inputs[0].op)[:32]

    def _of(self, op: StepNode) -> str:
        if op not in self._known:
            self._known[op] = ""  # an operation behind itself, in a loop
            whole = hashlib.sha256(op.type.encode())
            for key, value in sorted(op.attrs.items()):
                if not key.startswith("_"):
                    whole.update(key.encode() + b"=")
                    self._add(whole, value, op)
            for tensor in op.inputs:
                whole.update(f"{self._of(tensor.op)}:{tensor.value_index};".encode())
            self._known[op] = whole.hexdigest()
        return self._known[op]

    def _add(self, whole: _Hash, value: object, op: StepNode) -> None:
        if isinstance(value, FuncAttr):
            body = op.function(value.name)
            for number, parameter in enumerate(body.inputs):
                self._known.setdefault(parameter.op, f"parameter {number}")
            for tensor in body.outputs:
                whole.update(f"{self._of(tensor.op)}:{tensor.value_index};".encode())
        elif isinstance(value, np.ndarray):
            whole.update(f"{value.dtype}{value.shape}".encode())
            whole.update(repr(value.tolist()).encode() if value.dtype == np.object_ else value.tobytes())
        elif isinstance(value, list | tuple):
            for item in value:
                self._add(whole, item, op)
                whole.update(b",")
        else:
            whole.update(str(value).encode())


def _followed(input_dataset: Array, transformations: Array, *, ctx: OperationContext) -> Elements:
    kinds = [kind.decode() for kind in np.asarray(transformations, np.object_).reshape(-1).tolist()]
    return made_by(FollowedDataset(dataset_of(input_dataset, ctx), kinds), ctx)


_FOLLOWED: Final = "input_dataset: variant, transformations: string"
for _name in ("AssertNextDataset", "ExperimentalAssertNextDataset"):
    define_dataset(_name, _FOLLOWED).host_kernel(_followed)
