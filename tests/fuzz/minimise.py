"""Making the program of a disagreement small: what does not matter goes, what comes before is fed as computed."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

from tests.fuzz.differences import Disagreement
from tests.fuzz.examination import Examination
from tests.fuzz.outcomes import Examined
from tests.fuzz.programs import blocks, needed, producer, used
from tests.fuzz.sides import Side
from tests.fuzz.wire import encode_array

Program = dict[str, Any]
Check = Callable[[Program], Examined]

#: seconds for one disagreement
_BUDGET = 40.0


class Minimiser:
    """Shrinks one program while it shows a disagreement of the same kind at the same operation."""

    def __init__(self, program: Program, found: Disagreement, ours: Side, genuine: Side) -> None:
        self.program = program
        self.found = found
        self.ours = ours
        self.genuine = genuine
        self.until = time.monotonic() + _BUDGET

    def run(self) -> Program:
        """The smallest program found."""
        self._try(self._restricted(self.program))
        self._feed_inputs()
        self._drop_steps()
        self._thin_blocks()
        return self.program

    def _try(self, program: Program) -> bool:
        """Keeps the program if it still shows the disagreement."""
        if time.monotonic() > self.until:
            return False
        examined = Examination(program, self.ours, self.genuine).run()
        same = any(
            (d.kind, d.operation, d.node) == (self.found.kind, self.found.operation, self.found.node)
            for d in examined.disagreements
        )
        if same:
            self.program = program
        return same

    def _restricted(self, program: Program) -> Program:
        """Without the nodes that the guilty one does not depend on."""
        keep = needed(program, {f"{self.found.node}:0"})
        nodes = [node for node in program["nodes"] if node["id"] in keep]
        feeds = [{name: v for name, v in feed.items() if name in keep} for feed in program["feeds"]]
        return {**program, "nodes": nodes, "feeds": feeds, "fetch_all": True}

    def _feed_inputs(self) -> None:
        """Replaces what the guilty node takes by placeholders: all at once, or one after another."""
        values = Examination(self.program, self.ours, self.genuine).our_values()
        if values is None:
            return
        guilty = next(n for n in self.program["nodes"] if n["id"] == self.found.node)
        if guilty["kind"] == "gradients":
            refs = [f"{n['id']}:0" for n in self.program["nodes"] if n["kind"] in {"op", "cond", "while"}]
        else:
            refs = sorted(used(guilty))
        refs = [r for r in refs if all(r in step for step in values) and r != f"{self.found.node}:0"]
        if self._try(self._restricted(self._fed(self.program, refs, values))):
            return
        for ref in refs:
            self._try(self._restricted(self._fed(self.program, [ref], values)))

    def _fed(self, program: Program, refs: list[str], values: list[dict[str, Any]]) -> Program:
        program = copy.deepcopy(program)
        for ref in refs:
            at = next((i for i, n in enumerate(program["nodes"]) if n["id"] == producer(ref)), None)
            if at is None or program["nodes"][at]["kind"] in {"placeholder", "const", "update", "variable"}:
                continue
            name = "x" + ref.replace(":", "0").removeprefix("n")
            arrays = [encode_array(step[ref]) for step in values]
            same = all(a["shape"] == arrays[0]["shape"] for a in arrays)
            node = {
                "id": name,
                "kind": "placeholder",
                "dtype": arrays[0]["dtype"],
                "shape": arrays[0]["shape"] if same else None,
            }
            program["nodes"].insert(at, node)
            for feed, array in zip(program["feeds"], arrays, strict=True):
                feed[name] = array
            program["nodes"] = [_renamed(n, ref, f"{name}:0") for n in program["nodes"]]
        return program

    def _drop_steps(self) -> None:
        for step in range(len(self.program["feeds"])):
            if self._try({**self.program, "feeds": [self.program["feeds"][step]]}):
                return

    def _thin_blocks(self) -> None:
        """Drops nodes of blocks that nothing uses, and replaces others by a parameter of the block."""
        changed = True
        while changed and time.monotonic() < self.until:
            changed = False
            for at, node in enumerate(self.program["nodes"]):
                for key in [k for k in ("then", "else", "body") if k in node]:
                    for smaller in _thinner(node[key]):
                        nodes = list(self.program["nodes"])
                        nodes[at] = {**node, key: smaller}
                        if self._try(self._restricted({**self.program, "nodes": nodes})):
                            changed = True
                            break
                    if changed:
                        break
                if changed:
                    break


def _thinner(block: dict[str, Any]) -> list[dict[str, Any]]:
    """The block without one of its nodes: first without those that nothing uses."""
    found = []
    for i, node in reversed(list(enumerate(block["nodes"]))):
        rest = block["nodes"][:i] + block["nodes"][i + 1 :]
        wanted = set(block["outputs"]).union(*(used(n) for n in rest))
        mine = {ref for ref in wanted if producer(ref) == node["id"]}
        if not mine:
            found.insert(0, {**block, "nodes": rest})
            continue
        for parameter in block["parameters"]:
            smaller = {**block, "nodes": rest}
            for ref in mine:
                smaller = _renamed_block(smaller, ref, f"{parameter}:0")
            found.append(smaller)
    return found


def _renamed(node: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    """The node, using another tensor in place of one."""
    changed = dict(node)
    for key in ("predicate", "limit", "elements"):
        if changed.get(key) == old:
            changed[key] = new
    for key in ("start", "inputs", "ys", "xs"):
        if key in changed:
            changed[key] = _replaced(changed[key], old, new)
    for key in ("then", "else", "body"):
        if key in changed:
            changed[key] = _renamed_block(changed[key], old, new)
    return changed


def _renamed_block(block: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {
        **block,
        "nodes": [_renamed(n, old, new) for n in block["nodes"]],
        "outputs": _replaced(block["outputs"], old, new),
    }


def _replaced(refs: Any, old: str, new: str) -> Any:
    if isinstance(refs, dict):
        return {name: _replaced(ref, old, new) for name, ref in refs.items()}
    if isinstance(refs, list):
        return [_replaced(ref, old, new) for ref in refs]
    return new if refs == old else refs


def size(program: Program) -> int:
    """The number of nodes, those of blocks included."""

    def count(nodes: list[Any]) -> int:
        return sum(1 + sum(count(block["nodes"]) for block in blocks(node)) for node in nodes)

    return count(program["nodes"])
