"""What users call beyond single operations: functions by family, variables and their scopes, layers, losses, metrics.

Everything here only builds graphs: a function creates operations of `ops` in the default graph and returns tensors,
operations or objects that stand for them. Nothing computes, and nothing imports the compiler's packages.

A folder per subject, a file per family; what stands beside the folders helps them.
The stubs of `api` say which names are public, and arrange them into the submodules users see.
"""

from __future__ import annotations
