"""Watches a program's optimizers and sessions: its first steps are kept, or made from a state that was kept.

It runs in both environments, beside the program, and needs NumPy only.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.first_steps.moments import Array, Moment, dense, read, write

#: operation types that give something else each time, or what another step or another program left
_CHANGING = re.compile(
    r"Random(?!Dataset)|Multinomial|TruncatedNormal|CandidateSampler|SampleDistorted|Dequeue|GetNext|ReaderRead|PyFunc|"
    r"Unstage|TakeGradient|Dropout|ParameterizedTruncated"
)
#: how often a step is made anew because another process has trained its variables meanwhile
_TRIES = 10
#: handles and others that no array stands for
_NO_ARRAYS = {"resource", "variant"}


class _Rows:
    """A sparse gradient of an imported graph."""

    def __init__(self, values: Any, indices: Any) -> None:
        self.values, self.indices = values, indices


class _Group:
    """Gradients that are computed together: what one optimizer applies, or one call of `tf.gradients` gives."""

    def __init__(self, kind: str, pairs: list[tuple[Any, Any]], last: Any) -> None:
        self.kind = kind
        pairs = [(gradient, variable) for gradient, variable in pairs if gradient is not None]
        self.gradients = [gradient for gradient, _ in pairs]
        self.names = [_plain_name(variable) for _, variable in pairs]
        self.shapes = [_shape_of(variable) for _, variable in pairs]
        self.graph = self.gradients[0].graph if pairs else None
        self.last = {operation.name for operation in last if operation is not None}

    def bound_to(self, graph: Any) -> bool:
        """Takes the nodes of these names in a graph that a program has made of this one; False where they lack."""
        found = []
        try:
            for gradient in self.gradients:
                parts = [graph.get_tensor_by_name(part.name) for part in _parts(gradient)]
                found.append(parts[0] if len(parts) == 1 else _Rows(*parts))
            for name in self.last:
                graph.get_operation_by_name(name)
        except (KeyError, ValueError):
            return False
        self.gradients, self.graph = found, graph
        return True

    def roots(self) -> Iterator[Any]:
        for gradient in self.gradients:
            yield from (part.op for part in _parts(gradient))

    def fetches(self) -> list[list[Any]]:
        return [_parts(gradient) for gradient in self.gradients]

    def as_arrays(self, fetched: list[list[Array]]) -> list[Array]:
        return [
            np.asarray(parts[0]) if len(parts) == 1 else dense(shape, np.asarray(parts[1]), np.asarray(parts[0]))
            for shape, parts in zip(self.shapes, fetched, strict=True)
        ]


def _parts(gradient: Any) -> list[Any]:
    return [gradient.values, gradient.indices] if hasattr(gradient, "indices") else [gradient]


def _plain_name(variable: Any) -> str:
    return str(getattr(variable, "op", variable).name)


def _shape_of(variable: Any) -> list[int] | None:
    shape = getattr(variable, "shape", None)
    return [int(size) for size in shape] if shape is not None and shape.is_fully_defined() else None


def _operations(graph: Any, fetches: Any) -> Iterator[Any]:
    if isinstance(fetches, Mapping):
        for part in fetches.values():
            yield from _operations(graph, part)
    elif isinstance(fetches, list | tuple):
        for part in fetches:
            yield from _operations(graph, part)
    elif isinstance(fetches, str):
        element = graph.as_graph_element(fetches)
        yield getattr(element, "op", element)
    elif fetches is not None:
        parts = _parts(fetches)[:1] if hasattr(fetches, "indices") else [fetches]
        yield from (getattr(part, "op", part) for part in parts)


def ancestors(operations: Iterable[Any]) -> dict[str, Any]:
    """Operations that these need, and these, by name."""
    found: dict[str, Any] = {}
    waiting = list(operations)
    while waiting:
        operation = waiting.pop()
        if operation.name not in found:
            found[operation.name] = operation
            waiting += [tensor.op for tensor in operation.inputs]
            waiting += operation.control_inputs
    return found


class Watcher:
    """Keeps the first step of each group of gradients.

    Args:
        tf: the interface that the program uses.
        path: where the moments are written.
        kept: moments of the other side; each is made again here from its state.
        patience: seconds that pass after the last moment before the program is stopped.
        stop: stops the program.
    """

    def __init__(self, tf: Any, path: Path, kept: Path | None, patience: float, stop: Callable[[], None]) -> None:
        self.tf = tf
        self.path = path
        self.kept = None if kept is None else read(kept)
        self.patience = patience
        self.stop = stop
        self.groups: list[_Group] = []
        self.moments: dict[int, Moment] = {}
        self.since = time.monotonic()
        self._lock = threading.RLock()
        self._here = threading.local()
        self._seen: set[int] = set()
        self._needed: dict[Any, set[int]] = {}

    def install(self) -> None:
        """Wraps the optimizers' `apply_gradients`, `tf.gradients`, and the sessions' `run`."""
        train = self.tf.train
        for name in dir(train):
            if name.endswith("Optimizer"):
                getattr(train, name)
        base = train.Optimizer
        pending, wrapped = [base], set()
        while pending:
            cls = pending.pop()
            if cls not in wrapped:
                wrapped.add(cls)
                self._watch_class(cls)
                pending += cls.__subclasses__()
        watcher = self

        def init_subclass(cls: Any, **kwargs: Any) -> None:
            watcher._watch_class(cls)

        base.__init_subclass__ = classmethod(init_subclass)
        gradients = self.tf.gradients

        def watched(ys: Any, xs: Any, *args: Any, **kwargs: Any) -> Any:
            result = gradients(ys, xs, *args, **kwargs)
            several = list(xs) if isinstance(xs, list | tuple) else [xs]
            if not getattr(self._here, "applying", False):
                self._add("gradients", list(zip(result, several, strict=True)), ())
            return result

        self.tf.gradients = watched
        for cls in dict.fromkeys([self.tf.Session, self.tf.InteractiveSession]):
            self._watch_session(cls)

    def _watch_class(self, cls: Any) -> None:
        apply = cls.__dict__.get("apply_gradients")
        if apply is None:
            return
        watcher = self

        def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
            pairs = list(grads_and_vars)
            outermost = not getattr(watcher._here, "applying", False)
            watcher._here.applying = True
            try:
                update = apply(self, pairs, *args, **kwargs)
            finally:
                if outermost:
                    watcher._here.applying = False
            if outermost:
                watcher._add("optimizer", pairs, [getattr(update, "op", update)])
            return update

        cls.apply_gradients = apply_gradients

    def _add(self, kind: str, pairs: list[tuple[Any, Any]], last: Any) -> None:
        group = _Group(kind, pairs, last)
        if group.graph is None or not hasattr(group.graph, "get_operations"):
            return
        if kind == "gradients":
            group.last = {operation.name for operation in group.roots()}
        with self._lock:
            self.groups.append(group)
            self._needed.clear()
            self.since = time.monotonic()

    # ------------------------------------------------------------------ sessions
    def _watch_session(self, cls: Any) -> None:
        run = cls.run
        watcher = self

        def watched(session: Any, fetches: Any, feed_dict: Any = None, *args: Any, **kwargs: Any) -> Any:
            if getattr(watcher._here, "busy", False):
                return run(session, fetches, feed_dict, *args, **kwargs)
            watcher._stop_when_done()
            due = watcher._due(session.graph, fetches)
            if not due:
                return run(session, fetches, feed_dict, *args, **kwargs)
            with watcher._lock:
                watcher._here.busy = True
                try:
                    due = [number for number in due if number not in watcher.moments]

                    def plainly(what: Any, feeds: Any) -> Any:
                        return run(session, what, feeds, *args, **kwargs)

                    return watcher._take(session, plainly, fetches, dict(feed_dict or {}), due)
                finally:
                    watcher._here.busy = False

        cls.run = watched

    def _stop_when_done(self) -> None:
        is_quiet = time.monotonic() - self.since > self.patience
        if self.groups and is_quiet and len(self.moments) == len(self.groups):
            self.stop()

    def _due(self, graph: Any, fetches: Any) -> list[int]:
        open_groups = [
            i
            for i, group in enumerate(self.groups)
            if i not in self.moments and (group.graph is graph or (self._is_new(graph) and group.bound_to(graph)))
        ]
        if not open_groups:
            return []
        try:
            fetched = list(_operations(graph, fetches))
            key = (id(graph), tuple(operation.name for operation in fetched))
            if key not in self._needed:
                needed = ancestors(fetched)
                self._needed[key] = {
                    i for i in open_groups if self.groups[i].last and self.groups[i].last & needed.keys()
                }
        except (AttributeError, KeyError, ValueError, TypeError):
            return []
        return [i for i in open_groups if i in self._needed[key]]

    def _is_new(self, graph: Any) -> bool:
        """Whether a graph had no part in building the gradients: a meta graph was read into it."""
        if all(group.graph is not graph for group in self.groups) and id(graph) not in self._seen:
            self._seen.add(id(graph))
            return True
        return False

    def _take(self, session: Any, run: Callable[..., Any], fetches: Any, feeds: dict[Any, Any], due: list[int]) -> Any:
        """One run of the program's, before which the gradients are fetched with the same feeds."""
        given = dict(feeds)
        made = {i: Moment(self.groups[i].kind, self.groups[i].names) for i in due}
        more: list[Any] = []
        drawn: dict[str, Any] = {}
        loaded: dict[str, Array] = {}
        for i, moment in made.items():
            group = self.groups[i]
            changing = self._changing(group, moment)
            if self.kept is None:
                moment.fed = dict(_fed(feeds))
                drawn |= changing
            else:
                feeds = self._given(session, i, moment, feeds, changing, loaded)
            more.append(group.fetches())
        outputs = {name: list(operation.outputs) for name, operation in drawn.items()}
        state = {v.op.name: v for v in self._variables(session.graph) if self.kept is None or v.op.name in loaded}
        if self.kept is None:
            state = self._initialized(session, state)
        # apart from the program's own fetches: of reference variables TensorFlow's updates may come before other
        # gradients have read them
        try:
            for _ in range(_TRIES):
                for name, variable in state.items() if loaded else ():
                    variable.load(loaded[name].astype(variable.dtype.as_numpy_dtype), session)
                # in the same run: other processes may train the same variables meanwhile
                fetched, values, variables = run((more, outputs, state), feeds)
                if all(_is_same(variables[name], loaded[name]) for name in state if loaded):
                    break
        except Exception as error:
            if type(error).__name__ in {"OutOfRangeError", "AbortedError"}:
                raise
            for moment in made.values():
                moment.unknown.append(f"{type(error).__name__}: {str(error)[:300]}")
            self._finish(made)
            return run(fetches, given)
        for (i, moment), parts in zip(made.items(), fetched, strict=True):
            moment.gradients = self.groups[i].as_arrays(parts)
            moment.variables = {name: _storable(np.asarray(value)) for name, value in variables.items()}
            moment.drawn = {
                name: [_storable(np.asarray(value)) for value in values[name]]
                for name in moment.kinds
                if name in values
            }
        self._finish(made)
        return run(fetches, given)

    def _finish(self, made: dict[int, Moment]) -> None:
        self.moments |= made
        self.since = time.monotonic()
        write(self.path, self.moments)

    def _changing(self, group: _Group, moment: Moment) -> dict[str, Any]:
        """Operations before the gradients that give something else each time; those of loops are only counted."""
        found = {}
        for name, operation in ancestors(group.roots()).items():
            if not _CHANGING.search(operation.type) or operation.type.startswith("Stateless"):
                continue
            if any(tensor.dtype.name in _NO_ARRAYS for tensor in operation.outputs) or not operation.outputs:
                continue
            if getattr(operation, "_control_flow_context", None) is not None:
                moment.within.append(operation.type)
                continue
            found[name] = operation
            moment.kinds[name] = operation.type
        return found

    def _initialized(self, session: Any, variables: dict[str, Any]) -> dict[str, Any]:
        """Variables that have values; the step reads no others."""
        found = {}
        for name, variable in variables.items():
            try:
                session.run(variable)
            except Exception:
                continue
            found[name] = variable
        return found

    def _variables(self, graph: Any) -> list[Any]:
        keys = self.tf.GraphKeys
        names = (keys.GLOBAL_VARIABLES, keys.LOCAL_VARIABLES, keys.TRAINABLE_VARIABLES, keys.MODEL_VARIABLES)
        found = {}
        for name in names:
            for variable in graph.get_collection(name):
                if hasattr(variable, "load"):
                    found[variable.op.name] = variable
        return list(found.values())

    def _given(
        self,
        session: Any,
        number: int,
        moment: Moment,
        feeds: dict[Any, Any],
        changing: dict[str, Any],
        loaded: dict[str, Array],
    ) -> dict[Any, Any]:
        """The feeds, the other side's feeds and what its changing operations gave among them.

        Args:
            loaded: is given the variables that the step is to begin with.
        """
        assert self.kept is not None
        chosen = self._counterpart(number)
        if chosen is None:
            moment.unknown.append("the other side has no such step")
            return feeds
        kept = self.kept[chosen]
        moment.made_from = chosen
        there = {variable.op.name for variable in self._variables(session.graph)}
        moment.unknown += [name for name in self.groups[number].names if name in kept.variables and name not in there]
        loaded |= kept.variables
        fed = kept.fed
        names = [name for name, _ in _fed(feeds)]
        if set(names) != set(fed) and len(names) == len(fed):
            fed = dict(zip(names, fed.values(), strict=True))  # placeholders of other names, in the program's order
        result = {key: self._replaced(key, value, fed, moment) for key, value in feeds.items()}
        return result | self._drawn_there(kept, changing, moment)

    def _counterpart(self, number: int) -> int | None:
        """The other side's number of this group: the same, if kind and names are, or that of the same names."""
        assert self.kept is not None
        group = self.groups[number]
        same = [i for i, m in self.kept.items() if m.kind == group.kind and m.names == group.names and m.gradients]
        before = [i for i in range(number) if self.groups[i].kind == group.kind and self.groups[i].names == group.names]
        return number if number in same else same[min(len(before), len(same) - 1)] if same else None

    def _replaced(self, key: Any, value: Any, fed: dict[str, Array], moment: Moment) -> Any:
        names = [name for name, _ in _fed({key: value})]
        if not names:
            return value
        if any(name not in fed for name in names):
            moment.unknown += [name for name in names if name not in fed]
            return value
        values = [fed[name] for name in names]
        return values[0] if len(values) == 1 else self.tf.SparseTensorValue(*values)

    def _drawn_there(self, kept: Moment, changing: dict[str, Any], moment: Moment) -> dict[Any, Any]:
        feeds: dict[Any, Any] = {}
        left = dict(changing)
        for name, outputs in kept.drawn.items():
            operation = left.pop(name, None)
            if operation is None:
                operation = next((o for o in left.values() if _alike(o, outputs)), None)
                if operation is None:
                    moment.unknown.append(f"{kept.kinds[name]} {name}")
                    continue
                del left[operation.name]
            for tensor, value in zip(operation.outputs, outputs, strict=False):
                feeds[tensor] = value.astype(tensor.dtype.as_numpy_dtype) if value.dtype.kind != "S" else value
        moment.unknown += [f"{operation.type} {name} (here only)" for name, operation in left.items()]
        return feeds


