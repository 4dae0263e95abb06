"""Operations that compute with quantised tensors: integers of few bits that stand for the floats of a range."""
