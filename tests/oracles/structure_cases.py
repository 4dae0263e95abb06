"""What the functions that pack structures are given, for the oracle that records what they return and for the test.

Each case takes the module: TensorFlow 1's interface, whoever provides it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class Pair(NamedTuple):
    a: Any
    b: Any


class Single(NamedTuple):
    a: Any


def _one(tf: Any) -> Any:
    return tf.constant(1.0)


def _matrix(tf: Any) -> Any:
    return tf.zeros([3, 2])


def _sparse(tf: Any) -> Any:
    return tf.SparseTensor([[0]], [1.0], [2])


def _slices(tf: Any) -> Any:
    return tf.IndexedSlices(tf.constant([1.0]), tf.constant([0]), tf.constant([2]))


#: what loops are given, and their bodies
LOOPS: dict[str, tuple[Callable[[Any], Any], Callable[..., Any]]] = {
    "[x]": (lambda tf: [_one(tf)], lambda x: [x]),
    "[x], body x": (lambda tf: [_one(tf)], lambda x: x),
    "(x,)": (lambda tf: (_one(tf),), lambda x: (x,)),
    "[x, y]": (lambda tf: [_one(tf), _one(tf)], lambda x, y: [x, y]),
    "(x, y)": (lambda tf: (_one(tf), _one(tf)), lambda x, y: (x, y)),
    "[[x, y]]": (lambda tf: [[_one(tf), _one(tf)]], lambda s: [s]),
    "[(x, y)]": (lambda tf: [(_one(tf), _one(tf))], lambda s: [s]),
    "[(x, y)], body (x, y)": (lambda tf: [(_one(tf), _one(tf))], lambda s: s),
    "[[x]]": (lambda tf: [[_one(tf)]], lambda s: [s]),
    "[Pair]": (lambda tf: [Pair(_one(tf), _one(tf))], lambda s: [s]),
    "[Pair], body Pair": (lambda tf: [Pair(_one(tf), _one(tf))], lambda s: s),
    "Pair": (lambda tf: Pair(_one(tf), _one(tf)), Pair),
    "Single": (lambda tf: Single(_one(tf)), Single),
    "[Single]": (lambda tf: [Single(_one(tf))], lambda s: [s]),
    "[dict of two]": (lambda tf: [{"a": _one(tf), "b": _one(tf)}], lambda s: [s]),
    "[dict of two], body dict": (lambda tf: [{"a": _one(tf), "b": _one(tf)}], lambda s: s),
    "[dict of one]": (lambda tf: [{"a": _one(tf)}], lambda s: [s]),
    "[array]": (lambda tf: [tf.TensorArray(tf.float32, 1)], lambda t: [t.write(0, 1.0)]),
    "[array], body array": (lambda tf: [tf.TensorArray(tf.float32, 1)], lambda t: t.write(0, 1.0)),
    "[[array]]": (lambda tf: [[tf.TensorArray(tf.float32, 1)]], lambda s: [s]),
    "[sparse]": (lambda tf: [_sparse(tf)], lambda t: [t]),
    "[sparse], body sparse": (lambda tf: [_sparse(tf)], lambda t: t),
    "[slices]": (lambda tf: [_slices(tf)], lambda t: [t]),
    "[x, [y, Pair]]": (lambda tf: [_one(tf), [_one(tf), Pair(_one(tf), _one(tf))]], lambda x, s: [x, s]),
    "[x, ()]": (lambda tf: [_one(tf), ()], lambda x, s: [x, s]),
}

#: what a branch returns
BRANCHES: dict[str, Callable[[Any], Any]] = {
    "x": _one,
    "[x]": lambda tf: [_one(tf)],
    "(x,)": lambda tf: (_one(tf),),
    "[x, y]": lambda tf: [_one(tf), _one(tf)],
    "[[x]]": lambda tf: [[_one(tf)]],
    "Single": lambda tf: Single(_one(tf)),
    "[Single]": lambda tf: [Single(_one(tf))],
    "Pair": lambda tf: Pair(_one(tf), _one(tf)),
    "[Pair]": lambda tf: [Pair(_one(tf), _one(tf))],
    "dict": lambda tf: {"a": _one(tf)},
    "[dict]": lambda tf: [{"a": _one(tf)}],
    "[x, None]": lambda tf: [_one(tf), None],
    "sparse": _sparse,
    "[sparse]": lambda tf: [_sparse(tf)],
    "slices": _slices,
    "array": lambda tf: tf.TensorArray(tf.float32, 1),
    "operation": lambda tf: tf.no_op(),
    "[operation]": lambda tf: [tf.no_op()],
    "[x, operation]": lambda tf: [_one(tf), tf.no_op()],
    "1.0": lambda tf: 1.0,
    "[1.0, 2.0]": lambda tf: [1.0, 2.0],
}

#: functions over rows
ROWS: dict[str, Callable[[Any], Any]] = {
    "map x": lambda tf: tf.map_fn(lambda r: r, _matrix(tf)),
    "map [x]": lambda tf: tf.map_fn(lambda r: [r[0]], [_matrix(tf)]),
    "map [x] bare": lambda tf: tf.map_fn(lambda r: r, [_matrix(tf)]),
    "map (x,)": lambda tf: tf.map_fn(lambda r: r, (_matrix(tf),)),
    "map Pair": lambda tf: tf.map_fn(lambda r: Pair(r.a, r.b), Pair(_matrix(tf), _matrix(tf))),
    "map Pair->t": lambda tf: tf.map_fn(lambda r: (r.a, r.b), Pair(_matrix(tf), _matrix(tf))),
    "map dict": lambda tf: tf.map_fn(lambda r: r, {"a": _matrix(tf), "b": _matrix(tf)}),
    "map dtype list1": lambda tf: tf.map_fn(lambda r: [r], _matrix(tf), dtype=[tf.float32]),
    "map dtype list1 bare": lambda tf: tf.map_fn(lambda r: r, _matrix(tf), dtype=[tf.float32]),
    "map dtype Pair": lambda tf: tf.map_fn(lambda r: Pair(r, r), _matrix(tf), dtype=Pair(tf.float32, tf.float32)),
    "map dtype Single": lambda tf: tf.map_fn(Single, _matrix(tf), dtype=Single(tf.float32)),
    "map nested": lambda tf: tf.map_fn(lambda r: (r[0], [r[1][0]]), (_matrix(tf), [_matrix(tf)])),
    "scan x": lambda tf: tf.scan(lambda a, r: a, _matrix(tf)),
    "scan [x]": lambda tf: tf.scan(lambda a, r: [a[0]], [_matrix(tf)]),
    "scan [x] bare": lambda tf: tf.scan(lambda a, r: a, [_matrix(tf)]),
    "scan (x,)": lambda tf: tf.scan(lambda a, r: a, (_matrix(tf),)),
    "scan Pair": lambda tf: tf.scan(lambda a, r: Pair(a.a, a.b), Pair(_matrix(tf), _matrix(tf))),
    "scan init [x]": lambda tf: tf.scan(lambda a, r: [a[0]], _matrix(tf), [_one(tf)]),
    "scan init Pair": lambda tf: tf.scan(lambda a, r: a, _matrix(tf), Pair(_one(tf), _one(tf))),
    "scan init Pair -> t": lambda tf: tf.scan(lambda a, r: (a.a, a.b), _matrix(tf), Pair(_one(tf), _one(tf))),
    "scan init dict": lambda tf: tf.scan(lambda a, r: a, _matrix(tf), {"a": _one(tf)}),
    "foldl x": lambda tf: tf.foldl(lambda a, r: a, _matrix(tf)),
    "foldl [x]": lambda tf: tf.foldl(lambda a, r: [a[0]], [_matrix(tf)]),
    "foldl (x,)": lambda tf: tf.foldl(lambda a, r: a, (_matrix(tf),)),
    "foldl Pair": lambda tf: tf.foldl(lambda a, r: a, Pair(_matrix(tf), _matrix(tf))),
    "foldl init [x]": lambda tf: tf.foldl(lambda a, r: [a[0]], _matrix(tf), [_one(tf)]),
    "foldl init (x,y)": lambda tf: tf.foldl(lambda a, r: a, _matrix(tf), (_one(tf), _one(tf))),
    "foldl init Pair": lambda tf: tf.foldl(lambda a, r: a, _matrix(tf), Pair(_one(tf), _one(tf))),
    "foldl init dict": lambda tf: tf.foldl(lambda a, r: a, _matrix(tf), {"a": _one(tf)}),
    "foldl init [[x]]": lambda tf: tf.foldl(lambda a, r: a, _matrix(tf), [[_one(tf)]]),
    "foldr x": lambda tf: tf.foldr(lambda a, r: a, _matrix(tf)),
    "foldr [x]": lambda tf: tf.foldr(lambda a, r: [a[0]], [_matrix(tf)]),
    "foldr init Pair": lambda tf: tf.foldr(lambda a, r: a, _matrix(tf), Pair(_one(tf), _one(tf))),
}


def cases(tf: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Labels, and functions that build a graph and return the structure."""
    for label, (start, body) in LOOPS.items():
        for options in ({}, {"maximum_iterations": 2}, {"back_prop": False}, {"return_same_structure": True}):
            yield f"while {label} {options or ''}".strip(), lambda s=start, b=body, o=options: _looped(tf, s, b, o)  # type: ignore[misc]
    for label, made in BRANCHES.items():
        for strict in (False, True):
            yield f"cond {label} {strict}", lambda m=made, s=strict: _conditional(tf, m, s)  # type: ignore[misc]
            if strict or label not in {"[[x]]", "[Single]"}:  # version 1 cannot put these together again
                yield f"case {label} {strict}", lambda m=made, s=strict: _case(tf, m, s)  # type: ignore[misc]
        yield f"switch_case {label}", lambda m=made: _switched(tf, m)  # type: ignore[misc]
    for label, made in ROWS.items():
        yield label, lambda m=made: m(tf)  # type: ignore[misc]


def _looped(tf: Any, start: Any, body: Any, options: dict[str, Any]) -> Any:
    return tf.while_loop(lambda *_: tf.constant(False), body, start(tf), **options)


def _conditional(tf: Any, made: Any, strict: bool) -> Any:
    return tf.cond(tf.placeholder(tf.bool, []), lambda: made(tf), lambda: made(tf), strict=strict)


def _case(tf: Any, made: Any, strict: bool) -> Any:
    pairs = [(tf.placeholder(tf.bool, []), lambda: made(tf)) for _ in range(2)]
    return tf.case(pairs, default=lambda: made(tf), strict=strict)


def _switched(tf: Any, made: Any) -> Any:
    return tf.switch_case(tf.placeholder(tf.int32, []), [lambda: made(tf)] * 2)


def form(value: Any) -> str:
    """The structure of a value, with the names of types in place of leaves."""
    if isinstance(value, dict):
        return f"dict({', '.join(f'{key}: {form(value[key])}' for key in sorted(value))})"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({', '.join(map(form, value))})"
    return type(value).__name__.replace("SymbolicTensor", "Tensor")
