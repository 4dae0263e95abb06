"""Reads SavedModels into the graph of a session. What is read is checked before the graph grows."""

from __future__ import annotations

import os
from collections.abc import Iterable

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from anabranch import errors
from anabranch.core.compat import as_text
from anabranch.core.values import PassedOn
from anabranch.frontend.platform import logging
from anabranch.graph.graph import Graph
from anabranch.graph.operation import Operation, StepRunner
from anabranch.io import checkpoint_store, durable, os_errors, remote
from anabranch.proto.texts import parse_text
from anabranch.proto.training_pb2 import MetaGraphDef, SavedModel
from anabranch.serving import assets, constants
from anabranch.train.saver import import_meta_graph

_MAX_BYTES = (1 << 31) - 1  # What a message may have.


def maybe_saved_model_directory(export_dir: str) -> bool:
    """Whether a directory holds a file of a SavedModel's name."""
    return _file_of(os.fsdecode(export_dir)) is not None


def contains_saved_model(export_dir: str) -> bool:
    """Whether a directory holds a file of a SavedModel's name; it may still be damaged."""
    return maybe_saved_model_directory(export_dir)


def parse_saved_model(export_dir: str) -> SavedModel:
    """The message of a SavedModel.

    Raises:
        OSError: there is none in that directory.
        DataLossError: it is damaged, or too long.
        UnimplementedError: it has a version that is not known; or the directory is an address (gs://, ...).
    """
    folder = os.fsdecode(export_dir)
    remote.refuse(folder, "SavedModels")
    path = _file_of(folder)
    if path is None:
        names = f"{constants.SAVED_MODEL_FILENAME_PBTXT} nor {constants.SAVED_MODEL_FILENAME_PB}"
        raise OSError(f"SavedModel file does not exist at: {folder}: it holds neither {names}")
    message = SavedModel()
    try:
        data = _contents(path)
        if path.endswith(constants.SAVED_MODEL_FILENAME_PB):
            message.ParseFromString(data)
        else:
            parse_text(data.decode("utf-8"), message)
    except (DecodeError, UnicodeDecodeError, text_format.ParseError, RecursionError) as error:
        raise _damaged(path, f"it is no SavedModel message: {error}") from error
    version = message.saved_model_schema_version
    if version > constants.SAVED_MODEL_SCHEMA_VERSION or version < 0:
        raise errors.UnimplementedError(
            None,
            None,
            f"{path!r} has schema version {version}; this reads version {constants.SAVED_MODEL_SCHEMA_VERSION}. Export "
            "the model with TensorFlow 1 or 2.",
        )
    if not message.meta_graphs:
        raise _damaged(path, "it holds no meta graph")
    return message


def load(
    sess: StepRunner,
    tags: Iterable[str],
    export_dir: str,
    import_scope: str | None = None,
    **saver_kwargs: PassedOn,
) -> MetaGraphDef:
    """Adds a graph of a SavedModel to a session's graph, restores its variables and runs its main operation.

    Files, tags and assets are checked before the graph grows. If what follows fails (a variable's data are damaged,
    say) the graph keeps the operations: take a new one for the next attempt.

    Args:
        sess: the session.
        tags: of the graph, all of them.
        export_dir: the model's directory.
        import_scope: name scope for all that is added; the signatures name tensors without it.
        saver_kwargs: further arguments of `tf.train.import_meta_graph`.

    Returns:
        The graph's MetaGraphDef; its `signature_def` says which tensors to feed and fetch.

    Raises:
        OSError: the directory holds no SavedModel.
        RuntimeError: no graph has these tags, or it has several main operations.
        DataLossError: a file is damaged.
        UnimplementedError: the version is not known.
        InvalidArgumentError: an asset is outside the directory, or what restores or initializes the model is not there.
        NotFoundError: an asset or the variables are missing.
        ValueError: the graph cannot be imported, as for `tf.import_graph_def`.

    Example:
        >>> x = tf.placeholder(tf.float32, [None], name="x")
        >>> w = tf.get_variable("w", initializer=3.0)
        >>> y = tf.multiply(x, w, name="y")
        >>> sess.run(w.initializer)
        >>> tf.saved_model.simple_save(sess, "directory/model", {"x": x}, {"y": y})
        >>> with tf.Graph().as_default(), tf.Session() as other:
        ...     model = tf.saved_model.loader.load(other, ["serve"], "directory/model")
        ...     outputs = model.signature_def["serving_default"].outputs
        ...     other.run(outputs["y"].name, {"x:0": [2.0]})
        array([6.], dtype=float32)
    """
    folder = os.fsdecode(export_dir)
    message = _graph_of(parse_saved_model(folder), tags, folder)
    asset_paths = assets.asset_paths(message, folder)
    main = _main_op_name(message)
    variables = os.path.join(folder, constants.VARIABLES_DIRECTORY, constants.VARIABLES_FILENAME)
    _check_names(message, main, folder)
    if message.HasField("saver_def"):
        _check_variables(variables)
    with sess.graph.as_default():
        saver = import_meta_graph(message, import_scope=import_scope, **saver_kwargs)
        if saver is None:
            logging.info("The specified SavedModel has no variables; no checkpoints were restored.")
        else:
            saver.restore(sess, variables)
        if main is not None:
            feeds = {_scoped(name, import_scope): path for name, path in asset_paths.items()}
            sess.run(_operation(sess.graph, _scoped(main, import_scope)), feeds)
    return message


