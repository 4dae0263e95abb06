"""Operations on ragged tensors."""
