"""Saver: saving and restoring variables, and keeping the last few checkpoints  (§4.3)."""

from __future__ import annotations

import operator
import os
import threading
import time
from collections.abc import Container, Sequence
from typing import Any

from anabranch import errors
from anabranch.core.compat import as_text
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.platform import logging
from anabranch.graph.collections import GraphKeys
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation, StepRunner, Tensor
from anabranch.io import checkpoint_state, checkpoint_store, checkpoint_writer
from anabranch.io.tensor_reader import TensorReader
from anabranch.proto.training_pb2 import MetaGraphDef, SaverDef
from anabranch.train import checkpoint_management, meta_graph, restoring
from anabranch.train.saveables import VariablesToSave, all_saveable_objects
from anabranch.train.saver_builder import BaseSaverBuilder
from anabranch.train.training_util import global_step as value_of_global_step


class Saver:
    """Saves variables to checkpoints and restores them, by operations of the graph.

    A save writes aside, makes its files durable and is committed by one rename: a checkpoint is there whole or not at
    all, and a process that restores while another saves gets one of the two versions, whole. With a limit on their
    number, old checkpoints are removed as new ones are saved.

    Args:
        var_list: variables (and partitioned variables, and `SaveableObject`s) to save under their own names, or a
            dictionary from names in the checkpoint to these. Default: all global variables.
        reshape: restore also from another shape with as many elements.
        sharded: each device writes the variables it has; the parts are merged into one checkpoint.
        max_to_keep: how many checkpoints to keep; 0 or None keeps all, but remembers only the last.
        keep_checkpoint_every_n_hours: one checkpoint of each such stretch of time is kept for ever.
        name: scope of the operations; default "save".
        restore_sequentially: restore one variable after the other, which needs less memory at once.
        saver_def: describes operations that are in the graph already; none are added then.
        builder: adds the operations; default `BaseSaverBuilder`.
        defer_build: wait for `build()`.
        allow_empty: allow that there is nothing to save; such a saver does nothing.
        write_version: ignored: there is one format.
        pad_step_number: write the step with 8 digits, so that names sort as numbers do.
        save_relative_paths: write relative paths to the `checkpoint` file, so that the directory can be moved.
        filename: the name of the file in the graph when none is fed.

    Raises:
        ValueError: there is nothing to save, two things have one name, or `saver_def` describes nothing.
        TypeError: something given cannot be saved.

    Example:
        >>> v = tf.get_variable("v", initializer=1.0)
        >>> saver = tf.train.Saver()
        >>> sess.run(v.initializer)
        >>> path = saver.save(sess, "runs/model", global_step=7)
        >>> sess.run(tf.assign(v, 5.0))
        np.float32(5.0)
        >>> saver.restore(sess, path)
        >>> path, sess.run(v)
        ('runs/model-7', np.float32(1.0))
    """

    def __init__(
        self,
        var_list: VariablesToSave | None = None,
        reshape: bool = False,
        sharded: bool = False,
        max_to_keep: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000.0,
        name: str | None = None,
        restore_sequentially: bool = False,
        saver_def: SaverDef | None = None,
        builder: BaseSaverBuilder | None = None,
        defer_build: bool = False,
        allow_empty: bool = False,
        write_version: SaverDef.CheckpointFormatVersion.ValueType = SaverDef.V2,
        pad_step_number: bool = False,
        save_relative_paths: bool = False,
        filename: str | None = None,
    ) -> None:
        if defer_build and var_list:
            raise ValueError(
                "If `var_list` is provided then build cannot be deferred. "
                "Either set defer_build=False or var_list=None."
            )
        self._var_list = var_list
        self._reshape = reshape
        self._sharded = sharded
        self._max_to_keep = max_to_keep or 0
        self._keep_hours = keep_checkpoint_every_n_hours
        self._name = name
        self._restore_sequentially = restore_sequentially
        self.saver_def: SaverDef | None = saver_def
        self._builder = builder
        self._allow_empty = allow_empty
        self._is_empty = False
        self._is_built = False
        self._write_version = write_version
        self._pad_step_number = pad_step_number
        self._save_relative_paths = save_relative_paths
        self._filename = filename
        # a program may save beside the thread of a `Supervisor` that does: the second waits for the first, since both
        # write the directory's state, and perhaps the same checkpoint. One that a save calls may save
        self._saving = threading.RLock()
        #: prefixes of checkpoints that may be removed some day, oldest first, with the time of each save
        self._last_checkpoints: list[tuple[str, float]] = []
        self._to_be_removed: list[tuple[str, float]] = []
        #: what the state in the directory names as the latest, as far as this saver knows
        self._latest_written: str | None = None
        #: what was restored last, until the next save
        self._restored: str | None = None
        if not defer_build:
            self.build()
        if self.saver_def is not None:
            _check_saver_def(self.saver_def)

    # ------------------------------------------------------------------ building
    def build(self) -> None:
        """Adds the operations, if that was deferred.

        Raises:
            ValueError: as the constructor.
        """
        if self._is_built:
            return
        self._is_built = True
        if self.saver_def is None:
            self._build_nodes()
        elif self._name:
            self.saver_def = _scoped(self.saver_def, self._name)
        if not self._is_empty:
            _check_saver_def(self.saver_def)
            assert self.saver_def is not None
            self._next_checkpoint_time = time.time() + self.saver_def.keep_checkpoint_every_n_hours * 3600

    def _build_nodes(self) -> None:
        if self._var_list is None:
            self._var_list = all_saveable_objects()
        if not self._var_list:
            if not self._allow_empty:
                raise ValueError("No variables to save; create them before the Saver, or set allow_empty=True")
            self._is_empty = True
            return
        builder = self._builder or BaseSaverBuilder(self._write_version)
        self.saver_def = builder.build(
            self._var_list,
            reshape=self._reshape,
            sharded=self._sharded,
            max_to_keep=self._max_to_keep,
            keep_checkpoint_every_n_hours=self._keep_hours,
            name=self._name,
            restore_sequentially=self._restore_sequentially,
            filename=self._filename or "model",
        )

    def _definition(self, action: str) -> SaverDef:
        if not self._is_built:
            raise RuntimeError(f"`build()` should be called before {action} if defer_build==True")
        assert self.saver_def is not None
        return self.saver_def

    # ------------------------------------------------------------------ saving
    def save(
        self,
        sess: StepRunner,
        save_path: str,
        global_step: TensorLike | None = None,
        latest_filename: str | None = None,
        meta_graph_suffix: str = "meta",
        write_meta_graph: bool = True,
        write_state: bool = True,
        strip_default_attrs: bool = False,
        save_debug_info: bool = False,
    ) -> str | None:
        """Saves the variables' values in a session.

        Args:
            sess: the session.
            save_path: prefix of the checkpoint's files, such as "logs/model.ckpt".
            global_step: a number (or the tensor or variable that holds it) to append to the prefix.
            latest_filename: name of the file that tells the latest checkpoint; default "checkpoint".
            meta_graph_suffix: of the file with the graph beside the checkpoint.
            write_meta_graph: whether to write the graph.
            write_state: whether to write that file.
            strip_default_attrs: leave attributes that have their default out of the written graph.
            save_debug_info: ignored.

        Returns:
            The prefix of the checkpoint; None if the saver is empty.

        Raises:
            TypeError: `sess` is not a session.
            ValueError: the directory cannot be made, or `latest_filename` is a path or collides with `save_path`.
            FailedPreconditionError: a variable is not initialized.
            OpError: the checkpoint cannot be written; one that was there before is as it was.

        Example:
            >>> v = tf.get_variable("v", initializer=1.0)
            >>> saver = tf.train.Saver()
            >>> sess.run(v.initializer)
            >>> saver.save(sess, "runs/model", global_step=100)
            'runs/model-100'
        """
        if not self._is_empty:
            self._definition("save")
        save_path = _local_path(save_path)
        prefix = self._checkpoint_prefix(sess, save_path, global_step, latest_filename)
        saved: str | None = None
        if not self._is_empty:
            with self._saving:
                saved = self._run_save(sess, prefix, save_path)
                if write_state:
                    self._update_state(saved, save_path, latest_filename, meta_graph_suffix)
        if write_meta_graph:
            with sess.graph.as_default():
                self.export_meta_graph(
                    checkpoint_management.meta_graph_filename(prefix, meta_graph_suffix),
                    strip_default_attrs=strip_default_attrs,
                )
        return saved

    def _checkpoint_prefix(
        self, sess: StepRunner, save_path: str, global_step: TensorLike, latest_filename: str | None
    ) -> str:
        latest = latest_filename or checkpoint_state.DEFAULT_FILENAME
        if os.path.split(latest)[0]:
            raise ValueError("'latest_filename' must not contain path components")
        if not callable(getattr(sess, "run", None)) or not hasattr(sess, "graph"):
            raise TypeError(f"'sess' must be a Session; {sess}")
        if global_step is None:
            if os.path.basename(save_path) == latest and not self._sharded:
                raise ValueError(f"'latest_filename' collides with 'save_path': {latest!r} and {save_path!r}")
            return save_path
        step = _number(global_step)
        if step is None:
            step = value_of_global_step(sess, global_step)
        return f"{save_path}-{step:08d}" if self._pad_step_number else f"{save_path}-{step}"

    def _run_save(self, sess: StepRunner, prefix: str, save_path: str) -> str:
        definition = self._definition("save")
        try:
            saved = sess.run(definition.save_tensor_name, {definition.filename_tensor_name: prefix})
        except (errors.FailedPreconditionError, errors.NotFoundError) as error:
            checkpoint_writer.remove_parts(prefix)
            directory = os.path.dirname(save_path)
            if directory and not os.path.isdir(directory):
                raise ValueError(f"Parent directory of {save_path} doesn't exist, can't save.") from error
            raise
        except BaseException:
            # nothing of the step runs any more: what its tasks wrote is part of nothing
            checkpoint_writer.remove_parts(prefix)
            raise
        return as_text(saved.item() if hasattr(saved, "item") else saved)

    def _update_state(self, saved: str, save_path: str, latest_filename: str | None, meta_graph_suffix: str) -> None:
        """Notes a checkpoint, and removes those that are kept no longer."""
        self._recover_own(save_path, latest_filename)
        self._record(saved)
        if any(prefix == self._latest_written for prefix, _ in self._to_be_removed):
            # the state must not name what is gone as the latest
            self._write_state(save_path, saved, latest_filename, self._to_be_removed)
        # before the state forgets them: a process that dies in between leaves them to the next one
        self._remove_old(meta_graph_suffix)
        self._write_state(save_path, saved, latest_filename)
        self._latest_written = saved

    def _write_state(
        self, save_path: str, saved: str, latest_filename: str | None, doomed: Sequence[tuple[str, float]] = ()
    ) -> None:
        known = [*doomed, *self._last_checkpoints]
        checkpoint_state.write_checkpoint_state(
            os.path.dirname(save_path),
            saved,
            [prefix for prefix, _ in known],
            latest_filename,
            all_model_checkpoint_timestamps=[t for _, t in known] or None,
            save_relative_paths=self._save_relative_paths,
        )

    # ------------------------------------------------------------------ retention
    def _recover_own(self, save_path: str, latest_filename: str | None) -> None:
        """Takes over the checkpoints that the process before this one left, whose work this saver continues.

        That is the case where it restored a checkpoint from the directory and under the name that it saves to. What
        that process was saving when it died goes.
        """
        restored, self._restored = self._restored, None
        if restored is None or not restored.startswith(os.fsdecode(save_path)):
            return
        if not self._last_checkpoints:
            state = checkpoint_state.read_checkpoint_state(os.path.dirname(save_path), latest_filename)
            known = list(state.all_model_checkpoint_paths) if state is not None else []
            if restored in known:
                self.recover_last_checkpoints(known)
        checkpoint_writer.sweep_uncommitted(save_path)

    def _record(self, prefix: str) -> None:
        definition = self._definition("save")
        if not definition.max_to_keep:
            return
        self._last_checkpoints = [entry for entry in self._last_checkpoints if entry[0] != prefix]
        self._last_checkpoints.append((prefix, time.time()))
        while len(self._last_checkpoints) > definition.max_to_keep:  # a process that died may have left several
            self._to_be_removed.append(self._last_checkpoints.pop(0))

    def _remove_old(self, meta_graph_suffix: str) -> None:
        definition = self._definition("save")
        while self._to_be_removed:
            prefix, saved_at = self._to_be_removed.pop(0)
            if saved_at > self._next_checkpoint_time:
                self._next_checkpoint_time += definition.keep_checkpoint_every_n_hours * 3600
                continue
            try:
                checkpoint_management.remove_checkpoint(prefix, definition.version, meta_graph_suffix)
            except errors.OpError as error:
                logging.warning("Ignoring: %s", error)

    @property
    def last_checkpoints(self) -> list[str]:
        """The prefixes of the checkpoints that are kept for now, oldest first."""
        return [prefix for prefix, _ in self._last_checkpoints]

    def set_last_checkpoints(self, last_checkpoints: Sequence[str]) -> None:
        """Replaces what `last_checkpoints` returns. The times are not known: these are never removed for their age."""
        if not isinstance(last_checkpoints, list):
            raise AssertionError(f"last_checkpoints must be a list, got {last_checkpoints!r}")
        self._last_checkpoints = [(prefix, float("inf")) for prefix in last_checkpoints]

    def set_last_checkpoints_with_time(self, last_checkpoints_with_time: Sequence[tuple[str, float]]) -> None:
        """Replaces what `last_checkpoints` returns; each prefix comes with its time, in seconds since 1970."""
        if not isinstance(last_checkpoints_with_time, list):
            raise AssertionError(f"last_checkpoints_with_time must be a list, got {last_checkpoints_with_time!r}")
        self._last_checkpoints = list(last_checkpoints_with_time)

    def recover_last_checkpoints(self, checkpoint_paths: Sequence[str]) -> None:
        """Remembers those of `checkpoint_paths` that exist: for a process that continues another's work."""
        times = {path: checkpoint_management.get_checkpoint_mtimes([path]) for path in checkpoint_paths}
        self.set_last_checkpoints_with_time(
            [(path, times_of_files[0]) for path, times_of_files in times.items() if times_of_files]
        )
        self._latest_written = checkpoint_paths[-1] if checkpoint_paths else None

    # ------------------------------------------------------------------ restoring
    def restore(self, sess: StepRunner, save_path: str | None) -> None:
        """Sets the variables to what a checkpoint holds. They need not be initialized.

        What the checkpoint lacks, or has in another shape, is found before anything is restored. Of a checkpoint that
        `tf.train.Checkpoint` wrote, variables are found by the names that they had.

        Args:
            sess: the session.
            save_path: the checkpoint's prefix, as `save` returned it or `latest_checkpoint` finds it.

        Raises:
            ValueError: there is no checkpoint of that prefix.
            NotFoundError: tensors are missing in it; the message lists all, with the closest names it has.
            InvalidArgumentError: tensors have other shapes or dtypes; the message lists all.
            DataLossError: it is damaged.

        Example:
            >>> v = tf.get_variable("v", initializer=1.0)
            >>> saver = tf.train.Saver()
            >>> sess.run(v.initializer)
            >>> path = saver.save(sess, "runs/model")
            >>> with tf.Session() as later:
            ...     saver.restore(later, path)
            ...     later.run(v)
            np.float32(1.0)
        """
        self._restore(sess, save_path, None)

    def restore_devices(self, sess: StepRunner, save_path: str, devices: Container[str]) -> None:
        """Does what `restore` does, for the variables of some devices only.

        Args:
            sess: the session.
            save_path: the checkpoint's prefix.
            devices: as the variables ask for them.

        Raises:
            ValueError, OpError: as `restore`.
        """
        self._restore(sess, save_path, devices)

    def _restore(self, sess: StepRunner, save_path: str | None, devices: Container[str] | None) -> None:
        if self._is_empty:
            return
        definition = self._definition("restore")
        if save_path is None:
            raise ValueError(
                "Can't load save_path when it is None. latest_checkpoint returns None where it finds no checkpoint: "
                "check the directory"
            )
        prefix = _local_path(save_path)
        if not checkpoint_store.checkpoint_exists(prefix):
            raise ValueError(
                f"The passed save_path is not a valid checkpoint: {prefix}. tf.train.latest_checkpoint finds "
                "those of a directory"
            )
        logging.info("Restoring parameters from %s", prefix)
        reader = self._opened(sess, prefix)
        try:
            with reader:
                # of a checkpoint of objects, by the names that it has for its variables
                feeds: dict[Any, Any] = dict(
                    restoring.feeds_for_objects(sess.graph, definition.restore_op_name, reader)
                )
                restoring.check_fits(sess.graph, definition.restore_op_name, reader, feeds)
            everything = sess.graph.get_operation_by_name(definition.restore_op_name)
            # each of what it waits for restores a shard, or a variable
            chosen = [op for op in everything.control_inputs if devices is not None and _device_of(op) in devices]
            feeds[definition.filename_tensor_name] = prefix
            sess.run(everything if devices is None else chosen, feeds)
            self._restored = prefix
        except errors.NotFoundError as error:
            raise restoring.explained(error, "a Variable name or other graph key that is missing") from error
        except errors.InvalidArgumentError as error:
            raise restoring.explained(error, "a mismatch between the current graph and the graph") from error

    def _opened(self, sess: StepRunner, prefix: str) -> TensorReader:
        try:
            return checkpoint_store.open_checkpoint(prefix)
        except errors.OpError as error:
            error.attribute_to(sess.graph.get_operation_by_name(self._definition("restore").restore_op_name))
            raise

    # ------------------------------------------------------------------ description
    def as_saver_def(self) -> SaverDef | None:
        """The SaverDef message that describes this saver's operations."""
        return self.saver_def

    def to_proto(self, export_scope: str | None = None) -> SaverDef | None:
        """The same, with names relative to `export_scope`; None for a saver outside it."""
        if export_scope is None:
            return self.saver_def
        definition = self.saver_def
        if definition is None or not definition.filename_tensor_name.startswith(export_scope + "/"):
            return None
        relative = SaverDef()
        relative.CopyFrom(definition)
        for field in ("filename_tensor_name", "save_tensor_name", "restore_op_name"):
            setattr(relative, field, getattr(definition, field).removeprefix(export_scope + "/"))
        return relative

    @staticmethod
    def from_proto(saver_def: SaverDef, import_scope: str | None = None) -> Saver:
        """A saver for operations that are in the graph already."""
        return Saver(saver_def=saver_def, name=import_scope)

    def _add_collection_def(self, meta_graph_def: MetaGraphDef, key: str, export_scope: str | None = None) -> None:
        """Writes a collection of the default graph into a meta graph, or warns where that cannot be done."""
        meta_graph.add_collection(meta_graph_def, key, get_default_graph().get_collection(key), export_scope)

    def export_meta_graph(
        self,
        filename: str | None = None,
        collection_list: Sequence[str] | None = None,
        as_text: bool = False,
        export_scope: str | None = None,
        clear_devices: bool = False,
        clear_extraneous_savers: bool = False,
        strip_default_attrs: bool = False,
        save_debug_info: bool = False,
    ) -> MetaGraphDef:
        """Writes the default graph with this saver's description; see `tf.train.export_meta_graph`."""
        return meta_graph.export_meta_graph(
            filename=filename,
            saver_def=self.saver_def,
            collection_list=collection_list,
            as_text=as_text,
            export_scope=export_scope,
            clear_devices=clear_devices,
            clear_extraneous_savers=clear_extraneous_savers,
            strip_default_attrs=strip_default_attrs,
            save_debug_info=save_debug_info,
        )


