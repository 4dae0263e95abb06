"""Sessions: fetches, feeds, partial runs, callables, threads, errors."""

from __future__ import annotations

import threading
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

from anabranch import errors
from anabranch.autodiff.gradients import gradients
from anabranch.core import dtypes
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.composite import IndexedSlices, IndexedSlicesValue, SparseTensor, SparseTensorValue
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.ops import raw
from anabranch.proto.config_pb2 import RunMetadata, RunOptions
from anabranch.session import InteractiveSession, Session, get_default_session


def placeholder(shape: Any = (), dtype: Any = "float32", name: str = "x") -> Any:
    return raw.Placeholder(dtype=dtype, shape=shape, name=name)


@pytest.fixture
def session() -> Any:
    with Session() as opened:
        yield opened


def test_fetches_keep_their_structure(session: Session) -> None:
    a, b = convert_to_tensor(1.0), convert_to_tensor([2, 3])
    pair = namedtuple("pair", ["first", "second"])  # noqa: PYI024 - as programs write it
    got = session.run({"x": a, "y": [b, (a, pair(a, b))], "z": OrderedDict(k=a)})
    assert got["x"] == np.float32(1)
    assert isinstance(got["x"], np.float32)
    assert got["y"][1][1].second.tolist() == [2, 3]
    assert isinstance(got["z"], OrderedDict)
    assert session.run([]) == []
    assert session.run(a.name) == 1.0
    assert session.run(raw.NoOp()) is None


def test_composite_fetches_and_feeds(session: Session) -> None:
    sparse = SparseTensor([[0, 1]], [5.0], [2, 2])
    got = session.run(sparse)
    assert isinstance(got, SparseTensorValue)
    assert got.values.tolist() == [5.0]
    fed = session.run(raw.Neg(sparse.values), {sparse: SparseTensorValue([[1, 1]], [7.0], [2, 2])})
    assert fed.tolist() == [-7.0]
    slices = IndexedSlices(convert_to_tensor([[1.0]]), convert_to_tensor([3]))
    assert isinstance(session.run(slices), IndexedSlicesValue)


def test_a_variable_is_fetched_by_name(session: Session) -> None:
    v = Variable([1.0, 2.0], name="v")
    session.run(v.initializer)
    assert session.run(["v:0", b"v:0"])[1].tolist() == [1, 2]
    assert session.run(v.handle).name == "v"


def test_any_tensor_can_be_fed(session: Session) -> None:
    x = placeholder()
    square = raw.Mul(x, x)
    result = raw.AddV2(square, 1.0)
    assert session.run(result, {x: 3}) == 10
    assert session.run(result, {square: 4}) == 5
    assert session.run([square, result], {square: 4}) == [4, 5]
    assert session.run(result, {"x:0": 2.0}) == 5


def test_feed_overrides_constants_and_what_follows_from_them(session: Session) -> None:
    constant = convert_to_tensor(2.0)
    double = raw.Mul(constant, 2.0)
    assert session.run(double) == 4
    assert session.run(double, {constant: 5.0}) == 10


def test_a_variable_that_is_fed_has_that_value_everywhere(session: Session) -> None:
    v, w = Variable([1.0, 2.0], name="v"), Variable(3.0, name="w")
    loss = raw.Sum(raw.Mul(v, raw.Mul(v.value(), w)), [0])
    slope = gradients(loss, v)[0]
    session.run([v.initializer, w.initializer])
    assert session.run(loss) == 15
    got = session.run([loss, slope, v], {v: [3.0, 4.0]})
    assert [np.asarray(value).tolist() for value in got] == [75.0, [18.0, 24.0], [3.0, 4.0]]
    assert session.run(loss, {"v:0": [1.0, 1.0], w: 1.0}) == 2
    call = session.make_callable(loss, [w, v])
    assert call(1.0, [2.0, 2.0]) == 8
    assert session.run(loss) == 15, "what is fed is not assigned"
    assert session.run(v, {v.value(): [0.0, 0.0]}).tolist() == [1, 2], "one read alone"


def test_fetched_values_never_change(session: Session) -> None:
    v = Variable(np.zeros(1000, np.float32))
    session.run(v.initializer)
    before = session.run(v)
    view = before
    session.run(v.assign_add(np.ones(1000)))
    assert not before.any()
    view[:] = 7  # the caller owns what it fetched
    assert session.run(v).tolist() == [1.0] * 1000


