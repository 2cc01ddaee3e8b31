"""Single-source kernels: the body of a Move, for CPU threads and GPUs."""
