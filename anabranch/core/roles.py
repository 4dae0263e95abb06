"""What operation types are in the structure of a graph, beside what they compute."""

from __future__ import annotations

import enum
from typing import Final


class Role(enum.Enum):
    """The part that an operation type plays; each type has one.

    What runs graphs asks for the role, so that a type of another name may play it too. Such a type has the inputs,
    outputs and attributes that are listed here.
    """

    #: computes its outputs from its inputs
    COMPUTATION = enum.auto()
    #: takes nothing and gives the same in every step
    CONSTANT = enum.auto()
    #: has no value but the one that is fed or passed by a caller
    PLACEHOLDER = enum.auto()

    # Primitives of control flow, which the executor runs by itself (`runtime.executor`).
    #: (data, predicate) -> (data if it is false, data if it is true)
    SWITCH = enum.auto()
    #: (data, ...) -> (the data that is alive, its number)
    MERGE = enum.auto()
    #: data -> data in a loop; attributes `frame_name`, `is_constant`, `parallel_iterations`
    ENTER = enum.auto()
    #: data in a loop -> data after it
    EXIT = enum.auto()
    #: data -> data in the next iteration
    NEXT_ITERATION = enum.auto()
    #: predicate -> predicate, by which a loop goes on
    LOOP_CONDITION = enum.auto()
    #: runs when everything that it waits for has run or is dead
    TRIGGER = enum.auto()
    #: takes anything and gives nothing; dead if something that it takes is
    GATE = enum.auto()

    # Functional control flow, which is compiled whole or lowered to primitives (`passes.lower_control_flow`).
    #: (predicate, data, ...) -> results; attributes `then_branch`, `else_branch`
    CONDITIONAL = enum.auto()
    #: (number, data, ...) -> results; attribute `branches`
    CASE = enum.auto()
    #: data -> data; attributes `cond`, `body`, `parallel_iterations`
    LOOP = enum.auto()

    #: what its owner takes -> tensors inside of the owner, a loop or conditional that it waits for
    #: (`graph.inner_values`)
    BESIDE = enum.auto()

    # Between devices.
    #: data -> nothing
    SEND = enum.auto()
    #: nothing -> the data that the Send of the same transfer takes
    RECEIVE = enum.auto()


#: what the executor runs by itself
PRIMITIVE_ROLES: Final = frozenset(
    {
        *(Role.SWITCH, Role.MERGE, Role.ENTER, Role.EXIT, Role.NEXT_ITERATION),
        *(Role.LOOP_CONDITION, Role.TRIGGER, Role.GATE),
    }
)
#: what calls functions and can be lowered to primitives
FUNCTIONAL_ROLES: Final = frozenset({Role.CONDITIONAL, Role.CASE, Role.LOOP})
#: what takes tensors from one device to another
TRANSFER_ROLES: Final = frozenset({Role.SEND, Role.RECEIVE})
