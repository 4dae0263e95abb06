"""What holds where there is a GPU: where operations go, where values live, how float32 numbers are multiplied."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import anabranch as tf
from anabranch.proto.config_pb2 import CallableOptions
from anabranch.runtime.devices import Gpu
from anabranch.xla import float32_products

needs_gpu = pytest.mark.skipif(not [d for d in jax.local_devices() if d.platform == "gpu"], reason="there is no GPU")


@pytest.fixture
def _own_allowance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(float32_products, "_allowance", float32_products._Allowance())


# ------------------------------------------------------------------------------------------- how products are rounded
@pytest.mark.usefixtures("_own_allowance")
def test_short_products_are_not_allowed_unless_somebody_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    config = tf.config.experimental
    monkeypatch.delenv(float32_products.TF32_VARIABLE, raising=False)
    assert not config.tensor_float_32_execution_enabled()
    monkeypatch.setenv(float32_products.TF32_VARIABLE, "1")
    assert config.tensor_float_32_execution_enabled()
    config.enable_tensor_float_32_execution(False)
    assert not config.tensor_float_32_execution_enabled()
    config.enable_tensor_float_32_execution(True)
    assert config.tensor_float_32_execution_enabled()


def _precisions(platform: str) -> set[str]:
    """The precisions that a product and a convolution are traced with for a platform."""

    def program(x: Any) -> Any:
        with float32_products.product_precision(platform):
            images = x.reshape(1, 4, 4, 1)
            return x @ x, jax.lax.conv_general_dilated(images, images, (1, 1), "SAME")

    text = jax.jit(program).lower(np.ones((4, 4), np.float32)).as_text()
    return {word for word in ("HIGHEST", "DEFAULT") if word in text}


@pytest.mark.usefixtures("_own_allowance")
@pytest.mark.parametrize(("platform", "allowed", "precisions"), [
    ("gpu", False, {"HIGHEST"}), ("tpu", False, {"HIGHEST"}), ("gpu", True, set()), ("cpu", False, set()),
])  # fmt: skip
def test_products_are_traced_in_full_where_units_would_shorten(
    platform: str, allowed: bool, precisions: set[str]
) -> None:
    """On processors, and where it is allowed, the program is as XLA takes it: its default need not be written down."""
    tf.config.experimental.enable_tensor_float_32_execution(allowed)
    assert _precisions(platform) - {"DEFAULT"} == precisions


@needs_gpu
@pytest.mark.usefixtures("_own_allowance")
@pytest.mark.parametrize("convolution", [False, True])
def test_float32_products_keep_their_digits_on_a_gpu(convolution: bool) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((256, 256)).astype(np.float32)
    errors = {}
    for allowed in (False, True):
        tf.config.experimental.enable_tensor_float_32_execution(allowed)
        with tf.Graph().as_default(), tf.device("/gpu:0"), tf.Session() as session:
            x = tf.placeholder(tf.float32, a.shape)
            if convolution:
                product = tf.nn.conv2d(tf.reshape(x, [1, 256, 1, 256]), tf.reshape(x, [1, 1, 256, 256]), 1, "SAME")
            else:
                product = tf.matmul(x, x)
            wide = a.astype(np.float64) @ a.astype(np.float64)
            errors[allowed] = np.abs(session.run(product, {x: a}).reshape(256, 256) - wide).max() / np.abs(wide).max()
    assert errors[False] < 1e-6
    assert errors[True] < 1e-2
    # of convolutions cuDNN may take one that rounds nothing all the same
    assert convolution or errors[True] > 1e-5


# ------------------------------------------------------------------------------------------------ where things are
def test_a_gpu_says_what_it_has_no_kernel_for() -> None:
    gpu = Gpu(0, jax.local_devices()[0])
    for dtype, is_there in ((tf.float32, True), (tf.int32, False)):
        images, filters = tf.zeros([1, 4, 4, 2], dtype), tf.zeros([3, 3, 2, 5], dtype)
        assert gpu.supports(tf.nn.conv2d(images, filters, 1, "SAME").op) is is_there
    assert not gpu.supports(tf.linalg.sqrtm(tf.eye(2)).op)
    assert gpu.supports(tf.linalg.inv(tf.eye(2)).op)


@needs_gpu
def test_operations_go_to_the_gpu_and_variables_stay_there() -> None:
    with tf.Session() as session:
        names = [device.name for device in session.list_devices()]
        assert any("GPU:0" in name for name in names)
        assert session.list_devices()[1].memory_limit_bytes > 1 << 30
        v = tf.get_variable("v", initializer=np.ones((8, 8), np.float32), use_resource=True)
        session.run(tf.global_variables_initializer())
        session.run(v.assign_add(tf.matmul(v, v)))
        options, trace = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), tf.RunMetadata()
        assert session.run(tf.reduce_sum(v), options=options, run_metadata=trace) == 8 * 8 * 9
        assert any("GPU:0" in stats.device for stats in trace.step_stats.dev_stats)


@needs_gpu
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.complex64, np.bool_])
def test_values_pass_between_host_and_gpu(dtype: type) -> None:
    value = (np.arange(12).reshape(3, 4) % 5).astype(dtype)
    with tf.Session() as session:
        x = tf.placeholder(tf.as_dtype(dtype), [None, 4])
        with tf.device("/cpu:0"):
            y = tf.transpose(x)
        with tf.device("/gpu:0"):
            z = tf.concat([y, y], 1)
        with tf.device("/cpu:0"):
            w = tf.reverse(z, [0])
        np.testing.assert_array_equal(session.run(w, {x: value}), np.concatenate([value.T] * 2, 1)[::-1])


@needs_gpu
def test_a_session_without_gpus_computes_on_the_processor() -> None:
    with tf.Session(config=tf.ConfigProto(device_count={"GPU": 0})) as session:
        v = tf.get_variable("v", initializer=np.ones((8, 8), np.float32), use_resource=True)
        session.run(v.initializer)
        session.run(v.assign_add(tf.matmul(v, v)))
        master: Any = session._master
        (state,) = master.worker.containers.live_variables()
        assert {device.platform for device in state.value.devices()} == {"cpu"}


@needs_gpu
def test_strings_and_numbers_in_one_step() -> None:
    """Strings stay on the host, whatever device is asked for, with soft placement."""
    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session, tf.device("/gpu:0"):
        x = tf.constant([1.5, 2.5]) * 2
        assert list(session.run(tf.strings.join([tf.as_string(tf.cast(x, tf.int32)), ["a", "b"]]))) == [b"3a", b"5b"]


@needs_gpu
def test_a_loop_on_the_gpu_is_one_program_and_can_be_stopped() -> None:
    with tf.Session() as session:
        limit = tf.placeholder(tf.float32, [])
        total = tf.while_loop(lambda i, s: i < limit, lambda i, s: (i + 1, s + i), (0.0, 0.0))[1]
        assert session.run(total, {limit: 100.0}) == 4950
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(total, {limit: np.float32(np.inf)}, options=tf.RunOptions(timeout_in_ms=500))
        assert session.run(total, {limit: 10.0}) == 45


@needs_gpu
def test_functions_of_matrices_that_a_gpu_has_not_go_to_the_host() -> None:
    matrix = np.array([[4.0, 1.0], [0.0, 9.0]], np.float32)
    with tf.Session() as session:
        root = session.run(tf.linalg.sqrtm(tf.matmul(tf.constant(matrix), np.eye(2, dtype=np.float32))))
    np.testing.assert_allclose(root @ root, matrix, rtol=1e-5)


@needs_gpu
@pytest.mark.parametrize("sizes", [(2, 2, 1), (3, 7, 5), (16, 32, 16), (40, 17, 2)])
def test_products_of_bytes_are_exact(sizes: tuple[int, int, int]) -> None:
    """XLA's own, of two bytes each, were not."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 256, shape).astype(np.uint8) for shape in (sizes[:2], sizes[1:]))
    with tf.Session() as session:
        # records of quantised numbers are the host's; the product is the GPU's
        left = tf.bitcast(tf.placeholder(tf.uint8, a.shape, "a"), tf.quint8)
        right = tf.bitcast(tf.placeholder(tf.uint8, b.shape, "b"), tf.quint8)
        with tf.device("/gpu:0"):
            product = tf.raw_ops.QuantizedMatMul(a=left, b=right, min_a=0.0, max_a=255.0, min_b=0.0, max_b=255.0)[0]
        found = session.run(tf.bitcast(product, tf.int32), {"a:0": a, "b:0": b})
    np.testing.assert_array_equal(found, a.astype(np.int32) @ b.astype(np.int32))


