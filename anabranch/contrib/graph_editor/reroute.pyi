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
