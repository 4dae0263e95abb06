"""Random losses with their collections and gradients, and streaming metrics over batches of several sizes.

Shapes are partly known, weights broadcast or do not, batches may be empty; metrics are set back between passes.
"""

from __future__ import annotations

from random import Random

_BEGINNING = """
tf.set_random_seed(1)
x = tf.placeholder(tf.float32, {shape}, 'x')
t = tf.placeholder(tf.float32, {shape}, 't')
w = tf.placeholder(tf.float32, {weights}, 'w')
ids = tf.placeholder(tf.int64, [None], 'ids')
v = tf.get_variable('v', initializer=[0.5, -0.3, 0.2], regularizer=tf.nn.l2_loss)
scores = tf.sigmoid(x * v)
guesses = tf.argmax(x, 1)
flags = tf.greater(t, 0.5)


def batch(size, seed):
    draw = np.random.RandomState(seed)
    weights = {given}
    return {{
        x: draw.randn(size, 3),
        t: draw.randint(0, 2, (size, 3)),
        w: weights,
        ids: draw.randint(0, 3, size),
    }}


session = tf.Session()
"""
_LOSSES = (
    "absolute_difference(t, scores",
    "mean_squared_error(t, x * v",
    "huber_loss(t, x * v, delta=0.7",
    "log_loss(t, scores",
    "hinge_loss(t, x * v",
    "sigmoid_cross_entropy(t, x * v",
    "sigmoid_cross_entropy(t, x * v, label_smoothing=0.2",
    "softmax_cross_entropy(tf.one_hot(ids, 3), x * v",
    "softmax_cross_entropy(tf.one_hot(ids, 3), x * v, label_smoothing=0.1",
    "sparse_softmax_cross_entropy(ids, x * v",
    "cosine_distance(t, x * v, axis=1",
    "mean_pairwise_squared_error(t, x * v",
)
_REDUCTIONS = ("NONE", "SUM", "MEAN", "SUM_BY_NONZERO_WEIGHTS", "SUM_OVER_BATCH_SIZE", "SUM_OVER_NONZERO_WEIGHTS")
#: metrics of numbers like the weights', and of one number for each example
_WIDE = (
    "mean(scores",
    "mean_tensor(scores[:1]",
    "mean_absolute_error(t, scores",
    "mean_squared_error(t, scores",
    "root_mean_squared_error(t, scores",
    "mean_relative_error(t, scores, t + 0.5",
    "auc(t, scores, num_thresholds=20",
    "auc(t, scores, num_thresholds=20, curve='PR', summation_method='careful_interpolation'",
    "precision(t, tf.round(scores)",
    "recall(flags, tf.greater(scores, 0.4)",
    "accuracy(t, tf.round(scores)",
    "true_positives(flags, tf.greater(scores, 0.5)",
    "false_negatives(t, tf.round(scores)",
    "precision_at_thresholds(t, scores, [0.3, 0.5, 0.7]",
    "recall_at_thresholds(flags, scores, [0.0, 0.5, 1.0]",
    "sensitivity_at_specificity(t, scores, 0.6, num_thresholds=11",
    "specificity_at_sensitivity(t, scores, 0.6, num_thresholds=11",
    "false_positives_at_thresholds(t, scores, [0.25, 0.75]",
    "percentage_below(scores, 0.5",
)
_NARROW = (
    "accuracy(ids, guesses",
    "mean_iou(ids, guesses, 3",
    "mean_per_class_accuracy(ids, guesses, 3",
    "recall_at_k(ids, x, 2",
    "precision_at_k(ids, x, 1",
    "precision_at_k(ids, x, 2, class_id=1",
    "average_precision_at_k(ids, x, 3",
    "recall_at_k(ids[:, tf.newaxis], x, 1, class_id=0",
    "mean(tf.cast(ids, tf.float32)",
)


def write(random: Random) -> str:
    """A script of some losses and some metrics."""
    weights, given = random.choice(
        (
            ("[None, 3]", "draw.randint(0, 3, (size, 3))"),
            ("[None, 1]", "draw.randint(0, 2, (size, 1))"),
            ("[None]", "draw.rand(size)"),
            ("[]", "draw.choice([0.0, 1.0, 2.5])"),
            ("None", "draw.randint(0, 3, (size, 3))"),
        )
    )
    shape = random.choice(("[None, 3]", "[None, 3]", "None"))
    lines = [_BEGINNING.strip("\n").format(shape=shape, weights=weights, given=given), "made = {}"]
    losses = random.sample(_LOSSES, 4)
    for i, call in enumerate(losses):
        options = ", weights=w" if random.random() < 0.6 else random.choice(("", ", weights=2.0", ", weights=0.0"))
        options += f", reduction=tf.losses.Reduction.{random.choice(_REDUCTIONS)}" if "pairwise" not in call else ""
        options += random.choice(("", "", f", scope='of_{i}'", ", loss_collection=None"))
        lines.append(f"attempt('loss {i}', lambda: made.update({{{i}: tf.losses.{call}{options})}}))")
    lines += [
        "see('losses', len(tf.losses.get_losses()))",
        "see('of 1', len(tf.losses.get_losses('of_1')))",
        "attempt('total', lambda: made.update(total=tf.losses.get_total_loss()))",
        "attempt('average', lambda: made.update(average=tf.losses.compute_weighted_loss(scores, w)))",
        "slopes = {k: tf.gradients(y, v)[0] for k, y in sorted(made.items(), key=str)}",
        "slopes = {k: g for k, g in slopes.items() if g is not None}",
    ]
    # TensorFlow wants the rank of predictions for an average precision
    narrow = [call for call in _NARROW if shape != "None" or "average" not in call]
    for i, call in enumerate(random.sample(_WIDE, 4) + random.sample(narrow, 2)):
        # others are refused while the graph is built here, and in the step there
        fits = call in _WIDE or weights in {"[None]", "[]"}
        options = ", weights=w" if fits and random.random() < 0.5 else ""
        update = f"streams.update({{{i}: tf.metrics.{call}{options})}})"
        lines.append(f"attempt('metric {i}', lambda: {update})")
    lines.insert(lines.index("made = {}"), "streams = {}")
    sizes = [random.choice((1, 2, 5, 8)) for _ in range(3)] + [random.choice((0, 3))]
    lines += [
        "values = {k: pair[0] for k, pair in streams.items()}",
        "updates = {k: pair[1] for k, pair in streams.items()}",
        # of an average precision they follow from other operations' names
        "see('locals', sorted(u.op.name for u in tf.local_variables() if 'average_p' not in u.op.name))",
        "see('static', [y.shape for _, y in sorted(values.items())])",
        "session.run(tf.global_variables_initializer())",
        "for walk in range(2):",
        "    session.run(tf.local_variables_initializer())",
        f"    for number, size in enumerate({sizes}):",
        f"        feeds = batch(size, {random.randrange(1000)} + number + 10 * walk)",
        "        for k, y in sorted(made.items(), key=str):",
        "            attempt(f'loss {k} of {size}', lambda: session.run(y, feeds))",
        "        for k, g in sorted(slopes.items(), key=str):",
        "            attempt(f'slope {k} of {size}', lambda: session.run(g, feeds))",
        "        for k, u in sorted(updates.items()):",
        "            attempt(f'update {k} of {size}', lambda: session.run(u, feeds))",
        "        attempt('values', lambda: session.run(values))",
    ]
    return "\n".join(lines) + "\n"
