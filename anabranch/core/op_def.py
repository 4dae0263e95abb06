"""What an operation type is: its signature and the rules that give it a meaning.

An `OpDef` is one entry of the vocabulary. It is written as a signature and completed, in the lines that follow
it, by its rules::

    MatMul = define_op(
        "MatMul",
        "a: T, b: T -> product: T",
        "transpose_a: bool = False, transpose_b: bool = False, T: numbers",
    )

    @MatMul.shape
    def _(a, b, *, transpose_a, transpose_b): ...      # TensorShapes in, TensorShapes out

    @MatMul.kernel
    def _(a, b, *, transpose_a, transpose_b): ...      # arrays in, arrays out

    @MatMul.gradient
    def _(op, grad): ...                               # graph tensors in, graph tensors out

A rule is a plain function. Its positional parameters are the operation's inputs (a variadic input is one list); its
keyword-only parameters name the attributes it wants. The reserved keywords are listed at `RESERVED_KEYWORDS`.

Signatures are facts shared with TensorFlow's op vocabulary, so that graphs can be exchanged (design D2).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Final, Self, TypedDict

from anabranch.core import dtypes
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import KernelOperation
from anabranch.core.roles import FUNCTIONAL_ROLES, PRIMITIVE_ROLES, TRANSFER_ROLES, Role
from anabranch.core.shapes import LateShapeError

#: Keywords that a rule may ask for besides attributes of its operation.
#: `xp`: the array module (numpy or jax.numpy). A kernel that asks for it is *portable*: it runs on known values while
#:       a step is traced, and on the host.
#: `ctx`: the context of the rule (kernel: one of `core.kernel_context`; shape rule: `ShapeContext`).
#: `rng`: a fresh JAX random key for this run of this operation (compiled kernels), or a numpy Generator (host kernels).
RESERVED_KEYWORDS: Final = frozenset({"xp", "ctx", "rng"})

#: what a tensor of a rank is called
_RANK_NAMES: Final = {0: "a scalar", 1: "a vector", 2: "a matrix"}


#: what an estimate takes an unknown dimension for
ASSUMED_DIMENSION: Final = 32
#: attributes, values of the flat inputs (None: not known) -> those of outputs; see `OpDef.early_outputs`
EarlyRule = Callable[[Mapping[str, Any], Sequence[Any]], Mapping[int, Any]]
#: operation -> what its kernel computes of its first input; see `OpDef.when_known`
KnownRule = Callable[[Any], Callable[[Any], Any] | None]
#: (shapes of the inputs, shapes of the outputs, attributes) -> floating-point operations
FlopsRule = Callable[[Sequence[tuple[int, ...] | None], Sequence[tuple[int, ...] | None], dict[str, Any]], int]


class _Missing:
    def __repr__(self) -> str:
        return "<required>"


MISSING: Final = _Missing()


@dataclass(frozen=True, slots=True)
class ArgDef:
    """One input or output of an operation type.

    Exactly one of `dtype`, `type_attr`, `type_list_attr` is set. With `number_attr` the argument stands for that many
    tensors of one type; with `type_list_attr` for one tensor per listed type.
    """

    name: str
    dtype: DType | None = None
    type_attr: str | None = None
    number_attr: str | None = None
    type_list_attr: str | None = None

    @property
    def is_list(self) -> bool:
        return self.number_attr is not None or self.type_list_attr is not None


@dataclass(frozen=True, slots=True)
class AttrDef:
    """One attribute: `kind` is a scalar kind or `list(<kind>)`; `allowed` and `minimum` restrict its value.

    Strings that are allowed stand in the order of the signature, in which TensorFlow's errors list them.
    """

    name: str
    kind: str
    default: Any = MISSING
    allowed: frozenset[Any] | tuple[Any, ...] | None = None
    minimum: int | None = None

    @property
    def has_default(self) -> bool:
        return self.default is not MISSING


@dataclass(frozen=True, slots=True)
class Rule:
    """A function of the vocabulary together with the keyword-only names it asks for."""

    function: Callable[..., Any]
    keywords: tuple[str, ...]

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Rule:
        if isinstance(function, FunctionType) and not hasattr(function, "__wrapped__"):
            code = function.__code__  # a thousand rules are made at import, and `signature` would take most of the time
            first = code.co_argcount
            return cls(function, code.co_varnames[first : first + code.co_kwonlyargcount])
        parameters = inspect.signature(function).parameters.values()
        return cls(function, tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY))

    def attr_names(self) -> tuple[str, ...]:
        return tuple(k for k in self.keywords if k not in RESERVED_KEYWORDS)

    def asks_for(self, keyword: str) -> bool:
        return keyword in self.keywords


class OpFlags(TypedDict, total=False):
    """What the definition of an operation type may state; see the attributes of `OpDef`."""

    stateful: bool
    commutative: bool
    adds: bool
    one_function: bool
    exact: bool
    keeps_all: bool
    sums: bool
    shaped_by: str
    static: Iterable[str]
    ranks: dict[str, int]
    late_ranks: dict[str, int]
    rank_words: dict[str, str]
    reads: Iterable[str]
    writes: Iterable[str]
    shape_valued: bool
    rank_valued: bool
    few_values: bool
    sized_by: dict[str, str]
    outputs_sized_by: dict[str, dict[str, str]]
    shape_outputs: dict[str, tuple[str, ...]]
    deals_out: bool
    asynchronous: bool
    locks: bool
    blocking: bool
    defers_bodies: bool
    knows_objects: bool
    role: Role
    passes_on: bool
    repeats_bodies: bool
    unnoticed: bool
    obeys_requests: bool
    ignores_values: bool
    takes_numpy: bool
    changes_rows: bool
    takes_quantised: bool
    calls_user_code: bool
    processors_only: str
    doc: str


@dataclass(slots=True, eq=False)
class OpDef:
    """An operation type: its signature, and the rules attached to it by the decorators below.

    Attributes:
        stateful: the operation reads or changes something besides its inputs; it is neither folded nor merged.
        static: names of inputs whose *values* (not only shapes) must be known when a step is compiled; where that
            differs between operations of one type, `static_when` decides. Ask `static_positions`.
        ranks: the rank that an input (each one of a list) must have, by its name: checked when an operation is built,
            and where that was not known, when it runs.
        late_ranks: the same, but refused only when it runs.
        rank_words: what TensorFlow's kernel says of an input whose rank is another, where that is not "x must be a
            scalar" or "x must be a vector".
        refuses_late: so is whatever the shape rule refuses (`late_shape`).
        reads, writes: names of resource inputs whose variable is read / written by the operation.
        shape_valued: the outputs depend on the inputs' shapes only, never on their values.
        rank_valued: they depend on the inputs' ranks only.
        few_values: the outputs take so few different values that a program may be compiled for each of them.
        sized_by: names of the inputs that alone decide the outputs' shapes, and by what: "shape"; "values"; "rows", a
            value that is the outputs' first dimension; "sizes", values that are all dimensions (-1: what is left);
            "rest", its dimensions but for the first; "dealt", places in the outputs' first dimension, as many as an
            operation has dealt out (`deals_out`). Where that differs between operations of one type, `sized_when` says.
        outputs_sized_by: the same for single outputs, by their names.
        shape_outputs: names of outputs that hold the shape of a tensor, and of the inputs whose values, of few numbers
            each, decide it alone. None: it comes from outside, as a fed shape does.
        deals_out: each row of the first input goes to one of the outputs.
        asynchronous: the host kernel returns a `core.pending.Pending` and waits without a thread.
        locks: it takes a lock, or gives one back. Such operations run in step order.
        blocking: the host kernel may hold its thread for long (user functions, files), so other work must not wait
            behind it.
        defers_bodies: its functions are kept and called later, for the elements of a dataset: what they touch is not
            touched by the operation.
        knows_objects: where an input may have any type, its kernels know handles and lists of tensors, which are no
            arrays. Ask `takes_objects`.
        role: what the operation is in the structure of a graph.
        adds: it is the sum or the difference of two inputs.
        one_function: it is one function of two arguments, of NumPy's and XLA's alike, elementwise, and both give the
            same to the last bit.
        exact: whatever the numbers are, NumPy and XLA give the same to the last bit: it only moves or compares them.
        keeps_all: its output has as many elements as its inputs together, each made of one of them, so that a vector
            which becomes a part of a shape is as short as that.
        sums: it sums its first input up over the axes that its second one lists.
        shaped_by: the name of the input that holds the output's shape; where another input comes first, the output has
            its elements, repeated where there are too few.
        passes_on: each output is the input at its position, and each gradient likewise, if the type has gradients. Its
            kernel runs on the host as well.
        repeats_bodies: its functions run any number of times in a run of the operation.
        obeys_requests: it is work of the host that belongs to any device which a program asks for, as TensorFlow has
            kernels for GPUs that work in the host's memory.
        unnoticed: it is stateful only so that it is neither folded nor merged: nobody notices that it runs.
        ignores_values: the outputs depend on the inputs' shapes only, but are as large as these, so that they are
            computed by the step, and not (as with `shape_valued`) from the shapes that are known before.
        takes_numpy: the compiled kernel runs on NumPy's arrays as well, though it asks for no array library.
        changes_rows: it does no more with each row of a variable than one of NumPy's functions does.
        takes_quantised: the compiled kernel takes and gives quantised tensors, as plain integers; the host kernel those
            of NumPy (`core.quantised_arrays`).
        calls_user_code: the host kernel calls a function of the user.
        processors_only: XLA compiles it for processors only: "integers" of the dtype `T`, "all", or nothing.
    """

    name: str
    inputs: tuple[ArgDef, ...]
    outputs: tuple[ArgDef, ...]
    attrs: dict[str, AttrDef]
    stateful: bool = False
    commutative: bool = False
    adds: bool = False
    one_function: bool = False
    exact: bool = False
    keeps_all: bool = False
    sums: bool = False
    shaped_by: str = ""
    static: frozenset[str] = frozenset()
    ranks: dict[str, int] = field(default_factory=dict)
    late_ranks: dict[str, int] = field(default_factory=dict)
    rank_words: dict[str, str] = field(default_factory=dict)
    refuses_late: bool = False
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    shape_valued: bool = False
    rank_valued: bool = False
    few_values: bool = False
    sized_by: dict[str, str] = field(default_factory=dict)
    outputs_sized_by: dict[str, dict[str, str]] = field(default_factory=dict)
    shape_outputs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    deals_out: bool = False
    asynchronous: bool = False
    locks: bool = False
    blocking: bool = False
    defers_bodies: bool = False
    knows_objects: bool = False
    role: Role = Role.COMPUTATION
    passes_on: bool = False
    repeats_bodies: bool = False
    unnoticed: bool = False
    obeys_requests: bool = False
    ignores_values: bool = False
    takes_numpy: bool = False
    changes_rows: bool = False
    takes_quantised: bool = False
    calls_user_code: bool = False
    processors_only: str = ""
    doc: str = ""
    shape_rule: Rule | None = None
    compiled_rule: Rule | None = None
    host_rule: Rule | None = None
    gradient_rule: Callable[..., Any] | None = None
    static_rule: Callable[[Any], frozenset[int]] | None = None
    sized_rule: Callable[[Any], dict[str, str]] | None = None
    partial_rule: Callable[[Any, int], list[int | None] | None] | None = None
    early_rule: EarlyRule | None = None
    known_rule: KnownRule | None = None
    flops_rule: FlopsRule | None = None
    differentiable: bool | None = None
    defined_at: str = ""
    #: names of attributes that are inferred from the inputs
    inferred: frozenset[str] = field(default=frozenset())
    #: whether attributes name functions
    calls_functions: bool = field(init=False)
    #: whether it is a primitive of control flow, functional control flow, or leads from one device to another
    is_primitive: bool = field(init=False)
    is_functional: bool = field(init=False)
    is_transfer: bool = field(init=False)

    def __post_init__(self) -> None:
        self.calls_functions = any(attr.kind in ("func", "list(func)") for attr in self.attrs.values())
        self.is_primitive = self.role in PRIMITIVE_ROLES
        self.is_functional = self.role in FUNCTIONAL_ROLES
        self.is_transfer = self.role in TRANSFER_ROLES

    # ------------------------------------------------------------------ the fields of TensorFlow's message
    @property
    def is_stateful(self) -> bool:
        """`stateful`, as `op.op_def` of TensorFlow calls it."""
        return self.stateful

    @property
    def is_commutative(self) -> bool:
        """`commutative`, as `op.op_def` of TensorFlow calls it."""
        return self.commutative

    # ------------------------------------------------------------------ decorators
    def shape(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Attaches the shape rule: TensorShapes of the inputs -> TensorShape, or a tuple/list of them per output."""
        self.shape_rule = self._rule(function, self.shape_rule, "shape rule")
        return function

    def late_shape(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Attaches a shape rule whose refusals wait until the operation runs.

        For operations of which TensorFlow checks little before: graphs that have one which cannot run are built and
        read, and their other nodes run. What is refused has outputs of unknown shape.
        """
        self.refuses_late = True
        return self.shape(function)

    def kernel(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Attaches the compiled kernel: a traceable function of jax arrays (also of NumPy arrays when it asks `xp`)."""
        self.compiled_rule = self._rule(function, self.compiled_rule, "kernel")
        return function

    def host_kernel(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Attaches the host kernel: a function of NumPy arrays, run by Python between compiled islands."""
        self.host_rule = self._rule(function, self.host_rule, "host kernel")
        return function

    def static_when(self, function: Callable[[Any], frozenset[int]]) -> Callable[[Any], frozenset[int]]:
        """Attaches a rule for what `static` cannot say: operation -> flat positions of inputs that must be static.

        For operations where it depends on attributes and constants which inputs may be computed on the device.
        """
        self.static_rule = function
        return function

    def sized_when(self, function: Callable[[Any], dict[str, str]]) -> Callable[[Any], dict[str, str]]:
        """Attaches a rule for what `sized_by` cannot say: operation -> what decides its sizes; nothing: all inputs."""
        self.sized_rule = function
        return function

    def partial_value(
        self, function: Callable[[Any, int], list[int | None] | None]
    ) -> Callable[[Any, int], list[int | None] | None]:
        """Attaches a rule for what is known of an output that describes a shape: (tensor, depth) -> its elements.

        The rule asks `graph.constants.partial_vector` for those of the inputs, with the same depth; None for an element
        or a vector of which nothing is known. What `passes_on` its inputs needs none.
        """
        self.partial_rule = function
        return function

    def early_outputs(self, function: EarlyRule) -> EarlyRule:
        """Attaches a rule for outputs that follow from some of the inputs alone, and are known where these are.

        (attributes, values of the flat inputs, None where one is not known) -> flat position of an output -> its value.
        It gives what the kernel would give, and nothing where that would refuse the inputs.
        """
        self.early_rule = function
        return function

    def when_known(self, function: KnownRule) -> KnownRule:
        """Attaches a rule for portable kernels on the host where all inputs but the first are known for ever.

        Operation -> a function of the first input, an array of NumPy's, which gives what the kernel would give: one
        array or number of the right dtype, with no more elements than it takes. Where the kernel, or the shape rule,
        would refuse the array, it raises IndexError, and these are asked. None: there is no such function.
        """
        self.known_rule = function
        return function

    def flops(self, function: FlopsRule) -> FlopsRule:
        """Attaches a rule for the floating-point operations that a run needs; without one, an element takes one.

        (shapes of the inputs, shapes of the outputs, attributes) -> number. What is not known of a shape was guessed;
        it is None where not even the rank is known.
        """
        self.flops_rule = function
        return function

    def gradient(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Attaches the gradient: (op, *output gradients) -> input gradients, each a tensor, IndexedSlices or None."""
        if self.differentiable is not None:
            raise ValueError(f"operation {self.name} already has a gradient; define it once")
        self.gradient_rule, self.differentiable = function, True
        return function

    def not_differentiable(self) -> Self:
        """States that no gradient flows through this operation; returns the definition itself."""
        if self.differentiable:
            raise ValueError(f"operation {self.name} already has a gradient; it cannot be non-differentiable as well")
        self.differentiable = False
        return self

    # ------------------------------------------------------------------ questions
    @property
    def portable(self) -> bool:
        """Whether the compiled kernel also runs on NumPy arrays (it asks for the array module `xp`)."""
        return self.compiled_rule is not None and self.compiled_rule.asks_for("xp")

    @property
    def random(self) -> bool:
        rule = self.compiled_rule or self.host_rule
        return rule is not None and rule.asks_for("rng")

    def static_positions(self, op: KernelOperation) -> frozenset[int]:
        """The flat positions of the inputs of `op` whose values must be known when a step is compiled."""
        if self.static_rule is not None:
            return self.static_rule(op)
        return self._positions(op, lambda arg: arg.name in self.static) if self.static else frozenset()

    @property
    def only_reads(self) -> bool:
        """Whether all that it does with variables is to read them."""
        return bool(self.reads) and not self.writes

    @property
    def takes_objects(self) -> bool:
        """Whether inputs of any type reach the kernels as they are: what has functions hands them on to these."""
        return self.knows_objects or self.calls_functions

    def object_positions(self, op: KernelOperation) -> frozenset[int]:
        """The flat positions of handles and variants that the kernels of `op` get in arrays of objects."""
        positions = frozenset(
            i for i, t in enumerate(op.inputs) if t.dtype is dtypes.resource or t.dtype is dtypes.variant
        )
        if not positions or self.takes_objects:
            return frozenset()
        return positions & self._positions(op, lambda arg: arg.dtype is None)

    def _positions(self, op: KernelOperation, wanted: Callable[[ArgDef], bool]) -> frozenset[int]:
        """The flat positions of some of the input arguments."""
        positions: set[int] = set()
        start = 0
        for arg in self.inputs:
            length = 1
            if arg.number_attr is not None:
                length = op.attrs[arg.number_attr]
            elif arg.type_list_attr is not None:
                length = len(op.attrs[arg.type_list_attr])
            if wanted(arg):
                positions.update(range(start, start + length))
            start += length
        return frozenset(positions)

    def check_ranks(self, ranks: Iterable[int | list[int | None] | None]) -> None:
        """Compares the ranks of the inputs, None where one is unknown, with `ranks`; those of a list all the same way.

        Raises:
            ValueError: an input has another rank.
            LateShapeError: an input has another rank than `late_ranks` says.
        """
        for arg, given in zip(self.inputs, ranks, strict=True):
            wanted = self.ranks.get(arg.name)
            refusal = ValueError
            if wanted is None:
                wanted, refusal = self.late_ranks.get(arg.name), LateShapeError
            if wanted is None:
                continue
            for rank in given if isinstance(given, list) else (given,):
                if rank is not None and rank != wanted:
                    words = self.rank_words.get(
                        arg.name, f"{arg.name} must be {_RANK_NAMES.get(wanted, f'of rank {wanted}')}"
                    )
                    raise refusal(
                        f"Shape must be rank {wanted} but is rank {rank} for the input {arg.name!r}: {words}; "
                        f"tf.reshape gives it another one"
                    )

    def input_arg(self, name: str) -> ArgDef:
        for arg in self.inputs:
            if arg.name == name:
                return arg
        raise KeyError(f"operation {self.name} has no input {name!r}; it has {[a.name for a in self.inputs]}")

    def _rule(self, function: Callable[..., Any], old: Rule | None, what: str) -> Rule:
        if old is not None:
            raise ValueError(f"operation {self.name} already has a {what}; define it once")
        rule = Rule.of(function)
        unknown = [k for k in rule.attr_names() if k not in self.attrs]
        if unknown:
            raise ValueError(
                f"the {what} of {self.name} asks for attributes {unknown}, which the operation does not have; "
                f"it has {sorted(self.attrs)}"
            )
        return rule

    def __repr__(self) -> str:
        return f"<OpDef {self.name}>"
