"""Arrays as JSON, and JSON as frames on a pipe: what the fuzzer and its workers say to each other.

It needs NumPy and ml_dtypes only, since it runs in both environments.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from typing import IO, Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]

_LENGTH_BYTES = 8
#: a frame longer than that is not believed
_LONGEST_FRAME = 1 << 30


def encode_array(value: Any) -> dict[str, Any]:
    """An array, or what a session returned for a text, as JSON: dtype, shape, elements in base64."""
    if isinstance(value, bytes | str) or (isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "OSU"):
        array = value if isinstance(value, np.ndarray) else np.array(value, np.object_)
        texts = [t.encode() if isinstance(t, str) else bytes(t) for t in array.reshape(-1).tolist()]
        return {
            "dtype": "string",
            "shape": list(array.shape),
            "data": [base64.b64encode(text).decode() for text in texts],
        }
    array = np.asarray(value)
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": array.dtype.name, "shape": list(array.shape), "data": data}


def decode_array(coded: dict[str, Any]) -> Array:
    """The array that `encode_array` was given; texts come as an array of bytes objects."""
    shape = tuple(coded["shape"])
    if coded["dtype"] == "string":
        texts = np.empty(len(coded["data"]), np.object_)
        texts[:] = [base64.b64decode(text) for text in coded["data"]]
        return texts.reshape(shape)
    raw = base64.b64decode(coded["data"])
    return np.frombuffer(raw, numpy_dtype(coded["dtype"])).reshape(shape).copy()


def numpy_dtype(name: str) -> Any:
    """NumPy's dtype of that name, ml_dtypes' included; texts are objects."""
    if name == "string":
        return np.dtype(np.object_)
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


def send(stream: IO[bytes], message: dict[str, Any]) -> None:
    """Writes one frame: the length, then JSON."""
    body = json.dumps(message).encode()
    stream.write(len(body).to_bytes(_LENGTH_BYTES, "little"))
    stream.write(body)
    stream.flush()


def receive(stream: IO[bytes]) -> dict[str, Any]:
    """Reads one frame; raises EOFError where the other side is gone."""
    head = stream.read(_LENGTH_BYTES)
    if len(head) < _LENGTH_BYTES:
        raise EOFError("the other side closed the pipe")
    length = int.from_bytes(head, "little")
    if length > _LONGEST_FRAME:
        raise EOFError(f"a frame of {length} bytes is not believed")
    body = stream.read(length)
    if len(body) < length:
        raise EOFError("the other side closed the pipe in the middle of a frame")
    message: dict[str, Any] = json.loads(body)
    return message


def serve(start: Callable[[], Callable[[dict[str, Any]], dict[str, Any]]]) -> None:
    """Answers requests from standard input on standard output, until the other side is gone.

    What is printed meanwhile goes to standard error.

    Args:
        start: gives what answers; called when that is so.
    """
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    answer = start()
    while True:
        try:
            request = receive(requests)
        except EOFError:
            return
        send(answers, answer(request))
