"""What kernels may ask of their context (`core.kernel_context`), in terms of the nodes and functions of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from anabranch.core.kernel_context import HostKernelContext, OperationContext, TracingContext
from anabranch.core.values import TensorValue
from anabranch.graph.step_nodes import AnyOperation, StepFunction, StepNode, StepTensor


class GraphContext(OperationContext, Protocol):
    """What a portable kernel may ask that looks at what its inputs come from."""

    @property
    def op(self) -> AnyOperation: ...


#: how an operation of a body is computed in another way: from what gives the values of tensors
StepKernel: TypeAlias = Callable[[Callable[[StepTensor], TensorValue]], TensorValue]
StepHostContext: TypeAlias = HostKernelContext[StepNode, StepFunction]
StepTracingContext: TypeAlias = TracingContext[StepNode, StepFunction, StepTensor]
