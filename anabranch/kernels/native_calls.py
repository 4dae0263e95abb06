"""Calls from compiled programs into libraries, through XLA's interface for foreign functions, in Python alone.

A program holds a call of the one handler registered here. What it is to compute stands in an attribute of the call, as
text: so the program means the same in every process, and can be kept in the compile cache. The handler is a callback
of ctypes that reads XLA's call frame (`xla/ffi/api/c_api.h`, whose structures stand below; their fields do not move
within a major version of the interface).

Contract: the handler never raises, and never returns success without a result. Whatever goes wrong becomes an error of
XLA's that names the operation. It takes 10 to 20 µs, and needs Python's lock for a part of them: beside a busy Python
thread a call waits for its turn (5 ms at most, `sys.getswitchinterval`).
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import jax
import numpy as np

from anabranch.core import dtypes
from anabranch.core.arrays import Array, HostArray
from anabranch.core.host_memory import aligned_empty
from anabranch.core.kernels import KernelCase
from anabranch.core.processor import core_count
from anabranch.errors import InternalError
from anabranch.kernels import onednn, onednn_stages, pool_stages
from anabranch.kernels.crowding import RunnableComputation, SparingComputation, cores
from anabranch.kernels.onednn import NativeError, Strided

#: what programs call the handler; a change of the text or of the buffers' order needs another name
TARGET: Final = "anabranch_native_2"
_ATTRIBUTE: Final = "computation"
#: computations kept by a process
_MAX_COMPUTATIONS: Final = 1024
#: cores of a machine on which computations that spin run on one thread beside the compiler (measured on two)
_FEW_CORES: Final = 4
#: what a call costs, and what XLA is taken to compute (s, multiplications and additions/s)
_CALL_SECONDS: Final = 25e-6
_PRODUCTS_PER_SECOND: Final = 5e10

_INTERFACE_VERSION: Final = (0, 3)
_METADATA: Final = 1
_STRING: Final = 4
_INTERNAL: Final = 13
#: what errors begin with; the operation's name follows
_FAILURE: Final = "the library that computes the operation "


class _Arguments(ctypes.Structure):
    """`XLA_FFI_Args` and `XLA_FFI_Rets`."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("types", ctypes.POINTER(ctypes.c_int)),
        ("values", ctypes.POINTER(ctypes.c_void_p)),
    )


class _Attributes(ctypes.Structure):
    """`XLA_FFI_Attrs`."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("types", ctypes.POINTER(ctypes.c_int)),
        ("names", ctypes.c_void_p),
        ("values", ctypes.POINTER(ctypes.c_void_p)),
    )


class _Frame(ctypes.Structure):
    """`XLA_FFI_CallFrame`, but for its last field."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("api", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("stage", ctypes.c_int),
        ("arguments", _Arguments),
        ("results", _Arguments),
        ("attributes", _Attributes),
    )


class _Buffer(ctypes.Structure):
    """`XLA_FFI_Buffer`."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("dtype", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int64),
        ("lengths", ctypes.POINTER(ctypes.c_int64)),
    )


class _Text(ctypes.Structure):
    """`XLA_FFI_ByteSpan`."""

    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_size_t))


class _ApiVersion(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
    )


class _Api(ctypes.Structure):
    """The beginning of `XLA_FFI_Api`."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("version", _ApiVersion),
        ("internal", ctypes.c_void_p),
        ("create_error", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)),
    )


class _ErrorArguments(ctypes.Structure):
    """`XLA_FFI_Error_Create_Args`."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("message", ctypes.c_char_p),
        ("code", ctypes.c_int),
    )


class _Metadata(ctypes.Structure):
    _fields_ = (("struct_size", ctypes.c_size_t), ("version", _ApiVersion), ("traits", ctypes.c_uint32))


class _Extension(ctypes.Structure):
    """`XLA_FFI_Metadata_Extension`."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("metadata", ctypes.POINTER(_Metadata)),
    )


class Prepared(NamedTuple):
    """A computation, such as an `onednn_stages.Computation`, and what it reads and writes. Any thread may run it.

    Attributes:
        sizes: how many elements each of its arrays has: what it reads, in order, and its results.
        results: how many of them are results.
        spins: whether its threads spin while they wait for each other.
    """

    computation: RunnableComputation
    sizes: tuple[int, ...]
    results: int = 1
    spins: bool = False


