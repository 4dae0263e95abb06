"""Names that Python and NumPy have removed since TensorFlow 1 programs were written, for the process that runs one.

`restore` lets modules answer for them, ``numpy.int``, ``collections.Mapping``, ``inspect.getargspec``; a name that is
still there is left alone. The first use of one is told on the standard error stream, once in the process. So it is
with methods of pandas (`old_pandas`), functions of SciPy for pictures (`old_scipy`), functions of TensorBoard's
summaries, modules that moved (`moved_modules`) and ``yaml.load(file)``. Without a word, what h5py reads otherwise
than it did (`old_h5py`) is restored, and so are the lists that `numpy.meshgrid` and its like returned. Arrays of rows
of unequal lengths, which NumPy refuses since 1.24, are arrays of objects again, and ``np.array(x, copy=False)`` copies
where it must, which NumPy 2 refuses.
"""

from __future__ import annotations

import base64
import collections
import collections.abc
import fractions
import functools
import inspect
import math
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike

from anabranch.compat.private.inspection import ArgSpec
from anabranch.core.values import PassedOn
from anabranch.tools import (
    after_import,
    gone_modules,
    moved_modules,
    old_h5py,
    old_numpy,
    old_packages,
    old_pandas,
    old_python,
    old_scipy,
)

_ABSTRACT: Final = (
    "Awaitable Callable Container Coroutine Generator Hashable ItemsView Iterable Iterator KeysView Mapping "
    "MappingView MutableMapping MutableSequence MutableSet Sequence Set Sized ValuesView"
)


def _getargspec(function: Callable[..., object]) -> ArgSpec:
    """As Python's up to 3.10: refuses functions with arguments that have no place in an ArgSpec.

    Annotations are left out, where Python's refused them: TensorFlow's functions had none, and programs ask for theirs.
    """
    spec = inspect.getfullargspec(function)
    if spec.kwonlyargs:
        raise ValueError("Function has keyword-only parameters, use inspect.signature()")
    return ArgSpec(spec.args, spec.varargs, spec.varkw, spec.defaults)


def _of_pillow(image: ModuleType) -> dict[str, object]:
    """The resampling filters that have other names since Pillow 10."""
    kinds = image.Resampling
    return {"ANTIALIAS": kinds.LANCZOS, "LINEAR": kinds.BILINEAR, "CUBIC": kinds.BICUBIC}


def _of_tensorboard() -> dict[str, object]:
    """What `tensorboard.summary` had of version 1 of its interface, and has in a module of that name now."""
    names = ("custom_scalar", "pr_curve", "pr_curve_streaming_op", "pr_curve_raw_data_op", "pr_curve_raw_data_pb")
    kinds = ("audio", "custom_scalar", "histogram", "image", "pr_curve", "scalar", "text")
    return {name: old_scipy.lazily("tensorboard.summary.v1", name) for name in (*names, *(f"{k}_pb" for k in kinds))}


def _answer_for_scipy(scipy: ModuleType, teller: _Teller) -> Callable[[], object]:
    undo = [old_scipy.bind_misc(scipy), _answer_for(scipy, old_scipy.names_of_package(), teller)]
    return lambda: [one() for one in undo]


def _table() -> list[tuple[ModuleType, Mapping[str, object]]]:
    return [
        (np, old_numpy.names()),
        (np.lib, {"pad": np.pad}),
        (collections, {name: getattr(collections.abc, name) for name in _ABSTRACT.split()}),
        (inspect, {"getargspec": _getargspec, "ArgSpec": ArgSpec}),
        # the processor's time, as it was outside Windows
        (time, {"clock": time.process_time}),
        (fractions, {"gcd": math.gcd}),
        (base64, {"encodestring": base64.encodebytes, "decodestring": base64.decodebytes}),
    ]


class _Teller:
    """Tells of the first old name that a program uses."""

    def __init__(self, quiet: bool) -> None:
        self._told = quiet

    def tell(self, name: str) -> None:
        if not self._told:
            self._told = True
            print(
                f"anabranch run: the program uses {name}, which is no more; such names of Python and NumPy are "
                "restored in this process (--no-old-names leaves them out)",
                file=sys.stderr,
            )


