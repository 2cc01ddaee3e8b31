"""A Topology from a name or a file, whatever its format."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from algocc.errors import UsageError, near
from algocc.topology import nccl, nvidia_smi, record
from algocc.topology.models import MODELS, model
from algocc.topology.value import Topology

MOST_BYTES = 1 << 26


def load(text: str, *, nvlink: Fraction | None = None) -> Topology:
    """The topology of a model's name, as in `torus:4x4`, or of a file: an NCCL dump, `nvidia-smi topo -m`, or JSON.

    nvlink: GB/s of an NVLink, for the text of nvidia-smi, which does not say.
    Raises UsageError.

    >>> load("hypercube:3").n
    8
    """
    name = text.strip().lower().partition(":")[0]
    path = Path(text)
    if name in MODELS and not path.is_file():
        return model(text)
    if not path.is_file():
        if path.exists():
            raise UsageError(f"{text}: not a file")
        hint = "" if "/" in text or "." in text else near(name, MODELS)
        raise UsageError(f"{text}: no such file, and no such topology{hint}; known: {', '.join(MODELS)}")
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"{text}: {path.stat().st_size} bytes, at most {MOST_BYTES} are read")
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{text}: {error.strerror}") from error
    return read(data, path.name, nvlink=nvlink)


def read(data: bytes, file: str, *, nvlink: Fraction | None = None) -> Topology:
    """The topology in the bytes of a file, whose format is seen from how it begins.

    Raises UsageError.
    """
    start = data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start == b"<":
        return nccl.read(data, file)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: byte {error.start} is no UTF-8; {_WANTED}") from error
    if start == b"{":
        return record.loads(text, file)
    if nvidia_smi.looks_like(text):
        return nvidia_smi.read(text, file, nvlink=nvlink)
    raise UsageError(f"{file}: no topology; {_WANTED}")


_WANTED = "wanted an NCCL topology dump (<system …>), what `nvidia-smi topo -m` prints, or JSON of `algocc topo show`"
