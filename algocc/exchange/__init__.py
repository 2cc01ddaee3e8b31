"""Files of other tools, read and judged, and schedules written for them.

>>> from algocc.exchange import export, read, verdict
>>> from algocc.schedules.ring import ring
>>> f = read(export(ring(4), "msccl-xml", in_place=True)[""], "ring.xml")
>>> f, verdict(f).correct, verdict(f).least_slots
(<Imported ring.xml: ring, all_reduce n=4 chunks=4>, True, 2)
"""

from algocc.exchange.export import FORMATS, export
from algocc.exchange.fifo import SLOTS
from algocc.exchange.files import MODES, Imported, load, program, read, schedule, verdict
from algocc.exchange.judge import Verdict, verdict_text

__all__ = [
    "FORMATS", "MODES", "SLOTS", "Imported", "Verdict", "export", "load", "program", "read", "schedule", "verdict",
    "verdict_text",
]  # fmt: skip
