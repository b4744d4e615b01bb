"""Names of PyTorch's binding of ranks to memory nodes."""
