"""tf.profiler on steps that were traced; counts and times beside TensorFlow's are among the recorded functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anabranch as tf
from anabranch.proto.tfprof_pb2 import ProfileProto

BUILDER = tf.profiler.ProfileOptionBuilder
GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


def trace(*runs: tuple[str, str, int, int, int]) -> tf.RunMetadata:
    """What a step leaves: device, name, start, microseconds, bytes."""
    metadata = tf.RunMetadata()
    devices: dict[str, Any] = {}
    for device, name, start, micros, size in runs:
        if device not in devices:
            devices[device] = metadata.step_stats.dev_stats.add(device=device)
        stats = devices[device].node_stats.add(
            node_name=name, all_start_micros=start, all_end_rel_micros=micros, op_end_rel_micros=micros
        )
        stats.output.add().tensor_description.allocation_description.requested_bytes = size
    return metadata


def small_graph() -> tf.Graph:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 8], name="x")
        with tf.name_scope("layer"):
            product = tf.matmul(x, tf.ones([8, 2]), name="product")
        tf.exp(product, name="exp")
    return graph


STEPS = (
    trace((GPU, "layer/product", 100, 400, 32), (CPU, "exp", 600, 30, 32)),
    trace((GPU, "layer/product", 100, 200, 32), (CPU, "exp", 500, 100, 32)),
)


def profiler() -> tf.profiler.Profiler:
    made = tf.profiler.Profiler(small_graph())
    for number, metadata in enumerate(STEPS):
        made.add_step(number, metadata)
    return made


def test_the_mean_of_steps_and_one_of_them() -> None:
    options = BUILDER(BUILDER.time_and_memory()).with_empty_output()
    root = profiler().profile_name_scope(options.build())
    assert (root.total_exec_micros, root.total_cpu_exec_micros, root.total_accelerator_exec_micros) == (365, 65, 300)
    assert root.total_requested_bytes == 64
    layer, exp = root.children
    assert (layer.name, layer.total_exec_micros, layer.exec_micros) == ("layer", 300, 0)
    assert (exp.name, exp.exec_micros, exp.run_count, list(exp.devices)) == ("exp", 65, 2, [CPU])
    assert [d.size for d in layer.children[0].shapes[0].dim] == [4, 2]
    second = profiler().profile_name_scope(options.with_step(1).build())
    assert second.total_exec_micros == 300


def test_what_is_too_short_is_not_shown_and_the_rest_is_ordered() -> None:
    options = BUILDER(BUILDER.time_and_memory()).with_empty_output()
    root = profiler().profile_operations(options.build())
    assert [root.children[0].name, root.children[0].children[0].name] == ["MatMul", "Exp"]
    options = options.with_min_execution_time(min_micros=66)
    assert [e.name for e in profiler().profile_name_scope(options.build()).children] == ["layer"]
    options = BUILDER(BUILDER.time_and_memory()).with_empty_output().with_max_depth(1)
    assert [len(e.children) for e in profiler().profile_name_scope(options.build()).children] == [0, 0]


def test_lines_of_code_and_text(tmp_path: Path) -> None:
    outfile = tmp_path / "times.txt"
    options = BUILDER(BUILDER.time_and_memory()).with_file_output(str(outfile)).select(["micros", "occurrence"])
    root = profiler().profile_python(options.order_by("micros").build())
    names = [entry.name.split(":")[0::2] for entry in root.children]
    assert names == [["test_profiler.py", "small_graph"]] * 2
    lines = outfile.read_text().splitlines()
    assert lines[0] == "_TFProfRoot (365 micros)"
    assert lines[1].endswith(":small_graph (300 micros, 2 occurrence)")


def test_advice() -> None:
    advice = profiler().advise()
    expensive = advice.checkers["ExpensiveOperationChecker"].reports
    assert expensive[0] == "top 1 operation type: MatMul, cpu: 0us, accelerator: 300us, total: 300us (82.19%)"
    assert "top 2 graph node: exp, cpu: 65us, accelerator: 0us, total: 65us (17.81%)" in expensive
    assert list(advice.checkers["AcceleratorUtilizationChecker"].reports) == [f"device: {GPU} utilization: 1.00"]
    assert set(tf.profiler.advise(small_graph(), STEPS[0], {"JobChecker": {}}).checkers) == {"JobChecker"}
    with pytest.raises(ValueError, match="there is no checker 'Other'; there are Accelerator"):
        profiler().advise({"Other": {}})


def test_all_in_one_message() -> None:
    proto = ProfileProto.FromString(profiler().serialize_to_string())
    by_name = {node.name: node for node in proto.nodes.values()}
    product = by_name["layer/product"]
    assert (product.op, product.float_ops, list(proto.steps)) == ("MatMul", 128, [0, 1])
    assert product.execs[1].accelerator_execs[GPU].times[0].int64_values == [100, 200]
    assert proto.nodes[product.inputs[0]].name == "x"
    texts = proto.id_to_string
    assert texts[product.trace.traces[0].file_id] == __file__


def test_a_step_that_ran() -> None:
    with tf.Graph().as_default() as graph, tf.Session() as session:
        with tf.name_scope("net"):
            x = tf.matmul(tf.random_normal([64, 64]), tf.ones([64, 64]))
            y = tf.reduce_sum(tf.exp(x))
        made = tf.profiler.Profiler(graph)
        for step in range(3):
            metadata = tf.RunMetadata()
            session.run(y, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=metadata)
            made.add_step(step, metadata)
        options = BUILDER(BUILDER.time_and_memory(min_micros=0, min_bytes=0)).with_empty_output().with_step(2)
        views: list[Any] = [
            made.profile_name_scope(options.build()),
            made.profile_operations(options.build()),
            made.profile_python(options.build()),
        ]
        totals = {view.total_exec_micros for view in views}
        taken = sum(s.all_end_rel_micros for d in metadata.step_stats.dev_stats for s in d.node_stats)
        assert len(totals) == 1
        assert 0 < totals.pop() <= taken


def test_what_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match="knows the commands scope, graph, op, code, not 'tree'"):
        tf.profiler.profile(small_graph(), cmd="tree")
    with pytest.raises(ValueError, match="tf.profiler selects .*, not 'luck'; choose among them"):
        tf.profiler.profile(small_graph(), options=BUILDER().select(["luck"]).build())


def test_former_names_count_the_same() -> None:
    analyzer = tf.contrib.tfprof.model_analyzer
    with tf.Graph().as_default() as graph:
        tf.layers.dense(tf.ones([2, 3]), 4)
        quiet = {"output": "none"}
        counted = analyzer.print_model_analysis(
            graph, tfprof_options=analyzer.TRAINABLE_VARS_PARAMS_STAT_OPTIONS | quiet
        )
        assert counted.total_parameters == 3 * 4 + 4
        few = {"select": ["float_ops"], "account_type_regexes": ["MatMul"], "order_by": "float_ops"} | quiet
        assert analyzer.print_model_analysis(graph, tfprof_options=few).total_float_ops == 2 * 2 * 3 * 4
