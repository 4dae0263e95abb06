"""What tests of graphs need: the op table's checker, the gradient checker, fakes of the outer layers."""
