"""Where a lane finds things: the words of the tables that the host writes and the kernels read.

All tables are int64; `…_WORDS` is the length of a record. Indices into a table count its words unless said otherwise.
"""

from __future__ import annotations

LINE = 128
"""Bytes that a counter has to itself."""

# The block: one for each program made ready to run
ITERATIONS = 0  # tile that a lane stops at: the number of tiles of this call, or less if it goes on later
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
BEGIN_TILE = 22  # where in the call a lane begins: this tile, and so many Moves into it
BEGIN_MOVE = 23
END_MOVE = 24  # and where it stops: so many Moves into tile ITERATIONS
GATE = 25  # from here on for a rank that runs its own lane: address of the gate, as below
MEMBER = 26  # which of those at the gate this rank is, and how many they are
MEMBERS = 27
INDEX = 28  # its lane
STATE = 29  # address of the words below, which all programs of a rank share
MAPS = 30  # address of a word a member: where its memory begins, as this process sees it
GLOBALS = 31  # address of a word a member: its rank
RECORD = 32  # address of the words after EPOCH of the record that it shows at the gate
CHECKED = 33  # 1: compare the records
PRELUDE = 34  # first Moves of its lane that touch nothing of another rank, so need not wait at the gate
LEAVERS = 35  # address of the members that touch its input or output: it leaves after them
LEAVER_COUNT = 36
TILES = 37  # tiles of a whole call
SECOND = 38  # of a program of one round: bytes from its scratch to another like it, IN_RECORD, or else 0; of flagged
# operands, from one copy of them to the other
KIND = 39  # which kind of lane of generated code it is
SETS = 40  # scratches that iterations use in turns, a power of 2, less 1
SET_BYTES = 41  # bytes from one to the next
BLOCK_WORDS = 42

IN_RECORD = -1
"""Scratch lies behind the words of the record."""

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
ADVANCES = 2  # 1: every tile has memory of its own (inputs and outputs); 0: they share it (scratch)
OPERAND_WORDS = 3

# What an operand of generated code is: plain memory, or lines of packets with the flag of their iteration beside them, of two
# copies that are used in turns, where an offset in a part counts LL_LINE bytes; or memory of all ranks at once.
PLAIN = 0
LL = 1  # a line is a packet and two flags of 32 bits
LL128 = 2  # a line is that of the threads of a team, a packet each, and of the last the flag
MULTICAST = 3  # the same place of every rank's memory: read as the reduction of all, written to all
LINED = (LL, LL128)
PACKET = 8  # bytes
LL_LINE = 16

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

# The gate: lines that the ranks of one node share. First the abort line of `LINES`, then for each member two records,
# used in turns, then for each one its word DONE, then its word CLOSED
ABORT_LINES = 1

# A record: what a rank shows when it enters a call, one line
EPOCH = 0  # number of the call, written last
SIGNATURE = 1  # of what is called; the lowest bit says which program of it runs
INPUT_AT = 2  # where things lie in its memory, in bytes
OUTPUT_AT = 3
SCRATCH_AT = 4
COUNTERS_AT = 5
TEXT_AT = 6  # the signature in words
RECORD_WORDS = 7
ROOM = LINE - 8 * RECORD_WORDS  # bytes that the line has left

# The state of a rank
CALL = 0  # calls so far
WAITED_FOR = 1  # the member that it waited for in vain
STATE_WORDS = 2

# What became of a call, besides FINE, TIMED_OUT and GAVE_UP, which a lane says
NOT_ENTERED = 3  # a member did not come
DISAGREES = 4  # the signatures differ
OTHER_PROGRAM = 5  # they differ in the lowest bit only
NOT_LEFT = 6  # a member did not finish
