"""The nodes of a saver: `save/Const`, `save/SaveV2`, `save/RestoreV2`, `save/Assign...`, `save/restore_all`  (§4.3)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from anabranch.core.dtypes import string
from anabranch.frontend.framework import name_scope
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.proto.training_pb2 import SaverDef
from anabranch.train import saveables as things
from anabranch.train.saveables import VariablesToSave, named_saveables, saveable_objects


class BaseSaverBuilder:
    """Adds the nodes of a saver to the default graph. Override its methods to save in another way."""

    SaveSpec = things.SaveSpec
    SaveableObject = things.SaveableObject

    def __init__(self, write_version: SaverDef.CheckpointFormatVersion.ValueType = SaverDef.V2) -> None:
        self._write_version = write_version

    # ------------------------------------------------------------------ hooks
    def save_op(self, filename_tensor: Tensor, saveables: Sequence[things.SaveableObject]) -> Operation:
        """An operation that saves to the checkpoint which `filename_tensor`, a string of shape [], names."""
        specs = [spec for saveable in saveables for spec in saveable.specs]
        tensors = [spec.tensor for spec in specs]
        operation: Operation = raw.SaveV2(
            filename_tensor,
            _strings([spec.name for spec in specs], "SaveV2/tensor_names"),
            _strings([spec.slice_spec for spec in specs], "SaveV2/shape_and_slices"),
            tensors,
            name="SaveV2",
        )
        return operation

    def bulk_restore(
        self,
        filename_tensor: Tensor,
        saveables: Sequence[things.SaveableObject],
        preferred_shard: int,
        restore_sequentially: bool,
    ) -> list[Tensor]:
        """The stored tensors of all saveables, flat, read in one operation."""
        specs = [spec for saveable in saveables for spec in saveable.specs]
        tensors: list[Tensor] = raw.RestoreV2(
            filename_tensor,
            _strings([spec.name for spec in specs], "RestoreV2/tensor_names"),
            _strings([spec.slice_spec for spec in specs], "RestoreV2/shape_and_slices"),
            dtypes=[spec.dtype for spec in specs],
            name="RestoreV2",
        )
        return tensors

    # ------------------------------------------------------------------ build
    def build(
        self,
        names_to_saveables: VariablesToSave,
        reshape: bool = False,
        sharded: bool = False,
        max_to_keep: int = 5,
        keep_checkpoint_every_n_hours: float = 10000.0,
        name: str | None = None,
        restore_sequentially: bool = False,
        filename: str = "model",
    ) -> SaverDef:
        """Adds the nodes and describes them.

        Args:
            names_to_saveables: as `Saver`'s `var_list`.
            filename: the default checkpoint, of no use but that the node must have one.
            reshape, sharded, max_to_keep, keep_checkpoint_every_n_hours, name, restore_sequentially: as in `Saver`.

        Raises:
            TypeError, ValueError: something cannot be saved, or two things have one name.
        """
        saveables = saveable_objects(named_saveables(names_to_saveables))
        graph = get_default_graph()
        with name_scope(name, "save"), graph.control_dependencies(None):
            # the place that a run feeds the prefix to
            default = raw.PlaceholderWithDefault(
                convert_to_tensor(filename, name="filename/input"), shape=[], name="filename"
            )
            prefix: Tensor = raw.PlaceholderWithDefault(default, shape=[], name="Const")
            shards = _by_device(saveables) if sharded else [("", list(saveables))]
            with _read_first(graph, saveables):
                saved = (
                    self._add_sharded_save(graph, prefix, shards)
                    if sharded
                    else self._add_save(graph, prefix, saveables)
                )
            restore = self._add_restores(graph, prefix, shards, restore_sequentially, reshape, sharded)
        return SaverDef(
            filename_tensor_name=prefix.name,
            save_tensor_name=saved.name,
            restore_op_name=restore.name,
            max_to_keep=max_to_keep,
            sharded=sharded,
            keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours,
            version=self._write_version,
        )

    def _add_save(self, graph: Graph, prefix: Tensor, saveables: Sequence[things.SaveableObject]) -> Tensor:
        save = self.save_op(prefix, saveables)
        with graph.control_dependencies([save]):
            done: Tensor = raw.Identity(prefix, name="control_dependency")
            return done

    def _add_sharded_save(
        self, graph: Graph, prefix: Tensor, shards: Sequence[tuple[str, list[things.SaveableObject]]]
    ) -> Tensor:
        """Each device saves what it has under a prefix of its own; then the parts become one checkpoint."""
        count = convert_to_tensor(len(shards), name="num_shards")
        parts, saves = [], []
        for index, (device, saveables) in enumerate(shards):
            with graph.device(device or None):
                part = raw.ShardedFilename(prefix, index, count, name="ShardedFilename")
                parts.append(part)
                saves.append(self.save_op(part, saveables))
        with graph.control_dependencies(saves):
            names = raw.Pack(parts, name="MergeV2Checkpoints/checkpoint_prefixes")
            merge = raw.MergeV2Checkpoints(names, prefix, delete_old_dirs=True, name="MergeV2Checkpoints")
        with graph.control_dependencies([merge]):
            done: Tensor = raw.Identity(prefix, name="Identity")
            return done

    def _add_restores(
        self,
        graph: Graph,
        prefix: Tensor,
        shards: Sequence[tuple[str, list[things.SaveableObject]]],
        sequentially: bool,
        reshape: bool,
        sharded: bool,
    ) -> Operation:
        groups: list[Operation] = []
        for device, saveables in shards:
            with graph.device(device or None):
                assigned = self._add_restore(graph, prefix, saveables, sequentially, reshape)
                if sharded:
                    with graph.control_dependencies(assigned):
                        groups.append(raw.NoOp(name="restore_shard"))
                else:
                    groups = assigned
        with graph.control_dependencies(groups):
            everything: Operation = raw.NoOp(name="restore_all")
            return everything

    def _add_restore(
        self,
        graph: Graph,
        prefix: Tensor,
        saveables: Sequence[things.SaveableObject],
        sequentially: bool,
        reshape: bool,
    ) -> list[Operation]:
        assigned: list[Operation] = []
        tensors: list[Tensor] = [] if sequentially else self.bulk_restore(prefix, saveables, -1, False)
        at = 0
        for saveable in saveables:
            with graph.control_dependencies(assigned[-1:] if sequentially else []):
                if sequentially:
                    tensors, at = self.bulk_restore(prefix, [saveable], -1, True), 0
                values = tensors[at : at + len(saveable.specs)]
                at += len(saveable.specs)
                shapes = _static_shapes(saveable, values) if reshape else None
                assigned.append(saveable.restore(values, shapes))
        return assigned


@contextlib.contextmanager
def _read_first(graph: Graph, saveables: Sequence[things.SaveableObject]) -> Iterator[None]:
    """A block whose operations run when all is read that is to be read first."""
    specs = [spec for saveable in saveables if saveable.is_read_first for spec in saveable.specs]
    kept, read = [spec._tensor for spec in specs], list[Tensor]()
    for spec in specs:
        with graph.device(spec.device or None):
            read.append(spec.tensor)
    try:
        for spec, tensor in zip(specs, read, strict=True):
            spec._tensor = tensor
        with graph.control_dependencies(read):
            yield
    finally:
        for spec, tensor_or_function in zip(specs, kept, strict=True):
            spec._tensor = tensor_or_function


def _static_shapes(saveable: things.SaveableObject, values: Sequence[Tensor]) -> list[Any]:
    shape = getattr(saveable, "shape", None)
    if shape is None or not shape.is_fully_defined():
        raise ValueError(f"reshape=True needs the shape of {saveable.name!r} to be known, but it is {shape}")
    return [convert_to_tensor([d.value for d in shape], dtype="int64")] * len(values)


def _strings(texts: Sequence[str], name: str) -> Tensor:
    return convert_to_tensor(list(texts), string, name=name)


def _by_device(saveables: Sequence[things.SaveableObject]) -> list[tuple[str, list[things.SaveableObject]]]:
    groups: dict[str, list[things.SaveableObject]] = {}
    for saveable in saveables:
        groups.setdefault(saveable.device or "", []).append(saveable)
    return sorted(groups.items())
