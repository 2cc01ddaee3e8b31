"""How the processes of a node find each other: by a name, over a socket that the first of them opens.

Every process makes its memory, then tells member 0, which answers all once all have come, and again once all have mapped
each other's memory. Descriptors travel with the messages, so nothing has a name in the file system: the socket's is in the
abstract namespace where there is one, and a file that is gone after the meeting elsewhere. No order of arrival can block.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from algocc.errors import AlgoccError, RunError, UsageError
from algocc.runtime.heap import Heap, Window, nameless
from algocc.runtime.node import Node, ProcessNode, board_bytes

AT_ONCE = 200
"""Descriptors in one message; the kernel takes 253."""


def meet(
    name: str, member: int, ranks: Sequence[int], *, timeout: float, note: Any = None
) -> tuple[Node, Any]:
    """The node of the `len(ranks)` processes that call this with one name, each with its own `member` from 0 on.

    ranks: the rank of each member.
    note: a JSON value; all get that of member 0.

    Raises RunError, naming the ranks, if some do not come within the timeout or fail on the way; UsageError for a name
    that is taken or ranks that can't be.
    """
    members = len(ranks)
    if not 0 <= member < members:
        raise UsageError(f"join {name!r}: rank {member} of {members}: wanted one of 0..{members - 1}")
    deadline = time.monotonic() + timeout
    try:
        heap = Heap(f"rank {ranks[member]} of {name}")
        fault = None
    except AlgoccError as error:
        if members == 1:
            raise
        heap, fault = None, f"rank {ranks[member]}: {error}"
    if member == 0:
        return _host(name, ranks, heap, fault, deadline, timeout, note)
    return _guest(name, member, ranks, heap, fault, deadline, timeout)


def _place(name: str) -> tuple[str, Path | None]:
    """The address of the socket, and its file if it is one."""
    uid = os.getuid() if hasattr(os, "getuid") else 0
    if sys.platform == "linux":
        return f"\0algocc/{uid}/{name}", None
    path = Path(tempfile.gettempdir()) / f"algocc-{uid}-{name}"
    return str(path), path


def _host(
    name: str, ranks: Sequence[int], heap: Heap | None, fault: str | None, deadline: float, timeout: float, note: Any
) -> tuple[Node, Any]:  # fmt: skip
    where, file = _place(name)
    members = len(ranks)
    came: dict[int, socket.socket] = {}
    heaps: dict[int, int] = {}
    pids = {0: os.getpid()}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        try:
            door.bind(where)
        except OSError as error:
            raise UsageError(f"join {name!r}: the name is taken by another communicator: {error.strerror}") from error
        try:
            door.listen(members)
            while len(came) < members - 1:
                missing = [str(ranks[m]) for m in range(1, members) if m not in came]
                door.settimeout(max(deadline - time.monotonic(), 0.001))
                try:
                    guest, _ = door.accept()
                    hello, fds = _receive(guest, deadline)
                except OSError as error:
                    many = "s" * (len(missing) > 1)
                    fault = f"rank{many} {', '.join(missing)} did not come within {timeout:g} s"
                    _answer(came, fault)
                    raise RunError(f"join {name!r}: {fault}") from error
                m = int(hello["member"])
                if hello["members"] != members or m in came:
                    found = f"{hello['members']} ranks" if hello["members"] != members else f"rank {m} twice"
                    fault = f"rank {ranks[m] if m < members else m} came for {found}, wanted {members} different ones"
                came[m], pids[m] = guest, hello["pid"]
                fault = fault or hello["fault"]
                if fds:
                    heaps[m] = fds[0]
        finally:
            if file is not None:
                file.unlink(missing_ok=True)
    try:
        if fault is not None or heap is None:
            _answer(came, str(fault))
            raise RunError(f"join {name!r}: {fault}")
        board_fd = nameless(board_bytes(members), f"board of {name}")
        heaps[0] = os.dup(heap.fd)
        fds = [board_fd, *(heaps[m] for m in range(members))]
        for guest in came.values():
            _send(guest, {"pids": [pids[m] for m in range(members)], "note": note}, fds)
        node = _node(board_fd, heap, [heaps.pop(m) for m in range(members)], 0, ranks, [pids[m] for m in range(members)])
        _agree(name, came, node, ranks, deadline)
        return node, note
    finally:
        for fd in heaps.values():
            os.close(fd)
        for guest in came.values():
            guest.close()


def _agree(name: str, came: dict[int, socket.socket], node: Node, ranks: Sequence[int], deadline: float) -> None:
    """The second round: all have mapped everything, or all are told who has not."""
    fault = None
    for m, guest in came.items():
        try:
            fault = fault or _receive(guest, deadline)[0]["fault"]
        except (OSError, EOFError):
            fault = f"rank {ranks[m]} left while the communicator was made"
    for guest in came.values():
        try:
            _send(guest, {"fault": fault}, [])
        except OSError:
            fault = fault or "a rank left while the communicator was made"
    if fault is not None:
        node.close()
        raise RunError(f"join {name!r}: {fault}")


def _guest(
    name: str, member: int, ranks: Sequence[int], heap: Heap | None, fault: str | None, deadline: float, timeout: float
) -> tuple[Node, Any]:  # fmt: skip
    where, _ = _place(name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as host:
        pause = 0.0005
        while True:
            try:
                host.connect(where)
                break
            except (FileNotFoundError, ConnectionRefusedError, BlockingIOError) as error:
                if time.monotonic() > deadline:
                    raise RunError(f"join {name!r}: rank {ranks[0]} did not come within {timeout:g} s") from error
                time.sleep(pause)
                pause = min(pause * 1.5, 0.02)
        hello = {"member": member, "members": len(ranks), "pid": os.getpid(), "fault": fault}
        try:
            _send(host, hello, [heap.fd] if heap else [])
            answer, fds = _receive(host, deadline + 1)
        except (OSError, EOFError) as error:
            raise RunError(f"join {name!r}: no answer of rank {ranks[0]} within {timeout:g} s") from error
        if "fault" in answer or heap is None:
            raise RunError(f"join {name!r}: {answer.get('fault')}")
        try:
            node = _node(fds[0], heap, fds[1:], member, ranks, answer["pids"])
        except AlgoccError as error:
            _send(host, {"fault": f"rank {ranks[member]}: {error}"}, [])
            raise
        _send(host, {"fault": None}, [])
        try:
            last, _ = _receive(host, deadline + 1)
        except (OSError, EOFError) as error:
            node.close()
            raise RunError(f"join {name!r}: rank {ranks[0]} left while the communicator was made") from error
        if last["fault"] is not None:
            node.close()
            raise RunError(f"join {name!r}: {last['fault']}")
        return node, answer["note"]


def _node(
    board: int, heap: Heap, heaps: Sequence[int], member: int, ranks: Sequence[int], pids: Sequence[int]
) -> ProcessNode:  # fmt: skip
    what = f"memory of rank {ranks[member]}'s peers"
    windows: list[Window | None] = []
    for m, fd in enumerate(heaps):
        if m == member:
            os.close(fd)
            windows.append(None)
        else:
            windows.append(Window(fd, what))
    return ProcessNode(Window(board, what), heap, windows, member, ranks, pids)


def _answer(came: dict[int, socket.socket], fault: str) -> None:
    for guest in came.values():
        try:
            _send(guest, {"fault": fault}, [])
        except OSError:
            pass


def _send(to: socket.socket, message: dict[str, Any], fds: Sequence[int]) -> None:
    raw = json.dumps(message | {"parts": max(1, -(-len(fds) // AT_ONCE))}).encode()
    to.settimeout(10)
    socket.send_fds(to, [raw], list(fds[:AT_ONCE]))
    for i in range(AT_ONCE, len(fds), AT_ONCE):
        socket.send_fds(to, [b"."], list(fds[i : i + AT_ONCE]))


def _receive(source: socket.socket, deadline: float) -> tuple[dict[str, Any], list[int]]:
    source.settimeout(max(deadline - time.monotonic(), 0.001))
    raw, fds, _, _ = socket.recv_fds(source, 1 << 20, AT_ONCE)
    if not raw:
        raise EOFError
    message = json.loads(raw)
    for _ in range(int(message["parts"]) - 1):
        fds += socket.recv_fds(source, 16, AT_ONCE)[1]
    return message, fds
