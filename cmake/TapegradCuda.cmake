# The CUDA backend is not built yet.
