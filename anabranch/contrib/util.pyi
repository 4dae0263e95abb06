from anabranch.frontend.framework import get_static_value
from anabranch.proto.tensors import make_ndarray as make_ndarray, make_tensor_proto as make_tensor_proto

constant_value = get_static_value