meta_graph.register_proto_function(GraphKeys.SAVERS, SaverDef, Saver.to_proto, Saver.from_proto)


def import_meta_graph(
    meta_graph_or_file: MetaGraphDef | str,
    clear_devices: bool = False,
    import_scope: str | None = None,
    **kwargs: PassedOn,
) -> Saver | None:
    """Adds the graph of a meta graph to the default graph, with its collections.

    Args:
        meta_graph_or_file: a MetaGraphDef, or the path of a file that `export_meta_graph` or `Saver.save` wrote.
        clear_devices: ignore the devices of its nodes.
        import_scope: name scope for what is added.
        kwargs: `input_map` and the other arguments of `import_graph_def` that `import_scoped_meta_graph` takes.

    Returns:
        The saver that the meta graph describes; a new one for the variables if it describes none; None if there are no
        variables either.

    Raises:
        OSError: there is no such file.
        DataLossError: it holds no meta graph, or a collection in it is damaged.
        KeyError: a collection names what the graph does not have.
        ValueError: as `import_graph_def`.

    Example:
        >>> v = tf.get_variable("v", initializer=1.0)
        >>> sess.run(v.initializer)
        >>> path = tf.train.Saver().save(sess, "runs/model")
        >>> with tf.Graph().as_default(), tf.Session() as other:
        ...     saver = tf.train.import_meta_graph("runs/model.meta")
        ...     saver.restore(other, path)
        ...     other.run("v:0")
        np.float32(1.0)
    """
    if isinstance(meta_graph_or_file, MetaGraphDef):
        message = meta_graph_or_file
    else:
        message = meta_graph.read_meta_graph_file(os.fsdecode(meta_graph_or_file))
    if message.HasField("saver_def"):
        _check_saver_def(message.saver_def)  # before the graph grows
    imported = meta_graph.import_scoped_meta_graph(message, clear_devices, import_scope=import_scope, **kwargs)
    if message.HasField("saver_def"):
        scope = import_scope
        for name, variable in imported.items():
            # the scope may have been made unique
            scope = variable.name.rpartition(":")[0].removesuffix(name).rstrip("/")
            break
        return Saver(saver_def=message.saver_def, name=scope)
    return Saver() if all_saveable_objects(import_scope) else None


