"""Multicast: programs that let a switch reduce and copy, against what the collective wants, on pretended devices."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from algocc.catalog import algorithms
from algocc.errors import UsageError
from algocc.kernels import layout as at
from algocc.kernels import multicast, ptx
from algocc.kernels.audit import audit, order
from algocc.kernels.grid import Key
from algocc.kernels.operators import ELEMENTS, element, kernel_of, operator
from algocc.kernels.straight import MoveForm
from algocc.lowering import lower
from algocc.program import Program
from algocc.runtime import expected, make_inputs
from algocc.runtime.cuda.host import Devices
from algocc.runtime.cuda.multicast import everywhere
from algocc.runtime.cuda.on_threads import ThreadDriver
from algocc.runtime.oracle import count_wrong
from algocc.runtime.plan import plan
from algocc.schedules.all_pairs import all_pairs_all_gather, all_pairs_reduce_scatter, one_shot, two_shot
from algocc.schedules.ring import ring

SLOW = "ALGOCC_SLOW" in os.environ


def kinds(program: Program, count: int, dtype: str = "float32", op: str = "sum") -> tuple[int, int]:
    """Operands of everybody's that the Moves of a program get: sources, destinations."""
    ready = plan(program, count=count, element=element(dtype), tile_bytes=1 << 20)
    made, kind = everywhere(program, ready, operator(op), element(dtype), count=count)
    targets = np.concatenate([
        np.arange(m[at.DESTINATIONS] + m[at.SOURCES]) < m[at.DESTINATIONS] for m in made.moves.tolist()
    ])  # fmt: skip
    return int(((kind == at.MULTICAST) & ~targets).sum()), int(((kind == at.MULTICAST) & targets).sum())


def close(found, inputs, dtype) -> bool:
    """As near as sums in any order are, rounded once at the end where they have 16 bits."""
    exact = np.sum([x.astype(np.float64) for x in inputs], axis=0)
    size = np.sum([np.abs(x.astype(np.float64)) for x in inputs], axis=0)
    ulp = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    return bool((np.abs(found.astype(np.float64) - exact) <= len(inputs) * ulp * size).all())


def check_run(program, count, dtype="float32", op="sum", *, skip=0, calls=2, rests=0, **options):
    c, n = program.collective, program.n
    with Devices(
        program, count=count, dtype=dtype, op=op, devices=list(range(n)), multicast=True, threads=3,
        driver=ThreadDriver(devices=n, rests=rests, seed=count), **options,
    ) as run:  # fmt: skip
        inputs, outputs = run.buffers(skip=skip)
        for call in range(calls):
            data = make_inputs(c, count, dtype, op, seed=call)
            if not program.in_place:
                for out in outputs:
                    out.set(np.full(out.size, 7).astype(out.element.numpy))
            for mine, values in zip(inputs, data, strict=True):
                mine.set(values)
            run(inputs, outputs)
            for rank, wanted in enumerate(expected(c, data, op)):
                found = outputs[rank].get()
                if not run.bitwise:
                    assert close(found, data, dtype), (call, rank)
                else:
                    assert count_wrong([found], [wanted]) == 0, (call, rank)
        return run.bitwise


@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_which_moves_they_are(n):
    """One load and one store where every rank's place was named; chunk by chunk, by any rank."""
    assert kinds(lower(two_shot(n)), 4 * n) == (n, n)
    assert kinds(lower(two_shot(n), in_place=True), 4 * n) == (n, n)
    assert kinds(lower(one_shot(n)), 5) == (n, 0)
    assert kinds(lower(all_pairs_reduce_scatter(n)), 4) == (n, 0)
    assert kinds(lower(all_pairs_reduce_scatter(n), in_place=True), 4) == (n, 0)
    assert kinds(lower(all_pairs_all_gather(n)), 4) == (0, n)
    assert kinds(lower(two_shot(n)), 4 * n, "float32", "max") == (0, n)
    for name, p in (("ring", lower(ring(n))),) if n > 2 else ():
        with pytest.raises(UsageError, match=rf"no Move of program {name} can take or give the same place of all {n} ranks"):
            kinds(p, 4 * n)


