"""Views of a part of a graph: some operations, what enters them and what leaves them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Self

from anabranch.frontend.graph_editor.elements import (
    ListView,
    OperationsLike,
    TensorsLike,
    get_unique_graph,
    make_list_of_op,
    make_list_of_t,
)
from anabranch.frontend.graph_editor.selection import (
    Selector,
    compute_boundary_ts,
    get_name_scope_ops,
    get_walks_union_ops,
    select_ops_and_ts,
)
from anabranch.graph.graph import Graph
from anabranch.graph.operation import Operation, Tensor


class SubGraphView:
    """A part of a graph, seen as a function of the tensors that enter it which gives those that leave it.

    A view changes nothing in the graph, and does not follow changes of it; the functions that change a graph by views
    bring those up to date. What enters and leaves may be chosen and ordered anew (`remap`): a tensor that enters and is
    not listed counts as given.

    Args:
        inside_ops: the operations.
        passthrough_ts: tensors that enter and leave without an operation in between. What the operations take or give
            is passed over.

    Raises:
        TypeError: they are no operations and tensors.
        ValueError: they are of several graphs.

    Example:
        >>> x = tf.constant(1.0, name="x")
        >>> y = tf.negative(x + 1.0, name="y")
        >>> view = tf.contrib.graph_editor.sgv(y.op, y.op.inputs[0].op)
        >>> [t.name for t in view.inputs], [t.name for t in view.outputs]
        (['x:0', 'add/y:0'], ['y:0'])
    """

    def __init__(self, inside_ops: OperationsLike = (), passthrough_ts: TensorsLike = ()) -> None:
        self._ops = make_list_of_op(inside_ops)
        passing = make_list_of_t(passthrough_ts)
        self._graph = get_unique_graph([*self._ops, *passing], none_if_empty=True)
        inputs, outputs, inside = compute_boundary_ts(self._ops)
        connected = {*inputs, *outputs, *inside}
        self._passthrough_ts = [tensor for tensor in passing if tensor not in connected]
        self._input_ts = inputs + self._passthrough_ts
        self._output_ts = outputs + self._passthrough_ts

    # ------------------------------------------------------------------ what is seen
    @property
    def graph(self) -> Graph | None:
        """The graph; None for a view of nothing."""
        return self._graph

    @property
    def ops(self) -> list[Operation]:
        """The operations."""
        return self._ops

    @property
    def inputs(self) -> ListView[Tensor]:
        """The tensors that enter."""
        return ListView(self._input_ts)

    @property
    def outputs(self) -> ListView[Tensor]:
        """The tensors that leave."""
        return ListView(self._output_ts)

    @property
    def passthroughs(self) -> ListView[Tensor]:
        """The tensors that go through without an operation in between."""
        return ListView(self._passthrough_ts)

    @property
    def connected_inputs(self) -> list[Tensor]:
        """The tensors that enter and are taken by an operation."""
        return [tensor for tensor in self._input_ts if tensor not in self._passthrough_ts]

    @property
    def connected_outputs(self) -> list[Tensor]:
        """The tensors that leave and are given by an operation."""
        return [tensor for tensor in self._output_ts if tensor not in self._passthrough_ts]

    def op(self, op_id: int) -> Operation:
        """An operation by its number."""
        return self._ops[op_id]

    def is_passthrough(self, t: Tensor) -> bool:
        """Whether a tensor goes through without an operation in between."""
        return t in self._passthrough_ts

    def find_op_by_name(self, op_name: str) -> Operation:
        """The operation of a name.

        Raises:
            ValueError: there is none in the view.
        """
        for op in self._ops:
            if op.name == op_name:
                return op
        raise ValueError(f"{op_name} not in subgraph.")

    __getitem__ = find_op_by_name

    def input_index(self, t: Tensor) -> int:
        """Which of the inputs a tensor is.

        Raises:
            ValueError: none.
        """
        return _position(self._input_ts, t, "inputs")

    def output_index(self, t: Tensor) -> int:
        """Which of the outputs a tensor is.

        Raises:
            ValueError: none.
        """
        return _position(self._output_ts, t, "outputs")

    def consumers(self) -> list[Operation]:
        """The operations that take what leaves, each once."""
        return list(dict.fromkeys(op for tensor in self._output_ts for op in tensor.consumers()))

    def __bool__(self) -> bool:
        return self._graph is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Views need not be closed."""

    def __str__(self) -> str:
        def named(tensors: Iterable[Tensor]) -> list[str]:
            return [f"{t.name} *" if t in self._passthrough_ts else t.name for t in tensors]

        parts = (("ops", [op.name for op in self._ops]), ("inputs", named(self._input_ts)))
        lines = ["SubGraphView:"]
        for title, names in (*parts, ("outputs", named(self._output_ts))):
            lines += [f"** {title}:", *names]
        return "\n".join(lines) + "\n"

    # ------------------------------------------------------------------ other views of the same
    def __copy__(self) -> SubGraphView:
        made = type(self).__new__(type(self))
        made._assign_from(self)
        return made

    def copy(self) -> SubGraphView:
        """Another view of the same. Nothing of the graph is copied."""
        return copy.copy(self)

    def _assign_from(self, other: SubGraphView) -> None:
        """Sees what another view sees."""
        self._graph = other._graph
        self._ops = list(other._ops)
        self._passthrough_ts = list(other._passthrough_ts)
        self._input_ts = list(other._input_ts)
        self._output_ts = list(other._output_ts)

    def _with_outputs(self, choose: Callable[[list[Tensor]], list[Tensor]]) -> SubGraphView:
        made = self.copy()
        made._output_ts = choose(list(dict.fromkeys(self._output_ts)))
        return made

    def remap_inputs(self, new_input_indices: Iterable[int]) -> SubGraphView:
        """A view with some of the inputs, in another order: by their numbers, each at most once.

        Raises:
            ValueError: there is no such input, or one is named twice.
        """
        return self.remap(new_input_indices=new_input_indices)

    def remap_outputs(self, new_output_indices: Iterable[int]) -> SubGraphView:
        """A view with some of the outputs, in another order: by their numbers, which may occur again.

        Raises:
            ValueError: there is no such output.
        """
        return self.remap(new_output_indices=new_output_indices)

    def remap(
        self, new_input_indices: Iterable[int] | None = None, new_output_indices: Iterable[int] | None = None
    ) -> SubGraphView:
        """A view with other inputs and outputs; see `remap_inputs` and `remap_outputs`."""
        made = self.copy()
        if new_input_indices is not None:
            made._input_ts = _chosen(self._input_ts, list(new_input_indices), repetition=False)
        if new_output_indices is not None:
            made._output_ts = _chosen(self._output_ts, list(new_output_indices), repetition=True)
        return made

    def remap_default(self, remove_input_map: bool = True, remove_output_map: bool = True) -> SubGraphView:
        """A view with all inputs and outputs that the operations have.

        Args:
            remove_input_map, remove_output_map: whether this is so for the inputs, and for the outputs.
        """
        inputs, outputs, _ = compute_boundary_ts(self._ops)
        made = self.copy()
        if remove_input_map:
            made._input_ts = inputs + self._passthrough_ts
        if remove_output_map:
            made._output_ts = outputs + self._passthrough_ts
        return made

    def remap_outputs_make_unique(self) -> SubGraphView:
        """A view with each output once."""
        return self._with_outputs(list)

    def remap_outputs_to_consumers(self) -> SubGraphView:
        """A view with each output as often as operations take it."""
        return self._with_outputs(lambda outputs: [tensor for tensor in outputs for _ in tensor.consumers()])

    def remove_unused_ops(self, control_inputs: bool = True) -> SubGraphView:
        """A view without the operations that neither take from the inputs nor give to the outputs.

        Args:
            control_inputs: whether what is waited for counts as used.
        """
        used = set(
            get_walks_union_ops(
                self.connected_inputs, self.connected_outputs, within_ops=self._ops, control_inputs=control_inputs
            )
        )
        made = self.copy()
        made._ops = [op for op in self._ops if op in used]
        return made