def _check_saver_def(definition: object) -> None:
    if not isinstance(definition, SaverDef):
        raise ValueError(f"saver_def must be a saver_pb2.SaverDef: {definition}")
    if not definition.save_tensor_name:
        raise ValueError(f"saver_def must specify the save_tensor_name: {definition}")
    if not definition.restore_op_name:
        raise ValueError(f"saver_def must specify the restore_op_name: {definition}")


def _device_of(restoring: Operation) -> str:
    """Where an operation restores: a group of a shard is there itself, others have the handle of what they restore."""
    return restoring.inputs[0].device if restoring.inputs else restoring.device


def _number(step: TensorLike) -> int | None:
    """A step given as a number; None for a tensor, a variable or a name of one."""
    if isinstance(step, Tensor):
        return None
    try:
        return operator.index(step)
    except TypeError:
        return None


def _scoped(definition: SaverDef, scope: str) -> SaverDef:
    scoped = SaverDef()
    scoped.CopyFrom(definition)
    for field in ("filename_tensor_name", "save_tensor_name", "restore_op_name"):
        setattr(scoped, field, f"{scope.rstrip('/')}/{getattr(definition, field)}")
    return scoped


def _local_path(path: str | os.PathLike[str]) -> str:
    """A path of local files, which may be written as `file://path`."""
    return as_text(os.fsdecode(path)).removeprefix("file://")
