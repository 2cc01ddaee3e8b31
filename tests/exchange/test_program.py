"""Imported Programs: the reference machine agrees with the verdict, and threads give the right numbers."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from algocc.errors import ScheduleError, UsageError
from algocc.exchange import load, program, verdict
from algocc.program import check
from algocc.reference import all_interleavings, is_right, run_program
from algocc.runtime import count_wrong, expected, make_inputs, run

DATA = Path(__file__).parent / "data"
FIXTURES = sorted(p.name for p in (DATA / "fixtures").glob("*.xml"))


@pytest.mark.parametrize("name", FIXTURES)
def test_machine_agrees(name: str) -> None:
    try:
        f = load(DATA / "fixtures" / name)
        programs = [(m, program(f, in_place=m)) for m in f.modes]
    except (UsageError, ScheduleError):
        return
    for in_place, p in programs:
        check(p)
        right = verdict(f, in_place=in_place).correct
        runs = []
        for seed in range(20):
            try:
                runs.append(is_right(p, run_program(p, iterations=2, choose=random.Random(seed))))
            except ScheduleError:
                runs.append(False)
        assert all(runs) if right else "two_tbs" in name or not all(runs)


@pytest.mark.parametrize("name", ["ar_n2_send_first_needs_1_slot.xml", "ar_n2_two_channels_ok.xml"])
def test_every_interleaving_of_a_tiny_one(name: str) -> None:
    p = program(load(DATA / "fixtures" / name))
    try:
        results = all_interleavings(p, limit=200_000)
    except UsageError:
        pytest.skip("more moments than are looked at")
    assert len(results) == 1 and is_right(p, results[0])


@pytest.mark.parametrize(
    "name",
    [
        "fixtures/ar_ring_n5_ok.xml",
        "fixtures/rs_n2_inplace_coll_spelled_with_underscore.xml",
        "fixtures/ar_oneshot_n4_rotated_order.xml",
        "public/rccl__alltoall-8n-0-1kb__0a53077c.xml",
        "public/sched__ar_tree_12_LL__a0bfca14.xml",
        "public/test~execution-files~allreduce_nvls_2.json__6830e158.json",
        "public/test~execution-files~allreduce_packet.json__b30bb260.json",
        "public/test~execution-files~sendrecv.json__7bedb250.json",
    ],
)
def test_threads(name: str) -> None:
    f = load(DATA / name)
    p = program(f)
    for dtype, op in (("int32", "sum"), ("float32", "avg")):
        if op == "avg" and not f.collective.reduces:
            continue
        inputs = make_inputs(p.collective, 48, dtype, op)
        assert count_wrong(run(p, inputs, op=op), expected(p.collective, inputs, op)) == 0


def test_bits_of_the_rotated_one_shot() -> None:
    """[1e8, 1, -1e8, 1] in float32: in rank order every rank has 1, in rotated order 1, 0, 1, 0; the sum is 2."""
    inputs = [np.full(1, x, np.float32) for x in (1e8, 1, -1e8, 1)]
    for name, bits in (("rotated_order", [1, 0, 1, 0]), ("rank_order_ok", [1, 1, 1, 1])):
        p = program(load(DATA / f"fixtures/ar_oneshot_n4_{name}.xml"))
        assert [float(out[0]) for out in run(p, inputs)] == bits
