"""oneDNN, called through its C interface: the library of the extra `native`, found, loaded and wrapped.

Nothing here knows of XLA or of operations. `library()` loads it once per process; where it cannot, it says why,
and no kernel of it is offered. What its primitives compute together is in `onednn_stages`.

The C interface is that of oneDNN 3 (`dnnl.h`, `dnnl_types.h`); other major versions are refused.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.metadata
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from anabranch.core.thread_limits import limited_by

#: the package that brings the library, and what its file is called
DISTRIBUTION: Final = "onednn-cpu-gomp"
_FILE: Final = "libdnnl.so.3"
#: environment variable that turns the library off where it is 0
NATIVE_VARIABLE: Final = "ANABRANCH_NATIVE"
_MAJOR: Final = 3

# Of `dnnl_types.h`.
BFLOAT16: Final = 2
FLOAT32: Final = 3
INT32, INT8, UINT8 = 4, 5, 6
#: NumPy's names of those of floats
TYPES: Final[Mapping[str, int]] = {"bfloat16": BFLOAT16, "float32": FLOAT32}
FORWARD_TRAINING: Final = 64
_BACKWARD: Final = 128
#: normalization scales and shifts, and leaves what is positive
_SCALES_AND_SHIFTS, _LEAVES_POSITIVE = 6, 8
CONVOLUTION_DIRECT: Final = 1
#: the kind of a binary primitive that adds, and of an elementwise one that keeps what is positive
ADD, RELU = 0x1FFF0, 0x20
#: elementwise: a number times (the number times a factor, held between 0 and 1); a factor and a summand
_HARD_SWISH, _LINEAR = 0x34, 0x26
_LARGEST: Final = float(np.finfo(np.float32).max)
#: kinds of pooling; averages do not count the padding
MAXIMUM, AVERAGE = 0x1FF, 0x3FF
SOURCE, SECOND_SOURCE, DESTINATION, WEIGHTS, BIAS, WORKSPACE = 1, 2, 17, 33, 41, 64
SOURCE_GRADIENT, DESTINATION_GRADIENT, WEIGHTS_GRADIENT = 129, 145, 161
MEAN, VARIANCE, SCALE, SHIFT, SCALE_GRADIENT, SHIFT_GRADIENT = 49, 50, 51, 52, 255, 256
SCRATCHPAD: Final = 80
_CPU, _DEFAULT_STREAM, _FORMAT_ANY, _SCRATCHPAD_OF_USER = 1, 1, 1, 1
_IMPLEMENTATION_QUERY, _ARGUMENT_QUERY, _SCRATCHPAD_QUERY = 8, 255, 136
_MOST_DIMENSIONS: Final = 12
_STATUSES: Final = {
    1: "out of memory",
    2: "invalid arguments",
    3: "not implemented",
    4: "no more implementations",
    5: "it failed while it ran",
    6: "not required",
}
#: bits of the instruction sets, the widest first
_INSTRUCTION_SETS: Final = (
    (0xFEF, "AMX"),
    (0x1EF, "AVX512-FP16"),
    (0xE7, "AVX512-BF16"),
    (0x67, "AVX512-VNNI"),
    (0x27, "AVX512"),
    (0xF, "AVX2-VNNI"),
    (0x7, "AVX2"),
    (0x3, "AVX"),
    (0x1, "SSE4.1"),
)
#: those that multiply in bfloat16; with others the library computes in float32, and converts
_BFLOAT16_SETS: Final = frozenset({"AMX", "AVX512-FP16", "AVX512-BF16"})
#: those that add products of bytes to 32 bits; with others the library adds two of them in 16 bits, which overflow
_BYTE_SETS: Final = _BFLOAT16_SETS | {"AVX512-VNNI", "AVX2-VNNI"}
#: an array that the library takes has no more; it counts bytes in 32 bits here and there
MOST_ELEMENTS: Final = 1 << 28


class NativeError(Exception):
    """The library refused something, or is not there."""


class _Version(ctypes.Structure):
    _fields_ = (("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int))


class Argument(ctypes.Structure):
    """`dnnl_exec_arg_t`: what a primitive takes, and the array."""

    _fields_ = (("argument", ctypes.c_int), ("memory", ctypes.c_void_p))


_POINTER: Final = ctypes.c_void_p
_DIMENSIONS: Final = ctypes.c_int64 * _MOST_DIMENSIONS
#: functions that give a status -> the types of their arguments after the pointer to their result, if they have one
_FUNCTIONS: Final[Mapping[str, tuple[Any, ...]]] = {
    "dnnl_engine_create": (_POINTER, ctypes.c_int, ctypes.c_size_t),
    "dnnl_stream_create": (_POINTER, _POINTER, ctypes.c_uint),
    "dnnl_stream_wait": (_POINTER,),
    "dnnl_memory_desc_create_with_strides": (_POINTER, ctypes.c_int, _DIMENSIONS, ctypes.c_int, _DIMENSIONS),
    "dnnl_memory_desc_create_with_tag": (_POINTER, ctypes.c_int, _DIMENSIONS, ctypes.c_int, ctypes.c_int),
    "dnnl_memory_desc_clone": (_POINTER, _POINTER),
    "dnnl_memory_create": (_POINTER, _POINTER, _POINTER, _POINTER),
    "dnnl_primitive_attr_create": (_POINTER,),
    "dnnl_primitive_attr_set_scratchpad_mode": (_POINTER, ctypes.c_int),
    "dnnl_post_ops_create": (_POINTER,),
    "dnnl_post_ops_append_eltwise": (_POINTER, ctypes.c_int, ctypes.c_float, ctypes.c_float),
    "dnnl_primitive_attr_set_post_ops": (_POINTER, _POINTER),
    "dnnl_post_ops_destroy": (_POINTER,),
    "dnnl_convolution_forward_primitive_desc_create": (
        *(_POINTER, _POINTER, ctypes.c_int, ctypes.c_int, _POINTER, _POINTER, _POINTER, _POINTER),
        *(_DIMENSIONS, _DIMENSIONS, _DIMENSIONS, _DIMENSIONS, _POINTER),
    ),
    "dnnl_convolution_backward_data_primitive_desc_create": (
        *(_POINTER, _POINTER, ctypes.c_int, _POINTER, _POINTER, _POINTER),
        *(_DIMENSIONS, _DIMENSIONS, _DIMENSIONS, _DIMENSIONS, _POINTER, _POINTER),
    ),
    "dnnl_convolution_backward_weights_primitive_desc_create": (
        *(_POINTER, _POINTER, ctypes.c_int, _POINTER, _POINTER, _POINTER, _POINTER),
        *(_DIMENSIONS, _DIMENSIONS, _DIMENSIONS, _DIMENSIONS, _POINTER, _POINTER),
    ),
    "dnnl_matmul_primitive_desc_create": (_POINTER, _POINTER, _POINTER, _POINTER, _POINTER, _POINTER, _POINTER),
    "dnnl_pooling_forward_primitive_desc_create": (
        *(_POINTER, _POINTER, ctypes.c_int, ctypes.c_int, _POINTER, _POINTER),
        *(_DIMENSIONS, _DIMENSIONS, _DIMENSIONS, _DIMENSIONS, _DIMENSIONS, _POINTER),
    ),
    "dnnl_pooling_backward_primitive_desc_create": (
        *(_POINTER, _POINTER, ctypes.c_int, _POINTER, _POINTER),
        *(_DIMENSIONS, _DIMENSIONS, _DIMENSIONS, _DIMENSIONS, _DIMENSIONS, _POINTER, _POINTER),
    ),
    "dnnl_batch_normalization_forward_primitive_desc_create": (
        *(_POINTER, _POINTER, ctypes.c_int, _POINTER, _POINTER, ctypes.c_float, ctypes.c_uint, _POINTER),
    ),
    "dnnl_batch_normalization_backward_primitive_desc_create": (
        *(_POINTER, _POINTER, ctypes.c_int, _POINTER, _POINTER, _POINTER),
        *(ctypes.c_float, ctypes.c_uint, _POINTER, _POINTER),
    ),
    "dnnl_eltwise_forward_primitive_desc_create": (
        *(_POINTER, _POINTER, ctypes.c_int, ctypes.c_int, _POINTER, _POINTER, ctypes.c_float, ctypes.c_float, _POINTER),
    ),
    "dnnl_eltwise_backward_primitive_desc_create": (
        *(_POINTER, _POINTER, ctypes.c_int, _POINTER, _POINTER, _POINTER),
        *(ctypes.c_float, ctypes.c_float, _POINTER, _POINTER),
    ),
    "dnnl_binary_primitive_desc_create": (_POINTER, _POINTER, ctypes.c_int, _POINTER, _POINTER, _POINTER, _POINTER),
    "dnnl_reorder_primitive_desc_create": (_POINTER, _POINTER, _POINTER, _POINTER, _POINTER, _POINTER),
    "dnnl_primitive_desc_query": (_POINTER, ctypes.c_int, ctypes.c_int, _POINTER),
    "dnnl_primitive_create": (_POINTER, _POINTER),
    "dnnl_primitive_execute": (_POINTER, _POINTER, ctypes.c_int, _POINTER),
    "dnnl_primitive_destroy": (_POINTER,),
    "dnnl_primitive_desc_destroy": (_POINTER,),
    "dnnl_memory_desc_create_submemory": (_POINTER, _POINTER, _POINTER, _POINTER),
    "dnnl_memory_desc_destroy": (_POINTER,),
    "dnnl_memory_destroy": (_POINTER,),
}


class LibraryState(NamedTuple):
    """Whether the library can be used here.

    Attributes:
        version: "3.2.0"; empty where it is not loaded.
        instruction_set: the widest that it uses.
        missing: why it is not loaded; empty where it is.
    """

    version: str = ""
    instruction_set: str = ""
    missing: str = ""


class Handle:
    """An object of the library, destroyed with this one."""

    __slots__ = ("_destroy", "value")

    def __init__(self, value: int, destroy: Callable[[int], int] | None) -> None:
        self.value = value
        self._destroy = destroy

    def __del__(self) -> None:
        if self._destroy is not None:
            self._destroy(self.value)


@dataclass(frozen=True, slots=True)
class Strided:
    """An array as the library sees it: the lengths of its axes in the library's order, and their strides (elements)."""

    lengths: tuple[int, ...]
    strides: tuple[int, ...]
    type: int = FLOAT32


