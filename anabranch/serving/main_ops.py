"""The operation that a loaded SavedModel runs before it is used."""

from __future__ import annotations

from anabranch.frontend.control_flow.grouping import group, tables_initializer
from anabranch.frontend.variables.functions import global_variables_initializer, local_variables_initializer
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation


def main_op() -> Operation:
    """An operation that initializes global variables, local variables and tables.

    Where variables are to keep what the model restores, `tf.tables_initializer()` is the main operation to take.
    """
    return group(global_variables_initializer(), local_variables_initializer(), tables_initializer())


def main_op_with_restore(restore_op_name: str | Operation) -> Operation:
    """An operation that does the same, and runs the operation of that name, which restores variables.

    The restore is in the graph already: it waits for the initializers only if it was made to depend on them.
    """
    graph = get_default_graph()
    restore = (
        restore_op_name if isinstance(restore_op_name, Operation) else graph.get_operation_by_name(restore_op_name)
    )
    with graph.control_dependencies([main_op()]):
        return group(restore)
