"""What the public checkers miss: each must be caught, in XML and in plans."""

from __future__ import annotations

import json
from typing import Any

import pytest

from algocc import catalog
from algocc.collective import all_reduce, all_to_all
from algocc.errors import ScheduleError, UsageError
from algocc.exchange import export, program, read, verdict
from algocc.exchange.judge import Verdict
from algocc.steps import Steps

HEAD = 'proto="Simple" nchannels="1" minBytes="0" maxBytes="0"'
Tb = tuple[int, int, str]
"""(send, recv, steps)."""


def step(s: int, kind: str, src: str, dst: str, *, cnt: int = 1, dep: tuple[int, int] = (-1, -1), has: int = 0) -> str:
    return (
        f'<step s="{s}" type="{kind}" srcbuf="{src[0]}" srcoff="{src[1:]}" dstbuf="{dst[0]}" dstoff="{dst[1:]}" '
        f'cnt="{cnt}" depid="{dep[0]}" deps="{dep[1]}" hasdep="{has}"/>'
    )


def steps(*given: tuple[str, str, str]) -> str:
    return "".join(step(i, *g) for i, g in enumerate(given))


def xml(coll: str, loop: int, sizes: tuple[int, int, int], gpus: list[list[Tb]], *, in_place: bool = True) -> bytes:
    text = [
        f'<algo name="t" {HEAD} nchunksperloop="{loop}" ngpus="{len(gpus)}" coll="{coll}" inplace="{int(in_place)}" '
        f'outofplace="{int(not in_place)}">'
    ]
    for rank, blocks in enumerate(gpus):
        text.append(f'<gpu id="{rank}" i_chunks="{sizes[0]}" o_chunks="{sizes[1]}" s_chunks="{sizes[2]}">')
        for i, (send, recv, body) in enumerate(blocks):
            text.append(f'<tb id="{i}" send="{send}" recv="{recv}" chan="0">{body}</tb>')
        text.append("</gpu>")
    return "\n".join([*text, "</algo>"]).encode()


def reasons(v: Verdict) -> str:
    assert not v.correct
    return "\n".join(map(str, v.report.failures))


def test_reduce_with_the_offset_of_the_other_side() -> None:
    """1. The local offset of a two-operand reduce is not the remote one."""
    good = steps(("s", "i0", "i0"), ("rrc", "i1", "i1"), ("s", "i1", "i1"), ("r", "i0", "i0"))
    other = steps(("s", "i1", "i1"), ("rrc", "i0", "i0"), ("s", "i0", "i0"), ("r", "i1", "i1"))
    bad = other.replace('type="rrc" srcbuf="i" srcoff="0"', 'type="rrc" srcbuf="i" srcoff="1"')
    assert verdict(read(xml("allreduce", 2, (2, 0, 0), [[(1, 1, good)], [(0, 0, other)]]), "f")).correct
    text = reasons(verdict(read(xml("allreduce", 2, (2, 0, 0), [[(1, 1, good)], [(0, 0, bad)]]), "f")))
    assert "out[0] holds {r0.in[0],r1.in[1]}, wanted {r0.in[0],r1.in[0]}" in text


def test_halving_doubling_in_interleaved_instances() -> None:
    """2. Two instances over interleaved chunks, one of which takes the other's chunk."""
    both = [[], []]  # type: ignore[var-annotated]
    for rank, peer in ((0, 1), (1, 0)):
        for instance in (0, 1):
            mine, theirs = f"i{2 * instance + rank}", f"i{2 * instance + peer}"
            wrong = f"i{instance + rank}"  # strided as if there were one instance
            both[rank].append((peer, mine, theirs, wrong))
    for pick in (1, 3):
        gpus = [
            [
                (b[0][0], b[0][0], steps(*[x for p in b for x in _exchange(p[pick], p[2])]))
                for b in [both[rank]]
            ]
            for rank in (0, 1)
        ]  # fmt: skip
        v = verdict(read(xml("allreduce", 4, (4, 0, 0), gpus), "f"))
        assert v.correct == (pick == 1)


def _exchange(mine: str, theirs: str) -> list[tuple[str, str, str]]:
    return [("s", theirs, theirs), ("rrc", mine, mine), ("s", mine, mine), ("r", theirs, theirs)]


