"""Genuine TensorFlow as the fuzzer asks it: the front end of version 1, and operation types by their own names."""

from __future__ import annotations

import functools
from typing import Any


class RawOperations:
    """TensorFlow's operation types, called with the names of their definitions, which `tf.raw_ops` changes."""

    def __init__(self) -> None:
        from tensorflow import raw_ops
        from tensorflow.python.framework import dtypes, kernels, op_def_library, op_def_registry

        self._names = [name for name in dir(raw_ops) if not name.startswith("_")]
        self._kernels = kernels.get_registered_kernels_for_op
        self._apply = op_def_library.apply_op
        self._find = op_def_registry.get
        self._as_dtype = dtypes.as_dtype

    def __getattr__(self, name: str) -> Any:
        return functools.partial(self._call, name)

    def __dir__(self) -> list[str]:
        return self._names

    def kernels(self) -> dict[str, list[dict[str, list[str]]]]:
        """For each operation type that graphs of today may have, its kernels on processors: values by attribute."""
        found = {}
        for name in self._names:
            definition = self._find(name)
            if definition is None or definition.HasField("deprecation"):
                continue
            found[name] = [
                {c.name: self._allowed(c.allowed_values.list) for c in kernel.constraint}
                for kernel in self._kernels(name).kernel
                if kernel.device_type == "CPU"
            ]
        return found

    def _allowed(self, values: Any) -> list[str]:
        return [self._as_dtype(t).name for t in values.type] or [text.decode() for text in values.s]

    def _call(self, op: str, /, **arguments: Any) -> Any:
        definition = self._find(op)
        inferred = {n for a in definition.input_arg for n in (a.type_attr, a.number_attr, a.type_list_attr)}
        for attr in definition.attr:
            if attr.name not in {*arguments, *inferred} and attr.HasField("default_value"):
                arguments[attr.name] = self._python(attr.default_value)
        return self._apply(op, **arguments)

    def _python(self, value: Any) -> Any:
        kind = value.WhichOneof("value")
        if kind == "list":
            items = next((list(items) for _, items in value.list.ListFields()), [])
            return [self._as_dtype(v) for v in items] if value.list.type else items
        found = getattr(value, kind)
        return self._as_dtype(found) if kind == "type" else found


def front_end() -> tuple[Any, Any]:
    """`tensorflow.compat.v1`, and its operation types."""
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    tf.get_logger().setLevel("FATAL")
    return tf, RawOperations()
