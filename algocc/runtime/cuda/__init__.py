"""A Program on GPUs: every rank on a device of this process, or all of them emulated on one."""

from algocc.runtime.cuda.arrays import Array
from algocc.runtime.cuda.driver import CudaDriver, Driver, Facts, cuda
from algocc.runtime.cuda.host import Devices, Emulated, Graph
from algocc.runtime.cuda.on_threads import ThreadDriver

__all__ = ["Array", "CudaDriver", "Devices", "Driver", "Emulated", "Facts", "Graph", "ThreadDriver", "cuda"]
