"""Training with parameter servers, as in Li et al. (2014) and in TensorFlow's paper (Abadi et al. 2016): servers hold the parameters and
apply the optimizer, workers pull values and push gradients. Asynchronous, or synchronous with backup workers.

Connections are the standard library's (`multiprocessing.connection`), not a process group's: a worker that dies or stops ends nothing but
itself. Messages are plain values and bytes of tensors, and nothing is unpickled. Both sides prove that they know the secret of the job,
which is in the store; what is sent is not encrypted.
"""

from ._client import ParameterClient
from ._server import ParameterServer

__all__ = ["ParameterClient", "ParameterServer"]
