"""One program on both sides: build, exchange, run, compare.

Three comparisons are made: the program built and run by each side; our graph run there against our own run; their graph
run here against theirs. Values that differ are no disagreement yet, since rounding grows on its way through a graph. So
the node is asked again on the other side with *our* values for everything before it, and with these values changed by
their rounding; what then still differs is a disagreement.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tests.fuzz.allowances import Allowances
from tests.fuzz.comparison import difference, is_something
from tests.fuzz.differences import Disagreement
from tests.fuzz.given_values import GivenValues, precisions
from tests.fuzz.outcomes import Examined, Graph, Outcome, compatible, names_of, refused_type
from tests.fuzz.programs import Node, names_within, needed, producer, used, within
from tests.fuzz.sides import Side, SideDiedError
from tests.fuzz.slopes import is_nearer
from tests.fuzz.undefined import MAY_LACK_FACTOR, lacks_factor, two_zeros
from tests.fuzz.unneeded import needing, refused_within
from tests.fuzz.wire import Array, decode_array, encode_array

#: how many refusals of one program are taken out before the rest is left alone
_REFUSALS = 8
#: how many nodes of a run are asked again
_ASKED_AGAIN = 5
#: classes of exceptions with which a program may be refused
_PROPER = {
    "ValueError",
    "TypeError",
    "LookupError",
    "KeyError",
    "NotImplementedError",
    "InvalidArgumentError",
    "UnimplementedError",
    "NotFoundError",
    "FailedPreconditionError",
    "OutOfRangeError",
    "InternalError",
    "ResourceExhaustedError",
    "UnknownError",
    "DataLossError",
}

#: what an error says of the node at fault
_NAMED = re.compile(r"^node '(\w+)'")

#: kinds of nodes that turn
_LOOPS = {"while", "map", "scan", "fold", "array_loop"}
#: inputs to which TensorFlow passes nothing back (docs/differences.md), and with them those of which it takes the shape
_UNTOLD = (("PadV2", ("constant_values",)), ("ResizeBilinearGrad", ("grads", "original_image")))


#: operations that TensorFlow lets write beyond their memory (docs/differences.md)
_OVERRUNNING = {"AvgPoolGrad", "CropAndResizeGradBoxes", "CropAndResizeGradImage", "RaggedTensorToTensor"}

#: operations whose gradients TensorFlow takes from a tape, which sees nothing in loops of its first control flow
_TAPED = {"FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3"}

#: operations whose gradients TensorFlow computes from their outputs, which are computed from their inputs here
_OF_THE_OUTPUT_THERE = {"RGBToHSV", "UnsortedSegmentProd"}

#: operations whose gradients are wrong there for some values (docs/differences.md)
_WRONG_THERE = {"RGBToHSV", "Cumprod", "ProdGrad"}

#: operations whose gradients are computed from their outputs, in other ways here and there
_OF_THEIR_OUTPUTS = {"Svd", "SelfAdjointEigV2", "Qr", "Cholesky", "COND"}


class _NoKernelError(Exception):
    """TensorFlow has no kernel for an operation of the node, and so runs nothing of the graph."""


class Examination:
    """Of one program; `run` does it all."""

    def __init__(self, program: dict[str, Any], ours: Side, genuine: Side) -> None:
        self.program = program
        self.ours = ours
        self.genuine = genuine
        self.result = Examined()
        self.nodes: dict[str, Node] = {node["id"]: node for node in program["nodes"]}
        self.parents = {inner: node["id"] for node in program["nodes"] for inner in names_within(node)}
        self.random = np.random.default_rng(program["index"])
        self.given = GivenValues(program, self.random)
        self.allowed = Allowances(program)

    # ------------------------------------------------------------------ the whole
    def run(self) -> Examined:
        """Builds and compares; what a worker that dies was asked is a disagreement of its own."""
        try:
            self._run()
        except _NoKernelError as error:
            self._go_on_without({str(error)})
            self.result.counts["nodes without a kernel there"] += 1
        except SideDiedError as error:
            deadly = self._deadly_node()
            self._disagree("died", deadly, f"{error}{self._overrun_by(deadly)}", "program")
            self._go_on_without({deadly})
        return self.result

    def _deadly_node(self) -> str:
        """The first node with which a worker dies, unless one is at fault that writes beyond its memory: when a process
        dies of that is chance.
        """
        nodes = self.program["nodes"]
        for node in nodes:
            if self.allowed.operations(node["id"]) & _OVERRUNNING and not self._dies(self._without({node["id"]})):
                return str(node["id"])
        lives, dies = 0, len(nodes)
        while dies - lives > 1:
            middle = (lives + dies) // 2
            if self._dies(nodes[:middle]):
                dies = middle
            else:
                lives = middle
        return str(nodes[dies - 1]["id"])

    def _overrun_by(self, name: str) -> str:
        """Says of gradients if they are of an operation whose gradient TensorFlow lets write beyond its memory."""
        node = self.nodes[name]
        behind = needed(self.program, set(node["ys"])) if node["kind"] == "gradients" else set()
        types = {operation for one in behind for operation in self.allowed.operations(one)}
        return "".join(f"; through {operation}" for operation in sorted(types & {"CropAndResize"}))

    def _dies(self, nodes: list[Node]) -> bool:
        try:
            Examination({**self.program, "nodes": nodes, "fetch_all": True}, self.ours, self.genuine)._run()
        except SideDiedError:
            return True
        except _NoKernelError:
            pass
        return False

    def _run(self) -> None:
        self.ours.tell("build", program=self.program)
        theirs = self.genuine.ask("build", program=self.program)
        mine = self.ours.hear()
        for answer, side in ((mine, "ours"), (theirs, "theirs")):
            if "error" in answer:
                self._disagree(
                    f"build failed in {side}", next(reversed(self.nodes)), ": ".join(answer["error"]), "program"
                )
                return
        self._compare_built(mine, theirs)
        here = Graph(self.ours, mine["graph"], mine["initializer"], names_of(mine), genuine=False)
        there = Graph(self.genuine, theirs["graph"], theirs["initializer"], names_of(theirs), genuine=True)
        if set(mine["refusals"]) != set(theirs["refusals"]):
            self._refused_by_one(here, mine["refusals"], there, theirs["refusals"])
            return
        fetches = self._fetches(mine, theirs)
        got, wanted = self._steps(here, fetches), self._steps(there, fetches)
        self._compare_refusals(mine["refusals"], theirs["refusals"], got, wanted, "program", here, there)
        self._compare_missing(here, mine, there, theirs)
        self._compare_values(here, got, there, wanted, "program", fetches)
        self._exchange(here, got, mine["graph_def"], self.genuine, "our graph there", fetches)
        self._exchange(there, wanted, theirs["graph_def"], self.ours, "their graph here", fetches)
        self.ours.forget()
        self.genuine.forget()

    def _refused_by_one(
        self, here: Graph, refused_here: dict[str, Any], there: Graph, refused_there: dict[str, Any]
    ) -> None:
        """Judges nodes that one side does not build, and goes on with a program without them."""
        refused = {*refused_here, *refused_there}
        judged = refused - self._gradients_of_refused(here, set(refused_here) - set(refused_there))
        judged -= self._gradients_of_refused(there, set(refused_there) - set(refused_here))
        built_here, built_there = ({n: r[n] for n in r if n in judged} for r in (refused_here, refused_there))
        got = Outcome([], self._refused_late(here, judged - set(built_here)))
        wanted = Outcome([], self._refused_late(there, judged - set(built_there)))
        self._compare_refusals(built_here, built_there, got, wanted, "program", here, there)
        self._go_on_without(refused)

    def _gradients_of_refused(self, graph: Graph, nodes: set[str]) -> set[str]:
        """Those of the nodes that are gradients of another one that the graph's side refuses to run."""
        found = set()
        for node in nodes:
            if self.nodes[node]["kind"] == "gradients":
                behind = needed(self.program, set(self.nodes[node]["ys"]))
                refs = [ref for ref in graph.names if producer(ref) in behind and not self._is_fed(ref)]
                if refs and self._attempt(graph, refs)[1] is not None:
                    found.add(node)
        self.result.counts["gradients of what is refused"] += len(found)
        return found

    def _is_fed(self, ref: str) -> bool:
        return bool(self.nodes[producer(ref)]["kind"] == "placeholder")

    def _go_on_without(self, names: set[str]) -> None:
        """Examines the program without some nodes and what depends on them."""
        left = self._without(names)
        if not left:
            return
        rest = Examination({**self.program, "nodes": left}, self.ours, self.genuine).run()
        self.result.disagreements += rest.disagreements
        self.result.counts += rest.counts

    def _without(self, names: set[str]) -> list[Node]:
        """The nodes that depend on none of these."""
        return [n for n in self.program["nodes"] if not names & needed(self.program, {f"{n['id']}:0"})]

    def _refused_late(self, graph: Graph, nodes: set[str]) -> dict[str, str]:
        """What running says of nodes that the other side refused to build."""
        found = {}
        for node in nodes:
            refs = [ref for ref in graph.names if producer(ref) == node]
            error = self._attempt(graph, refs)[1] if refs else None
            if error is not None:
                found[node] = error[0]
        return found

    def our_values(self) -> list[dict[str, Array]] | None:
        """What every tensor of the program is here, for each set of feeds; None where that cannot be said."""
        built = self.ours.ask("build", program=self.program)
        if "error" in built:
            return None
        here = Graph(self.ours, built["graph"], built["initializer"], names_of(built), genuine=False)
        found = self._steps(here, [r for r in here.names if not self._is_fed(r)])
        return None if found.undecided else found.values

    def _exchange(
        self, home: Graph, at_home: Outcome, graph_def: str, side: Side, where: str, fetches: list[str]
    ) -> None:
        answer = side.ask("load", graph_def=graph_def)
        if "error" in answer:
            named = _NAMED.search(answer["error"][-1])
            if named and named[1] in self.nodes and self._refused_when_fetched(home, named[1]):
                self.result.counts["graphs not read for a node that is refused when it runs"] += 1
                return
            self._disagree("graph not read", next(reversed(self.nodes)), ": ".join(answer["error"]), where)
            return
        abroad = Graph(side, answer["graph"], home.initializer, home.names, side is self.genuine)
        found = self._steps(abroad, fetches)
        if side is self.genuine:
            self._compare_refusals({}, {}, at_home, found, where, home, abroad)
            self._compare_values(home, at_home, abroad, found, where, fetches)
        else:
            self._compare_refusals({}, {}, found, at_home, where, abroad, home)
            self._compare_values(abroad, found, home, at_home, where, fetches)

    def _disagree(self, kind: str, node: str, message: str, where: str, dtype: str = "-") -> None:
        found = self.nodes[node]
        inner = self._refused_within(found, message) if found["kind"] not in {"op", "gradients"} else None
        operation = found["op"] if found["kind"] == "op" else inner or found["kind"].upper()
        self.result.disagreements.append(Disagreement(kind, node, operation, dtype, message, where))

    def _refused_within(self, block: Node, message: str) -> str | None:
        """The type of the operation within a block that a message names, by its type or its node's name."""
        named = set(re.findall(r"\{\{node (?:\w+/)*(\w+)\}\}", message))
        return refused_type(message) or next((n["op"] for n in within(block) if n["id"] in named and "op" in n), None)

    # ------------------------------------------------------------------ what was built
    def _compare_built(self, mine: dict[str, Any], theirs: dict[str, Any]) -> None:
        for ref in sorted(set(mine["tensors"]) & set(theirs["tensors"])):
            ours, other = mine["tensors"][ref], theirs["tensors"][ref]
            if ours is not None and other is not None:
                self._compare_static(ref, ours, other)

    def _compare_static(self, ref: str, ours: dict[str, Any], other: dict[str, Any]) -> None:
        self.result.counts["static shapes compared"] += 1
        if ours["dtype"] != other["dtype"]:
            self._disagree("dtype", producer(ref), f"{ours['dtype']}, expected {other['dtype']}", "program")
        elif not compatible(ours["shape"], other["shape"]):
            message = f"static shape {ours['shape']}, expected {other['shape']}"
            self._disagree("static shape", producer(ref), message, "program", ours["dtype"])

    def _fetches(self, mine: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
        """What is fetched: all tensors that both sides have, or a few of them."""
        both = [ref for ref, t in mine["tensors"].items() if t is not None and theirs["tensors"].get(ref) is not None]
        both = [ref for ref in both if self.nodes[producer(ref)]["kind"] not in {"const", "placeholder"}]
        if self.program.get("fetch_all", True) or len(both) < 8:
            return both
        keep = {"update", "gradients"}
        return [r for r in both if self.nodes[producer(r)]["kind"] in keep or self.random.random() < 0.4]

    # ------------------------------------------------------------------ gradients that only one side has
    def _compare_missing(self, here: Graph, mine: dict[str, Any], there: Graph, theirs: dict[str, Any]) -> None:
        """A gradient that is None on one side must be zero on the other."""
        missing: set[str] = set()
        for ref in sorted(set(mine["tensors"]) & set(theirs["tensors"])):
            if (mine["tensors"][ref] is None) == (theirs["tensors"][ref] is None):
                continue
            graph, side = (there, "here") if mine["tensors"][ref] is None else (here, "there")
            found = self._steps(graph, [ref])
            if any(ref in step and is_something(step[ref]) for step in found.values):  # not there: it was refused
                missing.add(ref)
                order = 1 + any(self.nodes[producer(y)]["kind"] == "gradients" for y in self._behind(ref))
                message = (
                    f"{ref}: None {side}, not zero on the other side; order {order}, {self._flow()}{self._of(ref)}"
                )
                if missing.intersection(self.nodes[producer(ref)]["ys"]):
                    message += ", of another such gradient"
                self._disagree("no gradient", producer(ref), message, "program")
            else:
                self.result.counts["gradients None on one side, zero on the other"] += 1

    def _of(self, ref: str) -> str:
        """Says of a gradient if it is one with respect to a result of control flow, or what its only use is."""
        node, _, output = ref.rpartition(":")
        source = self.nodes[node]["xs"][int(output)]
        made = self.nodes[producer(source)]
        if not self.program["control_flow_v2"] and (op := self._taped(node)):
            return f", through {op} in a loop"
        if made["kind"] in {"cond", "while"} or made.get("op") in _OF_THE_OUTPUT_THERE:
            return f", with respect to {made.get('op') or made['kind'].upper()}"
        for op, names in _UNTOLD:
            nodes = [_without_inputs(n, names) if n.get("op") == op else n for n in self.program["nodes"]]
            if nodes != self.program["nodes"] and producer(source) not in needed(
                {"nodes": nodes}, set(self.nodes[node]["ys"])
            ):
                return f", used as {op}.{names[0]}"
        uses = [n for n in self.program["nodes"] if n["kind"] != "gradients" and source in used(n)]
        if len(uses) != 1 or uses[0]["kind"] != "op":
            return ""
        taken = [name for name, given in uses[0]["inputs"].items() if source == given]
        return f", used as {uses[0]['op']}.{taken[0]}" if len(taken) == 1 else ""

    def _taped(self, gradients: str) -> str | None:
        """An operation in a loop, on the way of these gradients, whose own gradient TensorFlow takes from a tape."""
        behind = (self.nodes[name] for name in needed(self.program, set(self.nodes[gradients]["ys"])))
        types = (n.get("op", "") for loop in behind if loop["kind"] in _LOOPS for n in within(loop))
        return next(filter(_TAPED.__contains__, types), None)

    def _flow(self) -> str:
        return f"{'second' if self.program['control_flow_v2'] else 'first'} control flow"

    def _behind(self, ref: str) -> list[str]:
        return [f"{name}:0" for name in needed(self.program, {ref}) - {producer(ref)}]

    # ------------------------------------------------------------------ running
    def _steps(self, graph: Graph, fetches: list[str]) -> Outcome:
        """Runs the program's steps; without a node that is refused, and what depends on it, all starts anew."""
        refusals: dict[str, str] = {}
        left = [ref for ref in fetches if ref in graph.names]
        while True:
            values, error = self._attempt(graph, left)
            if error is None:
                return Outcome(values, refusals)
            message, name = error
            node = None if name is None else self._top(name)
            if "No OpKernel was registered" in message and node is not None:
                raise _NoKernelError(node)
            if node is None or node in refusals or len(refusals) >= _REFUSALS:
                node, message = self._search(graph, left)
            if node is None or node in refusals or len(refusals) >= _REFUSALS:
                return Outcome([], refusals, undecided=True)
            refusals[node] = message
            left = [ref for ref in left if node not in needed(self.program, {ref})]

    def _attempt(
        self, graph: Graph, fetches: list[str]
    ) -> tuple[list[dict[str, Array]], tuple[str, str | None] | None]:
        session = graph.side.ask("open", graph=graph.number)["session"]
        answer = graph.side.ask("run", session=session, fetches=[graph.initializer], feeds={})
        values: list[dict[str, Array]] = []
        for feed in self.program["feeds"]:
            feeds = {graph.names[f"{name}:0"]: value for name, value in feed.items() if f"{name}:0" in graph.names}
            answer = graph.side.ask("run", session=session, fetches=[graph.names[r] for r in fetches], feeds=feeds)
            if "error" in answer:
                return [], (": ".join(answer["error"]), answer["node"])
            values.append(dict(zip(fetches, map(decode_array, answer["values"]), strict=True)))
        return values, None

    def _search(self, graph: Graph, fetches: list[str]) -> tuple[str | None, str]:
        """The first node that fails when it is fetched alone, and what is said of it, where the error names none."""
        for ref in fetches:
            error = self._attempt(graph, [ref])[1]
            if error is not None:
                return producer(ref), error[0]
        return None, ""

    def _top(self, name: str) -> str | None:
        """The program's node that an operation of a graph belongs to."""
        for part in re.findall(r"[nx]\d+", name):
            found = part if part in self.nodes else self.parents.get(part)
            if found is not None:
                return found
        return None

    # ------------------------------------------------------------------ comparing refusals
    def _compare_refusals(
        self,
        built_here: dict[str, list[str]],
        built_there: dict[str, list[str]],
        got: Outcome,
        wanted: Outcome,
        where: str,
        ours: Graph,
        genuine: Graph,
    ) -> None:
        if got.undecided or wanted.undecided:
            self.result.counts["runs left undecided"] += 1
            return
        here = {node: ": ".join(error) for node, error in built_here.items()} | got.refusals
        there = {node: ": ".join(error) for node, error in built_there.items()} | wanted.refusals
        self.result.counts["refusals equal"] += len(set(here) & set(there))
        for node, message in here.items():
            if message.partition(":")[0] not in _PROPER:
                self._disagree("improper error", node, message, where, self._dtype_of(node))
            elif not (
                node in there
                or self._spoiled(node, there)
                or self.allowed.finds_nothing(f"{node}:0", {}, 0)
                or self._refused_when_fetched(genuine, node)
                or self._of_refused(node, ours, genuine, "refused here only", where)
            ):
                said = message + self._without_factor(ours, genuine, node)
                self._disagree("refused here only", node, said, where, self._dtype_of(node))
        for node, message in there.items():
            if node in here or self._spoiled(node, here) or self._refused_when_fetched(ours, node):
                continue
            if self._of_refused(node, genuine, ours, "refused there only", where):
                continue
            if self._refused_if_needed(node, message):
                continue
            if self._refused_for_its_inputs(ours, genuine, node):
                continue
            if self._refuses_alone(genuine, node, there):
                said = f"{message}; {self._flow()}" if self.nodes[node]["kind"] == "gradients" else message
                self._disagree("refused there only", node, said, where, self._dtype_of(node))

    def _of_refused(self, node: str, refusing: Graph, other: Graph, kind: str, where: str) -> bool:
        """Whether it is a gradient of what its side refuses as well: that is compared instead."""
        if self.nodes[node]["kind"] != "gradients":
            return False
        behind = needed(self.program, set(self.nodes[node]["ys"]))
        refused = self._steps(refusing, [r for r in refusing.names if producer(r) in behind and not self._is_fed(r)])
        for name, message in refused.refusals.items():
            if not self._refused_when_fetched(other, name):
                self._disagree(kind, name, message, where, self._dtype_of(name))
        return bool(refused.refusals)

    def _refused_if_needed(self, node: str, message: str) -> bool:
        """Whether what a refusal names, in a branch or a body, is refused here once the outputs wait for it."""
        inner = refused_within(self.nodes[node], message)
        if inner is None:
            return False
        nodes = [n for n in self.program["nodes"] if n["id"] in needed(self.program, {f"{node}:0"})]
        built = self.ours.ask("build", program=needing({**self.program, "nodes": nodes}, node, inner))
        if "error" in built:
            return False
        graph = Graph(self.ours, built["graph"], built["initializer"], names_of(built), genuine=False)
        found = node in built["refusals"] or self._refused_when_fetched(graph, node)
        self.result.counts["refusals of what no output needs"] += found
        return found

    def _without_factor(self, ours: Graph, genuine: Graph, node: str) -> str:
        """Says of a decomposition that is refused here if TensorFlow finds no factor either, given our values."""
        if self.nodes[node].get("op") not in MAY_LACK_FACTOR:
            return ""
        full = self._steps(ours, [ref for ref in ours.names if not self._is_fed(ref)])
        answers = [self.given.answers(genuine, full, f"{node}:0", step) for step in range(len(full.values))]
        found = any(lacks_factor(value) for given in answers if not isinstance(given, str) for value in given)
        return "; there it has no factor" if found else ""

    def _spoiled(self, node: str, refusals: dict[str, str]) -> bool:
        """Whether the node depends on one that the other side refuses."""
        return bool((needed(self.program, {f"{node}:0"}) - {node}) & set(refusals))

    def _refused_when_fetched(self, graph: Graph, node: str) -> bool:
        """Whether a node is refused by itself: others may have needed its shape alone, or have failed first."""
        refs = [ref for ref in graph.names if producer(ref) == node]
        return bool(refs) and self._attempt(graph, refs)[1] is not None

    def _refused_for_its_inputs(self, ours: Graph, genuine: Graph, node: str) -> bool:
        """Whether TensorFlow refuses its own values before the node, and takes ours: those are compared."""
        if self.nodes[node]["kind"] != "op" or f"{node}:0" not in genuine.names:
            return False
        full = self._steps(ours, [ref for ref in ours.names if not self._is_fed(ref)])
        if full.undecided or not all(f"{node}:0" in values for values in full.values):
            return False
        answers = (self.given.answers(genuine, full, f"{node}:0", step) for step in range(len(full.values)))
        taken = not any(isinstance(answer, str) for answer in answers)
        self.result.counts["refusals of other inputs"] += taken
        return taken

    def _refuses_alone(self, genuine: Graph, node: str, refusals: dict[str, str]) -> bool:
        """Whether TensorFlow refuses the node without the others that it refuses (docs/differences.md)."""
        refs = [ref for ref in genuine.names if producer(ref) == node]
        if len(refusals) == 1 or not refs or self._attempt(genuine, refs)[1] is not None:
            return True
        self.result.counts["refusals for the sake of another node"] += 1
        return False

    def _dtype_of(self, node: str) -> str:
        """The dtype of the first input whose dtype the program states."""
        found = self.nodes[node]
        refs = found.get("inputs", {})
        for ref in refs.values() if isinstance(refs, dict) else refs:
            first = ref[0] if isinstance(ref, list) and ref else ref
            source = self.nodes.get(producer(first)) if isinstance(first, str) else None
            if source is not None and "dtype" in source:
                return str(source["dtype"])
            if source is not None and source["kind"] == "const":
                return str(source["value"]["dtype"])
        return "-"

    # ------------------------------------------------------------------ comparing values
    def _compare_values(
        self, here: Graph, got: Outcome, there: Graph, wanted: Outcome, where: str, fetches: list[str]
    ) -> None:
        different = []
        for ref in fetches:
            for step, (a, b) in enumerate(zip(got.values, wanted.values, strict=False)):
                if ref not in a or ref not in b:
                    continue
                self._count(ref)
                if difference(a[ref], b[ref]) is not None:
                    different.append((ref, step))
                    break
        if different:
            self._ask_again(here, there, different, where)

    def _count(self, ref: str) -> None:
        kind = self.nodes[producer(ref)]["kind"]
        self.result.counts["gradients compared" if kind == "gradients" else "tensors compared"] += 1

    def _ask_again(self, here: Graph, there: Graph, different: list[tuple[str, int]], where: str) -> None:
        """Asks the other side for each differing tensor, given our values before it."""
        full = self._steps(here, [ref for ref in here.names if not self._is_fed(ref)])
        for ref, step in different[:_ASKED_AGAIN]:
            if full.undecided or ref not in full.values[step]:
                continue
            answer = self.given.answers(there, full, ref, step)
            if isinstance(answer, str) and answer.endswith(" may not be fed."):
                self.result.counts["nodes that cannot be asked again"] += 1
                continue
            if isinstance(answer, str):
                self._disagree("refused there only", producer(ref), answer, where, "-")
                continue
            got = full.values[step][ref]
            if self.allowed.finds_nothing(ref, full.values[step], step):
                self.result.counts["records parsed with a key that stands twice"] += 1
                continue
            comparable, *answers = (self.allowed.comparable(ref, value, full.values[step]) for value in (got, *answer))
            inputs = self.allowed.inputs(ref, full.values[step], step)
            ignored = self.allowed.undefined(ref, inputs, comparable, answers[0])
            ignored = ignored | self.allowed.open(ref, full.values[step], step, answers[0])
            floor = self.allowed.least(ref, inputs, comparable.dtype.name)
            cast = precisions(self.program, full.values[step], step)
            tolerance = self.allowed.tolerance(ref, inputs, comparable.dtype.name, cast)
            said = difference(comparable, answers[0], answers[1:], ignored, floor, tolerance)
            if said is not None:
                said += self._numerically(here, full.values[step], ref, step, (got, answer[0]))
                said += two_zeros(self.nodes[producer(ref)].get("op", ""), inputs)
                self._disagree("value", producer(ref), f"{ref} in step {step}: {said}", where, got.dtype.name)
            elif ignored.any():
                self.result.counts["values of NaN or infinity that are not defined"] += 1
            else:
                self.result.counts["differences that rounding explains"] += 1

    def _numerically(
        self, here: Graph, ours: dict[str, Array], ref: str, step: int, gradients: tuple[Array, Array]
    ) -> str:
        """Says of gradients that TensorFlow is known to lack something of, if ours are right."""
        node = self.nodes[producer(ref)]
        if node["kind"] != "gradients":
            return ""
        behind = [self.nodes[name] for name in needed(self.program, set(node["ys"]))]
        kinds = {one["kind"] for one in behind}
        source = self.nodes[producer(node["xs"][int(ref.rpartition(":")[2])])]
        made = source.get("op") or source["kind"].upper()
        if "gradients" in kinds and made in _OF_THEIR_OUTPUTS:
            return f"; order 2, with respect to {made}"
        types = {operation for one in behind for operation in self.allowed.operations(one["id"])}
        if "gradients" in kinds:
            types |= {f"{name}Grad" for name in types}
        untold = [f"{op}.{names[0]}" for op, names in _UNTOLD if op in types]
        if "gradients" in kinds and kinds & _LOOPS and not self.program["control_flow_v2"]:
            lacking = "; order 2, first control flow, through a loop"
        elif wrong := untold + sorted(types & _WRONG_THERE):
            lacking = f"; through {wrong[0]}"
        else:
            return ""
        x = node["xs"][int(ref.rpartition(":")[2])]
        value = self.allowed.value_of(x, ours, step)
        if value is None or x not in here.names:
            return ""
        fed = {here.names[f"{name}:0"]: given for name, given in self.program["feeds"][step].items()}
        state = (r for r in ours if self.nodes[producer(r)]["kind"] in {"update", "variable"})
        fed |= {here.names[r]: encode_array(ours[r]) for r in state}
        if not is_nearer(here, node, fed, (x, value), gradients, self.random):
            return ""
        return f"{lacking}, as numeric differences have it here"


def _without_inputs(node: Node, names: tuple[str, ...]) -> Node:
    return {**node, "inputs": {key: value for key, value in node["inputs"].items() if key not in names}}