@needs_gpu
def test_what_is_fetched_from_a_gpu_is_the_callers_own() -> None:
    v = tf.get_variable("v", initializer=np.ones((512, 1024), np.float32), use_resource=True)
    with tf.Session() as session:
        session.run(v.initializer)
        found = session.run(v)
        found[:] = 7
        np.testing.assert_array_equal(session.run(v), np.ones((512, 1024), np.float32))


@needs_gpu
def test_too_little_memory_leaves_variables_as_they_were() -> None:
    with tf.Session() as session:
        v = tf.get_variable("v", initializer=np.ones(4, np.float32), use_resource=True)
        n = tf.placeholder(tf.int32, [])
        large = tf.reduce_sum(tf.sort(tf.random_uniform([n, 1 << 20])), axis=1)
        change = v.assign_add(tf.fill([4], tf.reduce_sum(large)))
        session.run(tf.global_variables_initializer())
        with pytest.raises(tf.errors.OpError):
            session.run(change, {n: 1 << 20})
        np.testing.assert_array_equal(session.run(v), np.ones(4))


@needs_gpu
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_mixed_precision_follows_float32(dtype: str) -> None:
    def losses(half: bool) -> list[float]:
        with tf.Graph().as_default(), tf.Session() as session:
            x = tf.constant(np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32))
            w = tf.get_variable("w", [32, 8], initializer=tf.random_normal_initializer(seed=1), use_resource=True)
            loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - 1.0))
            optimizer: Any = tf.train.GradientDescentOptimizer(0.05)
            if half:
                optimizer = tf.train.experimental.enable_mixed_precision_graph_rewrite(optimizer, dtype=dtype)
            train = optimizer.minimize(loss)
            tf.train.experimental.disable_mixed_precision_graph_rewrite()
            session.run(tf.global_variables_initializer())
            return [session.run([loss, train])[0] for _ in range(50)]

    whole, half = losses(False), losses(True)
    assert half[-1] < half[0] / 3
    np.testing.assert_allclose(half, whole, rtol=0.05)


