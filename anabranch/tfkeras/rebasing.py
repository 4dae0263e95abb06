"""Classes of the package on the foundations of this room.

The class that `tf.keras` serves for a class of the package derives from it, and from what is served for its bases. In
the order in which methods are looked up, each class of the package is followed by ours in the place of its base: a
method that the package's `Layer` has is ours, one that a package's layer has itself is the package's.

    served Dense -> package Dense -> our Layer -> package Layer
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from anabranch.core.values import PassedOn
from anabranch.tfkeras import package, scopes, shapes, unsaid

T = TypeVar("T", bound=type)

#: what is served for a class of the package
_served: dict[type, type] = {}


def serves(cls: type) -> Callable[[T], T]:
    """Serves the decorated class for one of the package."""

    def register(own: T) -> T:
        _served[cls] = own
        _say_arguments(own, cls)
        own.__name__ = own.__qualname__ = cls.__name__
        own.__module__ = f"tensorflow.{cls.__module__}"
        return own

    return register


def _say_arguments(own: type, cls: type) -> None:
    """Lets a class that passes its arguments on say which the package's class takes: libraries look them up."""
    init: Any = vars(own).get("__init__")
    if init is not None and any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(init).parameters.values()):
        init.__signature__ = inspect.signature(cls.__init__)  # type: ignore[misc]


def is_of_package(cls: type) -> bool:
    """Whether a class is the package's own."""
    return cls.__module__.partition(".")[0] == str(package.module("").__name__)


def served(cls: type) -> Any:
    """The class that is served for one of the package; a class of another origin is itself."""
    if cls in _served:
        return _served[cls]
    if not is_of_package(cls):
        return cls
    found = _served[cls] = rebased(cls)
    return found


def rebased(cls: type) -> Any:
    """A class of the package on served bases, to derive ours from where more differs than its foundations."""
    bases = tuple(dict.fromkeys(served(base) for base in cls.__bases__ if base is not object))
    namespace: dict[str, Any] = {"__doc__": cls.__doc__, "__module__": f"tensorflow.{cls.__module__}"}
    own = vars(cls)
    init: Any = own.get("__init__")
    if init is not None and not any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(init).parameters.values()):
        namespace["__init__"] = _by_names(init)
    if "build" in own:
        namespace["build"] = _with_tuples(cls, "build")
    if "compute_output_shape" in own:
        namespace["compute_output_shape"] = _with_tuples(cls, "compute_output_shape")
    if "from_config" in own:
        namespace["from_config"] = _in_scope(cls)
    return type(cls)(cls.__name__, (cls, *bases), namespace)


def _by_names(init: Callable[..., None]) -> Callable[..., None]:
    """`__init__` of the package, which is given its arguments by their names.

    It takes some of them by position for those of its first version: a third argument of `Conv2D` was a length of the
    kernel, and is the stride in TensorFlow. None for an initializer means the default of the variable's dtype.
    """
    signature = inspect.signature(init)
    names = list(signature.parameters)[1:]

    @functools.wraps(init)
    def call(self: PassedOn, *args: PassedOn, **kwargs: PassedOn) -> None:
        listed = dict(zip(names, args, strict=False))
        if len(args) > len(names) or listed.keys() & kwargs.keys():
            signature.bind(self, *args, **kwargs)  # says what is wrong
        init(self, **{name: _said(name, value) for name, value in (listed | kwargs).items()})

    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def _said(name: str, value: PassedOn) -> Any:
    return unsaid.UNSAID if value is None and name.endswith("_initializer") else value


def _with_tuples(cls: type, name: str) -> Callable[..., Any]:
    """A method of the package that takes shapes; it is given tuples, and its answer has the form of its argument."""
    method = getattr(cls, name)

    @functools.wraps(method)
    def call(self: PassedOn, input_shape: PassedOn = None, *args: PassedOn, **kwargs: PassedOn) -> Any:
        answer = method(self, shapes.as_tuples(input_shape), *args, **kwargs)
        if answer is None:
            return None
        return shapes.as_tensor_shapes(answer) if shapes.of_tensorflow(input_shape) else shapes.as_tuples(answer)

    return call


def _in_scope(cls: type) -> Any:
    """`from_config` of the package; the classes that it makes by name are those served."""
    function = vars(cls)["from_config"].__func__

    @functools.wraps(function)
    def from_config(own: type, config: PassedOn, *args: PassedOn, **kwargs: PassedOn) -> Any:
        with scopes.served_classes():
            return function(own, config, *args, **kwargs)

    return classmethod(from_config)


def is_foundation(cls: type) -> bool:
    """Whether a class is the package's, or what is served for one of it: not a program's own."""
    return is_of_package(cls) or cls in _served.values()