#: makes the computation of a text
Maker = Callable[[str], Prepared]


class _KeptCall(NamedTuple):
    """What is kept of a text: what was made of it, and what runs."""

    prepared: Prepared
    running: RunnableComputation


_makers: Final[dict[str, Maker]] = {}
_calls: Final[dict[bytes, _KeptCall]] = {}
_lock: Final = threading.Lock()


def register_maker(kind: str, maker: Maker) -> None:
    """Names what makes the computations of a kind; their texts begin with the kind and a blank."""
    _makers[kind] = maker


def prepared(text: str) -> RunnableComputation:
    """The computation of a text, made once.

    Raises:
        NativeError: the library cannot compute it, or only slowly.
    """
    return _find(text.encode()).prepared.computation


def sizes(text: str) -> tuple[int, ...]:
    """How many elements the arrays of a computation have (`Prepared.sizes`); raises as `prepared`."""
    return _find(text.encode()).prepared.sizes


def can_prepare(text: str) -> bool:
    """Whether the library has an implementation that is worth while."""
    try:
        prepared(text)
    except NativeError:
        return False
    return True


def _find(text: bytes) -> _KeptCall:
    call = _calls.get(text)
    if call is None:
        kind, _, rest = text.decode().partition(" ")
        make = functools.partial(_makers[kind], rest)
        prepared = make()
        narrow = functools.partial(onednn_stages.on_one_thread, lambda: make().computation)
        spins = prepared.spins and _has_few_cores()
        call = _KeptCall(prepared, SparingComputation(prepared.computation, narrow, cores, spins))
        with _lock:
            while len(_calls) >= _MAX_COMPUTATIONS:
                del _calls[next(iter(_calls))]
            _calls[text] = call
    return call


def are_in_use() -> bool:
    """Whether this process has made a computation, and with it the library's threads."""
    return bool(_calls)


def _has_few_cores() -> bool:
    """Whether one thread is a large share of what the cores do, and the compiler's threads take all of them."""
    return core_count() <= _FEW_CORES


def forget() -> None:
    """Forgets all computations; those that are needed are made anew."""
    with _lock:
        _calls.clear()


def call(node: str, text: str, inputs: Sequence[Array], shape: tuple[int, ...], dtype: np.typing.DTypeLike) -> Any:
    """A call of a computation with one result, in a program that is being traced; of NumPy's arrays, what it gives.

    Args:
        node: the operation that it computes, for errors.
        text: what `prepared` takes.
        inputs: the arrays that it reads.
        shape, dtype: of what it gives.

    Raises:
        InternalError: the library failed, where the arrays are NumPy's.
    """
    (result,) = call_several(node, text, inputs, [(shape, dtype)])
    return result


def call_several(
    node: str, text: str, inputs: Sequence[Array], results: Sequence[tuple[tuple[int, ...], np.typing.DTypeLike]]
) -> list[Any]:
    """Like `call`, of a computation with several results; `results`: shape and dtype of each."""
    if all(isinstance(value, np.ndarray) for value in inputs):
        return compute(node, text, inputs, [aligned_empty(shape, np.dtype(dtype)) for shape, dtype in results])
    if (parts := pool_stages.in_parts(text)) is not None:
        return pool_stages.call(node, parts, inputs, results)
    register()
    struct = jax.ShapeDtypeStruct
    given = [*results, ((prepared(text).scratch_bytes,), np.uint8)]
    described = tuple(struct(shape, dtype) for shape, dtype in given)  # type: ignore[no-untyped-call]
    # arrays stand row by row, whatever order XLA would like: the call says so, as `ffi_call` does by default
    *found, _ = jax.ffi.ffi_call(TARGET, described)(*inputs, **{_ATTRIBUTE: f"{node}\n{text}"})
    return found


def compute(node: str, text: str, inputs: Sequence[HostArray], results: list[HostArray]) -> list[HostArray]:
    """Computes on NumPy's arrays, and gives `results` back, which lie row by row.

    Raises:
        InternalError: the library failed.
    """
    arrays = [*(np.ascontiguousarray(value) for value in inputs), *results]
    try:
        prepared, running = _find(text.encode())
        sizes = prepared.sizes
        if [array.size for array in arrays] != list(sizes):
            raise NativeError(f"arrays have {[array.size for array in arrays]} elements, and {sizes} were prepared for")
        scratch = np.empty(running.scratch_bytes, np.uint8)
        running.run([array.ctypes.data for array in arrays], scratch.ctypes.data, scratch.size)
    except NativeError as error:
        raise InternalError(None, None, f"{_FAILURE}'{node}': {error}") from error
    return results