def test_in_place_alltoall_staged_through_scratch() -> None:
    """3. Input and output are the same memory: a threadblock overwrites what another has still to send."""
    gpus = [
        [(1, -1, steps(("s", f"i{1 - r}", "s0"))), (-1, 1, steps(("r", "o0", f"o{1 - r}")))]
        if r == 0
        else [(0, -1, steps(("s", "i0", "s0"))), (-1, 0, steps(("r", "o0", "o0")))]
        for r in (0, 1)
    ]  # fmt: skip
    v = verdict(read(xml("alltoall", 2, (2, 2, 1), gpus), "f"))
    assert "nothing to order it after" in reasons(v)


def test_sixteen_sends_before_the_first_receive() -> None:
    """4. Both directions send 16 before they receive: a deadlock with 8 slots."""
    body = steps(*[("s", f"i{k}", f"i{k}") for k in range(16)], *[("rrc", f"i{k}", f"i{k}") for k in range(16)])
    f = read(xml("allreduce", 16, (16, 0, 0), [[(1, 1, body)], [(0, 0, body)]]), "f")
    v = verdict(f)
    assert v.least_slots == 16
    assert "deadlock: gpu 0 tb 0 step 8 waits for room from gpu 1 tb 0 step 16" in reasons(v)
    assert verdict(f, slots=16).correct


def test_broadcasts_that_do_not() -> None:
    """5. Nothing at all; and only rank 0 has it."""
    empty = read(xml("broadcast", 1, (1, 1, 0), [[], []]), "f")
    assert "rank 1: out[0] was never written" in reasons(verdict(empty))
    copy = read(xml("broadcast", 1, (1, 1, 0), [[(-1, -1, steps(("cpy", "i0", "o0")))], []], in_place=False), "f")
    assert "rank 1: out[0] was never written" in reasons(verdict(copy))


def test_a_contribution_added_twice() -> None:
    """6. Right as a set, wrong as a sum."""
    twice = steps(("s", "i0", "i0"), ("rrc", "i0", "i0"), ("s", "i0", "i0"), ("rrc", "i0", "i0"))
    v = verdict(read(xml("allreduce", 1, (1, 0, 0), [[(1, 1, twice)], [(0, 0, twice)]]), "f"))
    assert (
        "holds {0,0,1,1}: rank 0 is added twice, at gpu 0 tb 0 step 3, wanted {0,1}; valid for idempotent"
        in reasons(v)
    )
    assert verdict(
        read(xml("allreduce", 1, (1, 0, 0), [[(1, 1, twice)], [(0, 0, twice)]]), "f"), idempotent=True
    ).correct


@pytest.mark.parametrize(
    ("doublings", "count"), [(3, None), (40, 2**40), (63, 2**63), (70, 2**70), (1000, "2^1000")]
)
def test_contributions_without_number(doublings: int, count: int | str | None) -> None:
    """6. Doubled between two chunks of scratch, so often that nobody can write it out: counted, exactly."""
    body = steps(("cpy", "i0", "s0"), *[("cpy", "s0", "s1"), ("re", "s1", "s0")] * doublings, ("cpy", "s0", "o0"))
    data = xml("allreduce", 1, (1, 1, 2), [[(-1, -1, body)], [(-1, -1, body)]], in_place=False)
    v = verdict(read(data, "f"))
    assert v.report.wrong == 2
    for rank in (0, 1):
        held = f"{rank}×{count}" if count else ",".join([str(rank)] * 2**doublings)
        twice = f": rank {rank} is added twice, at gpu {rank} tb 0 step 2"
        assert f"rank {rank}: out[0] holds {{{held}}}{twice}, wanted {{0,1}}" in reasons(v)
    assert str(count or "{0,0,0,0,0,0,0,0}") in json.dumps(v.to_json())


def test_reducescatter_resolved_with_the_rank_of_the_source() -> None:
    """7. In place, the result is put where the other rank's would be."""
    gpus = [
        [(1 - r, 1 - r, steps(("s", f"i{1 - r}", "s0"), ("r", "s0", "s0"), ("re", "s0", f"i{where(r)}")))]
        for r in (0, 1)
        for where in (lambda r: 1 - r,)
    ]
    v = verdict(read(xml("reducescatter", 2, (2, 0, 1), gpus), "f"))
    assert "rank 0: out[0] holds {0}, wanted {0,1}" in reasons(v)


# ------------------------------------------------------------------------------------------------------ plans


