"""Element types of tensors: `DType`, its constants, and the groups that op signatures use.

There is one `DType` object per type, made when this module is imported, so `is` compares them as well as `==` does.
Each exists twice: as itself, and as the `_ref` type that GraphDefs from TensorFlow's ref-variable days hold. anabranch
reads ref types but never makes a tensor of one.
"""

from __future__ import annotations

import builtins
from typing import Any, Final, TypeAlias

import ml_dtypes
import numpy as np

_REF_OFFSET: Final = 100  # TensorFlow's wire number of a ref type is that of its base type plus this.

# name, wire number (TensorFlow's DataType enum), NumPy type. `half`, `float` and `double` are aliases, added below.
# The quantised types are one-field records, so that their arrays are not mistaken for arrays of plain integers.
_TABLE: Final[tuple[tuple[str, int, Any], ...]] = (
    ("float32", 1, np.float32),
    ("float64", 2, np.float64),
    ("int32", 3, np.int32),
    ("uint8", 4, np.uint8),
    ("int16", 5, np.int16),
    ("int8", 6, np.int8),
    ("string", 7, np.object_),
    ("complex64", 8, np.complex64),
    ("int64", 9, np.int64),
    ("bool", 10, np.bool_),
    ("qint8", 11, np.dtype([("qint8", np.int8)])),
    ("quint8", 12, np.dtype([("quint8", np.uint8)])),
    ("qint32", 13, np.dtype([("qint32", np.int32)])),
    ("bfloat16", 14, ml_dtypes.bfloat16),
    ("qint16", 15, np.dtype([("qint16", np.int16)])),
    ("quint16", 16, np.dtype([("quint16", np.uint16)])),
    ("uint16", 17, np.uint16),
    ("complex128", 18, np.complex128),
    ("float16", 19, np.float16),
    ("resource", 20, np.object_),
    ("variant", 21, np.object_),
    ("uint32", 22, np.uint32),
    ("uint64", 23, np.uint64),
    ("float8_e5m2", 24, ml_dtypes.float8_e5m2),
    ("float8_e4m3fn", 25, ml_dtypes.float8_e4m3fn),
    ("float8_e4m3fnuz", 26, ml_dtypes.float8_e4m3fnuz),
    ("float8_e4m3b11fnuz", 27, ml_dtypes.float8_e4m3b11fnuz),
    ("float8_e5m2fnuz", 28, ml_dtypes.float8_e5m2fnuz),
    ("int4", 29, ml_dtypes.int4),
    ("uint4", 30, ml_dtypes.uint4),
    ("int2", 31, ml_dtypes.int2),
    ("uint2", 32, ml_dtypes.uint2),
    ("float4_e2m1fn", 33, ml_dtypes.float4_e2m1fn),
)
#: from this wire number on: types of TensorFlow 2's graphs, which have names and values here, and no kernels
_FIRST_WITHOUT_KERNELS: Final = 26
_ALIASES: Final = {"half": "float16", "float": "float32", "double": "float64"}
_FLOAT_NAMES: Final = frozenset(
    ("float16", "bfloat16", "float32", "float64", "float4_e2m1fn")
    + ("float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2fnuz")
)
_SIGNED_NAMES: Final = frozenset(("int2", "int4", "int8", "int16", "int32", "int64"))
_UNSIGNED_NAMES: Final = frozenset(("uint2", "uint4", "uint8", "uint16", "uint32", "uint64"))
_QUANTIZED_NAMES: Final = frozenset(("qint8", "quint8", "qint16", "quint16", "qint32"))
_REAL_OF_COMPLEX: Final = {"complex64": "float32", "complex128": "float64"}
# NumPy would take these for its widest type of the kind, with a warning.
_ABSTRACT: Final = frozenset(
    (np.generic, np.number, np.integer, np.signedinteger, np.unsignedinteger, np.inexact, np.floating)
    + (np.complexfloating, np.flexible, np.character)
)
#: what `as_dtype` takes for a type although no type is equal to it
_NO_TYPES: Final = (int, str, bytes)
finfo: Final[Any] = ml_dtypes.finfo  # knows NumPy's types as well, and carries no annotations
iinfo: Final[Any] = ml_dtypes.iinfo


#: what `as_dtype` takes
DTypeLike: TypeAlias = "DType | str | int | type[Any] | np.dtype[Any]"
#: a limit of a dtype
Number: TypeAlias = "int | np.floating[Any]"