def array_at(address: int, described: Strided) -> HostArray:
    """The array at an address, which lives as long as its owner lets it."""
    dtype = np.dtype(np.float32 if described.type == onednn.FLOAT32 else dtypes.bfloat16.as_numpy_dtype)
    extent = 1 + sum((n - 1) * stride for n, stride in zip(described.lengths, described.strides, strict=True))
    memory = (ctypes.c_char * (extent * dtype.itemsize)).from_address(address)
    strides = [stride * dtype.itemsize for stride in described.strides]
    return np.ndarray(described.lengths, dtype, memoryview(memory).cast("B"), 0, strides)


def call_cost(products: int) -> float:
    """What share of the time that XLA takes for so many multiplications a call takes before it computes."""
    return _CALL_SECONDS * _PRODUCTS_PER_SECOND / products


def is_rough(case: KernelCase) -> bool:
    """Whether estimates say little here. On processors with AMX they fit what was measured of whole networks."""
    library = onednn.library()
    return library is None or not library.has_tiles


def failed_operation(text: str) -> str:
    """The operation that an error of XLA's names, if it comes from here; otherwise empty."""
    return text.partition(_FAILURE)[2].partition("'")[2].partition("'")[0]


@functools.cache
def register() -> None:
    """Makes the handler known to XLA."""
    address = ctypes.cast(_HANDLER, ctypes.c_void_p).value
    capsule = jax.ffi.pycapsule(address)  # type: ignore[no-untyped-call]
    jax.ffi.register_ffi_target(TARGET, capsule, platform="cpu")


# ---------------------------------------------------------------------- the handler
def _handle(address: int) -> int | None:
    """Serves a call; returns the address of an error, or None."""
    frame = _Frame.from_address(address)
    if frame.extension:
        extension = _Extension.from_address(frame.extension)
        if extension.type == _METADATA:
            version = extension.metadata.contents.version
            version.major, version.minor = _INTERFACE_VERSION
            return None
    node = ""
    try:
        given, _, text = _attribute(frame.attributes).partition(b"\n")
        node = given.decode()
        _run(frame, _find(text))
    except BaseException as error:  # none may leave a callback
        return _error(frame, f"{_FAILURE}'{node}': {error}")
    return None


def _attribute(attributes: _Attributes) -> bytes:
    if attributes.size != 1 or attributes.types[0] != _STRING:
        raise NativeError("a call has one attribute, a text")
    text = _Text.from_address(attributes.values[0])
    return ctypes.string_at(text.data, text.size)


def _run(frame: _Frame, call: _KeptCall) -> None:
    prepared = call.prepared
    arguments, results = frame.arguments, frame.results
    count = prepared.results
    if arguments.size + count != len(prepared.sizes) or results.size != count + 1:
        raise NativeError(f"a call with {arguments.size} inputs and {results.size} results; another was prepared")
    places = [arguments.values[at] for at in range(arguments.size)] + [results.values[at] for at in range(count)]
    buffers = [_Buffer.from_address(place) for place in places]
    for buffer, size in zip(buffers, prepared.sizes, strict=True):
        if _elements(buffer) != size:
            raise NativeError(f"an array has {_elements(buffer)} elements where {size} were prepared for")
    scratch = _Buffer.from_address(results.values[count])
    call.running.run([buffer.data for buffer in buffers], scratch.data or 0, _elements(scratch))


def _elements(buffer: _Buffer) -> int:
    size = 1
    for at in range(buffer.rank):
        size *= buffer.lengths[at]
    return size


def _error(frame: _Frame, message: str) -> int:
    arguments = _ErrorArguments(
        ctypes.sizeof(_ErrorArguments), None, message.encode("utf-8", "backslashreplace"), _INTERNAL
    )
    arguments.struct_size = _ErrorArguments.code.offset + ctypes.sizeof(ctypes.c_int)
    return int(_Api.from_address(frame.api).create_error(ctypes.addressof(arguments)))


_HANDLER: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(_handle)
