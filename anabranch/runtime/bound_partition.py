"""A partition bound to the resources of its task, ready to run any number of times, from any thread."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any, Final

from anabranch.core.bounded import LeastRecentlyUsed, limit_from, ticks
from anabranch.core.interrupts import uninterrupted
from anabranch.core.quiet_arithmetic import quietly
from anabranch.core.resources import ResourceHandle
from anabranch.core.values import TensorValue
from anabranch.errors import FailedPreconditionError
from anabranch.pipeline import Plan, plan_in_phases, plan_of_island
from anabranch.runtime import trace_clock
from anabranch.runtime.contended_island import ContendedIsland
from anabranch.runtime.contention import ContendedError
from anabranch.runtime.dispatcher import StepRun
from anabranch.runtime.early_chains import early_chains
from anabranch.runtime.executor_graph import Kind
from anabranch.runtime.fetched_values import fetched_values
from anabranch.runtime.host_call import HostKernelCall
from anabranch.runtime.host_chains import Turn, in_turns
from anabranch.runtime.island_call import IslandCall
from anabranch.runtime.item_call import ItemCall, Recorder
from anabranch.runtime.item_graph import ItemGraph, kind_of
from anabranch.runtime.item_work import ItemWork
from anabranch.runtime.one_sided_reads import one_sided_reads
from anabranch.runtime.one_turn import OneTurn, PlainRun, in_one_turn, without_received
from anabranch.runtime.pace import Pace, Stopwatch
from anabranch.runtime.pinned_read import is_only_sent, pinned_read
from anabranch.runtime.protocols import OnDone
from anabranch.runtime.published_calls import DescribedReads, PublishedCalls
from anabranch.runtime.published_values import BoardMemory, PublishedReads, keeps_order
from anabranch.runtime.rendezvous import Exchange
from anabranch.runtime.rendezvous_table import Dead, Key, StepId
from anabranch.runtime.run_order import changes_something, is_slow, mode_of, needs_executor, uses_several_devices
from anabranch.runtime.session_environment import SessionEnvironment
from anabranch.runtime.split_island import SplitIsland
from anabranch.runtime.started_runs import StartedRun
from anabranch.runtime.step_frame import StepFrame
from anabranch.runtime.straight_run import StraightCalls, StraightRun
from anabranch.runtime.transfer_call import TransferCall
from anabranch.runtime.waiting import StepWaiting, deadline_after, run_alone, wait_for
from anabranch.xla.islands import HostCall, Island, PlanItem
from anabranch.xla.lowering import NeedsHostError, NeedsPartsError
from anabranch.xla.one_thread import processors
from anabranch.xla.partitions import Partition

#: environment variable that bounds the bound partitions that a process keeps, of all sessions together
PLANS_VARIABLE: Final = "ANABRANCH_MAX_PLANS"
DEFAULT_PLANS: Final = 256
#: how many threads train a model together, at the least
_THREADS: Final = 2
#: kinds of steps for which what runs them in one turn is kept
_MOST_TURNS: Final = 64

#: those of all sessions, and of the function bodies that they run
bound_partitions = LeastRecentlyUsed(lambda: limit_from(PLANS_VARIABLE, DEFAULT_PLANS))


class BoundPartition:
    """See the module docstring. `run` may be called by several threads at once.

    A partition in which nothing dies, repeats, or waits or takes long beside something else runs straight through on
    the calling thread. Any other is run by the executor (docs/decisions/0015-executor.md).
    """

    def __init__(self, partition: Partition, environment: SessionEnvironment) -> None:
        self.partition = partition
        self.used = 0
        self._environment = environment
        self._active = environment.active
        self._graph = ItemGraph(partition) if needs_executor(partition) else None
        self._slots = slots = _assign_slots(partition) if self._graph is None else self._graph.slots
        self._size = len(slots)
        #: whether others may send to its steps, or give them up before they begin
        self._has_transfers = environment.is_shared or any(
            isinstance(i, HostCall) and i.operation.op_def.is_transfer for i in partition.items
        )
        self._feed_slots = [slots[t] for t in partition.feeds]
        self._calls: list[ItemCall] = []
        if self._graph is None:
            self._calls = [self._bind(item, position) for position, item in enumerate(partition.items)]
        else:
            self._bind_nodes(self._graph)
        #: by position, the calls that may wait, or hold their thread for long
        self._slow = {
            position: call
            for position, call in enumerate(self._calls)
            if isinstance(call, HostKernelCall) and is_slow(partition.items[position])
        }
        self._pace = Pace()
        self._known = {i: t.known for i, t in enumerate(partition.fetches) if t.is_known}
        self._fetch_slots = [-1 if t.is_known else slots[t] for t in partition.fetches]
        #: whether an exception that comes from outside finds the step undone or done, wherever it enters
        self._is_whole = _is_whole(partition, self._calls) if self._graph is None else False
        #: for each call of a partition that runs straight through, the slots that nothing after it reads
        self._emptied = _last_readings(partition, slots, {*self._fetch_slots, *self._feed_slots}) if self._calls else []
        holding = [i for i, call in enumerate(self._calls) if not _never_holds(call)]
        #: the same calls in their order, and those together that only compute on the host
        self._turns_alone: list[Turn] = [(position, None) for position in range(len(self._calls))]
        self._turns_together = in_turns(self._calls, self._slow, self._emptied)
        chains = early_chains(partition, self._calls) if self._has_transfers else {}
        self._straight = StraightCalls(self._calls, self._slow, self._emptied, holding, self._split, chains)
        #: where another task reads what this one would read for it
        self._published: PublishedCalls | None = None
        self._turns: dict[Hashable, OneTurn | None] = {}
        #: what is left to do, by what this task reads of others
        self._read: dict[tuple[PublishedReads, ...], tuple[StraightCalls, list[int]] | None] = {}

    def _bind(self, item: PlanItem, position: int) -> ItemCall:
        environment = self._environment
        if isinstance(item, Island):
            # one that names no device belongs to the session's first, which need not be JAX's
            device = environment.devices.get(item.device or self.partition.default_device)
            call = IslandCall(item, self._slots, environment, device)
            # the executor keeps values to the end of a step, so that whoever writes a variable would find it pinned
            is_read = self._graph is None and is_only_sent(item, self.partition)
            return pinned_read(call, self._slots, environment.containers) if is_read else call
        if self._graph is None:
            outputs = [self._slots[t] for t in item.outputs]
        else:
            outputs = self._graph.output_slots(position)
        if item.operation.op_def.is_transfer:
            waited = self.partition.grouping.waits[item.operation]
            return TransferCall(item, self._slots, outputs, environment, waited)
        return HostKernelCall(item, self._slots, outputs, environment)

    def _bind_nodes(self, graph: ItemGraph) -> None:
        several = uses_several_devices(self.partition)
        works = {
            position: ItemWork(self._bind(item, position), mode_of(item, several), self._split)
            for position, item in enumerate(self.partition.items)
            if kind_of(item) in (Kind.WORK, Kind.SEND)
        }
        graph.bind(works)

    def release(self) -> None:
        """Releases the executables; a run that is under way, or comes later, compiles what it needs anew."""
        self._straight.release()
        if self._published is not None:
            self._published.release()
        if self._graph is not None:
            for node in self._graph.graph.nodes:
                if node.payload is not None:
                    node.payload.release()

    def run(
        self, number: int, feeds: Sequence[Any], record: Recorder | None = None, timeout: float | None = None
    ) -> list[Any]:
        """Runs this part of one step.

        Args:
            number: the step's, which its master gave it.
            feeds: one array per feed, of the right dtype and shape.
            record: told about every island and host operation when given (and then each is waited for).
            timeout: seconds that operations may wait, and loops may run, in all; None: any time.

        Returns:
            The fetched values: NumPy arrays and scalars that nobody else holds; resource handles as they are.
        """
        return fetched_values(self._run(number, feeds, record, timeout))

    def run_on_device(
        self, number: int, feeds: Sequence[Any], record: Recorder | None = None, timeout: float | None = None
    ) -> list[Any]:
        """Like `run`, but the results stay what they are (device arrays)."""
        self.used = next(ticks)
        return self._run(number, feeds, record, timeout)

    def start(
        self,
        number: int,
        feeds: Sequence[Any],
        on_done: OnDone,
        timeout: float | None = None,
        record: Recorder | None = None,
    ) -> None:
        """Like `run`, but returns at once, and while the step waits it holds no thread (`runtime.started_runs`).

        Args:
            on_done: told the values of the fetches, or what the step failed with: once, on a thread of ours. It must
                neither raise nor wait.
        """
        straight = self._straight
        if self._published is not None:
            self._published.show_tables(0)
        make = functools.partial(self._started, number, feeds, timeout, record, straight, (), ())
        # the executor's runs are not taken by threads that receive: what runs in one turn of them is not known
        StartedRun(make, on_done, self._pace, straight.is_quick if self._graph is None else bool)

    def start_read_ahead(
        self,
        number: int,
        feeds: Sequence[Any],
        on_done: OnDone,
        timeout: float | None = None,
        sent: Sequence[tuple[Key, TensorValue | Dead]] = (),
        rows_taken: int = 0,
    ) -> None:
        """Like `start`, where the task has read itself for which this one was published.

        Args:
            sent: tensors for the step, which have come along.
            rows_taken: the rows that it has taken, a bit for each of their numbers.

        Raises:
            FailedPreconditionError: it was not published.
        """
        published = self._published
        if published is None:
            raise FailedPreconditionError(None, None, "nobody reads for this partition; start it as it is")
        published.show_tables(rows_taken)
        straight = published.without(rows_taken)
        make = functools.partial(self._started, number, feeds, timeout, None, straight, sent, ())
        StartedRun(make, on_done, self._pace, straight.is_quick)

    def publish(self, reader: str, make: Callable[[], BoardMemory | None]) -> DescribedReads | None:
        """Lets another task read what this partition would read for it. See `runtime.one_sided_reads`.

        Args:
            reader: the full name of the task that starts the partition.
            make: makes memory that the reader can map, or None.

        Returns:
            Where it finds what; None where it cannot do so.
        """
        ahead = one_sided_reads(self.partition, reader) if self._graph is None and keeps_order() else None
        containers = self._environment.containers
        board = None if ahead is None else containers.share(make)
        if board is None or ahead is None:
            return None
        published = PublishedCalls(self.partition, self._straight, self._calls, ahead, containers)
        described = published.describe(board)
        if described is not None:
            self._published, turns, self._turns = published, self._turns, {}
            for turn in turns.values():
                if turn is not None:
                    turn.is_current = False
        return described

    def one_turn(self, sent: Sequence[tuple[Key, TensorValue | Dead]], rows_taken: int) -> OneTurn | None:
        """What runs steps like `start_read_ahead`, which bring the same tensors; None where they may have to wait."""
        # names and dtypes, for each
        kind = (rows_taken, *[(key[1:], getattr(value, "dtype", None)) for key, value in sent])
        if kind not in self._turns:
            if len(self._turns) >= _MOST_TURNS:
                self._turns.clear()
            self._turns[kind] = self._new_turn(sent, rows_taken)
        return self._turns[kind]

    def _new_turn(self, sent: Sequence[tuple[Key, TensorValue | Dead]], rows_taken: int) -> OneTurn | None:
        published, containers = self._published, self._environment.containers
        left = None if published is None else in_one_turn(published.without(rows_taken), sent)
        if published is None or left is None or self._feed_slots:
            return None
        straight, slots = left
        shows = functools.partial(published.show_tables, rows_taken) if published.has_left(rows_taken) else None
        fetches = self._fetches_in if self._fetch_slots else None
        run = PlainRun(straight, self._size, slots, fetches, shows)
        return OneTurn(run, self._environment.session, containers.rendezvous, self._active, self._pace)

    @property
    def is_short(self) -> bool:
        """Whether its last runs were so short that threads which receive take them; see `runtime.pace`."""
        return self._pace.is_short

    def start_here(
        self,
        number: int,
        feeds: Sequence[Any],
        on_done: OnDone,
        timeout: float | None = None,
        record: Recorder | None = None,
        read: Sequence[tuple[PublishedReads, Sequence[TensorValue]]] = (),
    ) -> None:
        """Like `start`, but this thread takes the first turn, also where it takes long.

        Args:
            read: what was read on other tasks for this step.
        """
        straight, stored = self._straight, list[tuple[int, TensorValue]]()
        if read:
            without = self._without_reads(tuple([reads for reads, _ in read]))
            if without is None:
                self.arrive(number, read)
            else:
                straight, slots = without
                stored = list(zip(slots, [value for _, values in read for value in values], strict=True))
        make = functools.partial(self._started, number, feeds, timeout, record, straight, (), stored)
        is_quick = self._straight.is_quick if self._graph is None else bool
        StartedRun(make, on_done, self._pace, is_quick, begins_here=True)

    @property
    def runs_straight(self) -> bool:
        """Whether each of its items runs once in each step that does not fail."""
        return self._graph is None

    def _without_reads(self, reads: tuple[PublishedReads, ...]) -> tuple[StraightCalls, list[int]] | None:
        """The calls that are left where others' values have been read, and the slots of these; None where they have to
        be received.
        """
        if reads not in self._read:
            if len(self._read) >= _MOST_TURNS:
                self._read.clear()
            ends = [end for one in reads for end in one.ends]
            self._read[reads] = without_received(self._straight, ends) if self._graph is None else None
        return self._read[reads]

    def arrive(self, number: int, read: Sequence[tuple[PublishedReads, Sequence[TensorValue]]]) -> None:
        """Takes what was read on other tasks for a step that begins here next."""
        values = [one for reads, taken in read for one in zip(reads.ends, taken, strict=True)]
        if not values:
            return
        step = StepId(self._environment.session, number)
        arrived = {Key(step, end.source, end.destination, end.tensor): value for end, value in values}
        self._environment.containers.rendezvous.arrive_all(arrived, sum(end.size for end, _ in values))

    def _started(
        self,
        number: int,
        feeds: Sequence[Any],
        timeout: float | None,
        record: Recorder | None,
        straight: StraightCalls,
        sent: Sequence[tuple[Key, TensorValue | Dead]],
        stored: Sequence[tuple[int, TensorValue]],
        wake: Callable[[], None],
    ) -> StraightRun | _StartedGraph:
        graph = self._graph
        # a turn is never interrupted by a signal, which comes to the main thread only: nothing is put off here
        if graph is not None:
            exchange = self._exchange(number) if self._has_transfers else contextlib.nullcontext()
            return _StartedGraph(
                lambda opened: StepRun(graph.graph, feeds, record, timeout, self._active, opened, wake, number),
                lambda results: fetched_values(self._with_known(results)),
                exchange,
            )
        rendezvous = self._environment.containers.rendezvous
        values = self._values_of(feeds)
        for slot, value in stored:
            values[slot] = value
        return StraightRun(
            straight,
            values,
            lambda values: fetched_values(self._fetches_in(values)),
            functools.partial(rendezvous.begin, StepId(self._environment.session, number), sent)
            if self._has_transfers
            else None,
            timeout,
            self._active,
            wake,
            number,
            record,
        )

    def _run(self, number: int, feeds: Sequence[Any], record: Recorder | None, timeout: float | None) -> list[Any]:
        # to put signals off takes time that a step of one island notices (decision 0019), so that only those pay which
        # need it
        if self._is_whole:
            return self._run_straight(number, feeds, record, timeout)
        if self._graph is None:
            return uninterrupted(self._run_straight, number, feeds, record, timeout)
        return uninterrupted(self._run_graph, self._graph, number, feeds, record, timeout)

    def _run_straight(
        self, number: int, feeds: Sequence[Any], record: Recorder | None, timeout: float | None
    ) -> list[Any]:
        values = self._values_of(feeds)
        try:
            # nobody has to reach such a step from outside: no context is entered, which would take time in every step
            if timeout is None and not self._has_transfers:
                self._run_calls(number, StepFrame(values), record, None, None)
            else:
                self._run_calls_inside(number, StepFrame(values), record, timeout)
        except BaseException:
            # whoever keeps the error keeps this frame: a lock that the step holds ends with the step
            values[:] = [None] * len(values)
            raise
        return self._fetches_in(values)

    def _values_of(self, feeds: Sequence[Any]) -> list[Any]:
        """The values of all slots before anything has run."""
        values: list[Any] = [None] * self._size
        for position, slot in enumerate(self._feed_slots):
            values[slot] = feeds[position]
        return values

    def _fetches_in(self, values: list[Any]) -> list[Any]:
        if self._known:
            return [self._known[i] if slot < 0 else values[slot] for i, slot in enumerate(self._fetch_slots)]
        return [values[slot] for slot in self._fetch_slots]

    def _with_known(self, results: Sequence[Any]) -> list[Any]:
        """The fetches of a run by the executor, which knows of those only that it computes."""
        computed = iter(results)
        return [self._known[i] if slot < 0 else next(computed) for i, slot in enumerate(self._fetch_slots)]

    def _run_calls_inside(self, number: int, frame: StepFrame, record: Recorder | None, timeout: float | None) -> None:
        """Runs the calls where others can reach them: by the rendezvous, and to stop them at the deadline."""
        with contextlib.ExitStack() as stack:
            if self._has_transfers:
                frame.exchange = stack.enter_context(self._exchange(number))
            deadline = deadline_after(timeout)
            if deadline is not None:
                frame.waiting = StepWaiting(timeout, deadline, self._active)
                stack.enter_context(frame.waiting.under_way())
            watch = Stopwatch(self._pace)
            watch.begin()
            self._run_calls(number, frame, record, timeout, deadline, watch)
            watch.end()

    def _run_calls(
        self,
        number: int,
        frame: StepFrame,
        record: Recorder | None,
        timeout: float | None,
        deadline: float | None,
        watch: Stopwatch | None = None,
    ) -> None:
        # who is told of each call gets it alone
        for position, chain in self._turns_together if record is None else self._turns_alone:
            if chain is not None:
                quietly(chain, frame.values)
                continue
            call, slow = self._calls[position], self._slow.get(position)
            try:
                if slow is not None:
                    self._run_slowly(number, slow, frame, record, timeout, deadline, watch)
                elif record is None:
                    call(frame)
                else:
                    call.run_recorded(frame, record)
            except NeedsPartsError as refusal:
                # for good, since later steps would be refused as well; threads that do this at once make the same parts
                self._calls[position] = parts = self._split(call, refusal)
                parts(frame) if record is None else parts.run_recorded(frame, record)
            # so that no more memory is held than the rest of the step needs
            for slot in self._emptied[position]:
                frame.values[slot] = None

    def _run_slowly(
        self,
        number: int,
        call: HostKernelCall,
        frame: StepFrame,
        record: Recorder | None,
        timeout: float | None,
        deadline: float | None,
        watch: Stopwatch | None,
    ) -> None:
        """Runs what may wait or hold its thread, while nothing else of the step could run."""
        if call.op.op_def.blocking:
            work = (lambda: call(frame)) if record is None else (lambda: call.run_recorded(frame, record))
            run_alone(call.op, work, timeout, deadline, self._active)
            return
        # without a thread of its own: nothing else of the step could run meanwhile, so that this one may wait
        started = 0.0 if record is None else trace_clock.now()
        pending = call.start(frame)
        if pending is not None:
            if not pending.is_settled:
                if watch is not None:
                    watch.pause()
                wait_for(call.op, pending, timeout, deadline, self._active, number)
                if watch is not None:
                    watch.begin()
            call.finish(frame, pending)
        if record is not None:
            record(call.event(frame, started))

    def _run_graph(
        self, graph: ItemGraph, number: int, feeds: Sequence[Any], record: Recorder | None, timeout: float | None
    ) -> list[Any]:
        with self._exchange(number) if self._has_transfers else contextlib.nullcontext() as exchange:
            run = StepRun(graph.graph, feeds, record, timeout, self._active, exchange, number=number)
            return self._with_known(run.run())

    def _exchange(self, number: int) -> contextlib.AbstractContextManager[Exchange]:
        """Where the tensors of a step pass from device to device."""
        return self._environment.containers.rendezvous.step(StepId(self._environment.session, number))

    def _split(self, call: ItemCall, refusal: NeedsPartsError) -> ItemCall:
        """What runs in place of an island that is not to run as one any more."""
        call = call.whole if isinstance(call, ContendedIsland) else call
        assert isinstance(call, IslandCall)
        plan: Plan | None
        if isinstance(refusal, NeedsHostError):
            plan = plan_of_island(call.island, frozenset({refusal.op.name}), self.partition.default_device)
        else:
            assert isinstance(refusal, ContendedError)
            pays = functools.partial(self._pays, refusal)
            # where threads have few processors each, what else they run their programs on is another's
            alone = call.executable.is_on_one_thread or processors() < 2 * _THREADS
            plan = plan_in_phases(call.island, pays, self.partition.default_device, alone)
            if plan is None:
                return call
        (partition,) = plan.partitions
        # nothing in it goes from device to device: the step around it is the one that other tasks reach
        environment = dataclasses.replace(self._environment, is_shared=False)
        parts = SplitIsland(call, BoundPartition(partition, environment), self._slots)
        return parts if isinstance(refusal, NeedsHostError) else ContendedIsland(call, parts)

    def is_warm(self, threads: int) -> bool:
        """Whether the programs of all islands are compiled, for so many threads where each has its own."""
        islands = [call for call in self._calls if isinstance(call, IslandCall)]
        return all(
            call.executable.ready_variants() >= (threads if call.island.has_own_clients else 1) for call in islands
        )

    def _pays(self, refusal: ContendedError, copied: Collection[ResourceHandle]) -> bool:
        """Whether it is worth it to run in parts, and to copy these variables now and then."""
        values = (self._environment.containers.variable(handle).value for handle in copied)
        return refusal.pays(sum(value.nbytes for value in values if value is not None))


class _StartedGraph:
    """A run by the executor that nobody waits for; see `runtime.started_runs.Advancing`.

    Args:
        make: makes the run, which gets where tensors pass from device to device.
        fetched: makes its results what is told in the end.
        exchange: opens that place, if there is any.
    """

    #: it never runs on a thread that receives
    is_to_change_threads: Final = False

    def __init__(
        self,
        make: Callable[[Exchange | None], StepRun],
        fetched: Callable[[Sequence[Any]], list[Any]],
        exchange: contextlib.AbstractContextManager[Exchange | None],
    ) -> None:
        self._open = contextlib.ExitStack()
        self._exchange = self._open.enter_context(exchange)
        self._run = make(self._exchange)
        self._fetched = fetched

    @property
    def deadline(self) -> float | None:
        return self._run.deadline

    def begin(self) -> None:
        self._run.begin()

    def go_on(self) -> list[Any] | None:
        results = self._run.go_on()
        if results is None:
            return None
        fetched = self._fetched(results)
        self._open.close()
        return fetched

    def give_up(self, error: BaseException) -> None:
        self._run.give_up(error)
        # before it is closed, so that other devices learn of this error and not only that nobody sent
        if self._exchange is not None:
            self._exchange.abort(error)
        self._open.close()


def _is_whole(partition: Partition, calls: Sequence[ItemCall]) -> bool:
    """Whether at most one item of a partition changes anything, and that one does so at once."""
    changing = [call for call, item in zip(calls, partition.items, strict=True) if changes_something(item)]
    return not changing or (len(changing) == 1 and changing[0].changes_at_once())


def _never_holds(call: ItemCall) -> bool:
    """Whether it is known once and for all that a call is quick. A transfer does not wait for what it asks for."""
    return isinstance(call, TransferCall) or (isinstance(call, HostKernelCall) and call.is_quick())


def _assign_slots(partition: Partition) -> dict[Any, int]:
    slots: dict[Any, int] = {}
    for tensor in partition.feeds:
        slots.setdefault(tensor, len(slots))
    for item in partition.items:
        for tensor in item.outputs:
            slots.setdefault(tensor, len(slots))
    return slots


def _last_readings(partition: Partition, slots: dict[Any, int], kept: set[int]) -> list[tuple[int, ...]]:
    """Of each item of a partition, the slots that it is the last to read, those that are `kept` left out."""
    last: dict[int, int] = {}
    for position, item in enumerate(partition.items):
        # the items are in the order in which they run, so that a later reading takes the place of an earlier one
        last.update((slots[t], position) for t in item.inputs if t in slots)
    emptied: list[list[int]] = [[] for _ in partition.items]
    for slot in last.keys() - kept:
        emptied[last[slot]].append(slot)
    return [tuple(slots_read_last) for slots_read_last in emptied]
