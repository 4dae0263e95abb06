from __future__ import annotations

import types

import pytest
from hypothesis import given, strategies as st

from anabranch.core import device
from anabranch.core.device import DeviceSpec

FULL = "/job:worker/replica:0/task:17/device:GPU:3"
numbers = st.none() | st.integers(0, 99)


@st.composite
def specs(draw: st.DrawFn) -> DeviceSpec:
    device_type = draw(st.sampled_from([None, "CPU", "GPU", "TPU_SYSTEM"]))
    return DeviceSpec(
        job=draw(st.sampled_from([None, "ps", "worker", "my-job_1.2"])),
        replica=draw(numbers),
        task=draw(numbers),
        device_type=device_type,
        device_index=draw(numbers) if device_type else None,
    )


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("", ""),
        (FULL, FULL),
        ("/cpu:0", "/device:CPU:0"),
        ("/gpu:1", "/device:GPU:1"),
        ("cpu:0", "/device:CPU:0"),
        ("/GPU:*", "/device:GPU:*"),
        ("/gpu", "/device:GPU:*"),
        ("/device:gpu:0", "/device:GPU:0"),
        ("/device:TPU_SYSTEM:0", "/device:TPU_SYSTEM:0"),
        ("/task:1/job:ps", "/job:ps/task:1"),
        ("/job:ps/task:*", "/job:ps"),
        ("/job:*/cpu:0", "/device:CPU:0"),
        ("/job:ps/", "/job:ps"),
    ],
)
def test_canonical_name(name: str, canonical: str) -> None:
    assert device.canonical_name(name) == canonical
    assert DeviceSpec.from_string(name).to_string() == canonical
    device.check_valid(name)


@pytest.mark.parametrize(
    "name",
    ["/foo:1", "/task:x", "/task:-1", "/task", "/job:", "/job", "/job:a:b", "/cpu:0/gpu:0", "/device:GPU", "/cpu:x"]
    + ["/device:GPU:x", "/job:ps/job:worker", "/job:p s", "/device::0", "/task:²"],
)
def test_malformed_names(name: str) -> None:
    for function in (device.check_valid, device.canonical_name, DeviceSpec.from_string, device.merge_device):
        with pytest.raises(ValueError, match=r"[Dd]evice"):
            function(name)


def test_fields() -> None:
    spec = DeviceSpec.from_string(FULL)
    assert (spec.job, spec.replica, spec.task, spec.device_type, spec.device_index) == ("worker", 0, 17, "GPU", 3)
    assert spec == DeviceSpec(job="worker", replica=0, task=17, device_type="gpu", device_index=3)
    assert device.canonical_name(None) == ""
    assert device.canonical_name(spec) == FULL


@given(specs())
def test_string_round_trip(spec: DeviceSpec) -> None:
    again = DeviceSpec.from_string(spec.to_string())
    assert again == spec
    assert hash(again) == hash(spec)
    assert again.covers(spec)
    assert DeviceSpec().covers(spec)


@given(specs(), specs())
def test_merge_takes_every_stated_part(a: DeviceSpec, b: DeviceSpec) -> None:
    merged = DeviceSpec.from_string(a.to_string())
    merged.merge_from(b)
    assert b.covers(merged)
    for field in ("job", "replica", "task", "device_type", "device_index"):
        stated = getattr(b, field)
        assert getattr(merged, field) == (getattr(a, field) if stated is None else stated)
    assert device.merge_names(a.to_string(), b.to_string()) == merged.to_string()


def test_parse_from_string_replaces_all_parts() -> None:
    spec = DeviceSpec(job="ps", task=1)
    assert spec.parse_from_string("/gpu:0") is spec
    assert spec.to_string() == "/device:GPU:0"
    with pytest.raises(ValueError, match="task"):
        spec.parse_from_string("/job:worker/task:x")
    assert spec.to_string() == "/device:GPU:0"


def test_inner_scope_wins_over_outer() -> None:
    outer = device.merge_device("/job:ps/cpu:0")
    node = types.SimpleNamespace(device="/task:2/gpu:1")
    assert outer(node) == "/job:ps/task:2/device:GPU:1"
    assert outer("") == "/job:ps/device:CPU:0"
    assert device.merge_device(None)(node) == "/task:2/device:GPU:1"
    assert device.merge_device(DeviceSpec(job="ps"))("/cpu:0") == "/job:ps/device:CPU:0"


def test_covers() -> None:
    assert DeviceSpec.from_string("/job:worker/device:GPU:*").covers(DeviceSpec.from_string(FULL))
    assert not DeviceSpec.from_string("/job:ps").covers(DeviceSpec.from_string(FULL))
    assert not DeviceSpec.from_string(FULL).covers(DeviceSpec.from_string("/job:worker"))
