"""Where a lane finds things: the words of the tables that the host writes and the kernels read.

All tables are int64; `…_WORDS` is the length of a record. Indices into a table count its words unless said otherwise.
"""

from __future__ import annotations

LINE = 128
"""Bytes that a counter has to itself."""

# The block: one for each program made ready to run
ITERATIONS = 0  # tiles of this call
FIRST = 1  # number of its first iteration, counted through all calls
TILE = 2  # elements
SIZE = 3  # bytes of an element
RANKS = 4
REDUCTION = 5  # address of the compiled reduction
LANE_START = 6  # address of the first Move of each lane, one word each and one more
MOVES = 7  # addresses of tables of records, as below
PARTS = 8
OPERANDS = 9
WAITS = 10
SIGNALS = 11
COUNTERS = 12  # address of the counters, one line each
BASES = 13  # address of three words a rank: addresses of its input, output and scratch
LOCAL = 14  # address of the memory of lane 0
LOCAL_SIZE = 15  # bytes from there to the memory of the next lane
TIMEOUT = 16  # nanoseconds that a wait may last
POLLS = 17  # looks at a counter before the processor is given away
LINES = 18  # address of the lines below
LANES = 19
LANE = 20  # address of the compiled lane
ABSENT = 21  # a lane that does not come, to test what the others do; -1 for none
BLOCK_WORDS = 22

# A Move
DESTINATIONS = 0
SOURCES = 1
PARTS_OF = 2  # number of parts
PART_START = 3
OPERAND_START = 4
WAIT_COUNT = 5
WAIT_START = 6
SIGNAL_COUNT = 7
SIGNAL_START = 8
FINAL = 9
MOVE_WORDS = 10

# A part: its length in elements, then the offset of each operand in elements, destinations first

# An operand
BASE = 0
IS_FIRST = 1  # one rank's contribution as it came in
ADVANCES = 2  # 1: every tile has memory of its own (inputs and outputs); 0: all have the same (scratch)
OPERAND_WORDS = 3

# A wait
COUNTER = 0
VALUE = 1
LAG = 2
TOTAL = 3
WAIT_WORDS = 4

# A signal: the counter, which of the signals of an iteration it is, and how many there are
ORDINAL = 1
SIGNAL_TOTAL = 2
SIGNAL_WORDS = 3

# The memory of a lane: a report, the addresses of the operands at hand, and at HELD bytes from its end partial results
STATUS = 0
AT_MOVE = 1
AT_WAIT = 2
HAVE = 3
WANT = 4
AT_ITERATION = 5
ADDRESSES = 8

# What a report says
FINE = 0
TIMED_OUT = 1  # waited too long
GAVE_UP = 2  # stopped waiting because another lane did

# Lines that the threads of one process share
ABORT = 0
CALLS = 1  # calls so far
DONE = 2  # lanes that finished, over all calls
STOP = 3
CALLER = 4  # semaphore of the thread that called
WORKER = 5  # semaphore of lane 0, and one more line for each lane