def _file_of(folder: str) -> str | None:
    names = (constants.SAVED_MODEL_FILENAME_PB, constants.SAVED_MODEL_FILENAME_PBTXT)
    paths = [os.path.join(folder, name) for name in names]
    return next((path for path in paths if os.path.isfile(path)), None)


def _contents(path: str) -> bytes:
    with os_errors.translated("read", path), open(durable.open_regular(path, os.O_RDONLY), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > _MAX_BYTES:
            raise _damaged(path, f"it has {size} bytes, and a message at most {_MAX_BYTES}")
        return file.read()


def _graph_of(model: SavedModel, tags: Iterable[str], folder: str) -> MetaGraphDef:
    wanted = {tags} if isinstance(tags, str) else {as_text(tag) for tag in tags}
    for message in model.meta_graphs:
        if set(message.meta_info_def.tags) == wanted:
            return message
    known = [sorted(message.meta_info_def.tags) for message in model.meta_graphs]
    raise RuntimeError(
        f"MetaGraphDef associated with tags {sorted(wanted)} could not be found in SavedModel {folder!r}, which has "
        f"graphs with the tags {known}; `anabranch inspect` shows them"
    )


def _main_op_name(message: MetaGraphDef) -> str | None:
    """The name of the operation, or of a tensor of the operation, that initializes the model."""
    signature = constants.INIT_OP_SIGNATURE_KEY
    if signature in message.signature_def:
        outputs = message.signature_def[signature].outputs
        names = [outputs[signature].name] if signature in outputs else []
    else:
        keys = (constants.MAIN_OP_KEY, constants.LEGACY_INIT_OP_KEY)
        key = next((key for key in keys if key in message.collection_def), keys[0])
        names = list(message.collection_def[key].node_list.value) if key in message.collection_def else []
    if len(names) > 1:
        raise RuntimeError(f"Expected exactly one SavedModel init op, found {len(names)}: {names}")
    return names[0] if names else None


def _check_names(message: MetaGraphDef, main: str | None, folder: str) -> None:
    """Checks that the graph has the nodes by which the model is restored and initialized."""
    names = {} if main is None else {"main operation": main}
    if message.HasField("saver_def"):
        saver = message.saver_def
        names |= {"restore_op_name": saver.restore_op_name, "filename_tensor_name": saver.filename_tensor_name}
    nodes = {node.name for node in message.graph_def.node}
    for role, name in names.items():
        if name.partition(":")[0] not in nodes:
            raise errors.InvalidArgumentError(
                None,
                None,
                f"The SavedModel in {folder!r} names {name!r} as its {role}, and its graph has no such node. Nothing "
                "was loaded; export the model again.",
            )


def _check_variables(prefix: str) -> None:
    """Reads the index of the variables, and finds out whether it is whole."""
    if not checkpoint_store.checkpoint_exists(prefix):
        raise errors.NotFoundError(
            None, None, f"The SavedModel's variables are missing: there is no {prefix + '.index'!r}. Copy all folders."
        )
    checkpoint_store.open_checkpoint(prefix).close()


def _scoped(name: str, import_scope: str | None) -> str:
    return f"{import_scope}/{name}" if import_scope else name


def _operation(graph: Graph, name: str) -> Operation:
    element = graph.as_graph_element(name)
    return element if isinstance(element, Operation) else element.op


def _damaged(path: str, reason: str) -> errors.DataLossError:
    return errors.DataLossError(None, None, f"{path!r} is damaged: {reason}. Copy or export the model again.")
