"""Datasets as graphs: what `tf.raw_ops.DatasetToGraph` and `DatasetFromGraph` stand for.

A dataset is the graph that makes it. Both are carried out while the graph is built: the first gives that graph as a
constant, the second copies such a graph in. In between it is TensorFlow's message, with a node `_Retval` that says
which of the nodes is the dataset.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from google.protobuf.message import DecodeError

from anabranch.core import dtypes
from anabranch.core.registry import find_op_def
from anabranch.core.roles import Role
from anabranch.errors import FailedPreconditionError, InvalidArgumentError
from anabranch.frontend.storage.graph_util import extract_sub_graph
from anabranch.graph.constants import constant_value
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graphdef import graph_to_proto
from anabranch.graph.graphdef_import import import_graph_def
from anabranch.graph.operation import Operation, Tensor
from anabranch.proto.graph_pb2 import DT_VARIANT, GraphDef, NodeDef

_RESULT = "_Retval"


def graph_of_dataset(
    dataset: Tensor, stateful_whitelist: Collection[str], allow_stateful: bool, strip_device_assignment: bool
) -> Tensor:
    """The graph that makes a dataset, as a string.

    Raises:
        ValueError: the dataset depends on what only a step knows.
        FailedPreconditionError: it has functions with state, and these are not allowed.
    """
    _check_known(dataset)
    graph = extract_sub_graph(graph_to_proto(dataset.graph), [dataset.op.name])
    _keep_needed_functions(graph)
    if not allow_stateful:
        _check_stateless(graph, stateful_whitelist)
    for node in graph.node:
        if strip_device_assignment:
            node.device = ""
    result = graph.node.add(name="dataset", op=_RESULT, input=[dataset.name.removesuffix(":0")])
    result.attr["T"].type = DT_VARIANT
    result.attr["index"].i = 0
    return convert_to_tensor(graph.SerializeToString(deterministic=True))


def dataset_of_graph(text: Tensor, scope: str) -> Tensor:
    """The dataset that such a string describes, copied into the default graph.

    Raises:
        ValueError: the string is not known while the graph is built.
        InvalidArgumentError: it is no graph of a dataset.
    """
    value = constant_value(text)
    if value is None:
        raise ValueError(
            f"DatasetFromGraph: {text.name} (created at {text.op.site}) has its value in a step only, and a dataset is "
            "made of operations; run it with session.run first, and give its value"
        )
    try:
        graph = GraphDef.FromString(value.item())
    except (DecodeError, TypeError) as error:
        raise InvalidArgumentError(None, None, f"DatasetFromGraph: {text.name} holds no GraphDef: {error}") from None
    results = [node for node in graph.node if node.op == _RESULT]
    if len(results) != 1 or len(results[0].input) != 1:
        raise InvalidArgumentError(
            None, None, f"DatasetFromGraph: the graph has {len(results)} nodes {_RESULT}; one names the dataset"
        )
    (name,) = results[0].input
    graph.node.remove(results[0])
    made = import_graph_def(graph, return_elements=[name if ":" in name else f"{name}:0"], name=scope)
    assert made is not None
    dataset = made[0]
    assert isinstance(dataset, Tensor)
    if dataset.dtype.base_dtype is not dtypes.variant:
        raise InvalidArgumentError(None, None, f"DatasetFromGraph: {dataset.name} is {dataset.dtype.name}, no dataset")
    return dataset


def _check_known(dataset: Tensor) -> None:
    """Whether everything that a dataset is made of is in the graph."""
    waiting, seen = [dataset.op], {dataset.op}
    while waiting:
        op = waiting.pop()
        if op.op_def.role is Role.PLACEHOLDER or op.op_def.reads:
            raise ValueError(
                f"DatasetToGraph: the dataset depends on {op.name} ({op.type}, created at {op.site}), whose value only "
                "a step knows; make the dataset of constants and functions"
            )
        before: Iterable[Operation] = (*(t.op for t in op.inputs), *op.control_inputs)
        fresh = [each for each in before if each not in seen]
        seen.update(fresh)
        waiting.extend(fresh)


def _keep_needed_functions(graph: GraphDef) -> None:
    """Drops the functions that neither the nodes nor other needed functions name."""
    by_name = {function.signature.name: function for function in graph.library.function}
    waiting, needed = list(_functions_of(graph.node)), set[str]()
    while waiting:
        name = waiting.pop()
        if name in by_name and name not in needed:
            needed.add(name)
            waiting.extend(_functions_of(by_name[name].node_def))
    for name, function in by_name.items():
        if name not in needed:
            graph.library.function.remove(function)


def _functions_of(nodes: Iterable[NodeDef]) -> Iterable[str]:
    for node in nodes:
        yield node.op
        for value in node.attr.values():
            yield value.func.name
            yield from (func.name for func in value.list.func)


def _check_stateless(graph: GraphDef, allowed: Collection[str]) -> None:
    names = {name.decode() if isinstance(name, bytes) else name for name in allowed}
    for function in graph.library.function:
        for node in function.node_def:
            definition = find_op_def(node.op)
            if definition is not None and definition.stateful and node.op not in names and "Dataset" not in node.op:
                raise FailedPreconditionError(
                    None,
                    None,
                    f"DatasetToGraph: {node.name} ({node.op}) in the function {function.signature.name} has state; "
                    "say allow_stateful=True, or name its type in stateful_whitelist",
                )