def plan(ops: list[list[list[dict[str, Any]]]], *, coll: str = "allgather", channels: int = 1, **sizes: int) -> bytes:
    """A plan of two ranks, each a list of threadblocks' operations, with channels to each other."""
    gpus = []
    for rank, blocks in enumerate(ops):
        use = [{"channel_type": "memory", "channel_ids": list(range(channels))}]
        refs = [{"access_channel_type": "memory", "remote_buffer_ids": [0, 1]}]
        gpus.append({
            "id": rank, "input_chunks": 1, "output_chunks": 2, "scratch_chunks": 2, **sizes,
            "threadblocks": [
                {"id": i, "ops": of, "channels": use, "remote_buffer_refs": refs} for i, of in enumerate(blocks)
            ],
            "channels": [{"channel_type": "memory", "connected_to": [1 - rank] * channels}],
            "remote_buffers": [
                {"rank": 1 - rank, "type": t, "access_channel_types": ["memory"]} for t in ("o", "s")
            ],
        })  # fmt: skip
    top = {"name": "t", "collective": coll, "protocol": "Simple", "inplace": False, "gpus": gpus}
    return json.dumps(top, indent=1).encode()


def copy(rank: int) -> dict[str, Any]:
    return {"name": "copy", "src_buff": [local("i", 0)], "dst_buff": [local("o", rank)]}


def put(rank: int) -> dict[str, Any]:
    target = [{"buffer_id": 0, "index": rank, "size": 1}]
    return {"name": "put", "src_buff": [local("i", 0)], "dst_buff": target, "channel_type": "memory"}


def local(kind: str, index: int) -> dict[str, Any]:
    return {"type": kind, "index": index, "size": 1}


def signal(channel: int = 0) -> dict[str, Any]:
    return {"name": "signal", "channel_ids": [channel], "channel_type": "memory"}


def wait(channel: int = 0) -> dict[str, Any]:
    return {"name": "wait", "channel_ids": [channel], "channel_type": "memory"}


NOP: dict[str, Any] = {"name": "nop"}


def test_a_right_plan() -> None:
    ops = [[[copy(r), put(r), NOP, signal(), wait()]] for r in (0, 1)]
    v = verdict(read(plan(ops), "f"))
    assert v.correct and str(v.report.sent_max) == "1/2"


def test_a_plan_that_does_nothing() -> None:
    """8a."""
    assert "rank 0: out[0] was never written" in reasons(verdict(read(plan([[[]], [[]]]), "f")))


def test_waits_before_their_signals() -> None:
    """8b."""
    text = reasons(verdict(read(plan([[[copy(r), put(r), NOP, wait(), signal()]] for r in (0, 1)]), "f")))
    assert "deadlock: gpu 0 tb 0 op 3 waits for gpu 1 tb 0 op 4" in text


def test_signals_on_another_channel_than_waits() -> None:
    """8c."""
    ops = [
        [[copy(0), put(0), NOP, signal(0), signal(0), wait(0), wait(1)]],
        [[copy(1), put(1), NOP, signal(0), signal(0), wait(0), wait(1)]],
    ]
    text = reasons(verdict(read(plan(ops, channels=2), "f")))
    assert "deadlock: wait number 1 on memory channel 1 of rank 0 to rank 1, which is signalled 0 times" in text
    assert "signal number 2 on memory channel 0 of rank 0 to rank 1, which is waited on 1 times" in text


def test_a_put_that_nothing_orders() -> None:
    """8d. Rank 1 reads what rank 0 puts without waiting for it."""
    ops = [
        [[copy(0), put(0)]],
        [[copy(1), put(1), {**copy(1), "src_buff": [local("o", 0)], "dst_buff": [local("s", 0)]}]],
    ]
    assert not verdict(read(plan(ops), "f")).correct


def test_scratch_that_nobody_wrote() -> None:
    """8e."""
    read_scratch = {"name": "copy", "src_buff": [local("s", 1)], "dst_buff": [local("o", 1)]}
    ops = [[[copy(r), put(r), NOP, signal(), wait(), NOP, read_scratch]] for r in (0, 1)]
    assert "scratch[1] is read by" in reasons(verdict(read(plan(ops), "f")))


def test_packets_that_nobody_sends() -> None:
    unpack = {"name": "upkt", "src_buff": [local("s", 0)], "dst_buff": [local("o", 1)]}
    text = reasons(verdict(read(plan([[[copy(0), unpack]], [[copy(1)]]]), "f")))
    assert "deadlock: scratch[0] is read as a packet, and 0 packets are sent there" in text


def test_a_signal_before_all_threads_have_put() -> None:
    text = reasons(verdict(read(plan([[[copy(r), put(r), signal(), wait()]] for r in (0, 1)]), "f")))
    assert "signal right after moving data: other threads may not have finished, wanted a nop before it" in text


def test_two_threadblocks_on_one_channel() -> None:
    ops = [[[copy(r), put(r), NOP, signal(), wait()], [signal(), wait()]] for r in (0, 1)]
    assert "is signalled by 2 threadblocks, in any order" in reasons(verdict(read(plan(ops), "f")))