def _alike(operation: Any, outputs: list[Array]) -> bool:
    return len(operation.outputs) == len(outputs) and all(
        tensor.shape.is_compatible_with(value.shape) for tensor, value in zip(operation.outputs, outputs, strict=True)
    )


def _is_same(value: Any, kept: Array) -> bool:
    array = _storable(np.asarray(value))
    return np.array_equal(array, kept, equal_nan=array.dtype.kind in "fc")


def _fed(feeds: dict[Any, Any]) -> Iterator[tuple[str, Array]]:
    for key, value in feeds.items():
        if hasattr(key, "dense_shape"):
            parts = ((key.indices, value[0]), (key.values, value[1]), (key.dense_shape, value[2]))
            yield from ((tensor.name, _storable(np.asarray(part))) for tensor, part in parts)
            continue
        array = _storable(np.asarray(value))
        if array.dtype.kind == "S" and array.ndim == 0:
            continue  # handles of iterators
        yield key if isinstance(key, str) else key.name, array


def _storable(array: Array) -> Array:
    """Texts as bytes of fixed length, which need no pickle; bfloat16 as float32."""
    if array.dtype.kind in "OU":
        return array.astype("S") if array.size else np.zeros(array.shape, "S1")
    return array.astype(np.float32) if array.dtype.kind == "V" else array
