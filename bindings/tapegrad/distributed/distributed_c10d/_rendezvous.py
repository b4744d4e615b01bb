"""How processes find each other: (store, rank, number of processes) from a URL, from the environment, or from both.

env://                                        what a launcher says (_launchers.py)
tcp://host:port?rank=0&world_size=4           rank 0 serves a store at host:port
file:///path?rank=0&world_size=4              a store in a file, which must not be there from another run
"""

import os
from datetime import timedelta
from urllib.parse import parse_qsl, urlparse

from ..constants import default_pg_timeout
from ._launchers import find_launch, whole_number
from ._stores import FileStore, HashStore, PrefixStore, TCPStore

__all__ = ["find_world", "register_rendezvous_handler", "rendezvous"]

_handlers: dict = {}


def register_rendezvous_handler(scheme: str, handler) -> None:
    """A way of one's own: handler(url, timeout=...) is a generator of (store, rank, world_size)."""
    if scheme in _handlers or scheme in _WAYS:
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    _handlers[scheme] = handler


def rendezvous(url: str, rank: int = -1, world_size: int = -1, **kwargs):
    """Yields (store, rank, world_size)."""
    if not isinstance(url, (str, bytes)):
        raise RuntimeError(f"`url` must be a string. {type(url)}: {url}")
    for name, value in (("rank", rank), ("world_size", world_size)):
        if not isinstance(value, int):
            raise RuntimeError(f"`{name}` must be an integer. {value}")
    url = url.decode() if isinstance(url, bytes) else url
    scheme = urlparse(url).scheme
    if scheme in _handlers:
        if rank != -1 or world_size != -1:
            url += f"{'&' if '?' in url else '?'}rank={rank}&world_size={world_size}"
        yield from _handlers[scheme](url, **kwargs)
        return
    yield find_world(url, rank, world_size, alone=False, **kwargs)
    raise RuntimeError(f"Unable to perform re-rendezvous using {scheme}:// method")


def find_world(url: str, rank: int = -1, world_size: int = -1, timeout: timedelta = default_pg_timeout, alone: bool = True, **_):
    """(store, rank, world_size). Given ranks and sizes stand; `alone`: one process needs neither network nor file."""
    parts = urlparse(url)
    if parts.scheme in _handlers:
        return next(rendezvous(url, rank, world_size, timeout=timeout))
    if parts.scheme not in _WAYS:
        raise RuntimeError(f"No rendezvous handler for {parts.scheme}://")
    query = dict(parse_qsl(parts.query))
    for name, given in (("rank", rank), ("world_size", world_size)):
        if name in query and given != -1:
            raise AssertionError(f"The url: {url} has node-specific arguments(rank, world_size) already.")
    rank = _number(parts, query, "rank", rank)
    world_size = _number(parts, query, "world_size", world_size)
    return _WAYS[parts.scheme](parts, rank, world_size, timeout, alone)


def _number(parts, query: dict, name: str, given: int) -> int:
    if name not in query:
        return given
    try:
        return int(query[name])
    except ValueError:
        raise _error(parts, f"{name} must be a whole number: got {query[name]!r}") from None


def _error(parts, message: str) -> ValueError:
    return ValueError(f"Error initializing torch.distributed using {parts.scheme}:// rendezvous: {message}")


def _check(parts, rank: int, world_size: int) -> None:
    for name, value in (("rank", rank), ("world size", world_size)):
        if value < 0:
            raise _error(parts, f"{name} parameter missing")


def _file(parts, rank: int, world_size: int, timeout, alone: bool):
    path = parts.netloc + parts.path
    if not path:
        raise _error(parts, "path missing")
    _check(parts, rank, world_size)
    if world_size == 1 and alone:
        return HashStore(), rank, world_size
    store = FileStore(path, world_size)
    store.set_timeout(timeout)
    return store, rank, world_size


def _tcp(parts, rank: int, world_size: int, timeout, alone: bool):
    if parts.port is None:
        raise _error(parts, "port number missing")
    if not parts.hostname:
        raise _error(parts, "host missing")
    _check(parts, rank, world_size)
    if world_size == 1 and alone:
        return HashStore(), rank, world_size
    return _serve_or_join(parts.hostname, parts.port, rank, world_size, timeout), rank, world_size


def _env(parts, rank: int, world_size: int, timeout, alone: bool):
    launch = find_launch()
    if launch is not None:
        rank = launch.rank if rank < 0 else rank
        world_size = launch.world_size if world_size < 0 else world_size
    for name, value in (("RANK", rank), ("WORLD_SIZE", world_size)):
        if value < 0:
            known = whole_number(os.environ, name)  # alone it is not all that a launcher says
            if known is None:
                raise _error(parts, f"environment variable {name} expected, but not set{_hint()}")
            rank, world_size = (known, world_size) if name == "RANK" else (rank, known)
    if world_size == 1 and alone:
        return HashStore(), rank, world_size
    address = (launch and launch.address) or os.environ.get("MASTER_ADDR")
    port = (launch and launch.port) or whole_number(os.environ, "MASTER_PORT")
    for name, value in (("MASTER_ADDR", address), ("MASTER_PORT", port)):
        if not value:
            where = "" if launch is None or launch.launcher == "torchrun" else (
                f"\n{launch.launcher} does not tell its processes where rank 0 is: set MASTER_ADDR and MASTER_PORT for all of them")
            raise _error(parts, f"environment variable {name} expected, but not set{where}")
    store = _serve_or_join(address, port, rank, world_size, timeout)
    if launch is not None and launch.job:
        store = PrefixStore(f"tapegrad/{launch.job}", store)
    return store, rank, world_size


def _hint() -> str:
    if os.environ.get("PET_NNODES") or os.environ.get("PET_NPROC_PER_NODE"):
        return "\nKubeflow's trainer sets PET_ variables for torchrun: start the script through torchrun"
    if os.environ.get("SLURM_JOB_ID"):
        return "\nthis is a job of Slurm but no step of one: start the script with srun"
    return "\nstart the script with python -m tapegrad.distributed.run, torchrun, srun or mpirun"


def _serve_or_join(host: str, port: int, rank: int, world_size: int, timeout) -> TCPStore:
    if not 0 <= port < 2**16:
        raise ValueError(f"port must have value from 0 to 65535 but was {port}.")
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # The launcher serves. torchrun's store knows no token; that of tapegrad's launcher says where it is.
        ours = os.environ.get("TAPEGRAD_AGENT_STORE") == f"{host}:{port}"
        return TCPStore(host, port, None, False, timeout, token=None if ours else "")
    # Missing ranks are named when the group is created; there is no wait here.
    return TCPStore(host, port, world_size, rank == 0, timeout, wait_for_workers=False, multi_tenant=True)


_WAYS = {"env": _env, "tcp": _tcp, "file": _file}