class DType:
    """The element type of a tensor.

    Take a constant such as `tf.float32`, or `tf.as_dtype("float32")`; there is one object for each type.

    Args:
      type_enum: the number in a GraphDef.

    Raises:
      TypeError: no type has that number.

    Attributes:
      name: such as `"float32"`, or `"float32_ref"` for a ref type.
      as_numpy_dtype: the NumPy type class; `np.object_` for string, resource and variant; a one-field record dtype for
        the quantised types.
      as_datatype_enum: the number in a GraphDef (TensorFlow's `DataType`).
      base_dtype: the type itself, or what a ref type refers to.
      real_dtype: the type of the real part of a complex type; any other type itself.
      size: bytes per element in memory; 1 for resource and variant.
      is_numpy_compatible: whether NumPy can hold its values: all but resource and variant.
      is_floating, is_integer, is_unsigned, is_bool, is_complex, is_quantized: the kind. Quantised types are not
        integers; `is_unsigned` covers the plain unsigned integers alone.
    """

    __slots__ = (
        "__dict__",
        "_hash",
        "_is_ref_dtype",
        "as_datatype_enum",
        "as_numpy_dtype",
        "base_dtype",
        "is_bool",
        "is_complex",
        "is_floating",
        "is_integer",
        "is_numpy_compatible",
        "is_quantized",
        "is_unsigned",
        "name",
        "real_dtype",
        "ref_dtype",
        "size",
    )

    name: str
    as_numpy_dtype: Any
    as_datatype_enum: int
    base_dtype: DType
    ref_dtype: DType
    real_dtype: DType
    size: int
    is_numpy_compatible: builtins.bool
    is_floating: builtins.bool
    is_integer: builtins.bool
    is_unsigned: builtins.bool
    is_bool: builtins.bool
    is_complex: builtins.bool
    is_quantized: builtins.bool
    _hash: int
    _is_ref_dtype: builtins.bool

    def __new__(cls, type_enum: int) -> DType:  # noqa: PYI034 - one object for each type, which exists
        return as_dtype(type_enum)

    @classmethod
    def _make(cls, name: str, enum: int, numpy_type: type[Any], is_ref: builtins.bool) -> DType:
        self = object.__new__(cls)
        base_name = name.removesuffix("_ref")
        self.name = name
        self.as_datatype_enum = enum
        self.as_numpy_dtype = numpy_type
        self.is_numpy_compatible = base_name not in ("resource", "variant")
        self.is_floating = base_name in _FLOAT_NAMES
        self.is_integer = base_name in _SIGNED_NAMES or base_name in _UNSIGNED_NAMES
        self.is_unsigned = base_name in _UNSIGNED_NAMES
        self.is_bool = base_name == "bool"
        self.is_complex = base_name in _REAL_OF_COMPLEX
        self.is_quantized = base_name in _QUANTIZED_NAMES
        self.size = np.dtype(numpy_type).itemsize if self.is_numpy_compatible else 1
        self._is_ref_dtype = is_ref
        self._hash = hash(enum)
        return self

    @property
    def _as_ref(self) -> DType:
        return self.ref_dtype

    @property
    def min(self) -> Number:
        """The smallest representable value, a NumPy scalar of this type, or an `int` for integer types.

        Raises:
          TypeError: the type has no smallest value (string, bool, complex, quantised, resource, variant).
        """
        result: Number = self._numeric_limits("minimum").min
        return result

    @property
    def max(self) -> Number:
        """The greatest finite value, a NumPy scalar of this type, or an `int` for integer types.

        Raises:
          TypeError: the type has no greatest value (string, bool, complex, quantised, resource, variant).
        """
        result: Number = self._numeric_limits("maximum").max
        return result

    def _numeric_limits(self, which: str) -> Any:
        if self.is_floating:
            return finfo(self.as_numpy_dtype)
        if self.is_integer:
            return iinfo(self.as_numpy_dtype)
        raise TypeError(f"Cannot find {which} value of {self}: only integer and floating types have one.")

    @property
    def limits(self) -> tuple[Any, Any]:
        """The interval of values that images of this type use, without its negative part: `(0, max)`.

        `max` is 1 for float32 and float64, True for bool, and the greatest value of an integer type.

        Raises:
          ValueError: the type has no such interval.
        """
        base = self.base_dtype
        if base is float32 or base is float64:
            return 0, 1
        if base.is_bool:
            return 0, True
        if base.is_integer:
            return 0, base.max
        raise ValueError(f"{self} does not have defined limits.")

    def is_compatible_with(self, other: object) -> builtins.bool:
        """Whether a tensor of type `other` may stand where this type is asked for.

        That is so for the type itself; and where this is a base type, for its ref type.

        Raises:
          TypeError: `other` does not name a type.
        """
        other = as_dtype(other)
        return self is other or self is other.base_dtype

    def __eq__(self, other: object) -> builtins.bool:
        if type(other) is DType:
            return self is other
        if other is None or (isinstance(other, type) and other in _NO_TYPES):
            return False
        try:
            return as_dtype(other) is self
        except TypeError:
            return False

    def __ne__(self, other: object) -> builtins.bool:
        return not self == other

    def __hash__(self) -> int:
        return self._hash

    def __int__(self) -> int:
        return self.as_datatype_enum

    def __str__(self) -> str:
        return f"<dtype: {self.name!r}>"

    def __repr__(self) -> str:
        return f"tf.{self.name}"

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return as_dtype, (self.name,)


