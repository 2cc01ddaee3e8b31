"""Theorems for every N, and the standalone certificate checker."""
