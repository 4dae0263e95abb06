"""`_pure_variable_scope` of `tensorflow.python.ops.variable_scope`."""

from __future__ import annotations

from typing import Any

import anabranch as tf
from anabranch.core.values import PassedOn
from anabranch.frontend.variables.scope import VariableScope
from anabranch.frontend.variables.store import Reuse


class _pure_variable_scope(tf.variable_scope):
    """A variable scope that opens no name scope.

    Args:
        name_or_scope, reuse: as of `tf.variable_scope`.
        old_name_scope: nothing depends on it.
        settings: initializer, regularizer and others, as of `tf.variable_scope`.
    """

    def __init__(
        self,
        name_or_scope: str | VariableScope,
        reuse: Reuse = None,
        old_name_scope: str | None = None,
        **settings: PassedOn,
    ) -> None:
        options: dict[str, Any] = dict(settings)
        super().__init__(name_or_scope, reuse=reuse, auxiliary_name_scope=False, **options)