def test_fed_arrays_may_be_reused_at_once(session: Session) -> None:
    x = placeholder([512, 512])
    v = Variable(np.zeros((512, 512), np.float32))
    assign = v.assign(raw.MatMul(raw.MatMul(x, x), x))
    batch = np.ones((512, 512), np.float32)
    for _ in range(3):
        session.run(assign.op, {x: batch})
        batch[:] = 0
        assert (session.run(v) == 512.0 * 512.0).all()
        batch[:] = 1


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda s, x: s.run(x, {x: [1.0, 2.0]}), ValueError, "Cannot feed value of shape"),
        (lambda s, x: s.run(x, {x: "text"}), ValueError, "Cannot feed 'text'"),
        (lambda s, x: s.run(x, {x: x}), TypeError, "cannot be a tf.Tensor object"),
        (lambda s, x: s.run(x, {"nobody:0": 1}), TypeError, "Cannot interpret feed_dict key as Tensor"),
        (lambda s, x: s.run(x, {3: 1}), TypeError, "Cannot interpret feed_dict key"),
        (lambda s, x: s.run("nobody:0"), ValueError, "does not exist"),
        (lambda s, x: s.run("nobody"), ValueError, "not in the graph"),
        (lambda s, x: s.run(None), TypeError, "invalid type"),
        (lambda s, x: s.run(3.5), TypeError, "invalid type"),
        (lambda s, x: s.run(x), errors.InvalidArgumentError, "must feed a value for placeholder"),
    ],
)
def test_bad_fetches_and_feeds(session: Session, make: Any, error: Any, message: str) -> None:
    x = placeholder()
    with pytest.raises(error, match=message):
        make(session, x)


def test_elements_of_another_graph_are_refused(session: Session) -> None:
    placeholder()
    with Graph().as_default():
        foreign = convert_to_tensor(1.0)
    with pytest.raises(ValueError, match="not an element of this graph"):
        session.run(foreign)
    with pytest.raises(ValueError, match="another graph"):
        get_default_graph().create_op(raw.Identity, [foreign], {"T": dtypes.float32})


def test_unfeedable_and_unfetchable(session: Session) -> None:
    x = placeholder()
    get_default_graph().prevent_feeding(x)
    with pytest.raises(ValueError, match="may not be fed"):
        session.run(x, {x: 1.0})
    y = raw.Identity(1.0)
    get_default_graph().prevent_fetching(y.op)
    with pytest.raises(ValueError, match="not fetchable"):
        session.run(y)


def test_uninitialized_variable_is_named(session: Session) -> None:
    v = Variable(1.0, name="weights")
    with pytest.raises(errors.FailedPreconditionError, match="uninitialized value weights") as caught:
        session.run(v)
    assert "test_session.py" in str(caught.value)


def test_a_failed_check_changes_no_variable(session: Session) -> None:
    x = placeholder([2])
    table = Variable(np.arange(8, dtype=np.float32).reshape(4, 2))
    index = placeholder([1], "int32", "index")
    other = Variable(0.0)
    session.run([table.initializer, other.initializer])
    step = [
        raw.ResourceScatterAdd(table.handle, index, raw.ExpandDims(x, 0)),
        other.assign_add(1.0).op,
    ]
    with pytest.raises(errors.InvalidArgumentError, match="9"):
        session.run(step, {x: [1, 1], index: [9]})
    assert session.run(table).tolist() == np.arange(8).reshape(4, 2).tolist()
    assert session.run(other) == 0
    session.run(step, {x: [1, 1], index: [3]})
    assert session.run(table)[3].tolist() == [7, 8]
    assert session.run(other) == 1


def test_closed_and_empty() -> None:
    with pytest.raises(RuntimeError, match="graph is empty"):
        Session(graph=Graph()).run("x")
    closed = Session()
    x = convert_to_tensor(1.0)
    closed.close()
    with pytest.raises(RuntimeError, match="closed Session"):
        closed.run(x)


def test_graph_can_grow_after_the_session_was_opened(session: Session) -> None:
    x = convert_to_tensor(1.0)
    assert session.run(x) == 1
    assert session.run(raw.AddV2(x, 1.0)) == 2


