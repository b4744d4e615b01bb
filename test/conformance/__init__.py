"""Runs PyTorch's own sample inputs through both libraries and compares: `make conformance`, or `python -m conformance --help`.

PyTorch carries a database of sample and error inputs for its operators, modules and optimizers. Each entry that exists here
under the same name is run in a worker process, sample by sample; a crash or a call that does not end is a recorded failure.
"""
