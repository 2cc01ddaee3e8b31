"""Is it right? Schedules (levels 1, 2, 3 and 6 of the design) and Programs (level 4), exactly."""

from algocc.verifier.interleavings import ProgramReport, verify_program
from algocc.verifier.report import OPERATORS, Report, bound_of, summary, verify

__all__ = ["OPERATORS", "ProgramReport", "Report", "bound_of", "summary", "verify", "verify_program"]
