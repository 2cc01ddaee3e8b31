"""Proofs for every n: the rules of a schedule, run on unknown numbers, and an SMT solver. Needs z3."""
