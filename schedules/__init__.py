"""The algorithms: one small file per family, each readable as its textbook description."""
