"""Placement policies: where things run, said outside the model (D12).

A policy is a list of rules. A rule names operations, by name pattern, type or scope, and a (partial) device for them;
where a rule matches, the device of the program's own `tf.device` scopes does not count, neither for the operation nor
for what must share its device (the reads of a variable). Of several rules that match the first decides. A policy also
chooses the placer: "default" puts everything without constraints on the session's first device, "greedy" spreads it by
a cost model.

A policy is an object, or a file in TOML or JSON::

    placer = "greedy"              # default: "default"
    cost_model = "costs.json"      # default: estimates; a path relative to this file
    soft = true                    # default: what ConfigProto.allow_soft_placement says
    clear = true                   # default: false; ignore the devices that the program asks for

    [[rule]]
    name = "tower_1/*"             # `*`, `?` and `[...]` as in file names; or regex = "tower_[1-9]/.*"
    device = "/device:CPU:1"

    [[rule]]
    type = "VarHandleOp"
    scope = "embedding"            # the operation's name begins with "embedding/"
    device = "/device:CPU:0"

It is given to `Session(placement=...)`, or, for a program that is to stay as it is, by the environment variable
`ANABRANCH_PLACEMENT`, which names a file.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from anabranch.core import device as device_names
from anabranch.errors import InvalidArgumentError, NotFoundError
from anabranch.graph.step_nodes import StepNode
from anabranch.placement.constraints import PlacementRequest
from anabranch.placement.cost_model import CostModel

#: environment variable that names the file of the policy of sessions that are given none
POLICY_VARIABLE: Final = "ANABRANCH_PLACEMENT"
PLACERS: Final = ("default", "greedy")


@dataclass(frozen=True, slots=True)
class PlacementRule:
    """A device for the operations that match all of what is given.

    Attributes:
        device: full or partial name; empty: the placer may choose, whatever the program asks for.
        name: pattern of the whole name, as of file names (`*` also matches slashes).
        regex: regular expression that must match the whole name.
        type: operation type.
        scope: name scope that the operation is in.

    Raises (when made):
        ValueError: the device or the regular expression is malformed, or nothing says what the rule matches.
    """

    device: str
    name: str | None = None
    regex: str | None = None
    type: str | None = None
    scope: str | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not isinstance(value, str):
                raise ValueError(f"{field.name!r} of a rule must be a string, got {value!r}")
        device_names.check_valid(self.device)
        # a rule for everything is more likely a key that was forgotten; `name = "*"` says so
        if self.name is self.regex is self.type is self.scope is None:
            raise ValueError(f"the rule for device {self.device!r} needs a name, regex, type or scope to match")
        if self.regex is not None:
            try:
                re.compile(self.regex)
            except re.error as error:
                raise ValueError(f"{self.regex!r} is not a regular expression: {error}") from error

    def matches(self, op: StepNode) -> bool:
        """Whether the rule is for an operation."""
        return (
            (self.name is None or fnmatch.fnmatchcase(op.name, self.name))
            and (self.regex is None or re.fullmatch(self.regex, op.name) is not None)
            and (self.type is None or op.type == self.type)
            # with the slash: the scope "tower_1" does not hold "tower_10/x"
            and (self.scope is None or op.name.startswith(self.scope.rstrip("/") + "/"))
        )

    def __str__(self) -> str:
        said = ((f.name, getattr(self, f.name)) for f in fields(self)[1:])
        return "rule " + ", ".join(f"{key} {value!r}" for key, value in said if value is not None)


@dataclass(frozen=True, slots=True)
class PlacementPolicy:
    """See the module docstring.

    Attributes:
        rules: of those that match an operation, the first decides.
        placer: "default" or "greedy".
        cost_model: what "greedy" reckons with; None: estimates.
        soft: whether requests that cannot be satisfied are given up; None: what the session's configuration says.
        clear: whether to ignore the devices that the program asks for.

    Raises (when made):
        ValueError: there is no placer of that name.
    """

    rules: Sequence[PlacementRule] = ()
    placer: str = "default"
    cost_model: CostModel | None = None
    soft: bool | None = None
    clear: bool = False

    def __post_init__(self) -> None:
        if self.placer not in PLACERS:
            raise ValueError(f"there is no placer {self.placer!r}; choose one of {', '.join(map(repr, PLACERS))}")
        # a string such as "false" would count as true
        for name, value in (("soft", self.soft), ("clear", self.clear)):
            if not isinstance(value, bool | None):
                raise ValueError(f"{name!r} must be true or false, got {value!r}")

    @property
    def is_trivial(self) -> bool:
        """Whether the policy leaves everything to the program and the default placer."""
        return not self.rules and self.placer == "default" and not self.clear

    def request(self, op: StepNode) -> PlacementRequest:
        """What is asked for an operation, by a rule or by the program."""
        # a rule that matches decides also where it asks for nothing: so an operation can be set free of its
        # program's device
        for rule in self.rules:
            if rule.matches(op):
                return PlacementRequest(device_names.canonical_name(rule.device), str(rule))
        return PlacementRequest("" if self.clear else op.device)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> PlacementPolicy:
        """Reads a policy from a file whose name ends in `.toml` or `.json`.

        Raises:
            NotFoundError: there is no such file.
            InvalidArgumentError: it is not a policy; the message says what of it is wrong.
        """
        path = Path(path)
        try:
            text = path.read_text("utf-8")
            content = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
            if not isinstance(content, dict):
                raise TypeError(f"expected an object, got {type(content).__name__}")
            return cls.from_mapping(content, path.parent)
        except OSError as error:
            raise NotFoundError(None, None, f"cannot read the placement policy {path}: {error.strerror}") from error
        except (ValueError, TypeError) as error:
            raise InvalidArgumentError(
                None,
                None,
                f"{path} is not a placement policy: {error}; see anabranch/placement/policy.py for the format",
            ) from error

    @classmethod
    def from_mapping(cls, content: Mapping[str, Any], directory: Path = Path()) -> PlacementPolicy:
        """The policy that the contents of a file state; the cost model may be a path, or stand there itself.

        Raises:
            ValueError, TypeError: something in it is unknown or malformed.
        """
        known = {"rule", "placer", "cost_model", "soft", "clear"}
        # a key that is misspelt would be ignored in silence otherwise
        unknown = sorted(set(content) - known)
        if unknown:
            raise ValueError(f"unknown key {unknown[0]!r}; the keys are {', '.join(sorted(known))}")
        rules = tuple(PlacementRule(**rule) for rule in content.get("rule", ()))
        named = content.get("cost_model")
        if isinstance(named, Mapping):
            model: CostModel | None = CostModel.from_mapping(named)
        else:
            # beside the policy, wherever the program runs
            model = None if named is None else CostModel.load(directory / named)
        return cls(rules, content.get("placer", "default"), model, content.get("soft"), content.get("clear", False))

    def to_mapping(self) -> dict[str, Any]:
        """What a file says of the policy; the cost model stands in it."""
        mapping: dict[str, Any] = {
            "rule": [{k: v for k, v in asdict(rule).items() if v is not None} for rule in self.rules],
            "placer": self.placer,
            "clear": self.clear,
        }
        if self.soft is not None:
            mapping["soft"] = self.soft
        if self.cost_model is not None:
            mapping["cost_model"] = self.cost_model.to_mapping()
        return mapping


def policy_of(policy: PlacementPolicy | str | os.PathLike[str] | None) -> PlacementPolicy:
    """The policy of a session: what it was given (an object or a file), what the environment names, or a trivial one.

    Raises:
        TypeError: something else was given.
        NotFoundError, InvalidArgumentError: as `PlacementPolicy.from_file`.
    """
    if policy is None:
        policy = os.environ.get(POLICY_VARIABLE) or PlacementPolicy()
    if isinstance(policy, PlacementPolicy):
        return policy
    if isinstance(policy, str | os.PathLike):
        return PlacementPolicy.from_file(policy)
    raise TypeError(f"placement must be a PlacementPolicy or the path of a file, got {type(policy).__name__}")
