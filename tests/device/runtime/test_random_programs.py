"""Random programs of conditionals, loops and host work: what a session computes is what Python does (§3.4)."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import anabranch as tf
from anabranch.graph.graph import Graph
from anabranch.pipeline import lowering_everything
from anabranch.runtime.item_graph import by_executor_alone

#: ("add", i, j), ("new", value), ("host", i), ("cond", i, else block, then block), ("loop", i, rounds, block);
#: numbers are positions in the scope, whose last value is a block's result
Statement = tuple[Any, ...]


def random_block(rng: random.Random, size: int, depth: int = 0) -> list[Statement]:
    """Statements for a scope of `size` values."""
    block: list[Statement] = []
    for _ in range(rng.randint(1, 3)):
        kind = rng.choice(["add", "new", "host", *(["cond", "loop"] * 2 if depth < 2 else [])])
        i, j = rng.randrange(size), rng.randrange(size)
        if kind == "add":
            block.append(("add", i, j))
        elif kind == "new":
            block.append(("new", rng.randint(0, 50)))
        elif kind == "host":
            block.append(("host", i))
        elif kind == "cond":
            block.append(("cond", i, random_block(rng, size, depth + 1), random_block(rng, size, depth + 1)))
        else:
            block.append(("loop", i, rng.randint(0, 3), random_block(rng, size + 1, depth + 1)))
        size += 1
    return block


def interpret(block: list[Statement], scope: list[int]) -> int:
    """What Python makes of a block."""
    for statement in block:
        match statement:
            case "add", i, j:
                scope.append((scope[i] + 3 * scope[j]) % 97)
            case "new", value:
                scope.append(value)
            case "host", i:
                scope.append(scope[i] + 1)
            case "cond", i, *sides:
                scope.append(interpret(sides[scope[i] % 2], list(scope)))
            case "loop", i, rounds, body:
                value = scope[i]
                for _ in range(rounds):
                    value = interpret(body, [*scope, value])
                scope.append(value)
    return scope[-1]


def on_host(value: Any) -> Any:
    found = tf.py_func(lambda v: np.int32(v + 1), [value], tf.int32)
    found.set_shape([])
    return found


def build(block: list[Statement], scope: list[Any]) -> Any:
    """Writes a block down as a graph."""
    for statement in block:
        match statement:
            case "add", i, j:
                scope.append((scope[i] + 3 * scope[j]) % 97)
            case "new", value:
                scope.append(tf.constant(value))
            case "host", i:
                scope.append(on_host(scope[i]))
            case "cond", i, other, then:
                scope.append(build_conditional(list(scope), scope[i], other, then))
            case "loop", i, rounds, body:
                scope.append(build_loop(list(scope), scope[i], rounds, body))
    return scope[-1]


def build_conditional(scope: list[Any], value: Any, other: list[Statement], then: list[Statement]) -> Any:
    return tf.cond(tf.equal(value % 2, 1), lambda: build(then, list(scope)), lambda: build(other, list(scope)))


def build_loop(scope: list[Any], start: Any, rounds: int, body: list[Statement]) -> Any:
    def iterate(k: Any, value: Any) -> Any:
        return k + 1, build(body, [*scope, value])

    return tf.while_loop(lambda k, _: k < rounds, iterate, (0, start), parallel_iterations=3)[1]


@contextlib.contextmanager
def all_by_the_executor() -> Iterator[None]:
    with lowering_everything(), by_executor_alone():
        yield


#: who runs the conditionals and loops: compiled programs where they can, straight loops where they can, the executor
WAYS: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "as planned": contextlib.nullcontext,
    "all lowered": lowering_everything,
    "all by the executor": all_by_the_executor,
}


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=40)
@given(seed=st.integers(0, 1 << 40))
def test_a_session_computes_what_python_does(way: str, seed: int) -> None:
    rng = random.Random(seed)
    program, values = random_block(rng, 2), [rng.randint(0, 50), rng.randint(0, 50)]
    expected = interpret(program, list(values))
    with Graph().as_default():
        feeds = [tf.placeholder(tf.int32, []) for _ in values]
        result = build(program, list(feeds))
        with WAYS[way](), tf.Session() as session:
            got = session.run(result, dict(zip(feeds, values, strict=True)))
    assert got == expected
