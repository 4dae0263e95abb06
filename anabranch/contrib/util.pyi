from anabranch.frontend.framework import get_static_value
from anabranch.graph.op_list import (
    op_list_of,
    op_names_of,
)
from anabranch.proto.tensors import make_ndarray as make_ndarray, make_tensor_proto as make_tensor_proto

constant_value = get_static_value
ops_used_by_graph_def = op_names_of
stripped_op_list_for_graph = op_list_of
