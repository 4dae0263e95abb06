"""Import rules of operators that make, move and cut tensors."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

import anabranch as tf
from anabranch.core.arrays import HostArray
from anabranch.onnx import element_types, models
from anabranch.onnx.element_types import NarrowTensor
from anabranch.onnx.rules import NeedsConstantError, OnnxNode, Value, rule


def shape_of(x: tf.Tensor) -> tf.Tensor:
    """The shape as 64-bit integers, a constant where it is known."""
    if x.shape.is_fully_defined():
        return tf.constant(np.array(x.shape.as_list(), np.int64))
    return tf.shape(x, out_type=tf.int64)


@rule("Constant", 1, 9, 11, 12, 13, 19, 21, 23)
def _constant(node: OnnxNode) -> tf.Tensor | NarrowTensor:
    for attribute in node.proto.attribute:
        name = attribute.name
        if name == "value":
            narrow = element_types.narrow(attribute.t.data_type)
            constant = tf.constant(models.array_of(attribute.t))
            return constant if narrow is None else NarrowTensor(constant, narrow)
        if name == "sparse_value":
            return tf.constant(models.dense(attribute.sparse_tensor, None))
        value = node.attr(name)
        if name in ("value_float", "value_floats"):
            return tf.constant(value, tf.float32)
        if name in ("value_int", "value_ints"):
            return tf.constant(value, tf.int64)
        if name in ("value_string", "value_strings"):
            return tf.constant(value, tf.string)
    raise ValueError(f"{node.label} has no value")


@rule("ConstantOfShape", 9, 20, 21, 23)
def _constant_of_shape(node: OnnxNode) -> tf.Tensor | NarrowTensor:
    value: TensorProto | None = node.attr("value")
    filling = np.float32(0) if value is None else models.array_of(value).reshape(-1)[0]
    result = tf.fill(node.tensor(), tf.constant(filling))
    narrow = None if value is None else element_types.narrow(value.data_type)
    return result if narrow is None else NarrowTensor(result, narrow)


@rule("Shape", 1, 13, 15, 19, 21, 23)
def _shape(node: OnnxNode) -> tf.Tensor:
    end = node.attr("end")
    return shape_of(node.tensor())[slice(node.integer("start"), None if end is None else int(end))]  # type: ignore[call-overload]


@rule("Size", 1, 13, 19, 21, 23)
def _size(node: OnnxNode) -> tf.Tensor:
    return tf.reduce_prod(shape_of(node.tensor()))


@rule("Reshape", 1, 5, 13, 14, 19, 21, 23)
def _reshape(node: OnnxNode) -> tf.Tensor:
    x = node.tensor()
    wanted = tf.constant(node.attr("shape"), tf.int64) if node.since < 5 else node.tensor(1)
    if node.integer("allowzero"):
        return tf.reshape(x, wanted)
    known = tf.get_static_value(wanted)
    if known is not None and not (np.asarray(known) == 0).any():
        return tf.reshape(x, wanted)
    count = wanted.shape.num_elements()
    if count is None:
        count = node.static(1).size
    old = tf.concat([shape_of(x), tf.zeros([max(count - node.rank(), 0)], tf.int64)], 0)[:count]
    return tf.reshape(x, tf.where_v2(tf.equal(wanted, 0), old, wanted))


@rule("Flatten", 1, 9, 11, 13, 21, 23)
def _flatten(node: OnnxNode) -> tf.Tensor:
    x, axis = node.tensor(), node.axis(1)
    return tf.reshape(x, tf.stack([tf.reduce_prod(shape_of(x)[:axis]), tf.reduce_prod(shape_of(x)[axis:])]))


@rule("Squeeze", 1, 11, 13, 21, 23)
def _squeeze(node: OnnxNode) -> tf.Tensor:
    axes = node.ints("axes", 1)
    return tf.squeeze(node.tensor(), axes) if axes != [] else tf.identity(node.tensor())


@rule("Unsqueeze", 1, 11, 13, 21, 23)
def _unsqueeze(node: OnnxNode) -> tf.Tensor:
    axes = node.ints("axes", 1, [])
    rank = node.rank() + len(axes or [])
    result = tf.identity(node.tensor())
    for axis in sorted(a % rank for a in axes or []):
        result = tf.expand_dims(result, axis)
    return result


@rule("Transpose", 1, 13, 21, 23)
def _transpose(node: OnnxNode) -> tf.Tensor:
    return tf.transpose(node.tensor(), node.attr("perm"))


@rule("Concat", 1, 4, 11, 13)
def _concat(node: OnnxNode) -> tf.Tensor:
    parts = [node.tensor(i) for i in range(len(node.values))]
    return tf.concat(parts, node.axis(1)) if len(parts) > 1 else tf.identity(parts[0])


@rule("Split", 1, 2, 11, 13, 18)
def _split(node: OnnxNode) -> tuple[tf.Tensor, ...]:
    x, axis = node.tensor(), node.axis(0)
    sizes = node.ints("split", 1)
    if sizes is None:
        whole = x.shape.as_list()[axis]
        if whole is None:
            return tuple(tf.split(x, node.outputs, axis))
        each = -(-whole // node.outputs)
        sizes = [max(min(each, whole - i * each), 0) for i in range(node.outputs)]
    return tuple(tf.split(x, sizes, axis))


@rule("Slice", 1, 10, 11, 13)
def _slice(node: OnnxNode) -> tf.Tensor:
    x, rank = node.tensor(), node.rank()
    if node.since < 10:
        starts, ends = node.ints("starts"), node.ints("ends")
        axes, steps = node.ints("axes"), None
    elif any(tf.get_static_value(node.tensor(i)) is None for i in (1, 2)):
        return _computed_slice(node)
    else:
        starts, ends = node.ints("", 1), node.ints("", 2)
        axes, steps = node.ints("", 3), node.ints("", 4)
    if starts is None or ends is None:
        raise ValueError(f"{node.label}: it has no starts or no ends")
    axes = axes if axes is not None else list(range(len(starts)))
    steps = steps if steps is not None else [1] * len(starts)
    parts: list[slice] = [slice(None)] * rank
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        low, high = _clamped(start, step), _clamped(end, step)
        size = x.shape.as_list()[axis]
        if size is not None:
            if step > 0:
                low, high = max(low, -size), max(high, -size)
            else:
                low = min(low, size - 1)
                if high is not None and high < -size:
                    high = None  # type: ignore[assignment]
        elif step < 0 and high < -(1 << 30):
            high = None  # type: ignore[assignment]
        parts[axis] = slice(low, high, step)
    return x[tuple(parts)]


def _computed_slice(node: OnnxNode) -> tf.Tensor:
    """A slice whose bounds are known only when it runs; the axes and the steps are known before."""
    x, rank = node.tensor(), node.rank()
    count = node.tensor(1).shape.num_elements()
    axes = node.ints("", 3)
    if axes is None:
        if count is None:
            raise NeedsConstantError(f"{node.label}: the number of its starts must be known when the graph is built")
        axes = list(range(count))
    axes = [axis % rank for axis in axes]
    steps = node.ints("", 4) or [1] * len(axes)
    begin, end, strides = ([tf.constant(n, tf.int64)] * rank for n in (0, 0, 1))
    for i, (axis, step) in enumerate(zip(axes, steps, strict=True)):
        begin[axis], end[axis] = (tf.cast(node.tensor(at)[i], tf.int64) for at in (1, 2))
        strides[axis] = tf.constant(step, tf.int64)
    whole = sum(1 << axis for axis in range(rank) if axis not in axes)
    result = tf.strided_slice(x, tf.stack(begin), tf.stack(end), tf.stack(strides), begin_mask=whole, end_mask=whole)
    kept = [None if axis in axes else size for axis, size in enumerate(x.shape.as_list())]
    result.set_shape(kept)
    return result


def _clamped(bound: int, step: int) -> int:
    limit = (1 << 31) - 2
    return max(min(bound, limit), -limit)


@rule("Pad", 1, 2, 11, 13, 18, 19, 21, 23)
def _pad(node: OnnxNode) -> tf.Tensor:
    x, rank = node.tensor(), node.rank()
    pads = node.ints("paddings" if node.since < 2 else "pads", 1 if node.since >= 11 else None) or []
    axes = node.ints("", 3) if node.has(3) else list(range(rank))
    both: HostArray = np.zeros((rank, 2), np.int64)
    for place, axis in enumerate(axes or []):
        both[axis] = pads[place], pads[place + len(axes or [])]
    cut = tuple(slice(-int(low) if low < 0 else None, int(high) if high < 0 else None) for low, high in both)
    x = x[cut] if (both < 0).any() else x
    both = np.maximum(both, 0)
    mode = node.text("mode", "constant")
    if mode == "constant":
        value = node.tensor(2) if node.has(2) else tf.constant(node.real("value"), tf.float64)
        value = tf.cast(tf.reshape(value, []), x.dtype) if value.dtype != x.dtype else tf.reshape(value, [])
        return tf.raw_ops.PadV2(input=x, paddings=both, constant_values=value)
    for axis, (low, high) in enumerate(both):
        if low or high:
            places = np.pad(np.arange(_size_of(node, x, axis)), (low, high), mode=mode)  # type: ignore[call-overload]
            x = tf.gather(x, places, axis=axis)
    return tf.identity(x)


def _size_of(node: OnnxNode, x: tf.Tensor, axis: int) -> int:
    size = x.shape.as_list()[axis]
    if size is None:
        raise ValueError(f"{node.label}: the size of dimension {axis} must be known")
    return int(size)


@rule("Tile", 1, 6, 13)
def _tile(node: OnnxNode) -> tf.Tensor:
    return tf.tile(node.tensor(), node.tensor(1))


@rule("Expand", 8, 13)
def _expand(node: OnnxNode) -> tf.Tensor:
    x, wanted = node.tensor(0), node.tensor(1)
    return tf.broadcast_to(x, tf.broadcast_dynamic_shape(shape_of(x), wanted))


@rule("Range", 11)
def _range(node: OnnxNode) -> tf.Tensor:
    start, limit, delta = (tf.reshape(node.tensor(i), []) for i in range(3))
    return tf.range(start, limit, delta)


@rule("EyeLike", 9, 22)
def _eye_like(node: OnnxNode) -> tf.Tensor:
    x = node.tensor()
    number = node.attr("dtype")
    dtype = x.dtype if number is None else element_types.dtype_of(int(number), node.label)  # type: ignore[call-overload]
    rows, columns = tf.unstack(tf.shape(x))
    row = tf.expand_dims(tf.range(rows), 1)
    return tf.cast(tf.equal(tf.range(columns) - row, node.integer("k")), dtype)


@rule("Trilu", 14)
def _trilu(node: OnnxNode) -> tf.Tensor:
    x = node.tensor()
    k = int(node.static(1).reshape(())) if node.has(1) else 0
    shape = tf.shape(x)
    difference = tf.range(shape[-1]) - tf.expand_dims(tf.range(shape[-2]), 1)
    keep = difference >= k if node.integer("upper", 1) else difference <= k
    return tf.where_v2(keep, x, tf.zeros_like(x))


@rule("DepthToSpace", 1, 11, 13)
def _depth_to_space(node: OnnxNode) -> tf.Tensor:
    x, block = node.tensor(), node.integer("blocksize")
    n, c, h, w = tf.unstack(tf.shape(x))
    depth = c // (block * block)
    if node.text("mode", "DCR") == "DCR":
        parts = tf.transpose(tf.reshape(x, tf.stack([n, block, block, depth, h, w])), [0, 3, 4, 1, 5, 2])
    else:
        parts = tf.transpose(tf.reshape(x, tf.stack([n, depth, block, block, h, w])), [0, 1, 4, 2, 5, 3])
    return tf.reshape(parts, tf.stack([n, depth, h * block, w * block]))


@rule("SpaceToDepth", 1, 13)
def _space_to_depth(node: OnnxNode) -> tf.Tensor:
    x, block = node.tensor(), node.integer("blocksize")
    n, c, h, w = tf.unstack(tf.shape(x))
    parts = tf.reshape(x, tf.stack([n, c, h // block, block, w // block, block]))
    return tf.reshape(tf.transpose(parts, [0, 3, 5, 1, 2, 4]), tf.stack([n, c * block * block, h // block, w // block]))


@rule("ReverseSequence", 10)
def _reverse_sequence(node: OnnxNode) -> tf.Tensor:
    return tf.reverse_sequence(
        node.tensor(0), node.tensor(1), seq_axis=node.integer("time_axis"), batch_axis=node.integer("batch_axis", 1)
    )


@rule("SequenceEmpty", 11)
def _sequence_empty(node: OnnxNode) -> Value:
    element_types.dtype_of(node.integer("dtype", TensorProto.FLOAT), node.label)
    return []


@rule("SequenceConstruct", 11)
def _sequence_construct(node: OnnxNode) -> Value:
    return [node.tensor(i) for i in range(len(node.values))]


@rule("SequenceInsert", 11)
def _sequence_insert(node: OnnxNode) -> Value:
    result = list(node.sequence())
    place = int(node.static(2).reshape(())) if node.has(2) else len(result)
    result.insert(_place(node, place, len(result) + 1), node.tensor(1))
    return result


@rule("SequenceErase", 11)
def _sequence_erase(node: OnnxNode) -> Value:
    result = list(node.sequence())
    del result[_place(node, int(node.static(1).reshape(())) if node.has(1) else -1, len(result))]
    return result


@rule("SequenceAt", 11)
def _sequence_at(node: OnnxNode) -> Value:
    values = node.sequence()
    return tf.identity(values[_place(node, int(node.static(1).reshape(())), len(values))])


def _place(node: OnnxNode, place: int, count: int) -> int:
    if not -count <= place < count:
        raise ValueError(f"{node.label}: place {place} is outside of a sequence of {count}")
    return place % count


@rule("SequenceLength", 11)
def _sequence_length(node: OnnxNode) -> Value:
    return tf.constant(len(node.sequence()), tf.int64)


@rule("ConcatFromSequence", 11)
def _concat_from_sequence(node: OnnxNode) -> Value:
    axis = node.integer("axis")
    return tf.stack(node.sequence(), axis) if node.integer("new_axis") else tf.concat(node.sequence(), axis)


@rule("SplitToSequence", 11)
def _split_to_sequence(node: OnnxNode) -> Value:
    x, axis = node.tensor(), node.axis(0)
    whole = _size_of(node, x, axis)
    split = node.static(1) if node.has(1) else np.array(1)
    if split.ndim == 0:
        size = int(split)
        sizes = [min(size, whole - start) for start in range(0, whole, size)]
    else:
        sizes = [int(s) for s in split]
    parts: list[tf.Tensor] = list(tf.split(x, sizes, axis))
    if not node.has(1) and not node.integer("keepdims", 1):
        parts = [tf.squeeze(part, [axis]) for part in parts]
    return parts


@rule("Optional", 15)
def _optional(node: OnnxNode) -> Value:
    return node.values[0] if node.values else None


@rule("OptionalGetElement", 15, 18)
def _optional_get_element(node: OnnxNode) -> Value:
    value = node.values[0]
    if isinstance(value, NarrowTensor):
        return value
    return list(value) if isinstance(value, list) else tf.identity(node.tensor())


@rule("OptionalHasElement", 15, 18)
def _optional_has_element(node: OnnxNode) -> Value:
    return tf.constant(bool(node.values) and node.values[0] is not None)