@needs_gpu
def test_tensors_of_pytorch_on_the_gpu_are_fed_and_given_without_a_copy() -> None:
    torch = pytest.importorskip("torch")
    size = 1 << 20
    fed = torch.arange(size, dtype=torch.float32, device="cuda").reshape(1024, -1)
    x = tf.placeholder(tf.float32, [1024, None], name="x")
    total, doubled = tf.reduce_sum(x, name="total"), tf.multiply(x, 2.0, name="doubled")
    v = tf.get_variable("v", [1024, 1024], use_resource=True)
    options = CallableOptions(feed=["x:0"], fetch=["doubled:0"], fetch_devices={"doubled:0": "/gpu:0"})
    with tf.Session() as session:
        master: Any = session._master
        (taken,) = master.prepare([doubled], [], [x]).lent([master.lend(fed)])
        assert taken.unsafe_buffer_pointer() == fed.data_ptr()
        assert session.run(total, {x: fed}) == pytest.approx(size * (size - 1) / 2, rel=1e-6)
        # what a variable was given is its own: the lender may write to the tensor
        session.run(v.assign(x), {x: fed})
        fed.fill_(1.0)
        torch.cuda.synchronize()
        assert session.run(v)[-1, -1] == size - 1
        assert session.run(total, {x: fed}) == size
        (kept,) = session._make_callable_from_options(options)(fed)
        back = torch.from_dlpack(kept)
        assert back.is_cuda
        assert back.data_ptr() == kept.unsafe_buffer_pointer()
        assert float(back.sum()) == 2 * size
        for dtype in (torch.float16, torch.bfloat16, torch.int64, torch.bool):
            y = tf.placeholder(getattr(tf, str(dtype).split(".")[1]), [2])
            given = session.run(tf.identity(y), {y: torch.tensor([0, 1], dtype=dtype, device="cuda")})
            assert given.tolist() == [0, 1]
        with pytest.raises(ValueError, match="feed a contiguous tensor without a gradient"):
            session.run(total, {x: fed.clone().requires_grad_()})


@needs_gpu
def test_what_the_host_reads_of_a_tensor_on_the_gpu_is_copied_there() -> None:
    torch = pytest.importorskip("torch")
    fed = torch.tensor([1.5, 2.5], device="cuda")
    x = tf.placeholder(tf.float32, [2])
    with tf.device("/cpu:0"):
        there = x + 1.0
    with tf.Session() as session:
        assert session.run([there, tf.as_string(x, precision=1), x * 2.0], {x: fed})[1].tolist() == [b"1.5", b"2.5"]
    with tf.Session(config=tf.ConfigProto(device_count={"GPU": 0})) as session:
        assert session.run(x * 2.0, {x: fed}).tolist() == [3.0, 5.0]


@needs_gpu
def test_elements_are_on_the_gpu_before_a_step_asks_for_them() -> None:
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    dataset = tf.data.Dataset.from_tensor_slices(rows).apply(tf.data.experimental.prefetch_to_device("/gpu:0", 2))
    with tf.device("/gpu:0"):
        element = tf.data.make_one_shot_iterator(dataset).get_next()
        doubled = element * 2.0
    options = CallableOptions(fetch=[element.name], fetch_devices={element.name: "/gpu:0"})
    with tf.Session() as session:
        (kept,) = session._make_callable_from_options(options)()
        assert {device.platform for device in kept.devices()} == {"gpu"}
        assert [session.run(doubled).tolist() for _ in range(3)] == (rows[1:] * 2).tolist()