def restore(quiet: bool = False) -> Callable[[], None]:
    """Restores what is missing, in this process; returns the function that undoes it.

    Args:
        quiet: whether nothing is said when a name is used.
    """
    teller = _Teller(quiet)
    undo = [_answer_for(module, names, teller) for module, names in (*_table(), *old_python.names())]
    undo += [*old_python.restore(teller.tell), *old_numpy.restore(teller.tell)]
    undo += [_make_as_before(name, teller) for name in ("array", "asarray", "asanyarray")]
    undo.append(_compare_kinds_as_before(teller))
    undo += [_as_list(name) for name in ("meshgrid", "broadcast_arrays", "atleast_1d", "atleast_2d", "atleast_3d")]
    undo.append(old_h5py.restore())
    undo.append(moved_modules.restore(teller.tell))
    for name, names in (old_scipy.names_elsewhere() | old_python.names_when_imported()).items():
        undo.append(after_import.change(name, functools.partial(_answer_for, names=names, teller=teller)))
    undo.append(after_import.change("scipy", lambda module: _answer_for_scipy(module, teller)))
    undo.append(after_import.change("PIL.Image", lambda module: _answer_for(module, _of_pillow(module), teller)))
    for name, changed in old_packages.changes(teller.tell).items():
        undo.append(after_import.change(name, changed))
    undo.append(
        after_import.change("tensorboard.summary", lambda module: _answer_for(module, _of_tensorboard(), teller))
    )
    undo.append(after_import.change("pandas", lambda module: old_pandas.restore(teller.tell, module)))
    undo.append(after_import.change("yaml", lambda module: _load_without_loader(module, teller)))
    if not hasattr(threading.Thread, "isAlive"):
        undo.append(_restore_is_alive(teller))
    undo.append(gone_modules.restore(teller.tell))

    def undo_all() -> None:
        for one in undo:
            one()

    return undo_all


def _answer_for(module: ModuleType, names: Mapping[str, object], teller: _Teller) -> Callable[[], object]:
    """Lets a module answer for names that it has no more, as they are asked for."""
    before = vars(module).get("__getattr__")

    def answer(name: str) -> object:
        if name in names:
            teller.tell(f"{module.__name__}.{name}")
            return names[name]
        if before is not None:
            return before(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}", name=name, obj=module)

    vars(module)["__getattr__"] = answer

    def undo() -> None:
        if before is None:
            del vars(module)["__getattr__"]
        else:
            vars(module)["__getattr__"] = before

    return undo


def _compare_kinds_as_before(teller: _Teller) -> Callable[[], object]:
    """Lets `numpy.issubdtype` take Python's `float` for any floating-point kind, `int` for any signed integer.

    Until NumPy 1.20 it did so.
    """
    function = np.issubdtype

    @functools.wraps(function)
    def issubdtype(arg1: DTypeLike, arg2: DTypeLike) -> bool:
        if isinstance(arg2, type) and arg2 in (float, int, complex) and not function(arg1, arg2):
            arg2 = np.dtype(arg2).type.__mro__[1]
            if function(arg1, arg2):
                teller.tell("numpy.issubdtype of Python's types")
        return function(arg1, arg2)

    np.issubdtype = issubdtype

    def undo() -> None:
        np.issubdtype = function

    return undo


def _make_as_before(name: str, teller: _Teller) -> Callable[[], object]:
    """Lets a function of NumPy make arrays that it refuses by now.

    They are those of objects, of what is no array of numbers and where no type is asked for, and those that must be
    copied although the program would rather not.
    """
    function: Callable[..., np.ndarray[Any, Any]] = getattr(np, name)

    @functools.wraps(function)
    def made(*values: PassedOn, **options: PassedOn) -> np.ndarray[Any, Any]:
        try:
            return function(*values, **options)
        except ValueError as error:
            changed: dict[str, object]
            if options.get("copy") is False and "avoid copy" in str(error):
                changed, what = {"copy": None}, "(copy=False) of what must be copied"
            elif len(values) == 1 and options.get("dtype") is None and "inhomogeneous" in str(error):
                changed, what = {"dtype": object}, " of rows of unequal lengths"
            else:
                raise
        teller.tell(f"numpy.{name}{what}")
        return function(*values, **{**options, **changed})

    setattr(np, name, made)
    return lambda: setattr(np, name, function)


def _as_list(name: str) -> Callable[[], object]:
    """Lets a function of NumPy that gives several arrays give a list of them, as until NumPy 2, and not a tuple."""
    function: Callable[..., Any] = getattr(np, name)

    @functools.wraps(function)
    def listed(*values: PassedOn, **options: PassedOn) -> Any:
        result = function(*values, **options)
        return list(result) if isinstance(result, tuple) else result

    setattr(np, name, listed)
    return lambda: setattr(np, name, function)


def _load_without_loader(yaml: ModuleType, teller: _Teller) -> Callable[[], object]:
    """Lets `yaml.load` be called without a loader, as until PyYAML 6; it then makes no objects of a file's choice."""
    load: Callable[..., Any] = yaml.load

    @functools.wraps(load)
    def loaded(stream: PassedOn, Loader: PassedOn = None) -> Any:
        if Loader is None:
            teller.tell("yaml.load without a Loader")
            Loader = yaml.SafeLoader
        return load(stream, Loader)

    vars(yaml)["load"] = loaded
    return lambda: vars(yaml).update(load=load)


def _restore_is_alive(teller: _Teller) -> Callable[[], object]:
    def is_alive(thread: threading.Thread) -> bool:
        teller.tell("threading.Thread.isAlive")
        return thread.is_alive()

    setattr(threading.Thread, "isAlive", is_alive)  # noqa: B010 (the attribute is not declared)
    return lambda: delattr(threading.Thread, "isAlive")
