"""PyTorch's folder of test data sets; empty here."""
