"""Products of float32 by oneDNN where kernels run at once, on NumPy's arrays, with the extra `native`.

NumPy's library for matrices has threads of its own, which look out for more work for a tenth of a second after a
product, and keep a core from oneDNN's meanwhile: 0.3 of the 1.2 s of a step of GoogleNet. So what NumPy's library would
divide among its threads is oneDNN's, where that computes anything at all; code for a product takes it some ms to make.
Compiled programs have neither.
"""

from __future__ import annotations

import functools
from typing import Any, Final

from anabranch.core import dtypes
from anabranch.core.arrays import HostArray
from anabranch.core.kernel_context import OperationContext
from anabranch.core.kernels import KernelCase, register_kernel
from anabranch.core.processor import core_count
from anabranch.kernels import native_calls, native_products, onednn
from anabranch.kernels.native_products import OPERATIONS, TYPES, Product

#: what the texts of these computations begin with
_KIND: Final = "float-product"
_NAME: Final = "onednn, at once"
#: from so many multiplications on NumPy's library divides a product
_LEAST_DIVIDED: Final = 1 << 18

native_calls.register_maker(_KIND, functools.partial(native_products.make, type=onednn.FLOAT32))


@functools.lru_cache(1024)
def _usable(product: Product) -> bool:
    """Whether the library has an implementation."""
    return product.small_enough and native_calls.can_prepare(product.text_of(_KIND))


def _register(op_type: str) -> None:
    turning = OPERATIONS[op_type]

    def product_of(case: KernelCase) -> Product | None:
        return native_products.product_of(op_type, case.attrs, [given.shape for given in case.inputs])

    def takes(case: KernelCase) -> bool:
        """Whether NumPy's library would divide the product among threads."""
        product = product_of(case) if core_count() > 1 else None
        return product is not None and product.products >= _LEAST_DIVIDED

    def is_offered(case: KernelCase) -> bool:
        product = product_of(case)
        return product is not None and native_calls.are_in_use() and _usable(product)

    types = {name: [dtypes.float32] for name in TYPES.get(op_type, ("T",))}

    @register_kernel(op_type, _NAME, device_type="CPU", types=types, applies=takes, offered=is_offered, at_once=True)
    def _(x: HostArray, y: HostArray, *, ctx: OperationContext) -> Any:
        product = native_products.product_of(op_type, ctx.op.attrs, (x.shape, y.shape))
        assert product is not None  # `takes` has said so
        found = native_calls.call(ctx.op.name, product.text_of(_KIND), (x, y), product.result[0], x.dtype)
        return found.reshape(native_products.shape_of(x, y, *(bool(ctx.op.attrs[name]) for name in turning)))


for _op_type in OPERATIONS:
    _register(_op_type)
