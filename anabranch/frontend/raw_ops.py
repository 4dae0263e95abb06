"""`tf.raw_ops`: each operation type as a function that takes keywords only: ``tf.raw_ops.MatMul(a=x, b=y)``.

The functions are made from the registry when somebody first asks for them. What type checkers and editors know of
them stands in the stub beside this file, which `tools.raw_ops_stub` writes from the same signatures.
"""

from __future__ import annotations

# operation types are called `Any` and `Iterator`, too: the module may hold no such name
from anabranch.core import absent_names as _absent_names, refused_names as _refused_names
from anabranch.frontend import raw_functions as _functions


def __getattr__(name: str) -> object:
    function = _functions.keyword_function(name)
    if function is None:
        if _refused_names.refusal_of(f"raw_ops.{name}") is not None:
            raise AttributeError(_absent_names.absence("raw_ops", name), name=name)
        raise AttributeError(f"there is no operation type {name!r}; dir(tf.raw_ops) lists them")
    globals()[name] = function
    return function


def __dir__() -> list[str]:
    return [op.name for op in _functions.public_operations()]
