"""The versions of functions for ragged tensors, all of them: importing this module registers them.

Functions of each element, of one or two tensors, are listed here; others stand in the modules imported below.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from anabranch.core.values import PassedOn
from anabranch.frontend.arithmetic import clipping, elementwise, math
from anabranch.frontend.arrays import casting, constants, identities, strings
from anabranch.frontend.control_flow import numeric_checks
from anabranch.frontend.ragged import (
    gathering as _gathering,
    joining as _joining,
    rearranging as _rearranging,
    reductions as _reductions,
    slicing as _slicing,
)
from anabranch.frontend.ragged.broadcasting import of_flat_values, of_lists, of_two
from anabranch.frontend.ragged.conversion import is_ragged
from anabranch.frontend.ragged.tensor import RaggedTensor
from anabranch.frontend.storage import encodings
from anabranch.graph.dispatch import version_of

_MODULES: Final = (_gathering, _joining, _rearranging, _reductions, _slicing)  # whose functions are versions

_OF_ONE: Final[tuple[Callable[..., Any], ...]] = (
    casting.cast,
    casting.saturate_cast,
    numeric_checks.check_numerics,
    clipping.clip_by_value,
    constants.ones_like,
    constants.zeros_like,
    elementwise.acos,
    elementwise.acosh,
    elementwise.asin,
    elementwise.asinh,
    elementwise.atan,
    elementwise.atanh,
    elementwise.ceil,
    elementwise.cos,
    elementwise.cosh,
    elementwise.digamma,
    elementwise.erf,
    elementwise.erfc,
    elementwise.exp,
    elementwise.expm1,
    elementwise.floor,
    elementwise.invert,
    elementwise.is_finite,
    elementwise.is_inf,
    elementwise.is_nan,
    elementwise.lgamma,
    elementwise.log,
    elementwise.log1p,
    elementwise.logical_not,
    elementwise.negative,
    elementwise.reciprocal,
    elementwise.rint,
    elementwise.rsqrt,
    elementwise.sigmoid,
    elementwise.sign,
    elementwise.sin,
    elementwise.sinh,
    elementwise.sqrt,
    elementwise.square,
    elementwise.tan,
    elementwise.tanh,
    encodings.decode_compressed,
    identities.identity,
    math.abs,
    math.angle,
    math.conj,
    math.imag,
    math.log_sigmoid,
    math.real,
    math.round,
    strings.as_string,
    strings.decode_base64,
    strings.encode_base64,
    strings.regex_full_match,
    strings.regex_replace,
    strings.string_length,
    strings.string_lower,
    strings.string_strip,
    strings.string_to_hash_bucket,
    strings.string_to_hash_bucket_fast,
    strings.string_to_hash_bucket_strong,
    strings.string_to_number,
    strings.string_upper,
    strings.substr,
    strings.unicode_script,
    strings.unicode_transcode,
)
_OF_LISTS: Final[tuple[Callable[..., Any], ...]] = (math.add_n, strings.string_join)
_OF_TWO: Final[tuple[Callable[..., Any], ...]] = (
    elementwise.add,
    elementwise.bitwise_and,
    elementwise.bitwise_or,
    elementwise.bitwise_xor,
    elementwise.div_no_nan,
    elementwise.equal,
    elementwise.floor_div,
    elementwise.floordiv,
    elementwise.floormod,
    elementwise.greater,
    elementwise.greater_equal,
    elementwise.left_shift,
    elementwise.less,
    elementwise.less_equal,
    elementwise.logical_and,
    elementwise.logical_or,
    elementwise.maximum,
    elementwise.minimum,
    elementwise.multiply,
    elementwise.not_equal,
    elementwise.realdiv,
    elementwise.right_shift,
    elementwise.squared_difference,
    elementwise.subtract,
    elementwise.truncatediv,
    elementwise.truncatemod,
    math.atan2,
    math.complex,
    math.div,
    math.divide,
    math.logical_xor,
    math.pow,
    math.truediv,
)


def _tensors_first(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments by position, as far as the tensors among them go; taken out of `kwargs` where they stand there."""
    names = list(inspect.signature(function).parameters)
    found = list(args)
    if not found:
        # the first one, or a later name of it (`input` of `string_to_number`)
        name = next((n for n in names if is_ragged(kwargs.get(n))), names[0])
        found.append(kwargs.pop(name, None))
    return found


def _register_of_one(function: Callable[..., Any]) -> None:
    @version_of(function)
    def _(*args: PassedOn, **kwargs: PassedOn) -> Any:
        given = _tensors_first(function, args, kwargs)
        if not is_ragged(given[0]):
            return inspect.unwrap(function)(*given, **kwargs)  # which says that another argument may not be ragged
        return of_flat_values(function, *given, **kwargs)


def _register_of_lists(function: Callable[..., Any]) -> None:
    @version_of(function)
    def _(*args: PassedOn, **kwargs: PassedOn) -> Any:
        values = list(args) or [kwargs.pop(next(iter(inspect.signature(function).parameters)))]
        return of_lists(function, *values, **kwargs)


def _register_of_two(function: Callable[..., Any]) -> None:
    first, second = list(inspect.signature(function).parameters)[:2]

    @version_of(function)
    def _(*args: PassedOn, **kwargs: PassedOn) -> Any:
        operands = list(args)
        operands += [kwargs.pop(name) for name in (first, second)[len(args) :]]
        return of_two(function, *operands, **kwargs)


for _function in _OF_ONE:
    _register_of_one(_function)
for _function in _OF_LISTS:
    _register_of_lists(_function)
for _function in _OF_TWO:
    _register_of_two(_function)

RaggedTensor.OPERATORS.update(
    {
        "abs": math.abs,
        "add": elementwise.add,
        "and": elementwise.logical_and,
        "div": math.div,
        "floordiv": elementwise.floordiv,
        "ge": elementwise.greater_equal,
        "gt": elementwise.greater,
        "invert": elementwise.logical_not,
        "le": elementwise.less_equal,
        "lt": elementwise.less,
        "mod": elementwise.floormod,
        "mul": elementwise.multiply,
        "neg": elementwise.negative,
        "or": elementwise.logical_or,
        "pow": math.pow,
        "sub": elementwise.subtract,
        "truediv": math.truediv,
        "xor": math.logical_xor,
    }
)
