"""For tests of algocc and of what is built on it: random schedules and mutations, assertions, and
what every fabric must pass.

Needs the extra `test`: `pip install algocc[test]`.
"""

from algocc.testing.asserts import assert_correct, assert_equivalent, assert_has_diagram
from algocc.testing.conformance import Case, check_case, check_fabric
from algocc.testing.generate import random_arbitrary, random_correct
from algocc.testing.mutate import mutated, mutated_program
from algocc.testing.strategies import (
    arbitrary_schedules,
    collectives,
    interleavings,
    mutations,
    program_mutations,
    schedules,
)

__all__ = [
    "Case",
    "arbitrary_schedules",
    "assert_correct",
    "assert_equivalent",
    "assert_has_diagram",
    "check_case",
    "check_fabric",
    "collectives",
    "interleavings",
    "mutated",
    "mutated_program",
    "mutations",
    "program_mutations",
    "random_arbitrary",
    "random_correct",
    "schedules",
]
