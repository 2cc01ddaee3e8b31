"""Every file of the collections: the verdict in its name, or in the mode it declares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from algocc.errors import UsageError
from algocc.exchange import load, schedule, verdict
from algocc.verifier import verify

DATA = Path(__file__).parent / "data"

RIGHT = {
    # file: (modes, least slots, rounds, messages, sent by the busiest rank)
    "fixtures/ag_ring_n3_inplace_only.xml": ([True], 2, 2, 6, "2/3"),
    "fixtures/ag_ring_n3_ok.xml": ([True, False], 2, 2, 6, "2/3"),
    "fixtures/ar_n2_send_first_needs_1_slot.xml": ([True], 1, 1, 2, "1"),
    "fixtures/ar_n2_two_channels_ok.xml": ([True], 1, 1, 4, "1"),
    "fixtures/ar_n2_two_tb_ok.xml": ([True], 0, 1, 2, "1"),
    "fixtures/ar_n3_chained_re_after_nops.xml": ([True], 1, 1, 6, "2"),
    "fixtures/ar_oneshot_n4_rank_order_ok.xml": ([False], 1, 1, 12, "3"),
    "fixtures/ar_oneshot_n4_rotated_order.xml": ([False], 1, 1, 12, "3"),
    "fixtures/ar_ring_n3_ok.xml": ([True], 2, 4, 12, "4/3"),
    "fixtures/ar_ring_n5_ok.xml": ([True], 2, 8, 40, "8/5"),
    "fixtures/rs_n2_inplace_coll_spelled_with_underscore.xml": ([True], 1, 1, 2, "1/2"),
    "fixtures/rs_ring_n4_ok.xml": ([True, False], 2, 3, 12, "3/4"),
    "public/lydH__allreduce_a100_ring_ch4.xml": ([True], 0, 6, 24, "3/2"),
    "public/lydH__allreduce_binary_tree_Simple_gpu2_ins1.xml": ([True], 2, 2, 4, "1"),
    "public/lydH__allreduce_binary_tree_Simple_gpu4_ins1.xml": ([True], 0, 5, 12, "2"),
    "public/lyd__allreduce_binary-tree_node4_gpu4_mcl1_mck1_gan0__1f0d6cbe.xml": ([True], 0, 5, 6, "3"),
    "public/lyd__allreduce_ring_node4_gpu16_mcl1_mck1_gan0__683045b0.xml": ([True], 2, 13, 120, "5/2"),
    "public/lyd__allreduce_ring_node4_gpu4_mcl1_mck1_gan0__1f0d6cbe.xml": ([True], 2, 6, 24, "3/2"),
    "public/rccl__allgather-8n-1kb-4kb__e44e112a.xml": ([True], 0, 1, 112, "7/8"),
    "public/rccl__allreduce_1step_mccl_4_2_2048_LL__649fae42.xml": ([True], 1, 1, 24, "3"),
    "public/rccl__alltoall-8n-0-1kb__0a53077c.xml": ([False], 0, 1, 56, "7/8"),
    "public/sched__ar_hier_12_Simple__a0bfca14.xml": ([True], 1, 3, 144, "3/2"),
    "public/sched__ar_tree_12_LL__a0bfca14.xml": ([True], 0, 6, 144, "3/2"),
    "public/tools__ap_1__f7c0d54d.xml": ([True], 1, 2, 112, "7/4"),
    "public/tools__ring_4_2__47740e6c.xml": ([True], 0, 14, 224, "7/4"),
    "public/test~execution-files~allreduce.json__be6a941f.json": ([True], 0, 2, 32, "1"),
    "public/test~execution-files~allreduce_nvls_2.json__6830e158.json": ([True], 0, 2, 12, "3/2"),
    "public/test~execution-files~allreduce_packet.json__58a82f37.json": ([True], 0, 2, 6, "1"),
    "public/test~execution-files~allreduce_packet.json__7ca31e2a.json": ([True], 0, 2, 6, "1"),
    "public/test~execution-files~allreduce_packet.json__88d28e07.json": ([True], 0, 2, 6, "1"),
    "public/test~execution-files~allreduce_packet.json__b30bb260.json": ([True], 0, 2, 6, "1"),
    "public/test~execution-files~allreduce_packet.json__c0fc4ba3.json": ([True], 0, 2, 6, "1"),
    "public/test~execution-files~allreduce_pipeline.json__be6a941f.json": ([True], 0, 2, 40, "5/4"),
    "public/test~execution-files~sendrecv.json__7bedb250.json": ([False], 0, 1, 2, "1"),
    "public/test~execution-files~sendrecv.json__88d28e07.json": ([False], 0, 1, 2, "1"),
}

WRONG = {
    # file: (least slots, wrong chunks in the order that is played, the first reason)
    "fixtures/ar_n2_count_mismatch.xml": (None, 0, "a receive of 1 chunk meets a send of 2"),
    "fixtures/ar_n2_hasdep_flag_missing.xml": (None, 0, 'deadlock: waits for tb 0 step 0, which has hasdep="0"'),
    "fixtures/ar_n2_missing_recv_dep_race.xml": (0, 2, "with nothing to order it after"),
    "fixtures/ar_n2_recv_first_deadlock.xml": (
        None, 0, "deadlock: gpu 0 tb 0 step 0 waits for gpu 1 tb 0 step 1, which comes after gpu 1 tb 0 step 0, which "
        "waits for gpu 0 tb 0 step 1, which comes after gpu 0 tb 0 step 0 again",
    ),
    "fixtures/ar_n2_two_tbs_same_channel.xml": (1, 0, "tb 0 and tb 1 both send on it"),
    "public/tools__ring_2_4__f7c0d54d.xml": (0, 156, "tb 1 and tb 2 both send on it"),
    "public/tools__ring_4_2__f7c0d54d.xml": (0, 87, "tb 1 and tb 2 both send on it"),
}  # fmt: skip

UNUSABLE = {
    "fixtures/ar_ring_n3_ngpus_says_4.xml": ":1: algo: ngpus=4, but there are 3 <gpu> elements",
    "fixtures/ar_ring_n3_no_ngpus.xml": ":1: algo: the attribute 'ngpus' is missing; known: ",
    "fixtures/ar_ring_n3_offset_plus_count_oob.xml": ":22: gpu 2 tb 0 step 0: src is buffer i, range 2..3 of 3, ",
    "fixtures/ar_ring_n3_unknown_type.xml": ":6: gpu 0 tb 0 step 2: unknown step type 'rrcc'; did you mean rrc or ",
    "fixtures/truncated_file.xml": ":7: column 7: not well-formed XML: unclosed token, inside <tb> of line 3; ",
    "public/lyd__allreduce_ring_node16_gpu64_mcl1_mck1_gan0__b9829171.xml": ":1: column 1: the file is empty, ",
    "public/python~mscclpp~language~tests~test.json__1367490b.json": ":1: column 1: 'Operation rlxsignal ' is no JSON ",
}


def test_every_file_has_a_verdict_here() -> None:
    found = {f"{p.parent.name}/{p.name}" for p in DATA.glob("*/*")}
    assert found == RIGHT.keys() | WRONG.keys() | UNUSABLE.keys()


@pytest.mark.parametrize("name", RIGHT)
def test_right_in_the_mode_it_declares(name: str) -> None:
    modes, least, rounds, messages, sent = RIGHT[name]
    f = load(DATA / name)
    assert list(f.modes) == modes
    for in_place in modes:
        v = verdict(f, in_place=in_place)
        r = v.report
        assert (r.correct, r.failures, r.wrong) == (True, [], 0)
        assert (v.least_slots, r.steps, r.transfers, str(r.sent_max)) == (least, rounds, messages, sent)
        assert r.program is not None and r.program.correct


@pytest.mark.parametrize("name", WRONG)
def test_wrong_with_a_reason(name: str) -> None:
    least, wrong, reason = WRONG[name]
    v = verdict(load(DATA / name))
    assert not v.correct
    assert (v.least_slots, v.report.wrong) == (least, wrong)
    assert reason in str(v.report.failures[0])


@pytest.mark.parametrize("name", UNUSABLE)
def test_unusable_with_place(name: str) -> None:
    with pytest.raises(UsageError) as error:
        load(DATA / name)
    assert str(error.value).startswith(Path(name).name + UNUSABLE[name])


SWITCHED = ("allreduce_nvls_2", "allreduce_pipeline")


@pytest.mark.parametrize("name", [n for n in RIGHT if not any(s in n for s in SWITCHED)])
def test_the_schedule_of_a_file_says_the_same(name: str) -> None:
    f = load(DATA / name)
    for in_place in f.modes:
        said, found = verdict(f, in_place=in_place).report, verify(schedule(f, in_place=in_place), in_place=in_place)
        for fact in FACTS:
            assert getattr(found, fact) == getattr(said, fact), fact


@pytest.mark.parametrize("name", [n for n in RIGHT if any(s in n for s in SWITCHED)])
def test_a_switch_has_no_schedule(name: str) -> None:
    with pytest.raises(UsageError, match="goes through a switch"):
        schedule(load(DATA / name))


FACTS = (
    "collective", "n", "chunks", "in_place", "correct", "wrong", "steps", "transfers", "ports", "sent_max", "received_max",
    "reduced_max", "bound", "needs_commutative", "needs_idempotent", "depth",
)  # fmt: skip


def test_alltoall_in_place_is_wrong_and_races() -> None:
    f = load(DATA / "public/rccl__alltoall-8n-0-1kb__0a53077c.xml")
    v = verdict(f, in_place=True)
    p: Any = v.report.program
    assert not p.race_free and v.report.wrong == 28
    assert v.notes[-1].endswith("in place is not a mode that the file declares")


def test_in_place_allgather_never_copies_its_own_block() -> None:
    for name in ("fixtures/ag_ring_n3_inplace_only.xml", "public/rccl__allgather-8n-1kb-4kb__e44e112a.xml"):
        f = load(DATA / name)
        v = verdict(f, in_place=False)
        assert not v.correct
        assert any("before anything was written there" in x.found for x in v.report.failures)


def test_connection_errors_of_the_ring_experiment() -> None:
    v = verdict(load(DATA / "public/tools__ring_4_2__f7c0d54d.xml"), most=1000)
    shared = [x for x in v.report.failures if "on it, so messages match in any order" in x.found]
    assert len(shared) == 48


def test_ranks_that_add_in_another_order() -> None:
    assert verdict(load(DATA / "fixtures/ar_oneshot_n4_rotated_order.xml")).unequal == 1
    assert verdict(load(DATA / "fixtures/ar_oneshot_n4_rank_order_ok.xml")).unequal == 0
    assert verdict(load(DATA / "public/rccl__allreduce_1step_mccl_4_2_2048_LL__649fae42.xml")).unequal == 8


def test_slots() -> None:
    f = load(DATA / "fixtures/ar_n2_send_first_needs_1_slot.xml")
    assert verdict(f, slots=1).correct
    v = verdict(f, slots=0)
    assert not v.correct
    assert "gpu 0 tb 0 step 0 waits for room from gpu 1 tb 0 step 1" in str(v.report.failures[0])


def test_what_is_assumed_is_said() -> None:
    notes = verdict(load(DATA / "public/tools__ap_1__f7c0d54d.xml")).notes
    assert "tools__ap_1__f7c0d54d.xml:1: algo: attribute 'minBytes' of <algo> is missing: taken as 0" in notes
    assert any("outofplace is missing: taken as 0" in note for note in notes)
    notes = verdict(load(DATA / "public/test~execution-files~allreduce_packet.json__b30bb260.json")).notes
    assert any(":3: plan: key 'colletive' is read as 'collective', its name in newer plans" in note for note in notes)


def test_size_window() -> None:
    f = load(DATA / "public/sched__ar_tree_12_LL__a0bfca14.xml")
    assert f.declines(96) is None and f.declines(617472) is None
    assert f.declines(617473) == "sched__ar_tree_12_LL__a0bfca14.xml: meant for 96 to 617472 bytes, not for 617473"
    assert load(DATA / "fixtures/ar_ring_n3_ok.xml").declines(1 << 30) is None
