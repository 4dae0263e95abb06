"""The assets of a SavedModel: files that its graph names, which travel in its folder `assets`.

A tensor that holds a path is listed with the name of its file there. While the main operation of a loaded model runs,
the tensor is fed the path that the file has now.
"""

from __future__ import annotations

import filecmp
import os
from collections.abc import Iterable

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError

from anabranch import errors
from anabranch.core.compat import as_text
from anabranch.graph.constants import constant_value
from anabranch.graph.operation import Tensor
from anabranch.proto.training_pb2 import AssetFileDef, MetaGraphDef
from anabranch.serving import constants

#: what says that a message is an AssetFileDef; TensorFlow compares the whole
_TYPE_URL = "type.googleapis.com/tensorflow.AssetFileDef"


def list_assets(message: MetaGraphDef, tensors: Iterable[Tensor]) -> dict[str, str]:
    """Writes to a meta graph which tensors hold paths of assets.

    Files of one name from several folders get different names; files with the same content share one.

    Args:
        message: the meta graph; the assets that it lists are replaced.
        tensors: scalar constants of paths.

    Returns:
        The path of each asset, by its name in the folder.

    Raises:
        TypeError: something given is no constant tensor.
        ValueError: a path is empty, or there are several in a tensor.
        NotFoundError: there is no such file.
    """
    message.collection_def.pop(constants.ASSETS_KEY, None)
    sources: dict[str, str] = {}
    for tensor in tensors:
        source = _path_of(tensor)
        if not os.path.isfile(source):
            raise errors.NotFoundError(
                None, None, f"The asset {source!r}, which tensor {tensor.name!r} names, is no file."
            )
        name = _free_name(source, sources)
        sources[name] = source
        definition = AssetFileDef(filename=name)
        definition.tensor_info.name = tensor.name
        packed = AnyMessage(type_url=_TYPE_URL, value=definition.SerializeToString(deterministic=True))
        message.collection_def[constants.ASSETS_KEY].any_list.value.append(packed)
    return sources


def asset_paths(message: MetaGraphDef, export_dir: str) -> dict[str, str]:
    """The paths of a SavedModel's assets, by the names of the tensors that are to hold them.

    Raises:
        InvalidArgumentError: a name leads out of the folder `assets`.
        NotFoundError: an asset is missing.
        DataLossError: the list is damaged.
    """
    folder = os.path.join(export_dir, constants.ASSETS_DIRECTORY)
    paths: dict[str, str] = {}
    for definition in _listed(message, export_dir):
        name = definition.filename
        path = os.path.join(folder, name)
        if not _is_plain(name) or not os.path.realpath(path).startswith(os.path.realpath(folder) + os.sep):
            raise errors.InvalidArgumentError(
                None,
                None,
                f"The SavedModel in {export_dir!r} names the asset {name!r}, which is not in its folder "
                f"{constants.ASSETS_DIRECTORY!r}. Nothing was loaded; export the model again if you trust it.",
            )
        if not os.path.isfile(path):
            raise errors.NotFoundError(
                None, None, f"The asset {path!r} of the SavedModel is missing: copy the whole folder again."
            )
        paths[definition.tensor_info.name] = path
    return paths


def _listed(message: MetaGraphDef, export_dir: str) -> list[AssetFileDef]:
    if message.asset_file_def:
        return list(message.asset_file_def)
    if constants.ASSETS_KEY not in message.collection_def:
        return []
    packed = message.collection_def[constants.ASSETS_KEY].any_list.value
    try:
        return [AssetFileDef.FromString(item.value) for item in packed]
    except DecodeError as error:
        raise errors.DataLossError(
            None, None, f"The list of assets of the SavedModel in {export_dir!r} is damaged: {error}. Copy it again."
        ) from error


def _is_plain(name: str) -> bool:
    """Whether a path leads to something below the folder that it is taken in, as far as its text tells."""
    return bool(name) and "\0" not in name and not os.path.isabs(name) and ".." not in name.split("/")


def _path_of(tensor: object) -> str:
    if not isinstance(tensor, Tensor) or tensor.op.type != "Const":
        raise TypeError(f"expected the path of an asset as a constant tensor, got {tensor!r}")
    value = constant_value(tensor)
    if value is None or value.size != 1 or not isinstance(value.item(), bytes | str):
        raise ValueError(f"the tensor {tensor.name!r} is to hold the path of one asset, but holds {value!r}")
    path = as_text(value.item())
    if not path:
        raise ValueError(f"the tensor {tensor.name!r} holds an empty path, where that of an asset was expected")
    return path


def _free_name(source: str, taken: dict[str, str]) -> str:
    base = name = os.path.basename(source)
    number = 1
    while name in taken and not filecmp.cmp(taken[name], source, shallow=False):
        name = f"{base}_{number}"
        number += 1
    return name
