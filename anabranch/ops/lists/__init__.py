"""Lists of tensors: `TensorList` values, and tensor arrays."""
