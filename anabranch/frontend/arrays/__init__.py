"""The form of tensors: constants, joining, cutting, gathering; functions on strings."""
