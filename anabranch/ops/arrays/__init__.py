"""Operations on the form of tensors: joining, cutting, gathering, padding, segments."""