def row_strides(shape: Sequence[int]) -> list[int]:
    """The strides (elements) of an array that lies row by row."""
    return [math.prod(map(int, shape[axis + 1 :])) for axis in range(len(shape))]


def dimensions(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """Numbers as the library takes lengths, strides and paddings."""
    return _DIMENSIONS(*values)


class Library:
    """The loaded library, its engine for processors, and one stream.

    A stream runs what it is given in order; `lock` keeps threads from giving it two things at once. (Each kernel uses
    all cores, so that two at a time would only wait for each other.)

    Raises:
        OSError: it cannot be loaded.
        NativeError: it is another version, or refuses to make an engine.
    """

    def __init__(self, path: str) -> None:
        self._dll = _load(path)
        self._dll.dnnl_version.restype = ctypes.POINTER(_Version)
        version = self._dll.dnnl_version().contents
        self.version = f"{version.major}.{version.minor}.{version.patch}"
        if version.major != _MAJOR:
            raise NativeError(f"oneDNN {self.version} is there, but these kernels need oneDNN {_MAJOR}")
        bits = int(self._dll.dnnl_get_effective_cpu_isa())
        self.instruction_set = next((name for mask, name in _INSTRUCTION_SETS if bits & mask == mask), "none")
        for name, types in _FUNCTIONS.items():
            getattr(self._dll, name).argtypes = types
        self._dll.dnnl_primitive_desc_query_md.argtypes = (_POINTER, ctypes.c_int, ctypes.c_int)
        self._dll.dnnl_primitive_desc_query_md.restype = _POINTER
        self._dll.dnnl_memory_desc_get_size.argtypes = (_POINTER,)
        self._dll.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
        self._dll.dnnl_memory_desc_equal.argtypes = (_POINTER, _POINTER)
        # what takes no time is called without letting go of Python's lock, which another thread would take for 5 ms
        self.set_data = ctypes.PyDLL(path).dnnl_memory_set_data_handle
        self.set_data.argtypes = (_POINTER, _POINTER)
        self.lock = threading.Lock()
        self._engine = self.made("dnnl_engine_create", _CPU, 0)
        self.stream = self.made("dnnl_stream_create", self._engine.value, _DEFAULT_STREAM)
        self._attributes, self._with_relu = self._made_attributes(), self._made_attributes()
        # ReLU makes zero of NaN; a number times (the same times the largest one, held between 0 and 1) does not. Minus
        # infinity becomes NaN. What is zero is made so without a sign.
        after = self.made("dnnl_post_ops_create", destroy="dnnl_post_ops_destroy")
        for kind, factor, summand in ((_HARD_SWISH, _LARGEST, 0.0), (_LINEAR, 1.0, 0.0)):
            self.call("dnnl_post_ops_append_eltwise", after.value, kind, factor, summand)
        self.call("dnnl_primitive_attr_set_post_ops", self._with_relu.value, after.value)

    def _made_attributes(self) -> Handle:
        """Attributes of primitives that work in memory of the caller's."""
        attributes = self.made("dnnl_primitive_attr_create")
        self.call("dnnl_primitive_attr_set_scratchpad_mode", attributes.value, _SCRATCHPAD_OF_USER)
        return attributes

    @contextlib.contextmanager
    def one_thread(self) -> Iterator[None]:
        """Primitives that the calling thread makes and runs in it use this thread alone."""
        before = self._dll.omp_get_max_threads()
        self._dll.omp_set_num_threads(1)
        try:
            yield
        finally:
            self._dll.omp_set_num_threads(before)

    @property
    def single_product_functions(self) -> tuple[Any, Any, Any]:
        """A product of float32 matrices (`dnnl_sgemm`), and what asks and says how many threads the caller has."""
        return self._dll.dnnl_sgemm, self._dll.omp_get_max_threads, self._dll.omp_set_num_threads

    @property
    def execution_functions(self) -> tuple[Any, Any]:
        """What runs a primitive (`dnnl_primitive_execute`), and what says where the data of an array lies."""
        return self._dll.dnnl_primitive_execute, self._dll.dnnl_memory_set_data_handle

    def computes(self, dtype: np.typing.DTypeLike) -> bool:
        """Whether it is worth while in this dtype: in bfloat16 only where it multiplies so."""
        return str(dtype) == "float32" or (str(dtype) == "bfloat16" and self.instruction_set in _BFLOAT16_SETS)

    @property
    def has_tiles(self) -> bool:
        """Whether the processor multiplies tiles of matrices (AMX), several times as fast as vectors in bfloat16."""
        return self.instruction_set == "AMX"

    @property
    def adds_bytes(self) -> bool:
        """Whether the processor has instructions that multiply bytes and add in 32 bits."""
        return self.instruction_set in _BYTE_SETS

    def call(self, name: str, *arguments: object) -> None:
        """Calls a function that gives a status.

        Raises:
            NativeError: the status says that it failed.
        """
        status = getattr(self._dll, name)(*arguments)
        if status:
            raise NativeError(f"{name}: {_STATUSES.get(status, f'status {status}')}")

    def made(self, name: str, *arguments: object, destroy: str = "") -> Handle:
        """What a function makes that takes the place of its result first."""
        place = _POINTER()
        self.call(name, ctypes.byref(place), *arguments)
        assert place.value is not None
        return Handle(place.value, getattr(self._dll, destroy) if destroy else None)

    def described(self, array: Strided, free: bool = False) -> Handle:
        """The description of an array; `free`: in whatever layout the library prefers."""
        rank, lengths = len(array.lengths), dimensions(array.lengths)
        if free:
            name, last = "dnnl_memory_desc_create_with_tag", _FORMAT_ANY
            return self.made(name, rank, lengths, array.type, last, destroy="dnnl_memory_desc_destroy")
        name, strides = "dnnl_memory_desc_create_with_strides", dimensions(array.strides)
        return self.made(name, rank, lengths, array.type, strides, destroy="dnnl_memory_desc_destroy")

    def primitive(self, kind: str, *arguments: object) -> Handle:
        """The description of a primitive of this kind, which uses scratch memory of the caller's.

        Raises:
            NativeError: there is none, or only one of the library's slow reference implementations.
        """
        made = self.made(
            f"dnnl_{kind}_primitive_desc_create",
            *(self._engine.value, *arguments),
            destroy="dnnl_primitive_desc_destroy",
        )
        return self._checked(made, kind)

    def convolution(self, kind: str, *arguments: object, hint: Handle | None = None, relu: bool = False) -> Handle:
        """Like `primitive`, for convolutions; their gradients name the convolution that they belong to.

        Args:
            relu: what is negative becomes zero before it is stored; NaN stays, and minus infinity becomes NaN.
        """
        hints = () if kind == "convolution_forward" else (None if hint is None else hint.value,)
        attributes = self._with_relu if relu else self._attributes
        return self.primitive(kind, *arguments, *hints, attributes.value)

    def pooling(self, *arguments: object, hint: Handle | None = None) -> Handle:
        """Like `primitive`, for pooling; `hint`: the pooling whose gradient it is."""
        if hint is None:
            return self.primitive("pooling_forward", FORWARD_TRAINING, *arguments, self._attributes.value)
        return self.primitive("pooling_backward", *arguments, hint.value, self._attributes.value)

    def normalization(self, data: Handle, epsilon: float, relu: bool, hint: Handle | None = None) -> Handle:
        """Like `primitive`, for batches, with scales and offsets.

        Args:
            relu: whether ReLU follows; the workspace then says where it is positive.
            hint: the normalization whose gradient it is.
        """
        flags = _SCALES_AND_SHIFTS | (_LEAVES_POSITIVE if relu else 0)
        kind, array, last = "batch_normalization", data.value, (epsilon, flags)
        if hint is None:
            return self.primitive(f"{kind}_forward", FORWARD_TRAINING, array, array, *last, self._attributes.value)
        given = (_BACKWARD, array, array, array, *last, hint.value)
        return self.primitive(f"{kind}_backward", *given, self._attributes.value)

    def sum(self, *arrays: Handle) -> Handle:
        """Like `primitive`, for sums of two arrays, of which the second may be broadcast; the third is the result."""
        return self.primitive("binary", ADD, *(array.value for array in arrays), self._attributes.value)

    def relu_gradient(self, array: Handle) -> Handle:
        """Like `primitive`, for the gradient of ReLU; all three arrays are alike."""
        one, last = array.value, self._attributes.value
        forward = self.primitive("eltwise_forward", FORWARD_TRAINING, RELU, one, one, 0.0, 0.0, last)
        return self.primitive("eltwise_backward", RELU, one, one, one, 0.0, 0.0, forward.value, last)

    def product(self, *arrays: Handle) -> Handle:
        """Like `primitive`, for products of matrices; the arrays are the two factors and the result."""
        one, other, result = (array.value for array in arrays)
        return self.primitive("matmul", one, other, None, result, self._attributes.value)

    def layout(self, primitive: Handle, argument: int) -> Handle:
        """The description of a primitive's argument, which outlives that of the primitive."""
        name, description = "dnnl_memory_desc_clone", self.argument(primitive, argument)
        return self.made(name, description, destroy="dnnl_memory_desc_destroy")

    def reorder(self, source: int, destination: int) -> Handle:
        """The description of a copy between two layouts."""
        made = self.made(
            "dnnl_reorder_primitive_desc_create",
            *(source, self._engine.value, destination, self._engine.value, self._attributes.value),
            destroy="dnnl_primitive_desc_destroy",
        )
        return self._checked(made, "reorder")

    def _checked(self, primitive: Handle, kind: str) -> Handle:
        name = self.implementation(primitive)
        if name.startswith("ref"):
            raise NativeError(f"only the reference implementation of this {kind} takes these shapes")
        return primitive

    def implementation(self, primitive: Handle) -> str:
        """The name of the implementation that was found, such as "brgconv:avx512_core"."""
        place = ctypes.c_char_p()
        query = "dnnl_primitive_desc_query"
        self.call(query, primitive.value, _IMPLEMENTATION_QUERY, 0, ctypes.byref(place))
        return (place.value or b"").decode()

    def argument(self, primitive: Handle, argument: int) -> int:
        """The address of the description of a primitive's argument; it lives as long as the primitive's."""
        return int(self._dll.dnnl_primitive_desc_query_md(primitive.value, _ARGUMENT_QUERY, argument) or 0)

    def scratchpad(self, primitive: Handle) -> int:
        """The same for the scratch memory of a primitive."""
        return int(self._dll.dnnl_primitive_desc_query_md(primitive.value, _SCRATCHPAD_QUERY, 0) or 0)

    def part(self, description: int, lengths: Sequence[int], offsets: Sequence[int]) -> Handle:
        """The description of a part of an array, in its memory: of such lengths, from an element on.

        Raises:
            NativeError: it begins or ends within a block of the layout.
        """
        name, place = "dnnl_memory_desc_create_submemory", (dimensions(lengths), dimensions(offsets))
        return self.made(name, description, *place, destroy="dnnl_memory_desc_destroy")

    def size(self, description: int) -> int:
        """How much memory an array takes (bytes)."""
        return int(self._dll.dnnl_memory_desc_get_size(description))

    def same(self, one: int, other: int) -> bool:
        """Whether two descriptions say the same."""
        return bool(self._dll.dnnl_memory_desc_equal(one, other))

    def memory(self, description: int) -> Handle:
        """An array without memory so far."""
        return self.made("dnnl_memory_create", description, self._engine.value, None, destroy="dnnl_memory_destroy")

    def compiled(self, primitive: Handle) -> Handle:
        """The primitive of a description: machine code."""
        return self.made("dnnl_primitive_create", primitive.value, destroy="dnnl_primitive_destroy")


# ---------------------------------------------------------------------- the process's
@functools.cache
def loaded() -> Library | str:
    """The library, or why there is none. (`loaded.cache_clear()`: look again.)"""
    if is_turned_off():
        return f"turned off ({NATIVE_VARIABLE} is 0)"
    if sys.platform != "linux":
        return "there is a library for Linux only"
    try:
        files = importlib.metadata.files(DISTRIBUTION) or ()
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
    paths = [str(file.locate()) for file in files if file.name == _FILE]
    if not paths:
        return f"the package {DISTRIBUTION} has no {_FILE}"
    try:
        return Library(paths[0])
    except (OSError, AttributeError, NativeError) as error:
        return str(error)


def library() -> Library | None:
    """The library, loaded once; None where it cannot be used."""
    outcome = loaded()
    return outcome if isinstance(outcome, Library) else None


def is_usable() -> bool:
    """Whether the library is there; it is loaded to find out."""
    return library() is not None


def is_turned_off() -> bool:
    """Whether the environment says that the library is not to be used."""
    return os.environ.get(NATIVE_VARIABLE) == "0"


@functools.cache
def is_installed() -> bool:
    """Whether the package that brings it is installed; nothing is loaded to find out."""
    try:
        importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def library_state() -> LibraryState:
    """What there is, for people."""
    outcome = loaded()
    if isinstance(outcome, Library):
        return LibraryState(outcome.version, outcome.instruction_set)
    return LibraryState(missing=outcome)


def _load(path: str) -> ctypes.CDLL:
    """Loads the library with threads that sleep while they wait, so that they leave the cores to XLA's.

    OpenMP reads the setting when it is loaded; the environment is as before afterwards.
    """
    name = "OMP_WAIT_POLICY"
    before = os.environ.get(name)
    if before is None:
        os.environ[name] = "passive"
    try:
        with limited_by("OMP_NUM_THREADS"):
            return ctypes.CDLL(path)
    finally:
        if before is None:
            del os.environ[name]
