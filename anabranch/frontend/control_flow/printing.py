"""Printing the values of tensors while a step runs, and the time."""

from __future__ import annotations

import os
import pprint
import re
import sys
from collections.abc import Iterable
from typing import Any

from anabranch.core import dtypes, nest
from anabranch.core.nest import Structure
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.framework import name_scope
from anabranch.graph.composite import SparseTensor
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw

_LOG_STREAMS = {"INFO": "log(info)", "WARN": "log(warning)", "WARNING": "log(warning)", "ERROR": "log(error)"}


def Print(
    input_: TensorLike,
    data: Iterable[TensorLike],
    message: str | None = None,
    first_n: int | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> Tensor:
    """The value of `input_`; evaluating it prints `data` to standard error.

    Args:
        input_: a tensor of any dtype and shape.
        data: a list of tensors.
        message: a string to print before them.
        first_n: print the first so many times only.
        summarize: how many elements of each tensor to print; default: 3.
        name: of the operation.

    Returns:
        A tensor of the dtype and shape of `input_`.

    Raises:
        TypeError: something in `data` cannot be converted to a tensor.

    Example:
        >>> x = tf.constant([1.0, 2.0])
        >>> x = tf.Print(x, [tf.reduce_sum(x)], message="sum: ")
        >>> sess.run(x)
        array([1., 2.], dtype=float32)
    """
    result: Tensor = raw.Print(input_, list(data), message=message, first_n=first_n, summarize=summarize, name=name)
    return result


def print_v2(*inputs: Structure, **kwargs: PassedOn) -> Operation:
    """An operation that prints `inputs`: tensors, nested structures with tensors, and any Python objects.

    Args:
        inputs: separated by spaces in the output (or by `sep`).
        output_stream: `sys.stderr` (the default), `sys.stdout`, a level of `tf.logging`, or ``"file://path"``.
        summarize: how many first and last elements of each dimension to print; -1 for all; default: 3.
        sep: what separates the inputs.
        end: what is printed at the end; default: a new line.
        name: a name for the operation.

    Raises:
        ValueError: another keyword argument, or an unknown stream.
    """
    stream = kwargs.pop("output_stream", sys.stderr)
    name, summarize = kwargs.pop("name", None), kwargs.pop("summarize", 3)
    separator, end = kwargs.pop("sep", " "), kwargs.pop("end", os.linesep)
    if kwargs:
        raise ValueError(f"Unrecognized keyword arguments for tf.print: {kwargs}")
    if (
        len(inputs) == 1
        and isinstance(inputs[0], Tensor)
        and inputs[0].dtype is dtypes.string
        and inputs[0].shape.ndims == 0
    ):
        text: Any = inputs[0]
    else:
        text = _formatted(inputs, separator, summarize, name)
    result: Operation = raw.PrintV2(text, output_stream=_stream_name(stream), end=end, name=name)
    return result


print = print_v2


def _formatted(inputs: Structure, separator: str, summarize: int, name: str | None) -> Tensor:
    tensors: list[Tensor] = []
    printed: list[Tensor] = []
    texts = []
    for item in inputs:
        if isinstance(item, str):
            texts.append(item)
            continue
        text = pprint.pformat(nest.map_structure(lambda leaf: _mark(leaf, tensors), item))
        printed += [tensors[int(number)] for number in _MARKS.findall(text)]  # a mapping is printed in another order
        texts.append(_MARKS.sub(_PLACEHOLDER, text))
    result: Tensor = raw.StringFormat(
        printed,
        template=separator.join(texts),
        placeholder=_PLACEHOLDER,
        summarize=summarize,
        name=f"{name}_format" if name else None,
    )
    return result


#: unlikely to be a part of what is printed
_PLACEHOLDER = "\u241f{}\u241f"
#: the same for the tensor of a number, which a structure shows with the quotes of a string
_MARK = "\u241f{}\u241e"
_MARKS = re.compile("'?\u241f([0-9]+)\u241e'?")


def _mark(leaf: TensorLike, tensors: list[Tensor]) -> Any:
    """A mark in place of a tensor (which is noted); other objects as they are."""
    if isinstance(leaf, SparseTensor):
        parts = [_mark(part, tensors) for part in (leaf.indices, leaf.values, leaf.dense_shape)]
        return "SparseTensor(indices={}, values={}, shape={})".format(*parts)
    if isinstance(leaf, Tensor) or hasattr(leaf, "_as_graph_element"):
        with name_scope(None):
            tensors.append(convert_to_tensor(leaf))
        return _MARK.format(len(tensors) - 1)
    return leaf


def _stream_name(stream: object) -> str:
    if stream is sys.stdout:
        return "stdout"
    if stream is sys.stderr:
        return "stderr"
    if isinstance(stream, str) and stream.startswith("file://"):
        return stream
    level = getattr(stream, "__name__", str(stream)).upper()
    if level in _LOG_STREAMS:
        return _LOG_STREAMS[level]
    raise ValueError(
        f"Unsupported output stream, logging level, or file: {stream!r}; use sys.stdout, sys.stderr, a level of "
        "tf.logging or 'file://<path>'"
    )


def timestamp(name: str | None = None) -> Tensor:
    """The time when it is evaluated: seconds since 1970, float64."""
    result: Tensor = raw.Timestamp(name=name)
    return result
