"""What prepares results of the host for other host operations runs there, where that saves an island."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.ops import raw, vocabulary as _vocabulary  # noqa: F401
from anabranch.pipeline import plan_step
from anabranch.session import Session
from anabranch.xla.islands import Island


def placeholder(shape: Any, dtype: str) -> Any:
    return raw.Placeholder(dtype=dtype, shape=shape)


def numbers(strings: Any, dtype: str = "float") -> Any:
    return raw.StringToNumber(strings, out_type=dtype)


def islands(fetches: Any, feeds: Any) -> int:
    return sum(isinstance(item, Island) for item in plan_step(fetches, [], feeds).items)


def sent_back(values: Any) -> Any:
    """What only the host makes of numbers, and gives back."""
    return raw.Cast(numbers(raw.AsString(values), "int32"), DstT="float")


def bucketized(strings: Any, x: Any, more: Any = None) -> tuple[Any, Any]:
    """Numbers in buckets, sent to the host and back; and a product with other numbers, which needs none of that."""
    values = numbers(strings)
    buckets = raw.Bucketize(raw.Reshape(values, [-1]), boundaries=[0.0, 1.0])
    chosen = raw.AddV2(buckets if more is None else more(buckets), 7)
    beside = raw.MatMul(raw.Reshape(values, [-1, 1]), x)
    return sent_back(chosen), beside


def test_buckets_of_what_the_host_read_save_a_program() -> None:
    strings, x = placeholder([None], "string"), placeholder([1, 3], "float")
    back, beside = bucketized(strings, x)
    total = raw.Sum(raw.Mul(beside, raw.Reshape(back, [-1, 1])), [0])
    items = plan_step([total], [], [strings, x]).items
    kinds = [[op.type for op in item.operations] if isinstance(item, Island) else item.operation.type for item in items]
    assert kinds[:-1] == ["StringToNumber", "Reshape", "Bucketize", "AddV2", "AsString", "StringToNumber"]
    assert "MatMul" in kinds[-1]
    with Session() as session:
        weights = np.array([[1.0, 2.0, 4.0]], np.float32)
        for given in (["0.5", "-1", "3"], [], ["nan", "1"]):
            data = np.array(given, np.float32)
            expected = (data * ((data >= 0) + (data >= 1) * 1.0 + 7 + 2 * np.isnan(data))) @ np.ones(len(data))
            result = session.run(total, {strings: np.array(given, object), x: weights})
            np.testing.assert_allclose(result, expected * weights[0], rtol=1e-6)


def test_sums_of_floating_point_numbers_stay_compiled() -> None:
    strings, x = placeholder([None], "string"), placeholder([1, 3], "float")
    values = numbers(strings)
    back = sent_back(raw.AddV2(values, 0.1))
    total = raw.AddV2(raw.MatMul(raw.Reshape(values, [-1, 1]), x), raw.Reshape(back, [-1, 1]))
    assert islands([total], [strings, x]) == 2


def test_many_operations_and_large_tensors_stay_compiled() -> None:
    strings, x = placeholder([None], "string"), placeholder([1, 3], "float")

    def long(buckets: Any) -> Any:
        for _ in range(30):
            buckets = raw.AddV2(raw.Mul(buckets, 2), 1)
        return buckets

    def large(buckets: Any) -> Any:
        return raw.Sum(raw.Tile(raw.Reshape(buckets, [-1, 1]), [1, 1000]), [1])

    for more in (long, large):
        back, beside = bucketized(strings, x, more)
        assert islands([raw.AddV2(beside, raw.Reshape(back, [-1, 1]))], [strings, x]) == 2


def test_where_no_program_is_saved_all_stays() -> None:
    """The island has to run before the host in any case: for a product that the host takes as well."""
    strings, x = placeholder([None], "string"), placeholder([1, 3], "float")
    back, beside = bucketized(strings, x)
    also = raw.StringToNumber(raw.AsString(beside), out_type="float")
    plan = plan_step([raw.AddV2(raw.AddV2(beside, also), raw.Reshape(back, [-1, 1]))], [], [strings, x])
    compiled = [op.type for item in plan.items if isinstance(item, Island) for op in item.operations]
    assert "Bucketize" in compiled