def _position(tensors: Sequence[Tensor], tensor: Tensor, of: str) -> int:
    if tensor not in tensors:
        raise ValueError(f"Can't find {tensor.name} in {of} of the subgraph, which are {[t.name for t in tensors]}")
    return tensors.index(tensor)


def _chosen(tensors: Sequence[Tensor], numbers: list[int], repetition: bool) -> list[Tensor]:
    for number in numbers:
        if not 0 <= number < len(tensors):
            raise ValueError(f"Out of [0, {len(tensors)}[ range: {number}")
    if not repetition and len(set(numbers)) != len(numbers):
        raise ValueError(f"Found repetition in mapping: {numbers}")
    return [tensors[number] for number in numbers]


def make_view(*args: Selector | SubGraphView, graph: Graph | None = None) -> SubGraphView:
    """A view of operations and tensors, by names and from lists.

    Args:
        args: as for `select_ops_and_ts`; or one view, which is given back.
        graph: where names are looked for.

    Raises:
        TypeError: an argument is something else.
        ValueError: there is a regular expression, and no graph; or the operations are of another graph.

    Example:
        >>> x = tf.constant(1.0, name="a/x")
        >>> y = tf.negative(x, name="a/y")
        >>> view = tf.contrib.graph_editor.make_view("^a/", graph=tf.get_default_graph())
        >>> [op.name for op in view.ops]
        ['a/x', 'a/y']
    """
    if len(args) == 1 and isinstance(args[0], SubGraphView):
        view = args[0]
    else:
        if any(isinstance(arg, SubGraphView) for arg in args):
            raise TypeError("a SubGraphView must be the only argument; name the operations of several in one list")
        view = SubGraphView(*select_ops_and_ts(*args, graph=graph))  # type: ignore[arg-type]
    if graph is not None and not isinstance(graph, Graph):
        raise TypeError(f"Expected a tf.Graph, got: {type(graph)}")
    if graph is not None and view.graph is not None and view.graph is not graph:
        raise ValueError("Graph mismatch.")
    return view


def make_view_from_scope(scope: str, graph: Graph) -> SubGraphView:
    """A view of the operations in a name scope."""
    return SubGraphView(get_name_scope_ops(graph, scope))


def move_inputs(view0: SubGraphView, view1: SubGraphView, swap: bool) -> None:
    """Lets a view see that it got the inputs of another, and with `swap` the other that it got those of the first.

    What goes through without an operation in between is an output, too, and moves there as well.
    """
    first, second = view0.copy(), view1.copy()
    _take_inputs(second, view0)
    if swap:
        _take_inputs(first, view1)
        _move_passthroughs(second, first)
        _move_passthroughs(first, second)
    view0._assign_from(first)
    view1._assign_from(second)


def _take_inputs(view: SubGraphView, other: SubGraphView) -> None:
    view._input_ts, view._passthrough_ts = list(other._input_ts), list(other._passthrough_ts)


def _move_passthroughs(view: SubGraphView, other: SubGraphView) -> None:
    """Outputs of a view that go through another now are replaced by what goes through the view in their place."""
    places = {tensor: other._input_ts.index(tensor) for tensor in other._passthrough_ts}
    view._output_ts = [view._input_ts[places[t]] if t in places else t for t in view._output_ts]
