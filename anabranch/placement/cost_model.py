"""What operations and transfers cost: measured where there are measurements, estimated from bytes and FLOPs elsewhere.

An estimate is ``overhead + max(bytes moved / memory bandwidth, FLOPs / arithmetic rate)``. Measurements come from step
traces: the operations of an island have no time of their own, so an island's time is divided among them in proportion
to their estimates. They are kept as running means by device type, operation type and size class (the power of two above
the bytes that an operation takes and makes), so that a model learned from one program serves another. A cost model is
saved as JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from anabranch.core.op_def import ASSUMED_DIMENSION
from anabranch.errors import DataLossError
from anabranch.graph.step_nodes import StepNode, StepTensor

_FORMAT = "anabranch cost model 1"


def _check_not_negative(**numbers: object) -> None:
    # what stands in a file need not be a number at all
    for name, number in numbers.items():
        if not isinstance(number, int | float) or not 0 <= number < math.inf:
            raise ValueError(f"{name} must be a number of at least 0, got {number!r}")


def _check_positive(**numbers: object) -> None:
    _check_not_negative(**numbers)
    for name, number in numbers.items():
        if not number:
            raise ValueError(f"{name} must be positive, got {number!r}")


@dataclass(slots=True)
class Rates:
    """What a type of device can do: bytes/s of memory, FLOP/s, and seconds that any operation takes at least.

    Raises (when made):
        ValueError: one of these is not a positive number.
    """

    bytes_per_second: float = 1e10
    flops_per_second: float = 1e11
    overhead: float = 1e-6

    def __post_init__(self) -> None:
        _check_positive(bytes_per_second=self.bytes_per_second, flops_per_second=self.flops_per_second)
        # positive as well: the time of an island is divided by what its operations are estimated to take
        _check_positive(overhead=self.overhead)


@dataclass(slots=True)
class TransferRate:
    """What sending costs: seconds for any tensor, and bytes/s; a rate of 0: nothing is copied.

    Raises (when made):
        ValueError: one of these is negative, or no number.
    """

    latency: float
    bytes_per_second: float = 0.0

    def __post_init__(self) -> None:
        _check_not_negative(latency=self.latency, bytes_per_second=self.bytes_per_second)

    def seconds(self, size: int) -> float:
        """The time that `size` bytes take."""
        return self.latency + (size / self.bytes_per_second if self.bytes_per_second else 0.0)


@dataclass(slots=True)
class Mean:
    """A running mean."""

    seconds: float = 0.0
    count: int = 0

    def __post_init__(self) -> None:
        _check_not_negative(seconds=self.seconds, count=self.count)

    def add(self, seconds: float) -> None:
        self.count += 1
        self.seconds += (seconds - self.seconds) / self.count


def _default_rates() -> dict[str, Rates]:
    # rough figures, for sessions that have measured nothing (`Session.measure_costs`)
    return {"CPU": Rates(), "GPU": Rates(1e12, 1e13, 3e-6), "TPU": Rates(1e12, 1e14, 3e-6)}


def _default_transfers() -> dict[str, TransferRate]:
    # from thread to thread; between devices of two types the tensor is copied as well
    return {"CPU:CPU": TransferRate(3e-5), "": TransferRate(5e-5, 1e10)}


@dataclass(slots=True)
class CostModel:
    """See the module docstring.

    Attributes:
        rates: device type -> what it can do, for estimates.
        transfers: "<source type>:<destination type>" -> what sending costs between two such devices; "": any others.
        measured: "<device type> <operation type> <size class>" -> measured seconds.
    """

    rates: dict[str, Rates] = field(default_factory=_default_rates)
    transfers: dict[str, TransferRate] = field(default_factory=_default_transfers)
    measured: dict[str, Mean] = field(default_factory=dict)

    # ------------------------------------------------------------------ questions
    def seconds(self, op: StepNode, device_type: str) -> float:
        """What an operation takes on a type of device (s)."""
        mean = self.measured.get(_key(op, device_type))
        return mean.seconds if mean is not None else self.estimate(op, device_type)

    def estimate(self, op: StepNode, device_type: str) -> float:
        """What an operation would take by its bytes and FLOPs (s)."""
        # of a type that another package brings nothing is known: it is noted as a CPU's, so that a saved file
        # shows what to set
        rates = self.rates.get(device_type) or self.rates.setdefault(device_type, Rates())
        # the larger of the two: memory and arithmetic work at the same time
        return rates.overhead + max(touched_bytes(op) / rates.bytes_per_second, flops(op) / rates.flops_per_second)

    def transfer_seconds(self, source_type: str, destination_type: str, size: int) -> float:
        """What sending `size` bytes between two devices of these types takes (s)."""
        return self.transfers.get(f"{source_type}:{destination_type}", self.transfers[""]).seconds(size)

    # ------------------------------------------------------------------ measurements
    def add(self, operations: Sequence[StepNode], device_type: str, seconds: float) -> None:
        """Learns from one run of an island or host operation."""
        estimates = [self.estimate(op, device_type) for op in operations]
        total = sum(estimates)
        for op, estimate in zip(operations, estimates, strict=True):
            self.measured.setdefault(_key(op, device_type), Mean()).add(seconds * estimate / total)

    def set_transfer(self, source_type: str, destination_type: str, latency: float, bytes_per_second: float) -> None:
        """States what sending costs between devices of two types (s, bytes/s; 0 bytes/s: nothing is copied)."""
        self.transfers[f"{source_type}:{destination_type}"] = TransferRate(latency, bytes_per_second)

    # ------------------------------------------------------------------ files
    def save(self, path: str | Path) -> None:
        """Writes the model as JSON."""
        Path(path).write_text(json.dumps(self.to_mapping(), indent=1), "utf-8")

    def to_mapping(self) -> dict[str, Any]:
        """What a file says of the model."""
        return {
            "format": _FORMAT,
            "rates": {name: asdict(rates) for name, rates in self.rates.items()},
            "transfers": {name: asdict(rate) for name, rate in self.transfers.items()},
            "measured": {name: asdict(mean) for name, mean in sorted(self.measured.items())},
        }

    @classmethod
    def load(cls, path: str | Path) -> CostModel:
        """Reads what `save` wrote.

        Raises:
            DataLossError: the file is not a cost model.
            OSError: it cannot be read.
        """
        try:
            return cls.from_mapping(json.loads(Path(path).read_text("utf-8")))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataLossError(
                None, None, f"{path} is not a cost model: {error}; write it with CostModel.save, or leave it out"
            ) from error

    @classmethod
    def from_mapping(cls, content: Mapping[str, Any]) -> CostModel:
        """The model of which `to_mapping` said this.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: it is not one.
        """
        if content["format"] != _FORMAT:
            raise ValueError(f"its format is {content['format']!r}, expected {_FORMAT!r}")
        return cls(
            {name: Rates(**fields) for name, fields in content["rates"].items()},
            # the entry for any other pair of types must be there, whatever the file says
            {**_default_transfers(), **{n: TransferRate(**f) for n, f in content["transfers"].items()}},
            {name: Mean(**fields) for name, fields in content["measured"].items()},
        )


def _key(op: StepNode, device_type: str) -> str:
    return f"{device_type} {op.type} {max(touched_bytes(op), 1).bit_length()}"


# ---------------------------------------------------------------------- estimates
def elements(tensor: StepTensor) -> int:
    """How many elements a tensor has; unknown dimensions are guessed."""
    return math.prod(_guessed(tensor) or ())


def _guessed(tensor: StepTensor) -> tuple[int, ...] | None:
    dims = tensor.shape.dims_tuple
    return None if dims is None else tuple([ASSUMED_DIMENSION if d is None else d for d in dims])


def size_of(tensor: StepTensor) -> int:
    """How many bytes a tensor has; unknown dimensions are guessed."""
    # of strings, resources and variants no size is known
    return elements(tensor) * max(1, tensor.dtype.size)


def touched_bytes(op: StepNode) -> int:
    """How many bytes an operation takes and makes."""
    return sum(map(size_of, op.inputs)) + sum(map(size_of, op.outputs))


def flops(op: StepNode) -> int:
    """How many floating-point operations an operation needs: as its type says, or one per element."""
    rule = op.op_def.flops_rule
    if rule is None:
        return sum(map(elements, op.outputs))
    return rule(list(map(_guessed, op.inputs)), list(map(_guessed, op.outputs)), op.attrs)
