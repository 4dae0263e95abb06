"""Loops of converted code: over tensors, ranges and datasets they become `tf.while_loop`, over all else they run.

A loop's state is what its body changes and what is read afterwards. A variable that has no value before the loop gets
one of the kind that the body gives it, which nobody reads: the body is built once in a graph that is thrown away to
find out, and the step fails if the loop runs not even once. A value to be returned from inside a loop is such a
variable; whether it was returned says another.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from anabranch.core import nest
from anabranch.core.shapes import TensorShape, covers
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.autograph.state import (
    State,
    SymbolNames,
    as_tensors,
    check_same,
    is_symbolic,
    named,
    scalar_condition,
    scratch_graph,
    waiting_for_effects,
)
from anabranch.frontend.autograph.undefined import Undefined, UndefinedReturnValue, is_missing
from anabranch.frontend.control_flow.checks import Assert
from anabranch.frontend.control_flow.composites import components, rebuilt
from anabranch.frontend.control_flow.conditionals import cond
from anabranch.frontend.control_flow.tensor_array import TensorArray
from anabranch.frontend.control_flow.while_loop import while_loop
from anabranch.graph.constants import constant_value
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

Getter = Callable[[], State]
Setter = Callable[[State], None]
Options = Mapping[str, Any]

_MIXED = (
    "{} depends on a tensor, but the loop itself runs while the graph is built: over Python values it runs to its end; "
    "make it a loop over tensors, as in `for i in tf.range(n)`, or use tf.cond"
)


def for_stmt(
    iter_: PassedOn,
    extra_test: Callable[[], Any] | None,
    body: Callable[[Any], None],
    get_state: Getter,
    set_state: Setter,
    symbol_names: SymbolNames,
    opts: Options,
) -> None:
    """`for x in iter_: body(x)`, as long as `extra_test` is true.

    Args:
        extra_test: whether no `break` and no `return` was met; None: there are none.
        opts: what `set_loop_options` said, and the name of the loop's variable.

    Raises:
        NotImplementedError: `break` or `return` depends on a tensor in a loop over Python values.
        ValueError, TypeError: as `while_stmt`.
    """
    loop = _Loop(get_state, set_state, symbol_names, opts)
    if is_symbolic(iter_):
        tensor = convert_to_tensor(iter_)
        over = _over_range if tensor.op.type == "Range" else _over_rows
        over(tensor, extra_test, body, loop)
    elif hasattr(iter_, "reduce") and hasattr(iter_, "output_shapes"):
        _over_dataset(iter_, extra_test, body, loop)
    else:
        for target in iter_:
            if extra_test is not None and not _known(extra_test(), "`break` or `return`"):
                break
            body(target)


def while_stmt(
    test: Callable[[], Any],
    body: Callable[[], None],
    get_state: Getter,
    set_state: Setter,
    symbol_names: SymbolNames,
    opts: Options,
) -> None:
    """`while test(): body()`.

    Raises:
        NotImplementedError: the condition becomes a tensor after the first iteration.
        ValueError: a variable has no value before the loop, or another shape after an iteration.
        TypeError: a variable has another dtype or structure after an iteration.
    """
    with scratch_graph():
        truth = test()
    if is_symbolic(truth):
        _Loop(get_state, set_state, symbol_names, opts).build(test, body)
        return
    while truth:
        body()
        truth = _known(test(), "the condition of `while`")


def _known(truth: PassedOn, what: str) -> bool:
    if is_symbolic(truth):
        raise NotImplementedError(_MIXED.format(what))
    return bool(truth)


# ---------------------------------------------------------------------- loops over something
def _over_rows(tensor: Tensor, extra_test: Callable[[], Any] | None, body: Callable[[Any], None], loop: _Loop) -> None:
    if tensor.shape.ndims == 0:
        raise ValueError(f"tensor {tensor.name} is a scalar, which cannot be iterated over; use tf.range")
    length = raw.StridedSlice(raw.Shape(tensor), [0], [1], [1], shrink_axis_mask=1)
    known = tensor.shape.dims_tuple
    if known is not None and known[0] is not None:
        length = convert_to_tensor(known[0])
    rows = TensorArray(tensor.dtype.base_dtype, size=length).unstack(tensor)
    counted = loop.counting(convert_to_tensor(0))
    counted.build(
        lambda: _both(raw.Less(counted.counter, length), extra_test),
        lambda: counted.step(1, lambda at: body(rows.read(at))),
    )


def _over_range(tensor: Tensor, extra_test: Callable[[], Any] | None, body: Callable[[Any], None], loop: _Loop) -> None:
    start, limit, delta = tensor.op.inputs
    step = constant_value(delta)
    counted = loop.counting(start, has_start=True)

    def is_within() -> Tensor:
        if step is not None:
            return raw.Less(counted.counter, limit) if step >= 0 else raw.Greater(counted.counter, limit)  # type: ignore[no-any-return]
        zero = raw.ZerosLike(delta)
        up = raw.LogicalAnd(raw.GreaterEqual(delta, zero), raw.Less(counted.counter, limit))
        return raw.LogicalOr(  # type: ignore[no-any-return]
            up, raw.LogicalAnd(raw.Less(delta, zero), raw.Greater(counted.counter, limit))
        )

    counted.build(lambda: _both(is_within(), extra_test), lambda: counted.step(delta, body))


def _both(within: Tensor, extra_test: Callable[[], Any] | None) -> Tensor:
    return within if extra_test is None else cond(within, extra_test, lambda: convert_to_tensor(False))


def _over_dataset(
    dataset: PassedOn, extra_test: Callable[[], Any] | None, body: Callable[[Any], None], loop: _Loop
) -> None:
    if extra_test is not None:
        raise NotImplementedError(
            "`break` and `return` in a loop over a dataset; take as many elements as are wanted with "
            "dataset.take or dataset.apply(tf.data.experimental.take_while(...)) before the loop"
        )
    before = loop.defined_before(lambda: None)

    def reduced(state: State, *element: PassedOn) -> State:
        loop.set_state(tuple(state)[1:])
        body(element[0] if len(element) == 1 else element)
        return (state[0], *loop.checked(tuple(state)[1:]))

    loop.set_state(tuple(dataset.reduce((convert_to_tensor(0), *before), reduced))[1:])


class _Loop:
    """One loop over tensors being built.

    Attributes:
        set_state: gives the variables of the user's function their values.
    """

    def __init__(self, get_state: Getter, set_state: Setter, names: SymbolNames, options: Options) -> None:
        self._get, self.set_state, self._names = get_state, set_state, names
        self._iterates = options.get("iterate_names")
        self._invariants = list(options.get("shape_invariants", ()))
        self._options = {k: v for k, v in options.items() if k not in ("iterate_names", "shape_invariants")}
        self._counters: list[Any] = []
        self._has_start = False
        self._missing: list[str] = []

    # ---- loops that count
    def counting(self, start: Tensor, has_start: bool = False) -> _Loop:
        """The loop with a counter among its variables.

        Args:
            has_start: whether the counter is the user's own variable, which has a value where there is no iteration.
        """
        self._counters, self._has_start = [start], has_start
        return self

    @property
    def counter(self) -> Tensor:
        counter: Tensor = self._counters[0]
        return counter

    def step(self, delta: TensorLike, body: Callable[[Any], None]) -> None:
        """One iteration at the counter, which goes on by `delta`."""
        at = self.counter
        body(at)
        self._counters[0] = raw.AddV2(at, delta)

    # ---- variables
    def _write(self, counters: State, held: list[bool], state: State) -> None:
        self._counters[:] = counters
        self.set_state(tuple(self._get_from(held, state)))

    @staticmethod
    def _get_from(held: list[bool], state: State) -> Iterator[Any]:
        """Every variable's value from those of the variables that the loop holds; None of the others."""
        values = iter(state)
        return (next(values) if is_held else None for is_held in held)

    def defined_before(self, body: Callable[[], None]) -> State:
        """The variables' values before the loop, with one that nobody reads for each that has none.

        Raises:
            ValueError: a variable has no value before the loop, and the body tells none.
        """
        values = tuple(self._get())
        self._missing = [name for name, value in zip(self._names, values, strict=True) if is_missing(value)]
        if self._missing:
            values = self._with_places(values, body)
        return tuple(
            as_tensors(value, name, "before the loop") for name, value in zip(self._names, values, strict=True)
        )

    def _with_places(self, values: State, body: Callable[[], None]) -> State:
        counters = list(self._counters)
        reason: Exception | None = None
        with scratch_graph():
            try:
                self.set_state(tuple(nest.map_structure(_of_its_kind, v) for v in values))
                body()
                after = tuple(self._get())
            except (UnboundLocalError, TypeError, ValueError, KeyError) as error:
                after, reason = values, error
            finally:
                self._counters[:] = counters
                self.set_state(values)
        filled = tuple(
            self._place(value, like) if is_missing(value) else value for value, like in zip(values, after, strict=True)
        )
        for name, value in zip(self._names, filled, strict=True):
            if is_missing(value) and not (
                value is None and isinstance(values[self._names.index(name)], UndefinedReturnValue)
            ):
                why = "" if reason is None else f" (what the body gives it could not be found out: {reason})"
                what = "the value that is returned" if isinstance(value, UndefinedReturnValue) else f"'{name}'"
                raise ValueError(f"{what} must be defined before the loop, as a tensor or a number{why}") from reason
        return filled

    def _place(self, missing: PassedOn, like: PassedOn) -> Any:
        """A value of the kind of `like`; `missing` itself where there is no such value."""
        if like is None and isinstance(missing, UndefinedReturnValue):
            return None
        if any(is_missing(item) for item in nest.flatten(like)):
            return missing

        def leaf(item: TensorLike) -> Any:
            if isinstance(item, TensorArray):
                return TensorArray(item.dtype, size=0, dynamic_size=True)
            parts = [_zeros_like(t) for t in components(item)]
            place = rebuilt(item, parts)
            if isinstance(item, Tensor) and not item.shape.is_fully_defined():
                self._invariants.append((place, item.shape))
            return place

        return nest.map_structure(leaf, like)

    def checked(self, before: State) -> State:
        """The variables' values after an iteration.

        Raises:
            TypeError, ValueError: one is of another kind than it was before.
        """
        after = tuple(self._get())
        for name, one, other in zip(self._names, before, after, strict=True):
            if isinstance(other, Undefined):
                raise ValueError(f"'{name}' is not assigned on every way through the loop's body")
            check_same(name, one, other, "before the loop", "after one iteration")
            self._check_shapes(name, one, other)
        return tuple(
            as_tensors(value, name, "after one iteration") for name, value in zip(self._names, after, strict=True)
        )

    def _check_shapes(self, name: str, one: PassedOn, other: PassedOn) -> None:
        for a, b in zip(nest.flatten(one), nest.flatten(as_tensors(other, name, "after one iteration")), strict=True):
            if isinstance(a, Tensor) and isinstance(b, Tensor) and not covers(a.shape, b.shape):
                raise ValueError(
                    f"'{name}' has shape {a.shape} before the loop, but shape {b.shape} after one iteration. Use "
                    "tf.autograph.experimental.set_loop_options to set shape invariants."
                )

    # ---- building
    def build(self, test: Callable[[], Any], body: Callable[[], None]) -> None:
        """Builds the loop and gives the variables the values that they have after it."""
        counters = list(self._counters)
        before = self.defined_before(body)
        if self._has_start and self._iterates in self._missing:
            self._missing.remove(self._iterates)
        self._counters[:] = counters
        held = [value is not None for value in before]  # a `return` without a value gives None, and no tensor

        def is_on(_: TensorLike, counters: State, state: State) -> Tensor:
            self._write(counters, held, state)
            return scalar_condition(test(), "a loop")

        def iterated(_: TensorLike, counters: State, state: State) -> State:
            self._write(counters, held, state)
            body()
            after = self.checked(tuple(self._get_from(held, state)))
            values = (convert_to_tensor(True), tuple(self._counters), tuple(itertools.compress(after, held)))
            return waiting_for_effects(get_default_graph(), values)

        ran, counters_after, after = while_loop(
            is_on,
            iterated,
            (convert_to_tensor(False), tuple(counters), tuple(itertools.compress(before, held))),
            shape_invariants=(
                TensorShape([]),
                tuple(c.shape for c in counters),
                tuple(itertools.compress(self._invariants_of(before), held)),
            ),
            return_same_structure=True,
            **self._options,
        )
        self._write(counters_after, held, after)
        self.set_state(self._after(ran, tuple(self._get())))

    def _invariants_of(self, before: State) -> State:
        given = {id(value): shape for value, shape in self._invariants}
        values = zip(self._names, before, self._get(), strict=True)
        return tuple(
            nest.map_structure(lambda item, old=old: _invariant(item, given.get(id(item), given.get(id(old)))), value)
            for _, value, old in values
        )

    def _after(self, ran: Tensor, values: State) -> State:
        """The values after the loop; the step fails where one of them is none because there was no iteration."""
        missing = [n for n in self._missing if not n.startswith("retval_")]
        if not missing:
            return values
        names = named(missing)
        check = Assert(ran, [f"loop must iterate at least once to initialize {names}"])
        with get_default_graph().control_dependencies([check]):
            return tuple(
                nest.map_structure(lambda v: rebuilt(v, [raw.Identity(t) for t in components(v)]), value)
                if name in missing
                else value
                for name, value in zip(self._names, values, strict=True)
            )


def _of_its_kind(value: PassedOn) -> Any:
    """A tensor that is not known for a number, as a variable of a loop is; other values as they are."""
    if isinstance(value, bool | int | float):
        return raw.Placeholder(dtype=convert_to_tensor(value).dtype, shape=TensorShape([]))
    return value


def _zeros_like(tensor: Tensor) -> Tensor:
    dims = tensor.shape.dims_tuple
    shape = [] if dims is None else [0 if d is None else d for d in dims]
    if tensor.dtype.base_dtype.name == "string":
        return raw.Fill(shape, "")  # type: ignore[no-any-return]
    return raw.Fill(shape, convert_to_tensor(0, tensor.dtype.base_dtype))  # type: ignore[no-any-return]


def _invariant(value: TensorLike, given: PassedOn) -> Any:
    if given is not None:
        return TensorShape(given)
    return value.shape if isinstance(value, Tensor) else None
