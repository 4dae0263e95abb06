"""Signatures: the inputs and outputs under which a graph is served, as messages."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.core import dtypes
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.composite import SparseTensor
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.proto.graph_pb2 import DT_FLOAT, DT_STRING
from anabranch.proto.tensors import shape_to_proto
from anabranch.proto.training_pb2 import SignatureDef, TensorInfo
from anabranch.serving import constants


def build_tensor_info(tensor: Tensor | SparseTensor | Variable) -> TensorInfo:
    """Describes a tensor: its name (of a sparse one, the names of its three parts), dtype and partial shape.

    Raises:
        TypeError: `tensor` is none.
    """
    if not isinstance(tensor, Tensor | SparseTensor | Variable):
        raise TypeError(f"expected a Tensor, a SparseTensor or a Variable, got {tensor!r}")
    info = TensorInfo(
        dtype=dtypes.as_dtype(tensor.dtype).base_dtype.as_datatype_enum,  # type: ignore[arg-type]
        tensor_shape=shape_to_proto(tensor.get_shape()),
    )
    if isinstance(tensor, SparseTensor):
        info.coo_sparse.values_tensor_name = tensor.values.name
        info.coo_sparse.indices_tensor_name = tensor.indices.name
        info.coo_sparse.dense_shape_tensor_name = tensor.dense_shape.name
    else:
        info.name = tensor.name
    return info


def get_tensor_from_tensor_info(
    tensor_info: TensorInfo, graph: Graph | None = None, import_scope: str | None = None
) -> Tensor | SparseTensor:
    """The tensor that a message describes.

    Args:
        tensor_info: the description.
        graph: where to look; default: the default graph.
        import_scope: the name scope that the graph was loaded into.

    Raises:
        KeyError: the graph has no such tensor.
        ValueError: the description is malformed, or of a composite tensor other than a sparse one.
    """
    graph = graph or get_default_graph()

    def tensor(name: str) -> Tensor:
        return graph.get_tensor_by_name(f"{import_scope}/{name}" if import_scope else name)

    encoding = tensor_info.WhichOneof("encoding")
    if encoding == "name":
        return tensor(tensor_info.name)
    if encoding == "coo_sparse":
        parts = tensor_info.coo_sparse
        indices, values = tensor(parts.indices_tensor_name), tensor(parts.values_tensor_name)
        return SparseTensor(indices, values, tensor(parts.dense_shape_tensor_name))
    raise ValueError(
        f"Invalid TensorInfo.encoding: {encoding}; expected the name of a tensor, or those of the parts of a sparse one"
    )


def build_signature_def(
    inputs: Mapping[str, TensorInfo] | None = None,
    outputs: Mapping[str, TensorInfo] | None = None,
    method_name: str | None = None,
) -> SignatureDef:
    """A SignatureDef of these descriptions of tensors, by the names that clients use, and of the method's name."""
    return SignatureDef(inputs=inputs or {}, outputs=outputs or {}, method_name=method_name or "")


def regression_signature_def(examples: Tensor, predictions: Tensor) -> SignatureDef:
    """The signature of a regression.

    Args:
        examples: serialized tf.train.Examples, string.
        predictions: float32.

    Raises:
        ValueError: one of them is no tensor, or of another dtype.
    """
    inputs = _info("Regression", "examples", examples, dtypes.string)
    outputs = _info("Regression", "predictions", predictions, dtypes.float32)
    return build_signature_def(
        {constants.REGRESS_INPUTS: inputs}, {constants.REGRESS_OUTPUTS: outputs}, constants.REGRESS_METHOD_NAME
    )


def classification_signature_def(examples: Tensor, classes: Tensor | None, scores: Tensor | None) -> SignatureDef:
    """The signature of a classification.

    Args:
        examples: serialized tf.train.Examples, string.
        classes: the names of classes, string; or None.
        scores: float32; or None.

    Raises:
        ValueError: one of them is no tensor, or of another dtype; or neither classes nor scores are given.
    """
    inputs = _info("Classification", "examples", examples, dtypes.string)
    if classes is None and scores is None:
        raise ValueError("Classification `classes` and `scores` cannot both be None.")
    outputs = {}
    if classes is not None:
        outputs[constants.CLASSIFY_OUTPUT_CLASSES] = _info("Classification", "classes", classes, dtypes.string)
    if scores is not None:
        outputs[constants.CLASSIFY_OUTPUT_SCORES] = _info("Classification", "scores", scores, dtypes.float32)
    return build_signature_def({constants.CLASSIFY_INPUTS: inputs}, outputs, constants.CLASSIFY_METHOD_NAME)


def predict_signature_def(
    inputs: Mapping[str, Tensor | SparseTensor], outputs: Mapping[str, Tensor | SparseTensor]
) -> SignatureDef:
    """The signature of any computation: tensors by the names that clients use.

    Raises:
        ValueError: there are no inputs, or no outputs.
    """
    if not inputs:
        raise ValueError("Prediction `inputs` cannot be None or empty.")
    if not outputs:
        raise ValueError("Prediction `outputs` cannot be None or empty.")
    return build_signature_def(
        {key: build_tensor_info(tensor) for key, tensor in inputs.items()},
        {key: build_tensor_info(tensor) for key, tensor in outputs.items()},
        constants.PREDICT_METHOD_NAME,
    )


def is_valid_signature(signature_def: SignatureDef | None) -> bool:
    """Whether a signature has the inputs and outputs that its method, one of the three above, asks for."""
    if signature_def is None:
        return False
    inputs = {key: info.dtype for key, info in signature_def.inputs.items()}
    outputs = {key: info.dtype for key, info in signature_def.outputs.items()}
    if signature_def.method_name == constants.PREDICT_METHOD_NAME:
        return bool(inputs) and bool(outputs)
    if signature_def.method_name == constants.REGRESS_METHOD_NAME:
        return inputs == {constants.REGRESS_INPUTS: DT_STRING} and outputs == {constants.REGRESS_OUTPUTS: DT_FLOAT}
    if signature_def.method_name == constants.CLASSIFY_METHOD_NAME:
        allowed = {constants.CLASSIFY_OUTPUT_CLASSES: DT_STRING, constants.CLASSIFY_OUTPUT_SCORES: DT_FLOAT}
        return (
            inputs == {constants.CLASSIFY_INPUTS: DT_STRING}
            and bool(outputs)
            and all(allowed.get(key) == dtype for key, dtype in outputs.items())
        )
    return False


def _info(kind: str, argument: str, tensor: object, dtype: dtypes.DType) -> TensorInfo:
    if tensor is None:
        raise ValueError(f"{kind} `{argument}` cannot be None.")
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{kind} `{argument}` must be a Tensor, got {tensor!r}")
    if tensor.dtype.base_dtype != dtype:
        raise ValueError(f"{kind} `{argument}` must be of dtype {dtype.name}, got {tensor.dtype.name}")
    return build_tensor_info(tensor)
