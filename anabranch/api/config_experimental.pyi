from anabranch.runtime.device_settings import (
    VirtualDeviceConfiguration as VirtualDeviceConfiguration,
    get_memory_growth as get_memory_growth,
    get_virtual_device_configuration as get_virtual_device_configuration,
    get_visible_devices as get_visible_devices,
    list_logical_devices as list_logical_devices,
    list_physical_devices as list_physical_devices,
    set_memory_growth as set_memory_growth,
    set_virtual_device_configuration as set_virtual_device_configuration,
    set_visible_devices as set_visible_devices,
)
from anabranch.runtime.process_settings import (
    get_device_policy as get_device_policy,
    get_synchronous_execution as get_synchronous_execution,
    set_device_policy as set_device_policy,
    set_synchronous_execution as set_synchronous_execution,
)
from anabranch.xla.float32_products import (
    enable_tensor_float_32_execution as enable_tensor_float_32_execution,
    tensor_float_32_execution_enabled as tensor_float_32_execution_enabled,
)
