"""Random trainings of a few steps: optimizers, dense and sparse gradients, schedules, averages, second derivatives."""

from __future__ import annotations

from random import Random

from tests.fuzz.scripts.calls import drawn, templates

_BEGINNING = """
draw = np.random.RandomState({seed})
x = tf.placeholder_with_default(draw.randn(4, 3).astype(np.float32), [4, 3])
k = tf.placeholder_with_default(np.int32(1), [])
step = tf.train.get_or_create_global_step()
table = tf.get_variable('table', initializer=draw.randn(5, 2).astype(np.float32), use_resource={resource})
w = tf.get_variable('w', initializer=draw.randn(3, 2).astype(np.float32), use_resource={resource})
c = tf.get_variable('c', initializer=np.float32(0.3), use_resource={resource})
rows = tf.nn.embedding_lookup(table, [k, 0, k, 3])
hidden = tf.matmul(x, w) + rows * c
"""
_LOSSES = (
    "tf.reduce_mean(tf.square(hidden - 1.0))",
    "tf.reduce_sum(tf.nn.softplus(hidden)) + tf.nn.l2_loss(w)",
    "tf.cond(k > 1, lambda: tf.reduce_sum(hidden * hidden), lambda: tf.reduce_sum(tf.abs(hidden)) + c)",
    (
        "tf.while_loop(lambda i, a: i < k + 1, lambda i, a: (i + 1, a * "
        "c + tf.reduce_mean(tf.tanh(hidden))), (0, tf.reduce_sum(w)))[1]"
    ),
    "tf.reduce_sum(tf.map_fn(lambda h: tf.reduce_sum(h) * tf.sigmoid(c), hidden))",
    "tf.reduce_sum(tf.scan(lambda a, h: a * 0.5 + tf.tanh(h), hidden, tf.zeros([2])))",
    "tf.reduce_sum(tf.gather(tf.gather(table, [1, 1, 4]), [0, k])) * c + tf.reduce_sum(w)",
    "tf.losses.softmax_cross_entropy(tf.one_hot([0, 1, 1, 0], 2), hidden)",
    "tf.reduce_sum(tf.foldl(lambda a, h: a + h * c, hidden))",
    (
        "tf.reduce_sum(tf.sparse.sparse_dense_matmul(tf.SparseTensor([[0, "
        "1], [2, 4]], [1.0, 2.0], [3, 5]), table)) + tf.reduce_sum(w * c)"
    ),
)
_OPTIMIZERS = templates("optimizers")
_RATES = templates("rates")
_GRADIENTS = templates("gradients")
_CUSTOM = """

@tf.custom_gradient
def power(a):
    return a * a, lambda dy: dy * 3.0 * a

"""


def write(random: Random) -> str:
    """A script that trains for some steps, or shows gradients."""
    # what second-order gradients of loops are is each system's own (docs/differences.md)
    losses = [loss for loss in _LOSSES if not any(name in loss for name in ("while", "map_fn", "scan", "foldl"))]
    seed, resource = random.randrange(1000), random.choice((True, True, False))
    lines = [_BEGINNING.format(seed=seed, resource=resource).strip("\n")]
    if random.random() < 0.4:
        lines += [_CUSTOM, f"loss = {random.choice(losses)}"]
        shown = [drawn(call, random) for call in random.sample(_GRADIENTS, 4)]
        lines += ["session = tf.Session()", "session.run(tf.global_variables_initializer())"]
        for i, call in enumerate(shown):
            lines.append(f"attempt('{i}', lambda: session.run([y for y in tf.nest.flatten({call}) if y is not None]))")
        return "\n".join(lines) + "\n"
    lines.append(f"loss = {random.choice(_LOSSES)}")
    rate = drawn(random.choice(_RATES), random)
    optimizer = drawn(random.choice(_OPTIMIZERS), random).replace("RATE", "rate")
    lines += [f"rate = {rate}", "see('rate', tf.convert_to_tensor(rate).dtype)", f"optimizer = tf.train.{optimizer}"]
    kind = random.randrange(3)
    if kind == 0:
        lines.append("train = optimizer.minimize(loss, global_step=step)")
    elif kind == 1:
        lines.append("pairs = optimizer.compute_gradients(loss)")
        clip = drawn(
            "tf.clip_by_<norm(tf.convert_to_tensor(g), 0.5)|value(tf.convert_to_tensor(g), -0.1, 0.1)>", random
        )
        lines.append(f"pairs = [(g if g is None else {clip}, v) for g, v in pairs]")
        lines.append("train = optimizer.apply_gradients(pairs, global_step=step)")
    else:
        lines.append(
            "average = tf.train.ExponentialMovingAverage(0.9, <None|step>)".replace(
                "<None|step>", random.choice(("None", "step"))
            )
        )
        lines.append("train = optimizer.minimize(loss, step)")
        lines.append("with tf.control_dependencies([train]):\n    train = average.apply([w, c])")
    lines += [
        "saver = tf.train.Saver()",
        "with tf.Session() as session:",
        "    session.run(tf.global_variables_initializer())",
        "    for i in (1, 2, 0, 1):",
        "        attempt('loss', lambda: session.run([loss, rate], {k: i}))",
        "        attempt('train', lambda: session.run(train, {k: i}))",
        "    see('names', sorted(v.op.name for v in tf.global_variables()))",
        "    attempt('state', lambda: session.run(sorted(tf.global_variables(), key=lambda v: v.op.name)))",
    ]
    return "\n".join(lines) + "\n"