@pytest.mark.parametrize(("n", "dtype", "count", "wanted"), [
    (2, "bfloat16", 8, (2, 2)), (3, "bfloat16", 8, (1, 1)), (2, "int8", 16, (0, 2)), (4, "float16", 15, None), (2, "int8", 12, None),
    (2, "complex64", 8, None), (2, "bfloat16", 9, (1, 1)),
])  # fmt: skip
def test_words_of_less_than_four_bytes_stay_plain(n, dtype, count, wanted):
    """Thirds of 8 begin at 0, 2 and 5, and only the first begins and ends with a word."""
    if wanted is not None:
        assert kinds(lower(two_shot(n)), count, dtype) == wanted
        return
    with pytest.raises(UsageError, match=rf"no Move of program two_shot .* {dtype}, at multiples of 4 bytes"):
        kinds(lower(two_shot(n)), count, dtype)


RUNS = [(two_shot, 3, False), (one_shot, 2, True), (all_pairs_reduce_scatter, 3, True), (two_shot, 8, True)]
MORE_RUNS = [(make, n, in_place) for make in (two_shot, one_shot, all_pairs_reduce_scatter) for n in (2, 4, 5) for in_place in (0, 1)]


@pytest.mark.parametrize(("make", "n", "in_place"), RUNS + (MORE_RUNS if SLOW else []))
def test_integers_are_exact(make, n, in_place):
    program = lower(make(n), in_place=bool(in_place))
    for count in (1, n, 203) if SLOW else (203,):
        assert check_run(program, count, "int32", skip=count % 3, channels=1 + count % 2, tile_bytes=128)


FLOATS = [("bfloat16", 204), ("float32", 205), ("float16", 64), ("float64", 9)]


@pytest.mark.parametrize(("dtype", "count"), FLOATS if SLOW else FLOATS[:2])
def test_floats_are_as_good_as_in_any_order(dtype, count):
    assert not check_run(lower(two_shot(3)), count, dtype, skip=2, rests=20)


OPERATORS = [("min", "int64"), ("max", "float32"), ("band", "uint32"), ("avg", "int32"), ("lor", "bool"), ("sum", "uint8")]


@pytest.mark.parametrize(("op", "dtype"), OPERATORS if SLOW else OPERATORS[:2])
def test_operators(op, dtype):
    """Those that the switch has not are folded by the lane, and copied by the switch."""
    assert check_run(lower(two_shot(2)), 48, dtype, op)


