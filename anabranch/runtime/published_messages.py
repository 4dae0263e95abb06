"""What a task shows of a partition's reads, to and from messages; see `runtime.published_calls`."""

from __future__ import annotations

from anabranch.proto.step_plan_pb2 import PublishedPartition, PublishedRowsDef, PublishedTensorDef
from anabranch.runtime.published_calls import DescribedReads
from anabranch.runtime.published_values import PublishedTensor


def published_to_proto(reads: DescribedReads) -> PublishedPartition:
    """The message that tells where the reader of a partition finds what."""
    memory = reads.board.memory
    return PublishedPartition(
        process=memory.process,
        descriptor=memory.descriptor,
        number=memory.number,
        number_at=memory.number_at,
        tensor=[_tensor_to_proto(tensor) for tensor in reads.tensors],
        rows=[
            PublishedRowsDef(
                variable=_tensor_to_proto(one.variable), indices=one.indices, shape=one.shape, alone=one.is_alone
            )
            for one in reads.rows
        ],
        answers=reads.answers,
    )


def _tensor_to_proto(tensor: PublishedTensor) -> PublishedTensorDef:
    return PublishedTensorDef(**tensor._asdict())


def tensor_from_proto(told: PublishedTensorDef) -> PublishedTensor:
    """Where another process says that a value stands, which is to be checked."""
    return PublishedTensor(told.tensor, told.slot, told.offset, told.size, told.is_address)
