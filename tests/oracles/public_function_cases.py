"""Uses of public functions, for `make_public_function_fixture.py` and for the tests beside what it records.

Each case is a function of the module (`anabranch`, or genuine TensorFlow's `compat.v1`) that returns what to fetch. Its
name is the name of its entry in the fixture.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Case = Callable[[Any], Any]
CASES: dict[str, Case] = {}


def case(build: Case) -> Case:
    CASES[build.__name__] = build
    return build


def numbers(seed: int, *shape: int, scale: float = 1.0) -> Any:
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)


# ---------------------------------------------------------------------- quantisation
RANGES = ((-1.0, 2.0), (0.3, 4.0), (-3.0, -0.4), (0.0, 0.7), (-0.01, 6.0))


@case
def fake_quantised_within_arguments(tf: Any) -> Any:
    x = tf.constant(numbers(1, 40, scale=3.0))
    fetched = []
    for least, most in RANGES:
        for bits, narrow in ((8, False), (4, True), (2, False), (16, True)):
            y = tf.quantization.fake_quant_with_min_max_args(x, least, most, bits, narrow)
            fetched += [y, tf.gradients(y, x, tf.constant(numbers(2, 40)))[0]]
    return fetched


@case
def fake_quantised_within_variables(tf: Any) -> Any:
    x = tf.constant(numbers(3, 6, 7, scale=3.0))
    fetched = []
    for least, most in (*RANGES, (0.0, 0.0)):
        bounds = [tf.constant(least, tf.float32), tf.constant(most, tf.float32)]
        for bits, narrow in ((8, False), (3, True)):
            y = tf.fake_quant_with_min_max_vars(x, *bounds, num_bits=bits, narrow_range=narrow)
            fetched += [y, *tf.gradients(y, [x, *bounds], tf.constant(numbers(4, 6, 7)))]
    return fetched


@case
def fake_quantised_within_channels(tf: Any) -> Any:
    least, most = tf.constant([-1.0, 0.3, -3.0, 0.0]), tf.constant([2.0, 4.0, -0.4, 0.0])
    fetched = []
    for shape in ((4,), (5, 4), (2, 3, 2, 4)):
        x = tf.constant(numbers(5, *shape, scale=3.0))
        y = tf.quantization.fake_quant_with_min_max_vars_per_channel(x, least, most)
        fetched += [y, *tf.gradients(y, [x, least, most], tf.constant(numbers(6, *shape)))]
    return fetched


@case
def quantised_and_back(tf: Any) -> Any:
    x = tf.constant(numbers(7, 30, scale=2.0))
    fetched = []
    for signed in (True, False):
        for given in (True, False):
            for mode in ("HALF_TO_EVEN", "HALF_UP"):
                for narrow in (True, False):
                    y = tf.quantization.quantize_and_dequantize(
                        x, -1.0, 2.5, signed, 5, given, mode, None, narrow_range=narrow
                    )
                    fetched += [y, tf.gradients(y, x)[0]]
    return fetched


@case
def quantised_and_back_with_bits_of_a_tensor(tf: Any) -> Any:
    x = tf.constant(numbers(8, 30, scale=2.0).astype(np.float64))
    least, most = tf.constant(-1.0, tf.float64), tf.constant(2.5, tf.float64)
    y = tf.raw_ops.QuantizeAndDequantizeV3(input=x, input_min=least, input_max=most, num_bits=6)
    return [y, tf.gradients(y, x)[0]]


@case
def quantised_numbers(tf: Any) -> Any:
    x = tf.constant(numbers(9, 25, scale=2.0))
    fetched: list[Any] = []
    for dtype in (tf.quint8, tf.qint8, tf.qint16, tf.quint16):
        for mode in ("MIN_COMBINED", "MIN_FIRST", "SCALED"):
            if mode == "MIN_FIRST" and dtype not in (tf.quint8, tf.qint8):
                continue
            for least, most in ((-1.0, 2.0), (0.5, 3.0), (-2.5, -1.0), (0.0, 0.0)):
                output, low, high = tf.quantization.quantize(x, least, most, dtype, mode)
                fetched += [output, low, high, tf.quantization.dequantize(output, low, high, mode)]
    return fetched


# ---------------------------------------------------------------------- functions
@case
def functions_of_tensors_and_python_values(tf: Any) -> Any:
    outer = tf.constant([2.0, -1.0])

    @tf.function(autograph=False)
    def scaled(x: Any, power: int, factor: float = 2.0) -> Any:
        result = tf.while_loop(lambda i, y: i < power, lambda i, y: (i + 1, y * x + outer), [0, tf.ones_like(x)])[1]
        return {"loop": result * factor, "cond": tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2, lambda: x - outer)}

    fetched = []
    for x in (tf.constant([1.5, 2.0]), tf.constant([-3.0, 1.0])):
        for power in (0, 3):
            results = scaled(x, power, factor=0.5)
            gradients = tf.gradients([results["loop"], results["cond"]], [x, outer])
            fetched += [results["cond"], results["loop"], *gradients, *tf.gradients(gradients[0], x)]
    return fetched


@case
def functions_that_call_functions(tf: Any) -> Any:
    @tf.function(autograph=False)
    def inner(x: Any) -> Any:
        return tf.exp(x) * 2.0, tf.shape(x)[0]

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.float32)])
    def outer(x: Any) -> Any:
        value, size = inner(x)
        return tf.map_fn(lambda y: inner(tf.reshape(y, [1]))[0][0], value) + tf.cast(size, tf.float32)

    x = tf.constant([0.1, 0.2, -0.4])
    y = outer(x)
    return [y, tf.gradients(y, x)[0], outer(tf.constant([1.0]))]


@case
def gradients_that_pass_through_or_are_computed_again(tf: Any) -> Any:
    x, z = tf.constant([0.4, 1.6, -2.3]), tf.constant([1.0, 2.0, 3.0])
    passed = tf.grad_pass_through(tf.round)(x * 2.0)
    again = tf.recompute_grad(lambda x, z: tf.sin(x * z) * tf.exp(x))(x, z)
    return [passed, tf.gradients(passed, x)[0], again, *tf.gradients(again * z, [x, z])]


@case
def rows_in_parallel(tf: Any) -> Any:
    x, y = tf.constant(numbers(10, 4, 3)), tf.constant(numbers(11, 4, 3, 2))
    product = tf.vectorized_map(lambda row: tf.reduce_sum(row * row), x)
    pair = tf.vectorized_map(lambda rows: (tf.reduce_max(rows[0]), tf.tensordot(rows[0], rows[1], 1)), (x, y))
    return [product, *pair, tf.gradients(pair[1], x)[0]]


@case
def python_functions_of_eager_values(tf: Any) -> Any:
    x = tf.constant(numbers(12, 5))
    doubled = tf.py_function(lambda x: x.numpy() * 2.0, [x], tf.float32)
    pair = tf.py_function(
        lambda x, s: (float(x.numpy().sum() > 0), s.numpy() + b"!"), [x, "abc"], [tf.float64, tf.string]
    )
    return [doubled, *pair]


# ---------------------------------------------------------------------- what a graph comes to
def counted(tf: Any, build: Callable[[], Any]) -> int:
    """The floating-point operations of a graph."""
    with tf.Graph().as_default() as graph:
        build()
        builder = tf.profiler.ProfileOptionBuilder
        options = builder(builder.float_operation()).with_empty_output().build()
        return int(tf.profiler.profile(graph, options=options).total_float_ops)


@case
def float_operations_of_graphs(tf: Any) -> Any:
    def image() -> Any:
        return tf.placeholder(tf.float32, [2, 8, 8, 3])

    def pooled(pool: Any) -> Any:
        x = image()
        y = pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
        return tf.gradients(y, x)

    def convolved() -> Any:
        w = tf.placeholder(tf.float32, [3, 3, 3, 4])
        y = tf.nn.bias_add(tf.nn.conv2d(image(), w, [1, 1, 1, 1], "SAME"), [1.0, 2.0, 3.0, 4.0])
        return tf.nn.relu(y)

    def elementwise() -> Any:
        x, y = tf.placeholder(tf.float32, [4, 5]), tf.placeholder(tf.float32, [5])
        both = [x + y, x - y, x * y, x / y, tf.pow(x, y), tf.maximum(x, y), tf.squared_difference(x, y), x < y]
        return both, [tf.square(x), tf.rsqrt(x), -x, tf.log(x), tf.reciprocal(x), tf.nn.softmax(x), tf.exp(x)]

    def reduced() -> Any:
        x = tf.placeholder(tf.float32, [4, 5])
        return tf.reduce_sum(x), tf.reduce_mean(x, 1), tf.argmax(x, 1), tf.nn.l2_loss(x), tf.add_n([x, x, x])

    def products() -> Any:
        x = tf.placeholder(tf.float32, [4, 5])
        unknown = tf.placeholder(tf.float32, [None, 5])
        return tf.matmul(x, x, transpose_b=True), tf.matmul(unknown, x, transpose_b=True)

    builds = [convolved, elementwise, reduced, products]
    counts = [counted(tf, build) for build in builds]
    counts += [counted(tf, lambda pool=pool: pooled(pool)) for pool in (tf.nn.max_pool, tf.nn.avg_pool)]
    return [tf.constant(count, tf.int64) for count in counts]


@case
def parameters_of_graphs(tf: Any) -> Any:
    with tf.Graph().as_default() as graph:
        with tf.variable_scope("layer"):
            tf.get_variable("w", [3, 4])
            tf.get_variable("b", [4])
        tf.get_variable("fixed", [7], trainable=False)
        builder = tf.profiler.ProfileOptionBuilder
        options = builder(builder.trainable_variables_parameter()).with_empty_output().build()
        root = tf.profiler.profile(graph, cmd="scope", options=options)
    layer = root.children[0]
    names = [root.name, layer.name, *sorted(child.name for child in layer.children)]
    return [tf.constant([root.total_parameters, layer.total_parameters], tf.int64), tf.constant(names)]


def _traced(tf: Any, *runs: tuple[str, str, int, int]) -> Any:
    """What a step leaves that ran operations: the device, the name, the start and the microseconds of each."""
    metadata = tf.RunMetadata()
    devices: dict[str, Any] = {}
    for device, name, start, micros in runs:
        if device not in devices:
            path = f"/job:localhost/replica:0/task:0/device:{device}"
            devices[device] = metadata.step_stats.dev_stats.add(device=path)
        devices[device].node_stats.add(
            node_name=name,
            all_start_micros=start,
            op_start_rel_micros=0,
            op_end_rel_micros=micros,
            all_end_rel_micros=micros,
            timeline_label=f"{name} = Op()",
        )
    return metadata


@case
def times_of_scopes_and_types(tf: Any) -> Any:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 8], name="x")
        with tf.name_scope("layer"):
            product = tf.matmul(x, tf.ones([8, 2]), name="product")
            with tf.name_scope("inner"):
                tf.exp(product, name="exp")
            tf.matmul(product, tf.ones([2, 3]), name="again")
        tf.exp(x, name="outside")
        steps = [
            _traced(tf, ("CPU:0", "layer/product", 10, 400), ("CPU:0", "layer/inner/exp", 500, 30)),
            _traced(
                tf,
                ("CPU:0", "layer/product", 10, 200),
                ("CPU:0", "layer/again", 300, 70),
                ("CPU:0", "layer/inner/exp", 500, 50),
                ("CPU:0", "outside", 600, 5),
            ),
        ]
        builder = tf.profiler.ProfileOptionBuilder
        options = builder(builder.time_and_memory(min_bytes=0)).with_empty_output()
        once = [
            tf.profiler.profile(graph, metadata, cmd=cmd, options=options.build())
            for metadata in steps
            for cmd in ("scope", "op")
        ]
        profiler = tf.profiler.Profiler(graph)
        for step, metadata in enumerate(steps):
            profiler.add_step(step, metadata)
        for step in (0, 1):
            once += [profiler.profile_operations(options.with_step(step).build())]
            once += [profiler.profile_name_scope(options.with_step(step).build())]
    rows: list[str] = []
    for root in once:
        waiting = [root]
        while waiting:
            entry = waiting.pop()
            times = [entry.total_exec_micros, entry.total_cpu_exec_micros, entry.total_accelerator_exec_micros]
            if entry.total_exec_micros:
                rows.append(f"{entry.name} {times}")
            waiting.extend(entry.children)
    return tf.constant(sorted(rows))


@case
def logs_of_operations(tf: Any) -> Any:
    log = tf.profiler.OpLogProto()
    log.log_entries.add(name="x", types=["mine"], float_ops=7)
    builder = tf.profiler.ProfileOptionBuilder
    with tf.Graph().as_default() as graph, tempfile.TemporaryDirectory() as folder:
        x = tf.placeholder(tf.float32, [4, 8], name="x")
        w = tf.get_variable("w", [8, 2])
        tf.nn.bias_add(tf.matmul(x, w, name="product"), [1.0, 2.0], name="sum")
        tf.profiler.write_op_log(graph, folder, log, add_trace=False)
        written = tf.profiler.OpLogProto.FromString((Path(folder) / "tfprof_log").read_bytes())
        options = builder(builder.float_operation()).with_accounted_types(["mine", "MatMul"]).with_empty_output()
        total = tf.profiler.profile(graph, op_log=log, options=options.build()).total_float_ops
    rows = [f"{entry.name} {entry.float_ops} {list(entry.types)}" for entry in written.log_entries]
    return tf.constant(sorted(rows)), tf.constant(int(total))


# ---------------------------------------------------------------------- images, and sums in logarithms
@case
def boxes_of_several_classes(tf: Any) -> Any:
    draw = np.random.default_rng(13)
    corners = draw.uniform(-0.1, 0.7, (2, 12, 3, 2)).astype(np.float32)
    boxes = np.concatenate([corners, corners + draw.uniform(0.1, 0.5, corners.shape).astype(np.float32)], -1)
    scores = draw.uniform(size=(2, 12, 3)).astype(np.float32)
    fetched: list[Any] = []
    for shared in (False, True):
        for pad_per_class in (False, True):
            for clip in (False, True):
                fetched += tf.image.combined_non_max_suppression(
                    boxes[:, :, :1] if shared else boxes, scores, 4, 15, 0.3, 0.2, pad_per_class, clip
                )
    fetched += tf.image.combined_non_max_suppression(boxes, scores, 2, 3)
    overlaps = draw.uniform(size=(9, 9)).astype(np.float32)
    ranked = draw.permutation(9).astype(np.float32)
    for overlaps_allowed, least in ((0.5, float("-inf")), (0.2, 3.0), (0.9, 1.0)):
        fetched.append(tf.image.non_max_suppression_overlaps(overlaps, ranked, 4, overlaps_allowed, least))
    return fetched


@case
def sums_in_logarithms(tf: Any) -> Any:
    fetched = []
    for dtype in (np.float32, np.float64):
        x = tf.constant(numbers(14, 3, 4, scale=30.0).astype(dtype))
        for axis in (0, -1):
            for exclusive in (False, True):
                for reverse in (False, True):
                    y = tf.math.cumulative_logsumexp(x, axis, exclusive, reverse)
                    fetched += [y, tf.gradients(y, x, tf.constant(numbers(15, 3, 4).astype(dtype)))[0]]
    return fetched


# ---------------------------------------------------------------------- linear operators
def uses_of(tf: Any, operator: Any, columns: int, solvable: bool = True) -> list[Any]:
    """What an operator is asked for."""
    x = tf.constant(numbers(20, *[2] * (operator.shape.ndims - 2), columns, 3))
    fetched = [operator.to_dense(), operator.shape_tensor(), operator.matmul(x), operator.matvec(x[..., 0])]
    fetched += [
        operator.diag_part(),
        operator.trace(),
        operator.H.to_dense(),
        operator.add_to_tensor(operator.to_dense()),
    ]
    if solvable:
        fetched += [operator.solve(x), operator.solvevec(x[..., 1], adjoint=True), operator.determinant()]
        fetched += [operator.log_abs_determinant(), operator.solve(x, adjoint=True), operator.matmul(x, adjoint=True)]
        fetched += [operator.inverse().matmul(x), operator.inverse().log_abs_determinant()]
    return fetched


@case
def circulant_operators(tf: Any) -> Any:
    linalg = tf.linalg
    spectrum = tf.constant([[4.0, 1.0 + 1j, 2.0, 1.0 - 1j], [3.0, 2.0j, 1.0, -2.0j]], tf.complex64)
    flat = linalg.LinearOperatorCirculant(spectrum, tf.float32)
    plain = linalg.LinearOperatorCirculant([6.0, 4.0, 2.0])
    square = linalg.LinearOperatorCirculant2D(tf.constant(numbers(27, 2, 2, 3)) + 5.0)
    cube = linalg.LinearOperatorCirculant3D(tf.constant(numbers(28, 2, 1, 2)) + 4.0)
    fetched = []
    for operator, size in ((flat, 4), (plain, 3), (square, 6), (cube, 4)):
        x = tf.cast(tf.constant(numbers(29, *[2] * (operator is flat), size, 2)), operator.dtype)
        fetched += [operator.to_dense(), operator.matmul(x), operator.matmul(x, adjoint=True), operator.solve(x)]
        fetched += [operator.determinant(), operator.log_abs_determinant(), operator.trace(), operator.diag_part()]
        fetched += [operator.convolution_kernel(), operator.shape_tensor(), operator.block_shape_tensor()]
    with tf.control_dependencies([flat.assert_non_singular()]):
        return [*fetched, tf.identity(spectrum)]


@case
def functions_of_matrices(tf: Any) -> Any:
    matrix = numbers(31, 2, 4, 4).astype(np.float64)
    x = tf.constant(matrix @ matrix.transpose(0, 2, 1) + np.eye(4))
    root = tf.linalg.sqrtm(x)
    turned = tf.constant(np.float64([[0, -4, 1], [4, 0, 2], [0, 0, 3]]))
    complexes = tf.complex(x, tf.constant(numbers(32, 2, 4, 4).astype(np.float64)))
    fetched = [root, tf.gradients(root, x, tf.constant(matrix))[0], tf.linalg.sqrtm(turned), tf.linalg.sqrtm(complexes)]
    return [*fetched, tf.linalg.logm(complexes), tf.matrix_square_root(x[0])]


@case
def tridiagonal_matrices(tf: Any) -> Any:
    fetched = []
    for dtype in (np.float64, np.complex128):
        diagonals = tf.constant(numbers(33, 2, 3, 5).astype(dtype) * (1 + (dtype is np.complex128) * 0.7j))
        rhs = tf.constant(numbers(34, 2, 5, 3).astype(dtype) * (1 - (dtype is np.complex128) * 0.3j))
        above, main, below = (diagonals[:, i] for i in range(3))
        dense = tf.linalg.diag(main) + tf.linalg.diag(above[:, :-1], k=1) + tf.linalg.diag(below[:, 1:], k=-1)
        for form, given in (
            ("compact", diagonals),
            ("sequence", [above, main, below]),
            ("sequence", [above[:, :-1], main, below[:, 1:]]),
            ("matrix", dense),
        ):
            solved = tf.linalg.tridiagonal_solve(given, rhs, form)
            fetched.append(solved)
            if dtype is np.float64:  # TensorFlow's gradient does not conjugate
                fetched += tf.gradients(solved, [diagonals, rhs], rhs)
            if form != "sequence":
                multiplied = tf.linalg.tridiagonal_matmul(given, rhs, form)
                fetched += [multiplied, *tf.gradients(multiplied, [diagonals, rhs], rhs)]
        fetched += [
            tf.linalg.tridiagonal_solve(diagonals, rhs[..., 0], conjugate_rhs=True),
            tf.linalg.tridiagonal_solve(diagonals, tf.linalg.transpose(rhs), transpose_rhs=True),
            tf.linalg.tridiagonal_solve(diagonals, rhs, partial_pivoting=False),
        ]
    return fetched


@case
def linear_operators(tf: Any) -> Any:
    dense = tf.constant(numbers(21, 2, 3, 3) + 4 * np.eye(3, dtype=np.float32))
    linalg = tf.linalg
    full = linalg.LinearOperatorFullMatrix(dense)
    lower = linalg.LinearOperatorLowerTriangular(dense)
    diagonal = linalg.LinearOperatorDiag(dense[..., 0] + 3.0)
    scaled = linalg.LinearOperatorScaledIdentity(3, tf.constant([2.0, -1.5]))
    identity = linalg.LinearOperatorIdentity(3, batch_shape=[2])
    house = linalg.LinearOperatorHouseholder(dense[..., 1])
    toeplitz = linalg.LinearOperatorToeplitz([5.0, 2.0, 3.0], [5.0, -2.0, -4.0])
    update = linalg.LinearOperatorLowRankUpdate(
        diagonal, tf.constant(numbers(22, 2, 3, 1)), tf.constant([[0.5], [0.2]])
    )
    fetched = []
    for operator in (full, lower, diagonal, scaled, identity, house, toeplitz, update):
        fetched += uses_of(tf, operator, 3)
    fetched += uses_of(tf, linalg.LinearOperatorComposition([lower, full, diagonal]), 3)
    fetched += uses_of(tf, linalg.LinearOperatorKronecker([lower, diagonal]), 9)
    fetched += uses_of(tf, linalg.LinearOperatorBlockDiag([lower, scaled]), 6)
    fetched += uses_of(tf, linalg.LinearOperatorZeros(3, 2, [2], is_square=False, is_self_adjoint=False), 2, False)
    return fetched


@case
def gradients_through_linear_operators(tf: Any) -> Any:
    tril, x = tf.constant(numbers(23, 3, 3) + 3 * np.eye(3, dtype=np.float32)), tf.constant(numbers(24, 3, 2))
    lower = tf.linalg.LinearOperatorLowerTriangular(tril)
    y = lower.solve(x) * lower.log_abs_determinant()
    covariance = tf.linalg.LinearOperatorFullMatrix(
        lower.matmul(lower.to_dense(), adjoint_arg=True), is_self_adjoint=True, is_positive_definite=True
    )
    return [*tf.gradients(y, [tril, x]), covariance.cholesky().to_dense(), covariance.solve(x)]


# ---------------------------------------------------------------------- sparse tensors as strings
@case
def sparse_tensors_as_strings(tf: Any) -> Any:
    sparse = tf.SparseTensor([[0, 1], [1, 0], [3, 2]], tf.constant([1.5, -2.0, 7.0]), [4, 3])
    words = tf.SparseTensor([[0, 0, 1], [1, 2, 0]], ["é", "b"], [2, 3, 2])
    fetched: list[Any] = [tf.serialize_sparse(sparse), tf.shape(tf.io.serialize_many_sparse(words))]
    again = tf.deserialize_many_sparse(tf.serialize_many_sparse(sparse), tf.float32, rank=1)
    stacked = tf.stack([tf.serialize_sparse(words), tf.io.serialize_sparse(words)])
    for result in (again, tf.io.deserialize_many_sparse(stacked, tf.string)):
        fetched += [result.indices, result.values, result.dense_shape]
    return fetched