def test_semaphores_and_barriers() -> None:
    both = {"name": "barrier", "barrier_id": 0, "num_threadblocks": 2}
    ops = [[[copy(r), both], [both, {**put(r), "src_buff": [local("o", r)]}, NOP, signal(), wait()]] for r in (0, 1)]
    assert verdict(read(plan(ops), "f")).correct
    ops = [[[copy(r)], [{**put(r), "src_buff": [local("o", r)]}, NOP, signal(), wait()]] for r in (0, 1)]
    assert not verdict(read(plan(ops), "f")).correct


# ------------------------------------------------------------------------------------------------------ export


def test_beyond_the_limits() -> None:
    """9. Named with the place and what would help, before anything is written."""
    ring = catalog.load("ring")
    with pytest.raises(UsageError) as error:
        export(ring(40), "msccl-xml", target="rccl")
    assert (
        "ring: beyond the limits of rccl: rank 0 threadblock 1: 78 steps, the target takes 64; use fewer chunks"
        in str(error.value)
    )
    assert export(ring(40), "msccl-xml", target="none")
    with pytest.raises(UsageError, match="rank 0 threadblock 0: 120 operations, the target takes 64"):
        export(ring(40), "mscclpp-json", protocol="LL")
    with pytest.raises(UsageError, match=r"rank 0 threadblock 1: \d+ operations, the target takes 64; .*--protocol LL"):
        export(ring(40), "mscclpp-json")
    with pytest.raises(UsageError, match="threadblocks, the target takes 64; use fewer peers a rank"):
        export(catalog.build("pairwise_all_to_all", 40), "msccl-xml", target="rccl")
    with pytest.raises(UsageError, match="unknown format 'xml'; did you mean msccl-xml"):
        export(ring(2), "xml")
    with pytest.raises(UsageError, match="msccl-xml is not for 'rcll'; did you mean rccl"):
        export(ring(2), "msccl-xml", target="rcll")


def test_spelling_of_reducescatter() -> None:
    s = catalog.build("ring_reduce_scatter", 4)
    assert b'coll="reducescatter"' in export(s, "msccl-xml", target="rccl")[""]
    old = export(s, "msccl-xml", target="msccl")[""]
    assert b'coll="reduce_scatter"' in old and verdict(read(old, "f")).correct


def test_two_destinations_swapped() -> None:
    """The file is what is judged: a wrong schedule is written as it is, and read as wrong."""
    s = Steps(all_to_all(4), name="swapped")
    with s.step():
        for src in range(4):
            for dst in range(4):
                if src != dst:
                    to = {1: 2, 2: 1}.get(dst, dst) if src == 0 else dst
                    s.copy(src=src, dst=dst, chunk=to, to=src)
    for to in ("msccl-xml", "mscclpp-json"):
        v = verdict(read(export(s.build(), to)[""], "f"))
        assert v.report.wrong == 2
        assert "rank 1: out[0] holds {r0.in[2]}, wanted {r0.in[1]}" in reasons(v)


def test_receives_swapped() -> None:
    """Between one pair, messages match in order only."""
    a = steps(("s", "i0", "s0"), ("s", "i1", "s0"))
    good, bad = (steps(("rrc", f"i{x}", f"i{x}"), ("rrc", f"i{y}", f"i{y}")) for x, y in ((0, 1), (1, 0)))
    for body, right in ((good, True), (bad, False)):
        gpus = [[(1, -1, a), (-1, 1, body)], [(0, -1, a), (-1, 0, body)]]
        v = verdict(read(xml("allreduce", 2, (2, 0, 0), gpus), "f"))
        text = "\n".join(map(str, v.report.failures))
        assert ("holds {r0.in[0],r0.in[1]" in text or "r1.in[1]}" in text) != right


def test_races_are_not_exported() -> None:
    s = Steps(all_reduce(2), name="race")
    with s.step():
        s.copy(src=0, dst=1, chunk=0)
        s.copy(src=0, dst=1, chunk=0)
    with pytest.raises(ScheduleError, match="it races, so no order of its steps is the right one"):
        export(s.build(), "msccl-xml")


def test_the_program_of_a_broken_file() -> None:
    lost = xml("allreduce", 1, (1, 0, 0), [[(1, -1, steps(("s", "i0", "i0")))], []])
    with pytest.raises(ScheduleError, match="1 sends meet 0 receives: this one is sent and never received"):
        program(read(lost, "f"))
