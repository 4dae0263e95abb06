"""Random programs of state in a determined order: variables, queues, stacks, tables, arrays, branches and loops.

A script builds operations, each with a control dependency on the one before, and runs steps of some of them, with
feeds of what is within; what each step gives, or its error, is shown, and the state after it.
"""

from __future__ import annotations

from random import Random

_BEGINNING = """
config = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=2)
config.graph_options.rewrite_options.disable_meta_optimizer = True
tf.set_random_seed(1)
x = tf.placeholder(tf.float32, [], 'x')
n = tf.placeholder(tf.int32, [], 'n')
flag = tf.placeholder(tf.bool, [], 'flag')
run_options = tf.RunOptions(timeout_in_ms=5000)
"""


class Stateful:
    """Writes one program."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.lines = [_BEGINNING.strip("\n")]
        self.count = 0
        #: expressions of scalars of float32, and names of operations that steps may run
        self.scalars = ["x", "tf.cast(n, tf.float32)", "tf.constant(2.0)"]
        self.fetches: list[str] = []
        self.inner: list[str] = []
        self.states: list[str] = []
        self.objects: dict[str, list[str]] = {}

    def script(self) -> str:
        r = self.random
        self._variables()
        for make in r.sample(
            (self._queue, self._pairs, self._table, self._accumulator, self._partitioned), r.randint(1, 3)
        ):
            make()
        for _ in range(r.randint(6, 16)):
            r.choice(
                (
                    self._update,
                    self._update,
                    self._scatter,
                    self._cond,
                    self._loop,
                    self._array,
                    self._use,
                    self._use,
                    self._case,
                    self._check,
                    self._group,
                    self._read,
                    self._function,
                )
            )()
        self._run()
        return "\n".join(self.lines) + "\n"

    # ------------------------------------------------------------------ pieces
    def _name(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def _scalar(self) -> str:
        return self.random.choice(self.scalars)

    def _add(self, expression: str, scalar: bool = False, ordered: bool = True) -> str:
        """An operation; where it has an effect or sees one, after what came before it."""
        name = self._name()
        before = self.fetches[-1] if self.fetches and ordered else None
        if before is None:
            self.lines.append(f"{name} = {expression}")
        else:
            self.lines += [f"with tf.control_dependencies([{before}]):", f"    {name} = {expression}"]
        self.fetches.append(name)
        if scalar:
            self.scalars.append(name)
            self.inner.append(name)
        return name

    def _variables(self) -> None:
        # of resources: what TensorFlow reads of a reference depends on who comes first
        resource = True
        self.lines += [
            f"v = tf.get_variable('v', initializer=1.0, use_resource={resource})",
            f"w = tf.get_variable('w', initializer=tf.zeros([4]), use_resource={resource})",
            f"m = tf.get_variable('m', initializer=tf.ones([3, 2]), use_resource={resource})",
            f"k = tf.get_variable('k', initializer=0, trainable=False, use_resource={resource})",
        ]
        self.states += ["v", "w", "m", "k"]

    def _update(self) -> None:
        r = self.random
        value = self._scalar()
        which = r.randrange(7)
        if which < 3:
            self._add(f"tf.identity(tf.{r.choice(('assign', 'assign_add', 'assign_sub'))}(v, {value}))", scalar=True)
        elif which == 3:
            self._add(f"v.{r.choice(('assign', 'assign_add', 'assign_sub'))}({value}).op")
        elif which == 4:
            self._add(f"tf.identity(tf.assign_add(w, tf.fill([4], {value})))")
        elif which == 5:
            self._add("tf.identity(tf.assign_add(k, n))")
        else:
            self._add(f"tf.assign(m, m * 0.5 + {value}).op")

    def _scatter(self) -> None:
        r = self.random
        kind = r.choice(("update", "add", "sub", "mul", "min", "max", "div"))
        rows = [r.choice((0, 1, 2, 2, 3)) for _ in range(2)]
        which = r.randrange(5)
        if which == 0:
            unique = rows if kind != "update" else sorted(set(rows))
            self._add(f"tf.identity(tf.scatter_{kind}(w, {unique}, tf.fill([{len(unique)}], {self._scalar()})))")
        elif which == 1:
            self._add(f"tf.identity(tf.scatter_{kind}(m, n, [{self._scalar()}, 2.0]))")
        elif which == 2:
            kind = r.choice(("update", "add", "sub"))
            self._add(f"tf.identity(tf.scatter_nd_{kind}(m, [[n, 1]], [{self._scalar()}]))")
        elif which == 3:
            self._add(
                f"m[{r.choice(('1', '0:2', 'n', '-1', '::2'))}].assign({self._scalar()} * tf.ones_like(m[{'1'}])).op"
            )
        else:
            self._add(f"tf.identity(w.scatter_{r.choice(('add', 'sub'))}(tf.IndexedSlices([{self._scalar()}], [n])))")

    def _read(self) -> None:
        r = self.random
        self._add(
            r.choice(
                (
                    "tf.identity(v) * 2.0",
                    "tf.reduce_sum(w)",
                    "tf.gather(w, n)",
                    "m.read_value()[0, 0]",
                    "v.value() + 0.0",
                    "tf.cast(tf.is_variable_initialized(v), tf.float32)",
                    "tf.cast(k, tf.float32)",
                    "tf.reduce_max(m[:, n])",
                )
            ),
            scalar=True,
        )

    def _effect(self) -> str:
        """An expression with an effect, of a scalar."""
        value = self._scalar()
        return self.random.choice(
            (
                f"tf.identity(tf.assign_add(v, {value}))",
                f"tf.identity(tf.assign(v, v * 0.5 + {value}))",
                f"tf.reduce_sum(tf.scatter_add(w, [n], [{value}]))",
                "tf.cast(tf.assign_add(k, 1), tf.float32)",
                value,
                f"{value} + 1.0",
            )
        )

    def _cond(self) -> None:
        r = self.random
        condition = r.choice(("flag", "x > 1.0", "n < 2", "tf.less(v, 3.0)", f"{self._scalar()} > {self._scalar()}"))
        first, second = self._effect(), self._effect()
        if r.random() < 0.3:
            inner = f"tf.cond(flag, lambda: {self._effect()}, lambda: {self._effect()})"
            first = inner
        if r.random() < 0.3:
            name = self._add(f"tf.cond({condition}, lambda: ({first}, n), lambda: ({second}, n + 1))")
            self.lines.append(f"{name} = {name}[0]")
        else:
            self._add(f"tf.cond({condition}, lambda: {first}, lambda: {second})", scalar=True)

    def _case(self) -> None:
        r = self.random
        if r.random() < 0.5:
            branches = ", ".join(f"lambda: {self._effect()}" for _ in range(r.randint(1, 3)))
            self._add(f"tf.switch_case(n, [{branches}]{r.choice(('', ', default=lambda: x'))})", scalar=True)
        else:
            pairs = ", ".join(f"({c}, lambda: {self._effect()})" for c in r.sample(("flag", "n > 1", "x < 0.0"), 2))
            more = r.choice(("", ", exclusive=True"))
            self._add(f"tf.case([{pairs}], default=lambda: {self._effect()}{more})", scalar=True)

    def _loop(self) -> None:
        r = self.random
        body = r.choice(
            (
                "a + tf.assign_add(v, 1.0)",
                "a * 2.0 + tf.cast(i, tf.float32)",
                "tf.cond(i > 1, lambda: a + 1.0, lambda: tf.identity(tf.assign_add(v, a)))",
                f"a + {self._scalar()}",
                "tf.while_loop(lambda j, b: j < i, lambda j, b: (j + 1, b + 1.0), (0, a))[1]",
            )
        )
        more = r.choice(("", ", parallel_iterations=1", ", maximum_iterations=3", ", back_prop=False"))
        self._add(
            (
                f"tf.while_loop(lambda i, a: i < n + {r.randrange(3)}, lambda "
                f"i, a: (i + 1, {body}), (0, {self._scalar()}){more})[1]"
            ),
            True,
        )

    def _array(self) -> None:
        r = self.random
        size = r.choice(("3", "tf.abs(n)", "0"))
        dynamic = r.choice(("", ", dynamic_size=True", ", clear_after_read=False"))
        name = self._name()
        self.lines.append(f"{name} = tf.TensorArray(tf.float32, {size}{dynamic}, element_shape=[])")
        for place in r.sample(("0", "1", "2", "n"), r.randint(0, 2)):
            self.lines.append(f"{name} = {name}.write({place}, {self._scalar()})")
        if r.random() < 0.3:
            dynamic = ""
            self.lines[-1] = f"{name} = tf.TensorArray(tf.float32, 3).unstack([{self._scalar()}, 1.0, 2.0])"
        # a second read of what is cleared is refused by TensorFlow's first control flow only
        again = f" + {name}.read(0)" if "clear" in dynamic else ""
        self._add(
            r.choice(
                (
                    f"tf.reduce_sum({name}.stack())",
                    f"{name}.read({r.choice(('0', '1', '2'))})",
                    f"tf.cast({name}.size(), tf.float32)",
                    f"tf.reduce_sum({name}.gather([0, 1]))",
                    f"{name}.read(0){again}",
                )
            ),
            scalar=True,
        )

    def _check(self) -> None:
        r = self.random
        value = self._scalar()
        self._add(
            r.choice(
                (
                    f"tf.Assert({value} < 4.0, [{value}])",
                    f"tf.check_numerics(tf.log({value}), 'not finite')",
                    f"tf.assert_less({value}, 6.0)",
                    f"tf.debugging.assert_greater_equal({value}, -1.0)",
                    f"tf.Print({value}, [{value}], 'printed')",
                    f"tf.identity({value}[tf.newaxis])[n]",
                    "tf.py_func(lambda a: np.float32(1 / max(a, 0)) if a < 2 else np.float32(a), [x], tf.float32)",
                    f"tf.reshape(tf.fill([n], {value}), [2])[0]",
                )
            )
        )

    def _group(self) -> None:
        if len(self.fetches) > 1:
            some = ", ".join(self.random.sample(self.fetches, 2))
            self._add(self.random.choice((f"tf.group({some})", f"tf.tuple([x, {self._scalar()}])[1]")))

    def _function(self) -> None:
        self.lines.append("g = lambda a: a * v + 1.0")
        ys = self.random.choice(("g(x)", "tf.reduce_sum(w * x)", "tf.cond(flag, lambda: v * x, lambda: x)"))
        self._add(f"tf.gradients({ys}, [x])[0]", scalar=True)

    # ------------------------------------------------------------------ objects
    def _queue(self) -> None:
        r = self.random
        kind = r.randrange(4)
        size = r.choice((2, 4, 8))
        many = "[x, x + 1.0]"
        if kind == 0:
            self.lines.append(f"q = tf.FIFOQueue({size}, [tf.float32], [[]])")
        elif kind == 1:
            self.lines.append(f"q = tf.PaddingFIFOQueue({size}, [tf.float32], [[]])")
        elif kind == 2:
            self.lines.append(f"q = tf.PriorityQueue({size}, [tf.float32], [[]])")
        else:
            self.lines.append(f"q = tf.RandomShuffleQueue({size}, 0, [tf.float32], [[]])")
        take = "[1]" if kind == 2 else ""
        put = "(tf.cast(n, tf.int64), x)" if kind == 2 else "x"
        puts = "([3, 1], [x, x + 1.0])" if kind == 2 else f"({many},)"
        self.objects["queue"] = [
            f"q.enqueue({put})",
            f"q.enqueue({put})",
            f"q.enqueue_many({puts})",
            f"q.dequeue(){take}" if kind != 3 else "q.dequeue() > -9.0",
            f"q.dequeue_many(2){take}" if kind != 3 else "q.dequeue_many(2) > -9.0",
            f"q.dequeue_up_to(3){take}" if kind != 3 else "q.dequeue_up_to(3) > -9.0",
            "q.size()",
            "q.is_closed()",
            "q.close()",
        ]
        self.states.append("q.size()")

    def _pairs(self) -> None:
        self.lines.append(f"b = tf.FIFOQueue({self.random.choice((2, 5))}, [tf.int32, tf.string])")
        self.objects["pairs"] = [
            "b.enqueue((n, 'p'))",
            "b.dequeue()",
            "b.enqueue([n + 1, 's'])",
            "b.size()",
            "b.close(cancel_pending_enqueues=True)",
        ]
        self.states.append("b.size()")

    def _table(self) -> None:
        r = self.random
        if r.random() < 0.5:
            self.lines.append(
                (
                    "table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(['a', "
                    f"'b', {r.choice(('chr(97)', 'chr(99)'))}], [1, 2, 3]), -1)"
                )
                if r.random() < 0.3
                else "table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(['a', 'b'], [1, 2]), -1)"
            )
            self.objects["table"] = [
                "table.lookup(tf.constant(['a', 'z']))",
                "table.size()",
                "table.lookup(tf.as_string(n))",
            ]
        else:
            self.lines.append(
                "table = tf.raw_ops.MutableHashTableV2(key_dtype=tf.int32, "
                "value_dtype=tf.float32, shared_name='mutable')"
            )
            self.objects["table"] = [
                (
                    "tf.raw_ops.LookupTableInsertV2(table_handle=table, "
                    "keys=tf.reshape(n, [1]), values=tf.reshape(x, [1]))"
                ),
                "tf.raw_ops.LookupTableFindV2(table_handle=table, keys=[n, 7], default_value=-1.0)",
                "tf.raw_ops.LookupTableSizeV2(table_handle=table)",
                "tf.raw_ops.LookupTableRemoveV2(table_handle=table, keys=tf.reshape(n, [1]))",
            ]

    def _accumulator(self) -> None:
        self.lines.append("sums = tf.ConditionalAccumulator(tf.float32, shape=[], shared_name='sums')")
        self.objects["accumulator"] = [
            "sums.apply_grad(x, local_step=tf.cast(n, tf.int64))",
            "sums.apply_grad(x * 2.0)",
            "sums.num_accumulated()",
            "sums.take_grad(n)",
            "sums.set_global_step(tf.cast(n, tf.int64))",
        ]
        self.states.append("sums.num_accumulated()")

    def _partitioned(self) -> None:
        self.lines.append(
            "parts = tf.get_variable('parts', [4, 2], initializer=tf.zeros_initializer(), "
            "partitioner=tf.fixed_size_partitioner(2))"
        )
        self.objects["parts"] = [
            "tf.nn.embedding_lookup(parts, [n, 0], partition_strategy='div')",
            "tf.identity(parts)",
            "tf.convert_to_tensor(parts) * 2.0",
            "list(parts)[0].assign_add(tf.ones([2, 2]) * x).op",
        ]

    def _use(self) -> None:
        if self.objects:
            self._add(self.random.choice(self.objects[self.random.choice(sorted(self.objects))]))

    # ------------------------------------------------------------------ steps
    def _run(self) -> None:
        r = self.random
        self.lines.append(f"states = [{', '.join(self.states)}]")
        self.lines += [
            "",
            "",
            "def run(number, fetches, feeds):",
            "    if attempt('step %d' % number, lambda: session.run(fetches, feeds, run_options)) is None:",
            "        # what a step that fails has changed is each system's own",
            "        raise SystemExit",
            "    attempt('state %d' % number, lambda: session.run(states))",
            "",
            "",
            "with tf.Session(config=config) as session:",
            "    session.run([tf.global_variables_initializer(), tf.tables_initializer()])",
        ]
        for i in range(r.randint(2, 6)):
            fetched = r.sample(self.fetches, min(len(self.fetches), r.choice((1, 1, 2, 3))))
            numbers = f"x: {r.choice(('1.0', '0.5', '-2.0', '3.0'))}, n: {r.choice((0, 1, 2, 3, -1))}"
            feeds = f"{numbers}, flag: {r.choice((True, False))}"
            if self.inner and r.random() < 0.3:
                feeds += f", {r.choice(self.inner)}: 5.0"
            self.lines.append(f"    run({i}, [{', '.join(fetched)}], {{{feeds}}})")


def write(random: Random) -> str:
    """A script with one random program."""
    return Stateful(random).script()