def _make_dtypes() -> dict[str, DType]:
    dtypes: dict[str, DType] = {}
    for name, enum, numpy_type in _TABLE:
        base = DType._make(name, enum, numpy_type, False)
        ref = DType._make(name + "_ref", enum + _REF_OFFSET, numpy_type, True)
        for dtype in (base, ref):
            dtype.base_dtype, dtype.ref_dtype = base, ref
            dtypes[dtype.name] = dtype
    for dtype in dtypes.values():
        dtype.real_dtype = dtypes[_REAL_OF_COMPLEX.get(dtype.base_dtype.name, dtype.name)]
    return dtypes


def _make_lookup(dtypes: dict[str, DType]) -> dict[Any, DType]:
    """What `as_dtype` looks values up in. It never holds a DType, whose `==` would come back here."""
    lookup: dict[Any, DType] = dict(dtypes)
    for alias, name in _ALIASES.items():
        lookup[alias] = dtypes[name]
        lookup[alias + "_ref"] = dtypes[name + "_ref"]
    for dtype in dtypes.values():
        lookup[dtype.as_datatype_enum] = dtype
        if not dtype._is_ref_dtype and dtype.is_numpy_compatible:
            lookup[dtype.as_numpy_dtype] = dtype
            lookup[np.dtype(dtype.as_numpy_dtype)] = dtype
    for python_type, name in ((builtins.float, "float32"), (int, "int32"), (builtins.bool, "bool")):
        lookup[python_type] = dtypes[name]
    for text_type in (str, bytes, object, np.str_, np.bytes_):
        lookup[text_type] = dtypes["string"]
    return lookup


_DTYPES: Final = _make_dtypes()
_LOOKUP: Final = _make_lookup(_DTYPES)


def as_dtype(type_value: object) -> DType:
    """The `DType` that a value names.

    Args:
        type_value: a `DType`; its name (`"float32"`, `"float"`, `"half"`, `"double"`, `"float32_ref"`); its number in a
            GraphDef; a NumPy dtype or scalar type; or a Python type (`float` is float32, `int` int32, `bool` bool, and
            `str`, `bytes`, `object` are string).

    Returns:
        A `DType`.

    Raises:
        TypeError: the value names no type.

    Example:
        >>> tf.as_dtype("float32"), tf.as_dtype(np.int64), tf.as_dtype(bool)
        (tf.float32, tf.int64, tf.bool)
    """
    if type(type_value) is DType:
        return type_value
    try:
        dtype = _LOOKUP.get(type_value)
    except TypeError:  # unhashable
        dtype = None
    if dtype is None:
        dtype = _from_numpy(type_value)
    if dtype is None:
        raise TypeError(
            f"Cannot convert value {type_value!r} to a DType: give a DType, its name such as 'float32', "
            "or a NumPy type."
        )
    return dtype


def signature_name(dtype: DType) -> str:
    """The name that signatures of operations give a dtype: `float`, `double` and `half` for floating-point numbers."""
    name = dtype.base_dtype.name
    return next((alias for alias, full in _ALIASES.items() if full == name), name)


