"""Set up by _other_devices.py: devices of PyTorch that tapegrad has not."""

from ._other_devices import make

make(__name__.rpartition(".")[2])
