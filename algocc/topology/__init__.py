"""Topologies: ranks, switches and links; models of well-known machines, files, and exact bounds with their proofs."""

from algocc.topology.bounds import BOUNDS, Parts, TopologyBound, all_bounds, bound, chunked_all_gather
from algocc.topology.load import load, read
from algocc.topology.models import MODELS, model
from algocc.topology.record import from_json, to_json
from algocc.topology.value import Link, Node, Topology

__all__ = [
    "BOUNDS",
    "MODELS",
    "Link",
    "Node",
    "Parts",
    "Topology",
    "TopologyBound",
    "all_bounds",
    "bound",
    "chunked_all_gather",
    "from_json",
    "load",
    "model",
    "read",
    "to_json",
]
