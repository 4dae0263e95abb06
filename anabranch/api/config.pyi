from anabranch.api import config_experimental, config_optimizer, config_threading
from anabranch.frontend.control_flow.functions import run_functions_eagerly
from anabranch.runtime.device_settings import (
    experimental_list_devices as experimental_list_devices,
    get_soft_device_placement as get_soft_device_placement,
    get_visible_devices as get_visible_devices,
    list_logical_devices as list_logical_devices,
    list_physical_devices as list_physical_devices,
    set_soft_device_placement as set_soft_device_placement,
    set_visible_devices as set_visible_devices,
)

experimental = config_experimental
experimental_run_functions_eagerly = run_functions_eagerly
optimizer = config_optimizer
threading = config_threading
