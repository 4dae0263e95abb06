"""The optimizers' updates as operations: one per step and variable, dense, or sparse on the rows of a gradient.

Each rule below is written once, as a function of the variable, its slots, the hyperparameters and the gradient, all
elementwise. From it follow `ResourceApply<name>`, which applies it to whole variables, and `ResourceSparseApply<name>`,
which applies it to the rows that `indices` names: repeated rows are summed first, other rows stay bit-identical, and
the cost does not depend on the number of rows of the variable (§4.2).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from anabranch.core.arrays import Array, HostArray
from anabranch.core.kernel_context import OperationContext, RowsUpdate, VariableUpdate
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.kernel_contexts import StepTracingContext
from anabranch.ops.arrays.gather_scatter import check_indices
from anabranch.ops.resources.rows import combined_rows, guarded, library_of, write_rows
from anabranch.ops.resources.variables import handle_shape

#: (slots and variable, hyperparameters and gradient, attributes, each by name) -> new values by name
UpdateRule = Callable[..., dict[str, Any]]


class Updating(NamedTuple):
    """What a rule asks besides its values.

    Attributes:
        write: (name of a slot, its new value) -> what the slot holds from now on. A rule that computes the variable
            from a new slot passes it through this first: XLA then computes the slot once and reads it back, where it
            would otherwise compute it for each of the two results, from copies of what they overwrite.
        memory: gives where NumPy may write a new value, over the gradient maybe (`KernelContext.memory`).
    """

    write: Callable[[str, Any], Any]
    memory: Callable[[], HostArray | None] = lambda: None

    def __call__(self, handle: str, new: Array) -> Any:
        return self.write(handle, new)


_GRADIENTS = frozenset({"grad", "delta", "indices"})
#: elements that NumPy works on at a time
_BLOCK: Final = 1 << 15
_LOCKING = "use_locking: bool = False"
#: what the names of dense updates begin with
_DENSE: Final = "ResourceApply"


def _optimizer(
    name: str, state: str, others: str, rule: UpdateRule, attrs: str = "", dense: bool = True, sparse: bool = True
) -> None:
    """Defines the dense and the sparse operation of one rule.

    Args:
        state: the names of the variable and its slots, in the order of the inputs.
        others: the names of the other inputs; the gradient is "grad" (or "delta").
        rule: called with all of them, and with the attributes, by name; returns the new values of those that change.
        attrs: attributes besides `use_locking`.
    """
    more = f", {attrs}" if attrs else ""
    handles, rest = state.split(), others.split()
    if dense:
        _apply_dense(f"{_DENSE}{name}", handles, rest, rule, f"T: numbers, {_LOCKING}{more}")
    if sparse:
        rest = ["grad" if n == "delta" else n for n in rest]
        rest.insert(rest.index("grad") + 1, "indices")
        _apply_sparse(
            f"ResourceSparseApply{name}", handles, rest, rule, f"T: numbers, Tindices: index, {_LOCKING}{more}"
        )


def _input(name: str) -> str:
    return f"{name}: " + {"indices": "Tindices", "global_step": "int64"}.get(name, "T")


def _define(name: str, handles: list[str], rest: list[str], attrs: str) -> OpFunction:
    inputs = [*(f"{h}: resource" for h in handles), *map(_input, rest)]
    signature = f"{', '.join(inputs)} ->"
    op = define_op(name, signature, attrs, stateful=True, reads=handles, writes=handles, takes_numpy=True)
    op.not_differentiable()
    return op


def _apply_dense(name: str, handles: list[str], rest: list[str], rule: UpdateRule, attrs: str) -> None:
    op = _define(name, handles, rest, attrs)
    gradient = len(handles) + rest.index("grad" if "grad" in rest else "delta")

    @op.shape
    def _(*shapes: TensorShape, ctx: ShapeContext) -> tuple[()]:
        shape = shapes[gradient]
        for handle in handles:
            shape = shape.merge_with(handle_shape(ctx.tensor(handle)))
        return ()

    @op.kernel
    def _(*inputs: Array, ctx: OperationContext) -> None:
        values = dict(zip([*handles, *rest], inputs, strict=True))
        resources = {h: values[h] for h in handles}
        values.update({h: ctx.read(resource) for h, resource in resources.items()})
        _check_like_variable(values, handles, np.shape(inputs[gradient]))
        _check_scalars(values, rest)

        def write(handle: str, new: Array) -> Any:
            ctx.write(resources[handle], new.astype(values["var"].dtype))
            return ctx.read(resources[handle])

        states, others = {h: values[h] for h in handles}, {n: values[n] for n in rest}
        described = (list(resources.values()), states, others, rest[gradient - len(handles)], gradient)
        if ctx.updates(VariableUpdate(name.removeprefix(_DENSE), *described)):
            return
        grad, var = inputs[gradient], values["var"]
        memory = functools.partial(ctx.memory, np.shape(grad), var.dtype, gradient)
        for handle, new in _call(rule, values, ctx, Updating(write, memory)).items():
            ctx.write(resources[handle], new)


def _apply_sparse(name: str, handles: list[str], rest: list[str], rule: UpdateRule, attrs: str) -> None:
    op = _define(name, handles, rest, attrs)

    @op.shape
    def _(*shapes: TensorShape, ctx: ShapeContext) -> tuple[()]:
        given = dict(zip([*handles, *rest], shapes, strict=True))
        table = handle_shape(ctx.tensor(handles[0])).with_rank_at_least(1)
        if table.ndims is not None:
            given["indices"].with_rank(1).concatenate(table[1:]).assert_is_compatible_with(given["grad"])
        for handle in handles[1:]:
            table = table.merge_with(handle_shape(ctx.tensor(handle)))
        return ()

    @op.kernel
    def _(*inputs: Array, ctx: StepTracingContext) -> None:
        values = dict(zip([*handles, *rest], inputs, strict=True))
        resources = {h: values.pop(h) for h in handles}
        tables = {h: ctx.read(resource) for h, resource in resources.items()}
        indices, grad, size = values.pop("indices"), values["grad"], tables[handles[0]].shape[0]
        xp = library_of(indices, grad, *tables.values())
        _check_like_variable(tables, handles, (size, *np.shape(grad)[1:]))
        _check_scalars(values, rest)
        if np.shape(indices) != np.shape(grad)[:1]:
            raise ValueError(
                f"grad has {np.shape(grad)[0]} rows, indices have shape {np.shape(indices)}; they must agree"
            )
        check_indices(ctx, indices, size, xp)
        rows, values["grad"] = combined_rows(guarded(ctx, indices, size), xp.asarray(grad), size)
        taken = {h: xp.take(table, rows, axis=0, mode="clip") for h, table in tables.items()}
        taken["grad"] = values.pop("grad")

        def compute(given: dict[str, Any]) -> dict[str, Any]:
            return _call(rule, {**values, **given}, ctx, Updating(lambda _, new: new))

        def store(news: dict[str, Any]) -> None:
            for handle, new in news.items():
                write_rows(ctx, resources[handle], tables[handle], "set", rows, new, unique=True)

        if xp is np:
            scalars = tuple([id(values[scalar]) for scalar in rest if scalar not in _GRADIENTS])
            forms = (tables[handles[0]].dtype, np.shape(grad)[1:], grad.dtype)
            kind = (name, scalars, forms, *[ctx.op.attrs.get(attr) for attr in _RULE_ATTRS])
            if ctx.puts_off_rows(RowsUpdate(kind, taken, compute, store)):
                return
        store(compute(taken))


def _check_like_variable(values: dict[str, Any], handles: list[str], shape: tuple[int, ...]) -> None:
    """Raises ValueError unless the variable and all of its slots have `shape`."""
    wanted = tuple(shape)
    for handle in handles:
        if values[handle].shape != wanted:
            raise ValueError(
                f"the gradient is for shape {list(shape)}, but {handle} has shape {list(values[handle].shape)}"
            )


def _check_scalars(values: dict[str, Any], inputs: list[str]) -> None:
    """Raises ValueError unless the hyperparameters are scalars: others would change the variable's shape."""
    for name in inputs:
        if name not in _GRADIENTS and np.ndim(values[name]):
            raise ValueError(f"{name} must be a scalar, got shape {[*np.shape(values[name])]}")


