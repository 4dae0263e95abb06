"""Writes SavedModels: graphs with signatures, and one set of variables and assets that they share.

saved_model.pb (or .pbtxt)    a SavedModel message: the meta graphs, told apart by their tags
variables/variables.*         a checkpoint in TensorFlow's format
assets/                       files that the graphs name
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping

from anabranch.core.compat import as_bytes
from anabranch.frontend.platform import logging
from anabranch.frontend.storage import graph_io
from anabranch.graph.collections import GraphKeys
from anabranch.graph.composite import SparseTensor
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Operation, StepRunner, Tensor
from anabranch.io import checkpoint_store, gfile, remote, tensor_bundle_writer
from anabranch.proto.graph_pb2 import DT_INVALID
from anabranch.proto.training_pb2 import MetaGraphDef, SavedModel, SignatureDef, TensorInfo
from anabranch.serving import assets, constants, signatures
from anabranch.train.saveables import all_saveable_objects
from anabranch.train.saver import Saver


class SavedModelBuilder:
    """Writes a SavedModel. `save` comes last, and makes it one: without it the directory holds no model.

    Args:
        export_dir: the directory; made if it is not there.

    Raises:
        AssertionError: it is there, and not empty.
        UnimplementedError: it is an address (gs://, ...).

    Example:
        >>> x = tf.placeholder(tf.float32, [None], name="x")
        >>> w = tf.get_variable("w", initializer=3.0)
        >>> y = tf.multiply(x, w, name="y")
        >>> sess.run(w.initializer)
        >>> builder = tf.saved_model.Builder("directory/model")
        >>> signature = tf.saved_model.predict_signature_def({"x": x}, {"y": y})
        >>> builder.add_meta_graph_and_variables(sess, ["serve"], {"serving_default": signature})
        >>> builder.save()
        b'directory/model/saved_model.pb'
    """

    def __init__(self, export_dir: str) -> None:
        self._export_dir = os.fsdecode(export_dir)
        remote.refuse(self._export_dir, "SavedModels")
        self._saved_model = SavedModel(saved_model_schema_version=constants.SAVED_MODEL_SCHEMA_VERSION)
        if gfile.exists(self._export_dir):
            if gfile.listdir(self._export_dir):
                raise AssertionError(
                    "Export directory already exists, and isn't empty. Please choose a different export directory, or "
                    f"delete all the contents of the specified directory: {self._export_dir}"
                )
        else:
            gfile.makedirs(self._export_dir)
        self._has_saved_variables = False
        #: the graph whose variables were saved, with its main operation and its assets
        self._first: tuple[Graph, Operation | None, list[Tensor]] | None = None

    def add_meta_graph_and_variables(
        self,
        sess: StepRunner,
        tags: Iterable[str],
        signature_def_map: Mapping[str, SignatureDef] | None = None,
        assets_collection: Iterable[Tensor] | None = None,
        legacy_init_op: Operation | None = None,
        clear_devices: bool = False,
        main_op: Operation | None = None,
        strip_default_attrs: bool = False,
        saver: Saver | None = None,
    ) -> None:
        """Adds the session's graph, and saves its variables and assets. Call it once, before `add_meta_graph`.

        Args:
            sess: the session.
            tags: by which the graph is found when the model is loaded.
            signature_def_map: signatures by name.
            assets_collection: constant tensors that hold the paths of files.
            legacy_init_op: as `main_op`, which is the newer name.
            clear_devices: leave devices out.
            main_op: runs when the model has been loaded, to initialize tables for example.
            strip_default_attrs: leave out attributes that have their default.
            saver: saves the variables; default: one for all global variables.

        Raises:
            AssertionError: variables were saved already, or a signature lacks a name or dtype.
            KeyError: a signature has a name that is reserved.
            TypeError: an operation, a saver or an asset is none.
            ValueError: the graph has a main operation already.
            OpError: variables or assets cannot be read or written.
        """
        if self._has_saved_variables:
            raise AssertionError(
                "Graph state including variables and assets has already been saved. Please invoke `add_meta_graph()` "
                "instead."
            )
        _check_signatures(signature_def_map or {})
        main_op = main_op if main_op is not None else legacy_init_op
        asset_tensors = list(assets_collection or ())
        with sess.graph.as_default():
            saver = _saver(saver)
            message, files = _describe(
                *(saver, tags, signature_def_map, asset_tensors, main_op, clear_devices, strip_default_attrs)
            )
            self._copy_assets(files)
            self._save_variables(sess, saver)
        self._saved_model.meta_graphs.append(message)
        self._has_saved_variables = True
        self._first = (sess.graph, main_op, asset_tensors)

    def add_meta_graph(
        self,
        tags: Iterable[str],
        signature_def_map: Mapping[str, SignatureDef] | None = None,
        assets_collection: Iterable[Tensor] | None = None,
        legacy_init_op: Operation | None = None,
        clear_devices: bool = False,
        main_op: Operation | None = None,
        strip_default_attrs: bool = False,
        saver: Saver | None = None,
    ) -> None:
        """Adds the default graph, which is to use the variables that `add_meta_graph_and_variables` has saved.

        Arguments and errors are those of that method. A main operation and assets that were given there serve here too,
        if it is the same graph and no others are given.

        Raises:
            AssertionError: variables were not saved yet.
        """
        if not self._has_saved_variables:
            raise AssertionError(
                "Graph state including variables and assets has not been saved yet. Please invoke "
                "`add_meta_graph_and_variables()` first."
            )
        _check_signatures(signature_def_map or {})
        main_op = main_op if main_op is not None else legacy_init_op
        asset_tensors = list(assets_collection or ())
        if self._first is not None and self._first[0] is get_default_graph():
            main_op = main_op if main_op is not None else self._first[1]
            asset_tensors = asset_tensors or self._first[2]
        message, files = _describe(
            *(_saver(saver), tags, signature_def_map, asset_tensors, main_op, clear_devices, strip_default_attrs)
        )
        self._copy_assets(files)
        self._saved_model.meta_graphs.append(message)

    def save(self, as_text: bool = False) -> bytes:
        """Writes the message, atomically, as text if `as_text`; returns its path."""
        name = constants.SAVED_MODEL_FILENAME_PBTXT if as_text else constants.SAVED_MODEL_FILENAME_PB
        path = os.path.join(self._export_dir, name)
        gfile.makedirs(self._export_dir)
        graph_io.write_message(self._saved_model, path, as_text)
        logging.info("SavedModel written to: %s", path)
        return as_bytes(path)

    def _copy_assets(self, files: Mapping[str, str]) -> None:
        folder = os.path.join(self._export_dir, constants.ASSETS_DIRECTORY)
        if files:
            gfile.makedirs(folder)
        for name, source in files.items():
            gfile.copy(source, os.path.join(folder, name), overwrite=True)

    def _save_variables(self, sess: StepRunner, saver: Saver) -> None:
        """Saves beside, in the format that savers write, and turns that into TensorFlow's."""
        folder = os.path.join(self._export_dir, constants.VARIABLES_DIRECTORY)
        gfile.makedirs(folder)
        aside = tempfile.mkdtemp(prefix=".variables.", dir=self._export_dir)
        try:
            own = os.path.join(aside, constants.VARIABLES_FILENAME)
            saved = saver.save(sess, own, write_meta_graph=False, write_state=False)
            if saved is None:  # there are no variables
                return
            with checkpoint_store.open_checkpoint(saved) as reader:
                tensor_bundle_writer.write_bundle(
                    os.path.join(folder, constants.VARIABLES_FILENAME),
                    ((name, reader.read_tensor(name, copy=False)) for name in reader.names()),
                )
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def simple_save(
    session: StepRunner,
    export_dir: str,
    inputs: Mapping[str, Tensor | SparseTensor],
    outputs: Mapping[str, Tensor | SparseTensor],
    legacy_init_op: Operation | None = None,
) -> None:
    """Writes a session's graph and variables as a SavedModel that serves predictions.

    Args:
        session: the session.
        export_dir: the directory; made if it is not there.
        inputs, outputs: tensors by the names that clients use.
        legacy_init_op: runs when the model has been loaded.

    Raises:
        AssertionError: the directory is there, and not empty.
        ValueError: there are no inputs, or no outputs.
        OpError: variables cannot be read or written.

    Example:
        >>> x = tf.placeholder(tf.float32, [None], name="x")
        >>> w = tf.get_variable("w", initializer=3.0)
        >>> y = tf.multiply(x, w, name="y")
        >>> sess.run(w.initializer)
        >>> tf.saved_model.simple_save(sess, "directory/model", {"x": x}, {"y": y})
        >>> with tf.Graph().as_default(), tf.Session() as other:
        ...     _ = tf.saved_model.loader.load(other, ["serve"], "directory/model")
        ...     other.run("y:0", {"x:0": [2.0]})
        array([6.], dtype=float32)
    """
    signature = signatures.predict_signature_def(inputs, outputs)
    builder = SavedModelBuilder(export_dir)
    builder.add_meta_graph_and_variables(
        session,
        [constants.SERVING],
        {constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY: signature},
        assets_collection=session.graph.get_collection(GraphKeys.ASSET_FILEPATHS),
        main_op=legacy_init_op,
        clear_devices=True,
    )
    builder.save()


def _saver(saver: Saver | None) -> Saver:
    if saver is None:
        return Saver(all_saveable_objects(), sharded=True, allow_empty=True)
    if not isinstance(saver, Saver):
        raise TypeError(f"Saver provided should be a tf.train.Saver, got {saver!r}")
    return saver


def _describe(
    saver: Saver,
    tags: Iterable[str],
    signature_def_map: Mapping[str, SignatureDef] | None,
    assets_collection: Iterable[Tensor] | None,
    main_op: Operation | None,
    clear_devices: bool,
    strip_default_attrs: bool,
) -> tuple[MetaGraphDef, dict[str, str]]:
    """The default graph as a meta graph, and the assets to copy: paths by their names in the model."""
    if main_op is not None and not isinstance(main_op, Operation):
        raise TypeError(f"main_op needs to be an Operation: {main_op!r}")
    keys = (constants.MAIN_OP_KEY, constants.LEGACY_INIT_OP_KEY)
    present = [key for key in keys if get_default_graph().get_collection(key)]
    if main_op is not None and present:
        raise ValueError(
            f"Graph already contains one or more main ops under the collection {present[0]}; clear that collection"
        )
    message = saver.export_meta_graph(clear_devices=clear_devices, strip_default_attrs=strip_default_attrs)
    message.meta_info_def.tags.extend([tags] if isinstance(tags, str) else tags)
    for name, signature in (signature_def_map or {}).items():
        message.signature_def[name].CopyFrom(signature)
    if main_op is not None:
        message.collection_def[constants.MAIN_OP_KEY].node_list.value.append(main_op.name)
    return message, assets.list_assets(message, assets_collection or ())


def _check_signatures(by_name: Mapping[str, SignatureDef]) -> None:
    for name, signature in by_name.items():
        if name in (constants.INIT_OP_SIGNATURE_KEY, constants.TRAIN_OP_SIGNATURE_KEY):
            raise KeyError(f"SignatureDef map key {name!r} is reserved for internal use.")
        for infos in (signature.inputs, signature.outputs):
            for key, info in infos.items():
                _check_info(f"{key!r} of signature {name!r}", info)


def _check_info(what: str, info: TensorInfo) -> None:
    encoding = info.WhichOneof("encoding")
    if encoding is None or (encoding == "name" and not info.name):
        raise AssertionError(
            f"TensorInfo protos used in the SignatureDefs must have the name field set: {what} has none.\n{info}"
        )
    if encoding != "composite_tensor" and info.dtype == DT_INVALID:
        raise AssertionError(
            f"TensorInfo protos used in the SignatureDefs must have the dtype field set: {what} has none.\n{info}"
        )
