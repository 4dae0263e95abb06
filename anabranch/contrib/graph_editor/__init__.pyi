from anabranch.contrib.graph_editor import (
    edit as edit,
    reroute as reroute,
    select as select,
    subgraph as subgraph,
    transform as transform,
    util as util,
)
from anabranch.frontend.graph_editor.editing import (
    bypass as bypass,
    connect as connect,
    detach as detach,
    detach_control_inputs as detach_control_inputs,
    detach_control_outputs as detach_control_outputs,
    detach_inputs as detach_inputs,
    detach_outputs as detach_outputs,
)
from anabranch.frontend.graph_editor.elements import (
    ControlOutputs as ControlOutputs,
    get_consuming_ops as get_consuming_ops,
    get_generating_ops as get_generating_ops,
    get_tensors as get_tensors,
    make_list_of_op as make_list_of_op,
    make_list_of_t as make_list_of_t,
    make_placeholder_from_dtype_and_shape as make_placeholder_from_dtype_and_shape,
    make_placeholder_from_tensor as make_placeholder_from_tensor,
    placeholder_name as placeholder_name,
)
from anabranch.frontend.graph_editor.rerouting import (
    add_control_inputs as add_control_inputs,
    remove_control_inputs as remove_control_inputs,
    reroute_inputs as reroute_inputs,
    reroute_ios as reroute_ios,
    reroute_outputs as reroute_outputs,
    reroute_ts as reroute_ts,
    swap_inputs as swap_inputs,
    swap_ios as swap_ios,
    swap_outputs as swap_outputs,
    swap_ts as swap_ts,
)
from anabranch.frontend.graph_editor.selection import (
    can_be_regex as can_be_regex,
    check_cios as check_cios,
    compute_boundary_ts as compute_boundary_ts,
    filter_ops as filter_ops,
    filter_ops_from_regex as filter_ops_from_regex,
    filter_ts as filter_ts,
    filter_ts_from_regex as filter_ts_from_regex,
    get_backward_walk_ops as get_backward_walk_ops,
    get_forward_walk_ops as get_forward_walk_ops,
    get_name_scope_ops as get_name_scope_ops,
    get_ops_ios as get_ops_ios,
    get_walks_intersection_ops as get_walks_intersection_ops,
    get_walks_union_ops as get_walks_union_ops,
    get_within_boundary_ops as get_within_boundary_ops,
    make_regex as make_regex,
    select_ops as select_ops,
    select_ops_and_ts as select_ops_and_ts,
    select_ts as select_ts,
)
from anabranch.frontend.graph_editor.transforming import (
    Transformer as Transformer,
    TransformerInfo as TransformerInfo,
    assign_renamed_collections_handler as assign_renamed_collections_handler,
    copy as copy,
    copy_op_handler as copy_op_handler,
    copy_with_input_replacements as copy_with_input_replacements,
    graph_replace as graph_replace,
    keep_t_if_possible_handler as keep_t_if_possible_handler,
    replace_t_with_placeholder_handler as replace_t_with_placeholder_handler,
    transform_op_if_inside_handler as transform_op_if_inside_handler,
)
from anabranch.frontend.graph_editor.views import (
    SubGraphView as SubGraphView,
    make_view as make_view,
    make_view_from_scope as make_view_from_scope,
)

ph = make_placeholder_from_dtype_and_shape
sgv = make_view
sgv_scope = make_view_from_scope