@settings(max_examples=40 if SLOW else 2, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_whatever_the_schedule(data):
    """Every algorithm that has such a Move, at any size, leaves what its collective wants."""
    name = data.draw(st.sampled_from(["two_shot", "one_shot", "all_pairs_reduce_scatter", "all_pairs_all_gather", "ring"]
                                     if not SLOW else sorted(algorithms())))  # fmt: skip
    n = data.draw(st.sampled_from([2, 3, 4]))
    try:
        program = lower(algorithms()[name](n), in_place=data.draw(st.booleans()))
        check_run(program, data.draw(st.integers(1, 300)), "int32", skip=data.draw(st.integers(0, 5)), tile_bytes=64, calls=1)
    except UsageError as error:
        assert "no Move of program" in str(error) or "at most" in str(error) or "in place" in str(error) or name not in (
            "two_shot", "one_shot")  # fmt: skip


def test_it_replays_as_it_is():
    with Devices(lower(two_shot(2)), count=64, dtype="int32", devices=[0, 1], driver=ThreadDriver(devices=2), multicast=True,
                 threads=2) as run:  # fmt: skip
        inputs, outputs = run.buffers()
        for k in range(300):
            for rank, array in enumerate(inputs):
                array.set(np.full(64, k + rank, np.int32))
            run(inputs, outputs)
            assert all((out.get() == 2 * k + 1).all() for out in outputs), k


@pytest.mark.parametrize(("options", "says"), [
    ({"devices": [0, 0]}, "ranks 0 and 1 are both on device 0, wanted a device for each"),
    ({"form": "interpreted"}, "multicast is for generated kernels"),
    ({"protocol": "ll"}, "multicast goes with protocol='simple' only"),
    ({"driver": ThreadDriver(devices=2, architecture="sm_80")}, "device 0 .* is sm_80, wanted sm_90 or later"),
    ({"driver": ThreadDriver(devices=2, apart={1})}, "device 1 .* is at no switch that reduces"),
    ({"op": "prod", "dtype": "complex64"}, "use another schedule .*, operator, type or count"),
])  # fmt: skip
def test_refused_by_name(options, says):
    given = {"count": 8, "devices": [0, 1], "driver": ThreadDriver(devices=2), "multicast": True, **options}
    with pytest.raises(UsageError, match=says):
        Devices(lower(two_shot(2)), **given)


def test_one_rank_is_refused():
    with pytest.raises(UsageError, match="has 1 rank, wanted 2 or more"):
        Devices(lower(two_shot(1)), count=8, devices=[0], driver=ThreadDriver(), multicast=True)


def test_arrays_of_elsewhere_are_refused():
    with Devices(lower(two_shot(2)), count=8, devices=[0, 1], driver=ThreadDriver(devices=2), multicast=True, threads=2) as run:
        inputs, outputs = run.buffers()
        with pytest.raises(UsageError, match="the inputs of the ranks do not lie alike in memory that all have at one address"):
            run([run.empty(r, 8) for r in range(2)], outputs)
        others, _ = run.buffers()
        with pytest.raises(UsageError, match="do not lie alike"):
            run([inputs[0], others[1]], outputs)
        run(inputs, outputs)


def test_memory_is_given_back():
    driver = ThreadDriver(devices=2)
    run = Devices(lower(two_shot(2)), count=8, devices=[0, 1], driver=driver, multicast=True, threads=2)
    before = len(driver._memory)
    arrays = run.buffers()
    assert len(driver._memory) == before + 2
    kept = arrays[0][0]
    del arrays
    assert len(driver._memory) == before + 2  # as long as there is one
    del kept
    assert len(driver._memory) == before
    run.close()


# What the compiler makes of it


def form(read: bool, write: bool):
    kinds = (at.MULTICAST if write else at.PLAIN, at.MULTICAST if read else at.PLAIN)
    return ((MoveForm(1, 1, 1, 1, (1, 1), (), ((1, 0, 1),), ((1, 1),), kinds),),)


@pytest.mark.skipif(ptx.missing() is not None, reason=f"kernels can't be compiled: {ptx.missing()}")
@pytest.mark.parametrize("architecture", ["sm_90", "sm_100"])
@pytest.mark.parametrize(("op", "dtype"), sorted(multicast.FORMS) if SLOW else [("sum", "float32"), ("sum", "bfloat16"), ("max", "int64")])
def test_kernels_hold_to_the_rules(op, dtype, architecture):
    kernel = ptx.assembled(Key(op, dtype, form(True, True), ELEMENTS[dtype].size), architecture)
    assert audit(kernel).findings == ()
    assert f"multimem.ld_reduce.relaxed.sys.global.{multicast.FORMS[op, dtype].rpartition('.')[0]}" in kernel.ptx
    lines = kernel.ptx.splitlines()
    fences = [i for i, line in enumerate(lines) if "fence.proxy.alias" in line]
    assert len(fences) == 2
    for i, rule in zip(fences, ("fence → everybody's memory", "everybody's memory → fence"), strict=True):
        assert rule in {f.rule for f in order("\n".join(lines[:i] + lines[i + 1 :]))}
    for what in ("multimem.ld_reduce", "multimem.st"):
        without = replace(kernel, ptx="\n".join(line for line in lines if what not in line))
        assert "everybody's" in {f.rule for f in audit(without).findings}


@pytest.mark.skipif(ptx.missing() is not None, reason=f"kernels can't be compiled: {ptx.missing()}")
def test_copies_are_of_any_type():
    kernel = ptx.assembled(Key(None, None, form(False, True), 2), "sm_90")
    assert audit(kernel).findings == () and "multimem.st.relaxed.sys.global.v4.f32" in kernel.ptx
    assert "multimem.ld" not in kernel.ptx


def test_every_form_is_of_a_kernel_that_there_is():
    for op, dtype in multicast.FORMS:
        assert kernel_of(operator(op), element(dtype)) == (operator(op), element(dtype))
