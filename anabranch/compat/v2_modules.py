"""What public functions and modules are in `tf.compat.v2` where they differ from version 1."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

import anabranch as tf
from anabranch.core.dtypes import DTypeLike
from anabranch.core.values import PassedOn, TensorLike, TensorOrRagged

#: functions that have fewer arguments in version 2, or others in between: what they are called with, in this order
_ARGUMENTS: Final = {
    **dict.fromkeys(
        ("reduce_all", "reduce_any", "reduce_logsumexp", "reduce_max", "reduce_mean", "reduce_min", "reduce_prod"),
        "input_tensor axis keepdims name",
    ),
    **dict.fromkeys(("argmax", "argmin"), "input axis output_type name"),
    **dict.fromkeys(("softmax", "log_softmax"), "logits axis name"),
    **dict.fromkeys(("expand_dims", "squeeze"), "input axis name"),
    "boolean_mask": "tensor mask axis name",
    "gather_nd": "params indices batch_dims name",
    "l2_normalize": "x axis epsilon name",
    "norm": "tensor ord axis keepdims name",
    "size": "input out_type name",
    "shape": "input out_type name",
    "pad": "tensor paddings mode constant_values name",
    "reduce_sum": "input_tensor axis keepdims name",
}


def softmax_cross_entropy_with_logits(
    labels: TensorLike, logits: TensorLike, axis: int = -1, name: str | None = None
) -> tf.Tensor:
    """The cross entropy of distributions; gradients reach the labels too."""
    return tf.nn.softmax_cross_entropy_with_logits_v2(labels=labels, logits=logits, axis=axis, name=name)


def decode_raw(
    input_bytes: TensorLike,
    out_type: DTypeLike,
    little_endian: bool = True,
    fixed_length: TensorLike | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """The bytes of strings, read as numbers; with `fixed_length` strings are cut, or zeros added, to that length."""
    if fixed_length is None:
        return tf.decode_raw(input_bytes, out_type, little_endian, name)
    result: tf.Tensor = tf.raw_ops.DecodePaddedRaw(
        input_bytes=input_bytes, fixed_length=fixed_length, out_type=out_type, little_endian=little_endian, name=name
    )
    return result


def split_strings(
    input: TensorLike, sep: TensorLike | None = None, maxsplit: int = -1, name: str | None = None
) -> TensorOrRagged:
    """The parts of each string, ragged; see `tf.strings.split`."""
    return tf.strings.split(input, sep, maxsplit, result_type="RaggedTensor", name=name)


#: module -> names that are other functions, or are there under another name
_CHANGED: Final[dict[str, dict[str, Any]]] = {
    "io": {"decode_raw": decode_raw},
    "nn": {"softmax_cross_entropy_with_logits": softmax_cross_entropy_with_logits},
    "random": {"set_seed": tf.set_random_seed},
    "strings": {"split": split_strings},
}


class _Changed(ModuleType):
    """A public module as version 2 has it."""

    def __init__(self, name: str, module: ModuleType) -> None:
        super().__init__(f"anabranch.compat.v2.{name}", module.__doc__)
        self.__dict__.update(_CHANGED.get(name, {}))
        self.__dict__["_module"] = module

    def __getattr__(self, name: str) -> Any:
        value = self.__dict__[name] = of_version_2(name, getattr(self._module, name))
        return value

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *dir(self._module)})


@functools.cache
def changed(name: str, module: ModuleType) -> ModuleType:
    """The public module of that name as version 2 has it."""
    return _Changed(name, module)


def of_version_2(name: str, value: PassedOn) -> Any:
    """A public function with the arguments that it has in version 2; anything else as it is."""
    return _with_arguments(value, _ARGUMENTS[name]) if name in _ARGUMENTS else value


@functools.cache
def _with_arguments(function: Callable[..., Any], names: str) -> Callable[..., Any]:
    """A function that takes these arguments of another, in this order, with that one's defaults."""
    parameters = inspect.signature(function).parameters
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    kept = [parameters[name].replace(kind=positional, annotation=inspect.Parameter.empty) for name in names.split()]
    with_defaults = False
    for at, parameter in enumerate(kept):
        if with_defaults and parameter.default is inspect.Parameter.empty:
            kept[at] = parameter.replace(default=None)
        if parameter.name == "keepdims":
            kept[at] = parameter.replace(default=False)
        with_defaults = with_defaults or parameter.default is not inspect.Parameter.empty
    signature = inspect.Signature(kept)

    def narrowed(*args: PassedOn, **kwargs: PassedOn) -> Any:
        return function(**signature.bind(*args, **kwargs).arguments)

    functools.update_wrapper(narrowed, function)
    vars(narrowed).pop("__wrapped__")
    narrowed.__annotations__ = {}
    narrowed.__signature__ = signature  # type: ignore[attr-defined]
    return narrowed
