"""Where the chunks of a collective lie in its buffers, for one count.

Blocks lie one after the other in their buffer; block b has `sizes[b] * count` elements. Part j of k of a block with
E elements is its elements `j * E // k` to `(j + 1) * E // k`, so chunks differ by at most one element.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from algocc.collective import Buffer, Collective
from algocc.errors import UsageError
from algocc.kernels.operators import element

Ints = NDArray[np.int64]
MOST = 2**62
"""Elements of all buffers together that offsets are computed for."""


class Chunks(NamedTuple):
    """The chunks of all ranks' inputs, or outputs, in order.

    start: the number of chunks of the ranks before each rank, and in all; shape (n + 1,).
    offset: elements before each chunk in its own buffer.
    length: elements of each chunk.
    """

    start: Ints
    offset: Ints
    length: Ints


def check_count(collective: Collective, count: int) -> int:
    """`count`, or a UsageError if it is no number of elements."""
    if isinstance(count, bool) or not isinstance(count, int | np.integer):
        raise UsageError(f"count={count!r}: wanted a whole number of elements")
    if count < 0:
        raise UsageError(f"count={count}: wanted 0 elements or more")
    if collective.name == "barrier" and count != 1:
        raise UsageError(f"count={count}: a barrier exchanges tokens of 1 element")
    units = int(collective.sizes.sum()) + int(collective.output_sizes.sum())
    if units * int(count) > MOST:
        raise UsageError(
            f"count={count}: {units * int(count):.3g} elements in all buffers are more than can be counted"
        )
    return int(count)


def block_offsets(collective: Collective, buffer: Buffer, count: int) -> tuple[Ints, Ints]:
    """Elements before each block in its buffer, and elements of each block; ranks in order."""
    sizes, start = _blocks(collective, buffer)
    ends = np.concatenate([[0], np.cumsum(sizes * count)])
    first = np.repeat(ends[start[:-1]], np.diff(start))
    return ends[:-1] - first, sizes * count


def chunks(collective: Collective, buffer: Buffer, count: int) -> Chunks:
    """The chunks of the inputs or outputs for one count."""
    k = collective.chunks
    offset, size = block_offsets(collective, buffer, count)
    whole, rest = np.divmod(size, k)  # j * E // k without the product, which could be too large
    part = np.arange(k + 1)
    edge = whole[:, None] * part + rest[:, None] * part // k
    return Chunks(
        _blocks(collective, buffer)[1] * k,
        (offset[:, None] + edge[:, :-1]).ravel(),
        np.diff(edge, axis=1).ravel(),
    )


def buffer_elements(collective: Collective, count: int) -> tuple[list[int], list[int]]:
    """Elements of the input and of the output of each rank, `count` being those of a unit block.

    >>> from algocc.collective import all_gather
    >>> buffer_elements(all_gather(3), 5)
    ([5, 5, 5], [15, 15, 15])
    """
    count = check_count(collective, count)
    found = []
    for buffer in (Buffer.INPUT, Buffer.OUTPUT):
        sizes, start = _blocks(collective, buffer)
        ends = np.concatenate([[0], np.cumsum(sizes)])[start]
        found.append((np.diff(ends) * count).tolist())
    return found[0], found[1]


def count_of(collective: Collective, elements: list[int]) -> int:
    """The count for which the inputs have these numbers of elements.

    Raises UsageError if there is none, naming a rank.
    """
    units = buffer_elements(collective, 1)[0] if collective.name != "barrier" else [1] * collective.n
    counts = {e // u for e, u in zip(elements, units, strict=True) if u and e % u == 0}
    count = min(counts, default=0)
    for rank, (found, unit) in enumerate(zip(elements, units, strict=True)):
        if unit and found % unit:
            raise UsageError(
                f"{collective.name}: the input of rank {rank} has {found} elements, not a multiple of its {unit} units: "
                f"{found % unit} left over"
            )
    if len(counts) > 1:
        listed = ", ".join(f"{rank}:{e}" for rank, e in enumerate(elements))
        raise UsageError(f"{collective.name}: the ranks' inputs differ in count; rank:elements are {listed}")
    return count


def in_place_buffers(
    collective: Collective, count: int, dtype: Any
) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    """New buffers of every rank, zeroed, that share memory as `collective.alias` says.

    Of each rank the input is a view of the output or the other way round.

    Raises UsageError if the alias leaves no way to lay them out, or for an unknown dtype.

    >>> from algocc.collective import all_gather
    >>> inputs, outputs = in_place_buffers(all_gather(2), 3, "int32")
    >>> inputs[1][:] = 7
    >>> outputs[1]
    array([0, 0, 0, 7, 7, 7], dtype=int32)
    """
    kind = element(dtype).numpy
    inputs, outputs = [], []
    sizes = zip(*buffer_elements(collective, count), strict=True)
    for rank, ((ins, outs), shift) in enumerate(zip(sizes, shifts(collective, count), strict=True)):
        if shift is None:
            inputs.append(np.zeros(ins, kind))
            outputs.append(np.zeros(outs, kind))
            continue
        if not (shift >= 0 and shift + ins <= outs or shift <= 0 and outs - shift <= ins):
            raise UsageError(
                f"{collective.name}: rank {rank}: in place, neither buffer lies within the other"
            )
        memory = np.zeros(max(ins, outs), kind)
        inputs.append(memory[max(shift, 0) :][:ins])
        outputs.append(memory[max(-shift, 0) :][:outs])
    return inputs, outputs


def shifts(collective: Collective, count: int) -> list[int | None]:
    """For each rank the element of its output where its input starts, in place; None where nothing is shared.

    Raises UsageError if the aliased blocks of a rank disagree, or blocks that are not aliased would be shared too.
    """
    found: list[int | None] = [None] * collective.n
    shared = [0] * collective.n
    source, size = block_offsets(collective, Buffer.INPUT, count)
    target, _ = block_offsets(collective, Buffer.OUTPUT, count)
    for rank, i, o in collective.alias.tolist():
        block = collective.input_start[rank] + i
        if size[block] == 0:
            continue
        shift = int(target[collective.output_start[rank] + o] - source[block])
        if found[rank] is not None and found[rank] != shift:
            raise UsageError(
                f"{collective.name}: rank {rank}: the aliased blocks are in another order in place"
            )
        found[rank] = shift
        shared[rank] += int(size[block])
    for rank, (ins, outs) in enumerate(zip(*buffer_elements(collective, count), strict=True)):
        begin = found[rank]
        if begin is not None and min(begin + ins, outs) - max(begin, 0) != shared[rank]:
            raise UsageError(
                f"{collective.name}: rank {rank}: in place, blocks would share memory that are not aliased"
            )
    return found


def _blocks(collective: Collective, buffer: Buffer) -> tuple[Ints, Ints]:
    if buffer == Buffer.INPUT:
        return collective.sizes, collective.input_start
    return collective.output_sizes, collective.output_start
