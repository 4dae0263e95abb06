"""The executor: which nodes of a step may run now, as a pure state machine (§3.2, §3.4, WP5, WP4.4; design D8).

It owns no threads and no devices and never waits. `start`, `finished`, `resume`, `abort` are the events; the answer is
the list of instances to run next. A dispatcher (`runtime.dispatcher`) runs them and reports back, in whatever order
they end::

    executor = Executor(graph, feeds)
    ready = executor.start()
    while ready or executor.paused:           # one thread, one after the other: the simplest dispatcher
        if not ready:
            ready = executor.resume()
            continue
        node, iteration = ready.pop()
        node.payload(iteration.values)        # reads and writes its slots
        ready += executor.finished((node, iteration))
    executor.fetches()

**Frames.** A node stands in one *static frame*: the root, or a loop. At run time a static frame has one *frame state*
for each iteration of the frame around it in which it is entered, and a frame state has *iterations*. Values, counts of
missing inputs, and deadness belong to one iteration, so that a node can be at work in several iterations at once.
An *instance* is a node in an iteration.

**Transitions.** An instance becomes ready when its last input has arrived; a Merge when its control inputs and the
first live data input have, or when all of its data inputs are dead. A ready instance does this:

====================  ================================================  ============================================
kind                  alive                                             dead (an input or control input was dead)
====================  ================================================  ============================================
work                  handed to the dispatcher; its outputs are sent    sends dead outputs
                      when it has finished, dead if it says so (what
                      is received from another task may be dead)
Send                  handed to the dispatcher                          handed to the dispatcher as well: the other
                                                                        task has to know
Pass                  sends its input on (Identity, LoopCond, NoOp)     sends dead outputs
Trigger               sends live control edges                          never dead, whatever its inputs are
Switch                sends its input to the side that the predicate    sends both sides dead
                      names, and a dead value to the other side
Merge                 sends the input that came first                   sends dead outputs
Enter                 sends its input into iteration 0 of the child     sends a dead value there
                      frame; into every iteration, if it is constant
NextIteration         sends its input into the next iteration, which    stops here
                      is made if need be; waits while the window of
                      parallel iterations is full, and now and then for
                      `resume`
Exit                  sends its input into the frame around             stops here; dead when the loop ends (see below)
====================  ================================================  ============================================

*Order edges* make a node wait without passing deadness on: accesses to one variable come in order whether they are
on the branch that is taken or not.

**Why it is right.**

*No lost wake-up.* An instance's count of missing inputs starts at the number of its edges, and each edge delivers
exactly once per iteration: every instance that becomes ready sends along all of its edges, dead or alive, with two
exceptions that end at a loop. A dead NextIteration sends nothing; but only a Merge takes its value, in an iteration
that either does not exist or was made by another, live NextIteration. A dead Exit sends nothing; but the end of its
frame sends for it. Events come one at a time, so no count is read between two writes.

*Dead values arrive everywhere.* Deadness travels with the edges, so by the above each instance on a branch that is not
taken is reached, and does nothing but pass it on. A loop on such a branch gets only dead Enters: its Merges are dead
(those inputs that come from NextIteration are not waited for), hence everything in iteration 0, and its Exits are sent
dead when the frame ends.

*Frames end.* The inputs of iteration k are: the Enters (counted by `enters_left`), NextIterations of iteration
k - 1, child frames of iteration k, and edges within it. So when all Enters have arrived, no iteration before k is left,
and iteration k has neither a ready nor a running instance nor a child frame (`outstanding` is zero), nothing can
become ready in it any more, and it is dropped. When no iteration and no deferred NextIteration is left the frame is
dropped, with it its last count in the iteration around it. A step is done when the root iteration is idle. If then an
instance in the root has not run, or if nothing runs although the root is not idle, the graph was malformed: the step
fails and tells which nodes still wait for what.

*Every event ends.* What an event makes ready is finite within an iteration, and a loop pauses every `PAUSE` iterations:
its NextIterations are put aside, and counted as outstanding, until `resume`. So whoever drives the executor regains
control even of a loop that never ends and has no work in it.

*Values are released.* In the root a value that only work reads is dropped when all of its readers have run; one of
which a reader is dead stays until the end of the step. Iterations of loops are dropped whole.

*Windows do not block.* A deferred NextIteration waits for the oldest iteration only, whose end depends on nothing
that is newer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from anabranch.core.values import TensorValue
from anabranch.errors import InternalError, InvalidArgumentError
from anabranch.runtime.executor_graph import (
    ENTER,
    EXIT,
    FEED,
    MERGE,
    NEXT_ITERATION,
    PASS,
    SEND,
    SWITCH,
    WORK,
    ExecutorGraph,
    Merges,
    Node,
    StaticFrame,
)
from anabranch.runtime.step_frame import FrameWaiting, NestedExchange, StepFrame

#: the mark of a Merge that has taken an input; below it, marks count dead inputs
_TAKEN: Final = 1 << 30
#: iterations of a loop between two pauses; a loop that is nothing but primitives would not return otherwise
PAUSE: Final = 1024
#: the count of an instance that has run
_RAN: Final = -1


class Iteration(StepFrame):
    """One iteration of a frame state.

    #: `missing[i]` inputs of node i have not arrived; `_RAN` once it has run.
    #: `marks[i]`: whether a dead input arrived; of a Merge, how many did, or `_TAKEN`.
    #: `outstanding`: instances that are ready or running, and child frames.
    """

    __slots__ = ("children", "frame", "marks", "missing", "nodes", "number", "outstanding")

    def __init__(self, frame: FrameState, number: int, outer: StepFrame | None) -> None:
        super().__init__(frame.values[:])
        self.frame, self.number, self.nodes = frame, number, frame.static.nodes
        # copies: each iteration counts down on its own, and the frame's stay what the next iteration begins with
        self.missing, self.marks = frame.missing[:], frame.marks[:]
        if outer is not None:
            self.waiting = outer.waiting
            if outer.exchange is not None:
                self.exchange = outer.exchange.within(frame.static.name, number)
        self.outstanding = 0
        self.children: dict[int, FrameState] = {}


class FrameState:
    """A frame at run time.

    #: Iterations `oldest` .. `newest` exist, at most `static.parallel_iterations` of them.
    #: `deferred` is empty unless that many exist.
    #: `missing`, `marks`, `values`: what a new iteration starts with: the constants that have arrived are in.
    """

    __slots__ = (
        *("deferred", "enters_left", "exited", "iterations", "marks", "missing", "newest", "oldest", "parent"),
        *("ready", "static", "values"),
    )

    def __init__(self, static: StaticFrame, parent: Iteration | None) -> None:
        self.static, self.parent = static, parent
        self.enters_left = static.enters
        self.iterations: dict[int, Iteration] = {}
        self.oldest, self.newest = 0, -1
        self.deferred: list[tuple[Node, Any]] = []
        self.exited: set[int] = set()
        self.missing, self.marks = static.missing[:], [0] * len(static.nodes)
        self.values: list[Any] = [None] * static.size
        #: nodes that nothing but constants makes ready
        self.ready: list[Node] = []

    def new_iteration(self) -> Iteration:
        self.newest += 1
        iteration = self.iterations[self.newest] = Iteration(self, self.newest, self.parent)
        return iteration

    @property
    def full(self) -> bool:
        return self.newest - self.oldest + 1 >= self.static.parallel_iterations


#: what the dispatcher runs, and reports
Instance = tuple[Node, Iteration]
_Stack = list[Instance]


class Executor:
    """One run of a graph; see the module docstring. Events must come from one thread at a time.

    #: `running` instances were handed out and not reported yet.
    #: Once `done` or `error` is set nothing is handed out any more, and what is reported is ignored.

    Args:
        feeds: one value per Feed node, in the order of the graph.
        exchange: that of the root iteration. That of an iteration of a loop is what the method `within` of the outer
            one gives for the loop's name and the iteration's number.
        waiting: that of all iterations.
    """

    def __init__(
        self,
        graph: ExecutorGraph,
        feeds: Sequence[Any] = (),
        exchange: NestedExchange | None = None,
        waiting: FrameWaiting | None = None,
    ) -> None:
        self.graph = graph
        self.running = 0
        self.done = False
        #: NextIterations that wait for `resume`
        self._paused: list[tuple[Node, Iteration]] = []
        self.error: BaseException | None = None
        self.root = FrameState(graph.frames[0], None).new_iteration()
        # a copy, which this run counts down: other runs of the same graph may be under way at once
        #: of each slot of the root, how many nodes will still read it
        self._readers = graph.readers[:]
        self.root.exchange, self.root.waiting = exchange, waiting
        for slot, value in zip(graph.feeds, feeds, strict=True):
            self.root.values[slot] = value

    # ------------------------------------------------------------------ events
    def start(self) -> list[Instance]:
        """Begins the step; returns the instances that are ready."""
        root = self.root
        stack = [(node, root) for node in self.graph.roots]
        root.outstanding = len(stack) + 1  # the step itself, until all roots are placed
        ready: list[Instance] = []
        # what is at the end of a stack comes first: so the roots run in the order of the graph
        stack.reverse()
        self._drain(stack, ready)
        root.outstanding -= 1
        if not root.outstanding:
            self._idle(root, stack)
        return self._handed_out(ready)

    def finished(self, instance: Instance, dead: bool = False) -> list[Instance]:
        """Reports that an instance has run and its outputs are in its slots; returns those that are ready now.

        Args:
            dead: what it received is dead, and so are its outputs.
        """
        self.running -= 1
        if self.done or self.error is not None:
            return []
        node, iteration = instance
        # empty for what stands in a loop, whose iterations are dropped whole: `_readers` counts for the root alone
        if node.reads:
            readers = self._readers
            for slot in node.reads:
                readers[slot] -= 1
                if not readers[slot]:
                    iteration.values[slot] = None
        missing, marks, nodes = iteration.missing, iteration.marks, iteration.nodes
        missing[node.index] = _RAN
        ready: list[Instance] = []
        stack: _Stack = []
        if dead or marks[node.index]:
            self._send(iteration, node, True, stack)
        else:
            # `_arrive`, written out: what follows work is mostly live work, which needs no turn of `_drain`
            for index in node.woken:
                left = missing[index] - 1
                missing[index] = left
                if not left:
                    follower = nodes[index]
                    # the kind of work is 0; primitives, and what is dead, are run by `_drain`
                    if follower.kind or marks[index]:
                        stack.append((follower, iteration))
                    else:
                        ready.append((follower, iteration))
                    iteration.outstanding += 1
            if node.merges:
                self._arrive_at_merges(iteration, node.merges, False, stack)
        if stack:
            self._drain(stack, ready)
        # not before its followers are counted: an iteration in which something is left to do must not seem idle
        iteration.outstanding -= 1
        if not iteration.outstanding:
            self._idle(iteration, stack)
            self._drain(stack, ready)
        return self._handed_out(ready)

    @property
    def paused(self) -> bool:
        """Whether a loop waits for `resume`: after every so many iterations, so that none keeps its caller for good."""
        return bool(self._paused)

    def resume(self) -> list[Instance]:
        """Lets loops go on that have paused; returns the instances that are ready."""
        # a loop that pauses again while these go on is noted in the new list
        paused, self._paused = self._paused, []
        ready: list[Instance] = []
        stack: _Stack = []
        for node, iteration in paused:
            self._go_on(iteration, node, stack)
            iteration.outstanding -= 1
            if not iteration.outstanding:
                self._idle(iteration, stack)
        self._drain(stack, ready)
        return self._handed_out(ready)

    def abort(self, error: BaseException) -> list[Instance]:
        """Gives the step up, once; returns the instances that are running, to be cancelled."""
        if self.done or self.error is not None:
            return []
        self.error = error
        return list(self.running_instances())

    def _handed_out(self, ready: list[Instance]) -> list[Instance]:
        self.running += len(ready)
        # no event could come any more: without an error the dispatcher would wait for ever
        if not self.running and not self.done and self.error is None and not self._paused:
            self.error = InternalError(None, None, f"nothing runs, but the step is not done: {self.story()}")
        return ready

    # ------------------------------------------------------------------ answers
    def fetches(self) -> list[Any]:
        """The values of the fetches of a step that is done.

        Raises:
            InvalidArgumentError: a fetched value is dead.
        """
        values = self.root.values
        for slot, name in zip(self.graph.fetches, self.graph.fetched_names, strict=True):
            if values[slot] is None:
                raise InvalidArgumentError(
                    None,
                    None,
                    f"the fetch {name} has no value: it is on a branch that was not taken; fetch the output of the "
                    "Merge behind it",
                )
        return [values[slot] for slot in self.graph.fetches]

    def forget(self) -> None:
        """Drops the values of a step that is over: what they keep, a lock or rows of a table, ends with the step."""
        # iterations and frames refer to each other, so that they stay until the garbage collector comes
        for iteration in self.iterations():
            iteration.values[:] = [None] * len(iteration.values)

    def iterations(self) -> Iterator[Iteration]:
        """All iterations that exist, outer ones first."""
        stack = [self.root]
        while stack:
            iteration = stack.pop()
            yield iteration
            stack.extend(inner for child in iteration.children.values() for inner in child.iterations.values())

    def running_instances(self) -> Iterator[Instance]:
        """The instances that were handed out and not reported yet."""
        for iteration in self.iterations():
            for node, left, mark in zip(iteration.nodes, iteration.missing, iteration.marks, strict=True):
                # 0 from when it is handed out until it is reported; dead work is never handed out, dead Sends are
                if left == 0 and (node.kind == SEND or (node.kind == WORK and not mark)):
                    yield node, iteration

    def story(self) -> str:
        """What runs and what waits for how many inputs, for error messages."""
        lines = [f"{_where(node, iteration)} runs" for node, iteration in self.running_instances()]
        for iteration in self.iterations():
            for node, left in zip(iteration.nodes, iteration.missing, strict=True):
                if left > 0 and node.kind != FEED:
                    lines.append(f"{_where(node, iteration)} waits for {left} inputs")
        more = [f"and {len(lines) - 10} more"] if len(lines) > 10 else []
        return "; ".join(lines[:10] + more) or "all of its nodes have run"

    # ------------------------------------------------------------------ transitions
    def _drain(self, stack: _Stack, ready: list[Instance]) -> None:
        """Runs the primitives that are ready, and hands out work."""
        while stack:
            node, iteration = stack.pop()
            kind = node.kind
            dead = iteration.marks[node.index]
            if kind == SEND or (kind == WORK and not dead):
                ready.append((node, iteration))
                continue
            iteration.missing[node.index] = _RAN
            # below `_TAKEN` the mark of a Merge counts dead inputs, and it is ready because all of them are dead
            if kind == MERGE:
                self._send(iteration, node, dead < _TAKEN, stack)
            elif kind == SWITCH:
                self._switch(iteration, node, bool(dead), stack)
            elif kind == NEXT_ITERATION:
                if not dead:
                    self._next_iteration(iteration, node, stack)
            elif kind == ENTER:
                self._enter(iteration, node, bool(dead), stack)
            elif kind == EXIT:
                if not dead:
                    self._exit(iteration, node, stack)
            else:
                if kind == PASS and not dead and node.slots:
                    iteration.values[node.slots[0]] = _value(iteration, node)
                self._send(iteration, node, bool(dead), stack)
            # last: what the node has made ready is counted by now
            iteration.outstanding -= 1
            if not iteration.outstanding:
                self._idle(iteration, stack)

    def _send(self, iteration: Iteration, node: Node, dead: bool, stack: _Stack) -> None:
        """Delivers along all edges of a node."""
        if not dead:
            self._arrive(iteration, node.woken, False, stack)
        else:
            self._arrive(iteration, node.edges, True, stack)
            self._arrive(iteration, node.orders, False, stack)
        if node.merges:
            self._arrive_at_merges(iteration, node.merges, dead, stack)

    def _arrive(self, iteration: Iteration, edges: Iterable[int], dead: bool, stack: _Stack) -> None:
        missing, nodes = iteration.missing, iteration.nodes
        for index in edges:
            if dead:
                iteration.marks[index] = 1
            left = missing[index] - 1
            missing[index] = left
            if not left:
                stack.append((nodes[index], iteration))
                iteration.outstanding += 1

    def _arrive_at_merges(self, iteration: Iteration, merges: Merges, dead: bool, stack: _Stack) -> None:
        marks, values = iteration.marks, iteration.values
        for index, position, slot in merges:
            node = iteration.nodes[index]
            # the first live input decides; by the time another comes the Merge may have run
            if marks[index] >= _TAKEN:
                continue
            if dead:
                marks[index] += 1
                if marks[index] != node.dead_inputs:
                    continue
            else:
                marks[index] = _TAKEN
                values[node.slots[0]], values[node.slots[1]] = values[slot], position
            # all data inputs of a Merge count as one, which has arrived now
            self._arrive(iteration, (index,), False, stack)

    def _switch(self, iteration: Iteration, node: Node, dead: bool, stack: _Stack) -> None:
        false, true = node.sides
        taken = None
        if not dead:
            predicate = node.predicate
            truth = iteration.values[predicate] if predicate >= 0 else node.predicate_known
            if getattr(truth, "ndim", 0):
                raise _not_scalar(node, iteration, truth)
            taken = bool(truth)
            iteration.values[node.slots[taken]] = _value(iteration, node)
        # of a dead Switch nothing is taken (None), so that both sides are dead
        for (edges, merges), side in ((false, False), (true, True)):
            if edges:
                self._arrive(iteration, edges, taken is not side, stack)
            if merges:
                self._arrive_at_merges(iteration, merges, taken is not side, stack)
        # who waits for the Switch itself, and not for a side, is alive whichever side is
        if node.woken or node.merges:
            self._send(iteration, node, dead, stack)

    # ---- frames
    def _enter(self, parent: Iteration, node: Node, dead: bool, stack: _Stack) -> None:
        frame = parent.children.get(node.child)
        if frame is None:
            frame = parent.children[node.child] = FrameState(self.graph.frames[node.child], parent)
            frame.new_iteration()
            # an iteration is not over before the loops in it are
            parent.outstanding += 1
        value = None if dead else _value(parent, node)
        if node.constant:
            self._add_constant(frame, node, value, dead)
        # a constant may come when later iterations exist already
        targets = list(frame.iterations.values()) if node.constant else [frame.iterations[0]]
        for iteration in targets:
            iteration.values[node.slots[0]] = value
            self._send(iteration, node, dead, stack)
        frame.enters_left -= 1
        # iterations that have become idle before could not be dropped while an input might still come
        if not frame.enters_left:
            self._retire(frame, stack)

    def _add_constant(self, frame: FrameState, node: Node, value: TensorValue, dead: bool) -> None:
        """Makes iterations to come begin with a constant."""
        frame.values[node.slots[0]] = value
        for index in node.woken:
            frame.missing[index] -= 1
            if not frame.missing[index]:
                frame.ready.append(frame.static.nodes[index])
        if dead:
            for index in node.edges:
                frame.marks[index] = 1

    def _next_iteration(self, iteration: Iteration, node: Node, stack: _Stack) -> None:
        if iteration.number % PAUSE != PAUSE - 1:
            self._go_on(iteration, node, stack)
            return
        self._paused.append((node, iteration))
        iteration.outstanding += 1  # until `resume`

    def _go_on(self, iteration: Iteration, node: Node, stack: _Stack) -> None:
        frame = iteration.frame
        value = _value(iteration, node)
        # otherwise another NextIteration of the same iteration has made the following one
        if iteration.number == frame.newest:
            if frame.full:
                frame.deferred.append((node, value))
                return
            self._begin(frame, stack)
        following = frame.iterations[iteration.number + 1]
        following.values[node.slots[0]] = value
        self._send(following, node, False, stack)

    def _begin(self, frame: FrameState, stack: _Stack) -> Iteration:
        iteration = frame.new_iteration()
        if frame.ready:
            iteration.outstanding += len(frame.ready)
            stack.extend((node, iteration) for node in frame.ready)
        return iteration

    def _exit(self, iteration: Iteration, node: Node, stack: _Stack) -> None:
        frame = iteration.frame
        if node.index in frame.exited:
            raise InvalidArgumentError(
                None,
                None,
                f"{_where(node, iteration)} is left a second time; put a Switch on the loop's condition before it",
            )
        # noted, so that `_leave` sends the other Exits dead, and each Exit sends exactly once for the whole loop
        frame.exited.add(node.index)
        parent = frame.parent
        assert parent is not None
        parent.values[node.slots[0]] = _value(iteration, node)
        self._send(parent, node, False, stack)

    def _idle(self, iteration: Iteration, stack: _Stack) -> None:
        """Nothing is outstanding in an iteration."""
        frame = iteration.frame
        if frame.parent is not None:
            self._retire(frame, stack)
        elif any(left > 0 for node, left in zip(iteration.nodes, iteration.missing, strict=True) if node.kind != FEED):
            self.error = InternalError(None, None, f"the step came to rest before it was done: {self.story()}")
        else:
            self.done = True

    def _retire(self, frame: FrameState, stack: _Stack) -> None:
        """Drops the iterations of a frame that are over, and the frame with the last one."""
        if frame.enters_left:
            return
        while frame.oldest <= frame.newest:
            if frame.iterations[frame.oldest].outstanding:
                return
            del frame.iterations[frame.oldest]
            frame.oldest += 1
            if frame.deferred:
                # all of them come from the newest iteration (see `_go_on`), so that one new iteration takes all of them
                deferred, frame.deferred = frame.deferred, []
                following = self._begin(frame, stack)
                for node, value in deferred:
                    following.values[node.slots[0]] = value
                    self._send(following, node, False, stack)
        self._leave(frame, stack)

    def _leave(self, frame: FrameState, stack: _Stack) -> None:
        parent = frame.parent
        assert parent is not None
        if parent.children.pop(frame.static.position, None) is None:
            return
        for node in frame.static.exits:
            if node.index not in frame.exited:
                self._send(parent, node, True, stack)
        # after the dead Exits are sent, which may make something ready in the iteration around
        parent.outstanding -= 1
        if not parent.outstanding:
            self._idle(parent, stack)


def _value(iteration: Iteration, node: Node) -> Any:
    return iteration.values[node.source] if node.source >= 0 else node.known


def _not_scalar(node: Node, iteration: Iteration, predicate: TensorValue) -> InvalidArgumentError:
    return InvalidArgumentError(
        None,
        None,
        f"{_where(node, iteration)}: the second input of a Switch, its predicate, must be a scalar, but it has shape "
        f"{[*predicate.shape]}; tf.reduce_all or tf.reduce_any makes one of a vector",
    )


def _where(node: Node, iteration: Iteration) -> str:
    """Names an instance: its node, and the iterations around it."""
    parts = []
    frame: FrameState | None = iteration.frame
    inner: Iteration | None = iteration
    while frame is not None and inner is not None and frame.parent is not None:
        parts.append(f"iteration {inner.number} of {frame.static.name!r}")
        inner = frame.parent
        frame = inner.frame
    return repr(node.name) + (f" in {' in '.join(parts)}" if parts else "")
