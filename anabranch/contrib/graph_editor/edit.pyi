from anabranch.frontend.graph_editor.editing import (
    bypass as bypass,
    connect as connect,
    detach as detach,
    detach_control_inputs as detach_control_inputs,
    detach_control_outputs as detach_control_outputs,
    detach_inputs as detach_inputs,
    detach_outputs as detach_outputs,
)