def test_default_sessions() -> None:
    x = convert_to_tensor(4.0)
    with pytest.raises(ValueError, match="No default session"):
        x.eval()
    with Session() as outer:
        assert get_default_session() is outer
        assert x.eval() == 4
    interactive = InteractiveSession()
    assert x.eval() == 4
    interactive.close()
    assert get_default_session() is None


def test_make_callable(session: Session) -> None:
    x, y = placeholder(name="x"), placeholder(name="y")
    call = session.make_callable(raw.Sub(x, y), [x, y])
    assert call(5.0, 3.0) == 2
    with pytest.raises(TypeError, match="takes 2 values"):
        call(1.0)


def test_partial_run_runs_every_operation_once(session: Session) -> None:
    a, b = placeholder(name="a"), placeholder(name="b")
    drawn = raw.RandomUniform(convert_to_tensor([4]), dtype="float32")
    first = raw.AddV2(drawn, a)
    second = raw.AddV2(drawn, b)
    handle = session.partial_run_setup([first, second], [a, b])
    one = session.partial_run(handle, first, {a: 0.0})
    with pytest.raises(errors.InvalidArgumentError, match="fetched already"):
        session.partial_run(handle, first)
    two = session.partial_run(handle, second, {b: 1.0})
    np.testing.assert_allclose(two, one + 1, rtol=1e-6)
    with pytest.raises(errors.InvalidArgumentError, match="no partial run"):  # everything was fetched
        session.partial_run(handle, first)
    with pytest.raises(errors.InvalidArgumentError, match="no partial run"):
        session.partial_run("nobody", first)


def test_partial_run_says_what_is_not_fed(session: Session) -> None:
    a = placeholder(name="a")
    handle = session.partial_run_setup([raw.Neg(a)], [a])
    with pytest.raises(errors.InvalidArgumentError, match="'a:0', which is not fed yet"):
        session.partial_run(handle, "Neg:0")


def test_threads_share_variables_without_losing_updates(session: Session) -> None:
    v = Variable(np.zeros(64, np.float32))
    add = v.assign_add(np.ones(64)).op
    session.run(v.initializer)
    torn: list[Any] = []

    def write() -> None:
        for _ in range(200):
            session.run(add)

    def read() -> None:
        for _ in range(200):
            value = session.run(v)
            if len(set(value.tolist())) != 1:
                torn.append(value)

    threads = [threading.Thread(target=f) for f in (write, write, write, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not torn
    assert session.run(v)[0] == 600


def test_sessions_share_a_named_target_and_reset_empties_it() -> None:
    v = Variable(1.0)
    one, two = Session("local://shared-test"), Session("local://shared-test")
    one.run(v.initializer)
    two.run(v.assign_add(2.0).op)
    assert one.run(v) == 3
    with pytest.raises(errors.FailedPreconditionError):
        Session().run(v)
    Session.reset("local://shared-test")
    with pytest.raises(errors.FailedPreconditionError):
        one.run(v)
    with pytest.raises(errors.InvalidArgumentError, match="no session can be opened"):
        Session("nowhere://")


def test_run_metadata_has_timings(session: Session) -> None:
    metadata = RunMetadata()
    y = raw.Neg(raw.Exp(convert_to_tensor(1.0)))
    x = placeholder([3])
    session.run(
        [y, raw.Tanh(x)], {x: [1, 2, 3]}, options=RunOptions(trace_level=RunOptions.FULL_TRACE), run_metadata=metadata
    )
    nodes = metadata.step_stats.dev_stats[0].node_stats
    assert nodes
    assert all(n.all_start_micros > 0 for n in nodes)


def test_random_sequences_follow_seeds() -> None:
    drawn = raw.RandomUniform(convert_to_tensor([3]), dtype="float32", seed=7, seed2=9)
    free = raw.RandomUniform(convert_to_tensor([3]), dtype="float32")
    one, two = Session(), Session()
    first, second = one.run(drawn), one.run(drawn)
    assert not np.array_equal(first, second)
    assert np.array_equal(first, two.run(drawn))
    assert np.array_equal(second, two.run(drawn))
    assert not np.array_equal(one.run(free), two.run(free))


def test_variables_of_text_live_on_the_host(session: Session) -> None:
    v = Variable([b"one", b"two"], name="words")
    session.run(v.initializer)
    assert session.run(v).tolist() == [b"one", b"two"]
    session.run(v.assign([b"three", b"four"]).op)
    assert session.run(v).tolist() == [b"three", b"four"]
