from anabranch.frontend.storage.graph_util import (
    convert_variables_to_constants as convert_variables_to_constants,
    extract_sub_graph as extract_sub_graph,
    must_run_on_cpu as must_run_on_cpu,
    remove_training_nodes as remove_training_nodes,
    tensor_shape_from_node_def_name as tensor_shape_from_node_def_name,
)
from anabranch.graph.graphdef_import import import_graph_def as import_graph_def
from anabranch.serving.quantizing import quantize_graph as quantize_graph
