"""Policies: rules, files, refusals. Cost models: estimates, measurements, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import DataLossError, InvalidArgumentError
from anabranch.ops import raw, vocabulary as _vocabulary  # noqa: F401
from anabranch.placement.cost_model import CostModel, flops, touched_bytes
from anabranch.placement.policy import PlacementPolicy, PlacementRule


def op(name: str, kind: str = "Exp") -> Any:
    return getattr(raw, kind)(raw.Placeholder(dtype="float32", shape=[2]), name=name).op


def test_rules_match_by_name_type_and_scope() -> None:
    a, b = op("tower_1/a"), op("tower_12/deep/b", "Neg")
    assert PlacementRule("/cpu:0", name="tower_1/*").matches(a)
    assert not PlacementRule("/cpu:0", name="tower_1/*").matches(b)
    assert PlacementRule("/cpu:0", regex=r"tower_\d+/.*").matches(b)
    assert not PlacementRule("/cpu:0", regex=r"tower_\d").matches(a)
    assert PlacementRule("/cpu:0", scope="tower_12/deep").matches(b)
    assert not PlacementRule("/cpu:0", scope="tower_1").matches(b)
    assert PlacementRule("/cpu:0", type="Neg", scope="tower_12").matches(b)
    assert not PlacementRule("/cpu:0", type="Neg", scope="tower_1").matches(a)


def test_the_first_rule_that_matches_decides_over_the_program() -> None:
    a = op("a")
    a.device = "/device:GPU:0"
    rules = (PlacementRule("/cpu:1", name="a"), PlacementRule("/cpu:2", name="*"))
    request = PlacementPolicy(rules).request(a)
    assert (request.device, request.source) == ("/device:CPU:1", "rule name 'a'")
    assert PlacementPolicy().request(a).device == "/device:GPU:0"
    assert PlacementPolicy(clear=True).request(a).device == ""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.toml", 'placer = "greedy"\nsoft = true\n[[rule]]\nname = "x/*"\ndevice = "/cpu:1"\n'),
        ("p.json", '{"placer": "greedy", "soft": true, "rule": [{"name": "x/*", "device": "/cpu:1"}]}'),
    ],
)
def test_both_file_formats(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    policy = PlacementPolicy.from_file(tmp_path / name)
    assert policy == PlacementPolicy((PlacementRule("/cpu:1", name="x/*"),), "greedy", None, True)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"placer": "best"}', "there is no placer 'best'; choose one of 'default', 'greedy'"),
        ('{"rule": [{"device": "/cpu:0"}]}', "needs a name, regex, type or scope"),
        ('{"rule": [{"device": "/nonsense", "name": "x"}]}', "nonsense"),
        ('{"rule": [{"device": "", "regex": "("}]}', "is not a regular expression"),
        ('{"rule": [{"name": "x", "where": ""}]}', "where"),
        ("{", "is not a placement policy"),
        ("[]", "is not a placement policy"),
        ('{"soft": "false"}', "'soft' must be true or false, got 'false'"),
        ('{"clear": 1}', "'clear' must be true or false, got 1"),
        ('{"rule": [{"device": 3, "name": "x"}]}', "'device' of a rule must be a string, got 3"),
        ('{"cost_model": {"format": "anabranch cost model 1", "rates": {"CPU": {"overhead": 0}}}}', "overhead"),
    ],
)
def test_malformed_files(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "p.json").write_text(text, "utf-8")
    with pytest.raises(InvalidArgumentError, match=problem):
        PlacementPolicy.from_file(tmp_path / "p.json")


# -------------------------------------------------------------------------------------------------------- costs
def product(n: int) -> Any:
    x = raw.Placeholder(dtype="float32", shape=[n, n])
    return raw.MatMul(x, x).op


def test_estimates_follow_bytes_and_flops() -> None:
    model = CostModel()
    assert flops(product(64)) == 2 * 64**3
    assert touched_bytes(product(64)) == 3 * 64 * 64 * 4
    assert model.estimate(product(1024), "CPU") == pytest.approx(2 * 1024**3 / 1e11, rel=0.01)
    assert model.estimate(product(1024), "GPU") < model.estimate(product(1024), "CPU")
    unknown = raw.Exp(raw.Placeholder(dtype="float32", shape=[None, 10])).op
    assert flops(unknown) == 320


def test_measurements_replace_estimates_and_survive_a_file(tmp_path: Path) -> None:
    model = CostModel()
    big, small = product(256), product(8)
    model.add([big, small], "CPU", 1.0)
    model.add([big, small], "CPU", 3.0)
    assert model.seconds(big, "CPU") + model.seconds(small, "CPU") == pytest.approx(2.0)
    assert model.seconds(big, "CPU") > 100 * model.seconds(small, "CPU")
    model.set_transfer("CPU", "GPU", 1e-5, 1e9)
    model.save(tmp_path / "costs.json")
    loaded = CostModel.load(tmp_path / "costs.json")
    assert loaded == model
    assert loaded.transfer_seconds("CPU", "GPU", 10**9) == pytest.approx(1.00001)
    assert loaded.transfer_seconds("CPU", "CPU", 10**9) == loaded.transfer_seconds("CPU", "CPU", 0)
    (tmp_path / "p.toml").write_text('placer = "greedy"\ncost_model = "costs.json"\n', "utf-8")
    assert PlacementPolicy.from_file(tmp_path / "p.toml").cost_model == model


@pytest.mark.parametrize("text", ["", "{}", '{"format": "anabranch cost model 9"}', "[1]"])
def test_a_file_that_is_no_cost_model(tmp_path: Path, text: str) -> None:
    (tmp_path / "costs.json").write_text(text, "utf-8")
    with pytest.raises(DataLossError, match="is not a cost model"):
        CostModel.load(tmp_path / "costs.json")


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ({"rates": {"CPU": {"overhead": 0}}}, "overhead must be positive"),
        ({"rates": {"CPU": {"bytes_per_second": "fast"}}}, "bytes_per_second must be a number"),
        ({"transfers": {"": {"latency": -1}}}, "latency must be a number of at least 0"),
        ({"measured": {"CPU Add 3": {"seconds": float("nan"), "count": 1}}}, "seconds must be a number"),
    ],
)
def test_numbers_that_no_cost_can_be_reckoned_with(part: dict[str, Any], problem: str) -> None:
    content = CostModel().to_mapping() | part
    with pytest.raises(ValueError, match=problem):
        CostModel.from_mapping(content)