def _call(rule: UpdateRule, values: dict[str, Any], ctx: OperationContext, kept: Updating) -> dict[str, Any]:
    dtype = values["var"].dtype
    attrs = {k: ctx.op.attrs[k] for k in _RULE_ATTRS if k in ctx.op.attrs}
    new = rule(kept, **values, **attrs)
    # without a copy of what has the dtype already
    return {name: value if value.dtype == dtype else value.astype(dtype) for name, value in new.items()}


_RULE_ATTRS = ("use_nesterov", "update_slots", "multiply_linear_by_lr")


def _sqrt(value: Array) -> Any:
    return library_of(value).sqrt(value)


# ---------------------------------------------------------------------- gradient descent and its proximal forms
def _gradient_descent(kept: Updating, var: Array, alpha: Array, delta: Array) -> dict[str, Any]:
    memory = kept.memory()
    if memory is None:
        return {"var": var - alpha * delta}
    # large variables: memory that is touched for the first time takes longer than the arithmetic, and so does memory
    # that a processor's caches do not hold
    old, grad, new = (array.reshape(-1) for array in (var, delta, memory))
    for start in range(0, new.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        np.multiply(alpha, grad[block], out=new[block])
        np.subtract(old[block], new[block], out=new[block])
    return {"var": memory}


def _shrunk(values: Array, l1: Array) -> Any:
    """Soft thresholding: what lies within `l1` of zero becomes zero, the rest moves towards zero by `l1`."""
    xp = library_of(values, l1)
    return xp.sign(values) * xp.maximum(xp.abs(values) - l1, np.zeros((), values.dtype))


def _proximal_gradient_descent(
    kept: Updating,
    var: Array,
    alpha: Array,
    l1: Array,
    l2: Array,
    delta: Array | None = None,
    grad: Array | None = None,
) -> dict[str, Any]:
    step = var - alpha * (grad if delta is None else delta)
    return {"var": _shrunk(step, alpha * l1) / (1 + alpha * l2)}


_optimizer("GradientDescent", "var", "alpha delta", _gradient_descent, sparse=False)
_optimizer("ProximalGradientDescent", "var", "alpha l1 l2 delta", _proximal_gradient_descent)


# ---------------------------------------------------------------------- momentum
def _momentum(
    kept: Updating, var: Array, accum: Array, lr: Array, grad: Array, momentum: Array, use_nesterov: bool
) -> dict[str, Any]:
    accum = kept("accum", accum * momentum + grad)
    step = grad * lr + accum * momentum * lr if use_nesterov else accum * lr
    return {"var": var - step, "accum": accum}


def _keras_momentum(
    kept: Updating, var: Array, accum: Array, lr: Array, grad: Array, momentum: Array, use_nesterov: bool
) -> dict[str, Any]:
    accum = kept("accum", accum * momentum - grad * lr)
    step = accum * momentum - grad * lr if use_nesterov else accum
    return {"var": var + step, "accum": accum}


_NESTEROV = "use_nesterov: bool = False"
_optimizer("Momentum", "var accum", "lr grad momentum", _momentum, _NESTEROV)
_optimizer("KerasMomentum", "var accum", "lr grad momentum", _keras_momentum, _NESTEROV)


# ---------------------------------------------------------------------- Adagrad
def _adagrad(kept: Updating, var: Array, accum: Array, lr: Array, grad: Array, update_slots: bool) -> dict[str, Any]:
    if update_slots:
        accum = kept("accum", accum + grad * grad)
    return {"var": var - lr * grad / _sqrt(accum), "accum": accum}


def _adagrad_v2(
    kept: Updating, var: Array, accum: Array, lr: Array, epsilon: Array, grad: Array, update_slots: bool
) -> dict[str, Any]:
    if update_slots:
        accum = kept("accum", accum + grad * grad)
    return {"var": var - lr * grad / (_sqrt(accum) + epsilon), "accum": accum}


def _proximal_adagrad(
    kept: Updating, var: Array, accum: Array, lr: Array, l1: Array, l2: Array, grad: Array
) -> dict[str, Any]:
    accum = kept("accum", accum + grad * grad)
    rate = lr / _sqrt(accum)
    return {"var": _shrunk(var - rate * grad, rate * l1) / (1 + rate * l2), "accum": accum}


def _adagrad_da(
    kept: Updating,
    var: Array,
    gradient_accumulator: Array,
    gradient_squared_accumulator: Array,
    grad: Array,
    lr: Array,
    l1: Array,
    l2: Array,
    global_step: Array,
) -> dict[str, Any]:
    """Dual averaging: the variable follows from the accumulated gradients alone."""
    total, squares = gradient_accumulator + grad, gradient_squared_accumulator + grad * grad
    step = library_of(global_step).asarray(global_step).astype(var.dtype)
    new = -lr * _shrunk(total, l1 * step) / (l2 * step * lr + _sqrt(squares))
    return {"var": new, "gradient_accumulator": total, "gradient_squared_accumulator": squares}


_UPDATE_SLOTS = "update_slots: bool = True"
_DUAL_AVERAGING = "var gradient_accumulator gradient_squared_accumulator"
_optimizer("Adagrad", "var accum", "lr grad", _adagrad, _UPDATE_SLOTS)
_optimizer("AdagradV2", "var accum", "lr epsilon grad", _adagrad_v2, _UPDATE_SLOTS)
_optimizer("ProximalAdagrad", "var accum", "lr l1 l2 grad", _proximal_adagrad)
_optimizer("AdagradDA", _DUAL_AVERAGING, "grad lr l1 l2 global_step", _adagrad_da)


# ---------------------------------------------------------------------- Adadelta, RMSProp
def _adadelta(
    kept: Updating, var: Array, accum: Array, accum_update: Array, lr: Array, rho: Array, epsilon: Array, grad: Array
) -> dict[str, Any]:
    accum = kept("accum", accum * rho + grad * grad * (1 - rho))
    update = _sqrt(accum_update + epsilon) / _sqrt(accum + epsilon) * grad
    accum_update = accum_update * rho + update * update * (1 - rho)
    return {"var": var - update * lr, "accum": accum, "accum_update": accum_update}


def _rms_prop(
    kept: Updating,
    var: Array,
    ms: Array,
    mom: Array,
    lr: Array,
    rho: Array,
    momentum: Array,
    epsilon: Array,
    grad: Array,
) -> dict[str, Any]:
    ms = kept("ms", ms + (grad * grad - ms) * (1 - rho))
    mom = kept("mom", mom * momentum + grad * lr / _sqrt(ms + epsilon))
    return {"var": var - mom, "ms": ms, "mom": mom}


def _centered_rms_prop(
    kept: Updating,
    var: Array,
    mg: Array,
    ms: Array,
    mom: Array,
    lr: Array,
    rho: Array,
    momentum: Array,
    epsilon: Array,
    grad: Array,
) -> dict[str, Any]:
    ms = kept("ms", ms + (grad * grad - ms) * (1 - rho))
    mg = kept("mg", mg + (grad - mg) * (1 - rho))
    mom = kept("mom", mom * momentum + grad * lr / _sqrt(ms - mg * mg + epsilon))
    return {"var": var - mom, "mg": mg, "ms": ms, "mom": mom}


_optimizer("Adadelta", "var accum accum_update", "lr rho epsilon grad", _adadelta)
_optimizer("RMSProp", "var ms mom", "lr rho momentum epsilon grad", _rms_prop)
_optimizer("CenteredRMSProp", "var mg ms mom", "lr rho momentum epsilon grad", _centered_rms_prop)


# ---------------------------------------------------------------------- Adam and its kin
def _adam(
    kept: Updating,
    var: Array,
    m: Array,
    v: Array,
    beta1_power: Array,
    beta2_power: Array,
    lr: Array,
    beta1: Array,
    beta2: Array,
    epsilon: Array,
    grad: Array,
    use_nesterov: bool,
) -> dict[str, Any]:
    rate = lr * _sqrt(1 - beta2_power) / (1 - beta1_power)
    m = kept("m", m + (grad - m) * (1 - beta1))
    v = kept("v", v + (grad * grad - v) * (1 - beta2))
    direction = grad * (1 - beta1) + m * beta1 if use_nesterov else m
    return {"var": var - direction * rate / (_sqrt(v) + epsilon), "m": m, "v": v}


def _amsgrad(
    kept: Updating,
    var: Array,
    m: Array,
    v: Array,
    vhat: Array,
    beta1_power: Array,
    beta2_power: Array,
    lr: Array,
    beta1: Array,
    beta2: Array,
    epsilon: Array,
    grad: Array,
) -> dict[str, Any]:
    rate = lr * _sqrt(1 - beta2_power) / (1 - beta1_power)
    m = kept("m", m + (grad - m) * (1 - beta1))
    v = kept("v", v + (grad * grad - v) * (1 - beta2))
    vhat = kept("vhat", library_of(vhat, v).maximum(vhat, v))
    return {"var": var - m * rate / (_sqrt(vhat) + epsilon), "m": m, "v": v, "vhat": vhat}


def _ada_max(
    kept: Updating,
    var: Array,
    m: Array,
    v: Array,
    beta1_power: Array,
    lr: Array,
    beta1: Array,
    beta2: Array,
    epsilon: Array,
    grad: Array,
) -> dict[str, Any]:
    m = kept("m", m + (grad - m) * (1 - beta1))
    v = kept("v", library_of(v, beta2, grad).maximum(v * beta2, abs(grad)))
    return {"var": var - lr / (1 - beta1_power) * (m / (v + epsilon)), "m": m, "v": v}


_optimizer("Adam", "var m v", "beta1_power beta2_power lr beta1 beta2 epsilon grad", _adam, _NESTEROV, sparse=False)
_optimizer(
    "AdamWithAmsgrad", "var m v vhat", "beta1_power beta2_power lr beta1 beta2 epsilon grad", _amsgrad, sparse=False
)
#: rows without a gradient neither decay nor move: for tables whose size must not matter
_apply_sparse(
    "_ResourceSparseApplyAdam",
    ["var", "m", "v"],
    ["beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon", "grad", "indices"],
    _adam,
    f"T: numbers, Tindices: index, {_LOCKING}, {_NESTEROV}",
)
_optimizer("AdaMax", "var m v", "beta1_power lr beta1 beta2 epsilon grad", _ada_max, sparse=False)


# ---------------------------------------------------------------------- FTRL
def _power(values: Array, exponent: Array) -> Any:
    """`values` ** -`exponent`; the exponent that everybody uses, -0.5, costs a square root instead."""
    if isinstance(exponent, np.ndarray) and exponent == -0.5:
        return _sqrt(values)
    return library_of(values, exponent).power(values, -exponent)


def _ftrl(
    kept: Updating,
    var: Array,
    accum: Array,
    linear: Array,
    grad: Array,
    lr: Array,
    l1: Array,
    l2: Array,
    lr_power: Array,
    multiply_linear_by_lr: bool,
    l2_shrinkage: Array | None = None,
) -> dict[str, Any]:
    """Follow the regularised leader; `linear` holds the sum of its linear terms, times `lr` where that is asked for."""
    new_accum = accum + grad * grad
    old_power, new_power = _power(accum, lr_power), _power(new_accum, lr_power)
    pull = grad if l2_shrinkage is None else grad + 2 * l2_shrinkage * var
    if multiply_linear_by_lr:
        linear = linear + (pull * lr - (new_power - old_power) * var)
        bound, curvature = l1 * lr, new_power + 2 * l2 * lr
    else:
        linear = linear + (pull - (new_power - old_power) / lr * var)
        bound, curvature = l1, new_power / lr + 2 * l2
    # not what a NaN shrinks to: with a rate of 0 a variable of 0 has no linear term, and stays
    xp = library_of(linear, bound, curvature)
    outside = xp.abs(linear) > bound
    new = xp.where(outside, -_shrunk(linear, bound) / curvature, np.zeros((), var.dtype))
    return {"var": new, "accum": new_accum, "linear": linear}


_LINEAR = "multiply_linear_by_lr: bool = False"
_optimizer("Ftrl", "var accum linear", "grad lr l1 l2 lr_power", _ftrl, _LINEAR)
_optimizer("FtrlV2", "var accum linear", "grad lr l1 l2 l2_shrinkage lr_power", _ftrl, _LINEAR)


# ---------------------------------------------------------------------- sign-based updates
def _agreement(m: Array, beta: Array, grad: Array) -> tuple[Any, Any]:
    """The new moving average of the gradient, and the sign of its product with the gradient."""
    m = m * beta + grad * (1 - beta)
    return m, library_of(grad).sign(grad) * library_of(m).sign(m)


def _add_sign(
    kept: Updating, var: Array, m: Array, lr: Array, alpha: Array, sign_decay: Array, beta: Array, grad: Array
) -> dict[str, Any]:
    m, sign = _agreement(m, beta, grad)
    return {"var": var - lr * (alpha + sign_decay * sign) * grad, "m": m}


def _power_sign(
    kept: Updating, var: Array, m: Array, lr: Array, logbase: Array, sign_decay: Array, beta: Array, grad: Array
) -> dict[str, Any]:
    m, sign = _agreement(m, beta, grad)
    return {"var": var - lr * library_of(logbase, sign_decay, sign).exp(logbase * sign_decay * sign) * grad, "m": m}


_optimizer("AddSign", "var m", "lr alpha sign_decay beta grad", _add_sign, sparse=False)
_optimizer("PowerSign", "var m", "lr logbase sign_decay beta grad", _power_sign, sparse=False)
