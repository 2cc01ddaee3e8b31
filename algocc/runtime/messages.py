"""MPI between nodes: the Moves of a rank's lane that send or need messages, and the messages.

The Program is made by `lower_apart` with the nodes: what crosses nodes is a destination in another node's scratch, a copy of
one in the sender's own. A lane runs on shared memory up to a Move that needs or sends messages; then this code receives or
sends them and the lane goes on. Messages between two ranks keep their order, which both know from the Program, so they
carry nothing but data. A message is received right before the first Move that waits for it or reads it, so its slot is
free: whoever reads it is this lane, which has finished the tile before.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from algocc.collective import Buffer
from algocc.errors import RunError, UsageError
from algocc.kernels import compiled
from algocc.kernels import layout as at
from algocc.kernels.operators import Element
from algocc.program import Program
from algocc.runtime.choice import tuned
from algocc.runtime.geometry import chunks
from algocc.runtime.join import meet
from algocc.runtime.memory import address, aligned
from algocc.runtime.node import GAVE_UP, Node
from algocc.runtime.rank import Ready, disagreement
from algocc.runtime.recall import Prepared

if TYPE_CHECKING:
    from algocc.runtime.communicator import Communicator

Array = NDArray[Any]

NODE_VARIABLE = "ALGOCC_RANKS_PER_NODE"
"""Pretend that so many consecutive ranks are a node."""

PATIENCE = 1_000_000
"""Nanoseconds that a lane waits for its node before what it has sent is looked after."""

TAG = 17
SPINS = 200


@dataclass(frozen=True)
class Message:
    """A destination of a Move on another node.

    source, target: rank that sends and rank that receives.
    part: of the Move, of as many as it has chunks.
    own, slot: slots of scratch that hold it on either side.
    """

    source: int
    target: int
    move: int
    part: int
    own: int
    slot: int


@dataclass(frozen=True)
class Stop:
    """A Move before which a lane receives, or after which it sends; `move` counts from the start of the lane."""

    move: int
    receive: tuple[Message, ...]
    send: tuple[Message, ...]


def messages(p: Program, nodes: Sequence[int]) -> list[Message]:
    """All messages of an iteration, in the order of lanes and their Moves."""
    found = []
    for m in range(p.moves):
        rank = int(p.lane_rank[p.move_lane[m]])
        dst = range(int(p.dst_start[m]), int(p.dst_start[m + 1]))
        far = [i for i in dst if nodes[p.dst_rank[i]] != nodes[rank]]
        if not far:
            continue
        own = next(i for i in dst if p.dst_rank[i] == rank and p.dst_buffer[i] == Buffer.SCRATCH)
        for i in far:
            for k in range(int(p.count[m])):
                found.append(
                    Message(rank, int(p.dst_rank[i]), m, k, int(p.dst_chunk[own]) + k, int(p.dst_chunk[i]) + k)
                )
    return found


def stops(p: Program, rank: int, nodes: Sequence[int]) -> list[Stop]:
    """Where the lane of a rank receives and sends in each iteration.

    Received before a Move are all messages of a rank, in their order, up to the last that the Move reads, or that gives the
    signal it waits for.
    """
    every = messages(p, nodes)
    streams: dict[int, list[Message]] = {}
    for message in every:
        if message.target == rank:
            streams.setdefault(message.source, []).append(message)
    place = {m.slot: (m.source, i) for stream in streams.values() for i, m in enumerate(stream)}
    signals: dict[tuple[int, int], int] = {}  # (counter, ordinal) → Move
    seen: dict[int, int] = {}
    for m in range(p.moves):
        for c in p.signal_counter[p.signal_start[m] : p.signal_start[m + 1]].tolist():
            seen[c] = seen.get(c, 0) + 1
            signals[c, seen[c]] = m
    taken = dict.fromkeys(streams, 0)
    begin, end = int(p.lane_start[rank]), int(p.lane_start[rank + 1])
    found = []
    for m in range(begin, end):
        wanted = dict.fromkeys(streams, 0)
        for i in range(p.src_start[m], p.src_start[m + 1]):
            if p.src_rank[i] == rank and p.src_buffer[i] == Buffer.SCRATCH:
                for k in range(int(p.count[m])):
                    source, nth = place.get(int(p.src_chunk[i]) + k, (-1, 0))
                    if source >= 0:
                        wanted[source] = max(wanted[source], nth + 1)
        for i in range(p.wait_start[m], p.wait_start[m + 1]):
            writer = int(p.lane_rank[p.counter_writer[p.wait_counter[i]]])
            if nodes[writer] != nodes[rank] and p.wait_lag[i] == 0:
                upto = signals[int(p.wait_counter[i]), int(p.wait_value[i])]
                given = [i + 1 for i, message in enumerate(streams.get(writer, [])) if message.move <= upto]
                wanted[writer] = max(wanted.get(writer, 0), *given, 0)
        receive: list[Message] = []
        for source, count in wanted.items():
            receive += streams[source][taken[source] : count]
            taken[source] = max(taken[source], count)
        send = tuple(message for message in every if message.source == rank and message.move == m)
        if receive or send:
            found.append(Stop(m - begin, tuple(receive), send))
    return found


def between_nodes(p: Program, nodes: Sequence[int], count: int) -> int:
    """Elements that one call sends between nodes, all ranks together."""
    length = chunks(p.collective, Buffer.INPUT, count).length
    return int(sum(length[p.like[m.move] + m.part] for m in messages(p, nodes)))


class Outside:
    """What one rank has of the other nodes.

    node_of: the node of each rank; nodes: how many there are.
    group: ranks of a node if all have as many and in order, else 1.
    sent_bytes: bytes that this rank has sent to other nodes.
    """

    def __init__(self, mpi: Any, comm: Any, node_of: Sequence[int], timeout: float) -> None:
        self._mpi, self._comm = mpi, comm
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.node_of = list(node_of)
        self.nodes = len(set(node_of))
        group = self.size // self.nodes
        self.group = group if self.node_of == [r // group for r in range(self.size)] else 1
        self.timeout = timeout
        self.sent_bytes = 0
        self._lane = compiled.run_lane()
        self._line = aligned(at.LINE)

    def prepare(self, side: Ready, e: Element) -> None:
        """Find the stops of a program made ready."""
        side.stops = stops(side.full, self.rank, self.node_of)
        side.size = e.size

    def call(self, comm: Communicator, ready: Prepared, side: Ready) -> None:
        """One call: in through the gate of the node, then tile after tile with its messages.

        What is sent stays in its slot until the tile is done; nobody waits for that but the tile after, so no order of
        sends and receives can block.
        """
        what = f"call {comm._state.call + 1} ({ready.name}, {ready.count} {ready.element.name})"
        block = side.block
        if comm.checked or ready.name == "barrier":
            self._compare(comm, ready, what)
        block[at.LINES], block[at.TIMEOUT] = comm._node.lines_address, int(self.timeout * 1e9)
        status = comm._enter(side.start)  # its tiles are 0: nothing but the gate
        if status != at.FINE:
            comm._trouble(ready, side, status)
        block[at.LINES], block[at.TIMEOUT] = address(self._line), PATIENCE
        try:
            for t in range(side.plan.iterations if side.program.lanes else 0):
                sends: list[Any] = []
                block[at.BEGIN_TILE] = block[at.ITERATIONS] = t
                block[at.BEGIN_MOVE] = 0
                for stop in side.stops:
                    self._go(comm, ready, side, stop.move, sends)
                    for message in stop.receive:
                        self._receive(comm, side, message, t, sends, what)
                    if stop.send:
                        self._go(comm, ready, side, stop.move + 1, sends)
                        sends += [s for s in (self._send(side, message, t) for message in stop.send) if s is not None]
                block[at.ITERATIONS], block[at.END_MOVE] = t + 1, 0
                self._run(comm, ready, side, sends)
                for request in sends:
                    self._wait(comm, request, sends, f"{what}: a message was not taken")
        except RunError as error:
            comm._refusal = comm._refusal or f"an earlier call failed, make a new one; that was: {error}"
            comm._node.leave(GAVE_UP, str(error))
            raise
        block[at.FIRST] += side.plan.iterations

    def abort(self, reason: str) -> None:
        """Other nodes learn of it by their timeout, or as MPI ends all processes."""

    def _go(self, comm: Communicator, ready: Prepared, side: Ready, upto: int, sends: list[Any]) -> None:
        """Run the lane up to a Move of the tile at hand."""
        if side.block[at.BEGIN_MOVE] < upto:
            side.block[at.END_MOVE] = upto
            self._run(comm, ready, side, sends)
            side.block[at.BEGIN_MOVE] = upto

    def _run(self, comm: Communicator, ready: Prepared, side: Ready, sends: list[Any]) -> None:
        """Run the lane as far as the block says. While it waits for its node, what it has sent goes on."""
        end = 0.0
        while True:
            status = self._lane(side.start)
            if status == at.FINE:
                return
            end = end or time.monotonic() + self.timeout
            if comm._node.aborted or time.monotonic() > end:
                comm._trouble(ready, side, status)
            for request in sends:
                request.Test()
            self._line[:] = 0
            side.block[at.BEGIN_MOVE] = side.report[at.AT_MOVE] - side.program.lane_start[self.rank]

    def _piece(self, side: Ready, message: Message, slot: int, t: int) -> Array | None:
        """The bytes of a message in a slot of scratch, None if this tile has none."""
        tile = side.plan.tile
        first = int(side.lengths[int(side.full.like[message.move]) + message.part])
        length = min(tile, first - t * tile)
        if length <= 0:
            return None
        begin = slot * side.stride * side.size
        return side.scratch[begin : begin + length * side.size]

    def _send(self, side: Ready, message: Message, t: int) -> Any:
        piece = self._piece(side, message, message.own, t)
        if piece is None:
            return None
        self.sent_bytes += piece.nbytes
        return self._comm.Isend([piece, self._mpi.BYTE], dest=message.target, tag=TAG)

    def _receive(
        self, comm: Communicator, side: Ready, message: Message, t: int, sends: list[Any], what: str
    ) -> None:
        piece = self._piece(side, message, message.slot, t)
        if piece is not None:
            request = self._comm.Irecv([piece, self._mpi.BYTE], source=message.source, tag=TAG)
            self._wait(comm, request, sends, f"{what}: rank {message.source} sent nothing")

    def _wait(self, comm: Communicator, request: Any, sends: list[Any], late: str) -> None:
        spins, end = 0, 0.0
        while not request.Test():
            spins += 1
            if spins > SPINS:
                end = end or time.monotonic() + self.timeout
                if comm._node.aborted or time.monotonic() > end:
                    lost = [comm._node.lost(m) for m in range(comm._node.members)]
                    comm._node.abort()
                    told = "; ".join(text for text in lost if text)
                    raise RunError(told or f"{late} within {self.timeout:g} s")
                os.sched_yield()

    def _compare(self, comm: Communicator, ready: Prepared, what: str) -> None:
        """Raise UsageError on every rank if the ranks do not ask for the same."""
        mine = ready.signature.number
        both, ends = np.array([mine, ~mine], np.int64), np.empty(2, np.int64)  # the most is the least of complements
        request = self._comm.Iallreduce(both, ends, op=self._mpi.MIN)
        self._wait(comm, request, [], f"{what}: some rank did not come")
        if ends[0] != mine or ~ends[1] != mine:
            found = self._comm.allgather(json.dumps(ready.signature.facts))
            facts = [(rank, json.loads(text)) for rank, text in enumerate(found)]
            comm._disagree(disagreement(facts, comm._state.call + 1))


def connect(comm: Any, node: int | None, timeout: float) -> tuple[Node, Outside, Any]:
    """The node of this rank of an mpi4py communicator, what is outside of it, and the table of choices of rank 0.

    Raises UsageError if there is no mpi4py.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise UsageError(f"MPI: mpi4py can't be used ({error}); `pip install algocc[mpi,mpich]`") from error
    comm = (MPI.COMM_WORLD if comm is None else comm).Dup()
    rank, size = comm.Get_rank(), comm.Get_size()
    per = os.environ.get(NODE_VARIABLE)
    if node is None and per:
        if not per.isdigit() or int(per) < 1:
            raise UsageError(f"{NODE_VARIABLE}={per}: wanted a number of ranks, 1 or more")
        node = rank // int(per)
    here = [MPI.Get_processor_name(), node if node is not None else -1]
    names = comm.allgather(here)
    order = {json.dumps(name): i for i, name in reversed(list(enumerate(names)))}
    firsts = sorted(set(order.values()))
    node_of = [firsts.index(order[json.dumps(name)]) for name in names]
    ranks = [r for r in range(size) if node_of[r] == node_of[rank]]
    word = comm.bcast([secrets.token_hex(8), tuned()] if rank == 0 else None)
    name = f"mpi-{word[0]}-{node_of[rank]}"
    member_node, _ = meet(name, ranks.index(rank), ranks, timeout=max(timeout, 60.0))
    return member_node, Outside(MPI, comm, node_of, timeout), word[1]
