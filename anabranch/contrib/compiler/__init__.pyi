from anabranch.contrib.compiler import jit as jit, xla as xla
