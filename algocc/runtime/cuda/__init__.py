"""A Program on GPUs: ranks on devices of one process or of several, or all emulated on one."""

from algocc.runtime.cuda.arrays import Array
from algocc.runtime.cuda.communicator import CudaCommunicator
from algocc.runtime.cuda.driver import CudaDriver, Driver, Facts, cuda
from algocc.runtime.cuda.host import Devices, Emulated, Graph
from algocc.runtime.cuda.on_threads import ThreadDriver

__all__ = ["Array", "CudaCommunicator", "CudaDriver", "Devices", "Driver", "Emulated", "Facts", "Graph", "ThreadDriver", "cuda"]