def _from_numpy(type_value: object) -> DType | None:
    """The type of a NumPy dtype that the table does not hold as such: sized strings, other byte orders, C names."""
    if isinstance(type_value, type) and issubclass(type_value, np.generic) and type_value not in _ABSTRACT:
        type_value = np.dtype(type_value)
    if not isinstance(type_value, np.dtype):
        return None
    if type_value.kind in "SU":
        return string
    if not type_value.isnative:
        type_value = type_value.newbyteorder("=")
    return _LOOKUP.get(type_value)


float16: Final = _DTYPES["float16"]
bfloat16: Final = _DTYPES["bfloat16"]
float32: Final = _DTYPES["float32"]
float64: Final = _DTYPES["float64"]
float8_e5m2: Final = _DTYPES["float8_e5m2"]
float8_e4m3fn: Final = _DTYPES["float8_e4m3fn"]
int8: Final = _DTYPES["int8"]
int16: Final = _DTYPES["int16"]
int32: Final = _DTYPES["int32"]
int64: Final = _DTYPES["int64"]
uint8: Final = _DTYPES["uint8"]
uint16: Final = _DTYPES["uint16"]
uint32: Final = _DTYPES["uint32"]
uint64: Final = _DTYPES["uint64"]
bool: Final = _DTYPES["bool"]
complex64: Final = _DTYPES["complex64"]
complex128: Final = _DTYPES["complex128"]
string: Final = _DTYPES["string"]
resource: Final = _DTYPES["resource"]
variant: Final = _DTYPES["variant"]
qint8: Final = _DTYPES["qint8"]
quint8: Final = _DTYPES["quint8"]
qint16: Final = _DTYPES["qint16"]
quint16: Final = _DTYPES["quint16"]
qint32: Final = _DTYPES["qint32"]

half: Final = float16
float: Final = float32
double: Final = float64

float16_ref: Final = _DTYPES["float16_ref"]
bfloat16_ref: Final = _DTYPES["bfloat16_ref"]
float32_ref: Final = _DTYPES["float32_ref"]
float64_ref: Final = _DTYPES["float64_ref"]
float8_e5m2_ref: Final = _DTYPES["float8_e5m2_ref"]
float8_e4m3fn_ref: Final = _DTYPES["float8_e4m3fn_ref"]
int8_ref: Final = _DTYPES["int8_ref"]
int16_ref: Final = _DTYPES["int16_ref"]
int32_ref: Final = _DTYPES["int32_ref"]
int64_ref: Final = _DTYPES["int64_ref"]
uint8_ref: Final = _DTYPES["uint8_ref"]
uint16_ref: Final = _DTYPES["uint16_ref"]
uint32_ref: Final = _DTYPES["uint32_ref"]
uint64_ref: Final = _DTYPES["uint64_ref"]
bool_ref: Final = _DTYPES["bool_ref"]
complex64_ref: Final = _DTYPES["complex64_ref"]
complex128_ref: Final = _DTYPES["complex128_ref"]
string_ref: Final = _DTYPES["string_ref"]
resource_ref: Final = _DTYPES["resource_ref"]
variant_ref: Final = _DTYPES["variant_ref"]
qint8_ref: Final = _DTYPES["qint8_ref"]
quint8_ref: Final = _DTYPES["quint8_ref"]
qint16_ref: Final = _DTYPES["qint16_ref"]
quint16_ref: Final = _DTYPES["quint16_ref"]
qint32_ref: Final = _DTYPES["qint32_ref"]

half_ref: Final = float16_ref
float_ref: Final = float32_ref
double_ref: Final = float64_ref

QUANTIZED_DTYPES: Final = frozenset(dtype for dtype in _DTYPES.values() if dtype.is_quantized)

# The lists of types that op signatures allow, named after the words TensorFlow's OpDefs use for them.
FLOATING: Final = (bfloat16, float16, float32, float64)
COMPLEX: Final = (complex64, complex128)
INTEGERS: Final = (int8, int16, int32, int64, uint8, uint16, uint32, uint64)
INDEX: Final = (int32, int64)
QUANTIZED: Final = (qint8, quint8, qint32, qint16, quint16)
REAL_NUMBERS: Final = (*FLOATING, *INTEGERS)
NUMBERS: Final = (*REAL_NUMBERS, *COMPLEX, *QUANTIZED)
ALL: Final = tuple(
    dtype for dtype in _DTYPES.values() if not dtype._is_ref_dtype and dtype.as_datatype_enum < _FIRST_WITHOUT_KERNELS
)
