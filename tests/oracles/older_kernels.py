"""Lets the sessions of one TensorFlow run their steps in another, whose shared libraries are unpacked in a folder.

Versions of today define the operations of boosted trees, but have no kernels of them; the last that had is 2.8, for
Pythons that are gone. Its libraries need no Python: they are asked through TensorFlow's C interface.
"""

from __future__ import annotations

import ctypes
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from tensorflow.python.client import session as sessions
from tensorflow.python.framework import dtypes

_STRING_SIZE = 24
_Pointer = ctypes.c_void_p


class OlderTensorFlow:
    """The C interface of the libraries in `folder`, which is that of the package `tensorflow`."""

    def __init__(self, folder: Path) -> None:
        mode = ctypes.RTLD_GLOBAL | os.RTLD_LAZY
        ctypes.CDLL(str(folder / "libtensorflow_framework.so.2"), mode=mode)
        self._library = ctypes.CDLL(str(folder / "python" / "_pywrap_tensorflow_internal.so"), mode=mode)
        for name in ("TF_NewStatus", "TF_NewSessionOptions", "TF_NewDeprecatedSession", "TF_AllocateTensor"):
            getattr(self._library, name).restype = _Pointer
        for name in ("TF_TensorData", "TF_StringGetDataPointer"):
            getattr(self._library, name).restype = _Pointer
        for name in ("TF_Dim", "TF_StringGetSize"):
            getattr(self._library, name).restype = ctypes.c_int64
        for name in ("TF_Message", "TF_Version"):
            getattr(self._library, name).restype = ctypes.c_char_p

    def version(self) -> str:
        found: bytes = self._library.TF_Version()
        return found.decode()

    def new_session(self) -> Any:
        return self._checked("TF_NewDeprecatedSession", _Pointer(self._library.TF_NewSessionOptions()))

    def extend(self, session: Any, graph: bytes) -> None:
        self._checked("TF_ExtendGraph", _Pointer(session), graph, ctypes.c_size_t(len(graph)))

    def run(self, session: Any, feeds: dict[str, Any], fetches: list[str], targets: list[str]) -> list[Any]:
        inputs = (_Pointer * len(feeds))(*[self._tensor(np.asarray(value)) for value in feeds.values()])
        outputs = (_Pointer * len(fetches))()
        given, wanted = (_names(feeds), inputs, len(feeds)), (_names(fetches), outputs, len(fetches))
        self._checked("TF_Run", _Pointer(session), None, *given, *wanted, _names(targets), len(targets), None)
        return [self._array(output) for output in outputs]

    def _checked(self, name: str, *arguments: Any) -> Any:
        status = _Pointer(self._library.TF_NewStatus())
        result = getattr(self._library, name)(*arguments, status)
        if code := self._library.TF_GetCode(status):
            message = self._library.TF_Message(status).decode()
            raise sessions.errors.exception_type_from_error_code(code)(None, None, message)
        return result

    def _tensor(self, array: Any) -> int:
        strings = array.dtype.kind in "OSU"
        dtype = dtypes.string if strings else dtypes.as_dtype(array.dtype)
        dims = (ctypes.c_int64 * array.ndim)(*array.shape)
        size = array.size * _STRING_SIZE if strings else array.nbytes
        tensor: int = self._library.TF_AllocateTensor(dtype.as_datatype_enum, dims, array.ndim, ctypes.c_size_t(size))
        data = self._library.TF_TensorData(_Pointer(tensor))
        if not strings:
            ctypes.memmove(data, np.ascontiguousarray(array).ctypes.data, size)
            return tensor
        for i, text in enumerate(array.reshape(-1).tolist()):
            encoded = text.encode() if isinstance(text, str) else text
            place = _Pointer(data + i * _STRING_SIZE)
            self._library.TF_StringInit(place)
            self._library.TF_StringCopy(place, encoded, ctypes.c_size_t(len(encoded)))
        return tensor

    def _array(self, address: int) -> Any:
        tensor = _Pointer(address)
        shape = [self._library.TF_Dim(tensor, i) for i in range(self._library.TF_NumDims(tensor))]
        dtype = dtypes.as_dtype(self._library.TF_TensorType(tensor))
        data, count = self._library.TF_TensorData(tensor), math.prod(shape)
        if dtype != dtypes.string:
            numbers = ctypes.string_at(data, count * dtype.size) if count else b""
            return np.frombuffer(numbers, dtype.as_numpy_dtype).reshape(shape).copy()[()]
        texts = np.empty(count, object)
        for i in range(count):
            place = _Pointer(data + i * _STRING_SIZE)
            size = self._library.TF_StringGetSize(place)
            texts[i] = ctypes.string_at(self._library.TF_StringGetDataPointer(place), size)
        return texts.reshape(shape)[()]


def _names(names: Any) -> Any:
    return (ctypes.c_char_p * len(names))(*[name.encode() for name in names])


def run_sessions_in(older: OlderTensorFlow) -> None:
    """From now on, sessions of this TensorFlow build graphs here and run them there."""

    def do_run(
        self: Any, handle: Any, targets: Any, fetches: Any, feeds: Any, options: Any, run_metadata: Any
    ) -> list[Any]:
        with self.graph._lock:
            if not hasattr(self, "_older"):
                self._older, self._sent = older.new_session(), 0
            if self.graph.version > self._sent:
                older.extend(self._older, self.graph.as_graph_def(from_version=self._sent).SerializeToString())
                self._sent = self.graph.version
        named = {key.deref().name: value for key, value in feeds.items()}
        return older.run(self._older, named, [tensor.name for tensor in fetches], [op.name for op in targets])

    sessions.BaseSession._do_run = do_run
