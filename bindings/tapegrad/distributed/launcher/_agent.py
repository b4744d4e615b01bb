"""Starts the ranks of a job on this machine, watches them, and starts all of them again when one fails.

The launcher serves the store by which ranks find each other, so that its port is taken once for all attempts; only those who know the
job's token are let in. When the launcher ends, however it ends, its ranks end.
"""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from string import Template

from ..distributed_c10d._stores import TCPStore
from ..elastic.multiprocessing import SignalException, Std, to_map
from ..elastic.multiprocessing.errors import ChildFailedError
from . import _guardian
from ._ranks import CommandRank, FunctionRank

__all__ = ["run_agent"]


@contextlib.contextmanager
def _signals(names: str):
    """The signals raise SignalException in the main thread."""
    def handler(number, frame):
        raise SignalException(f"Process {os.getpid()} got signal: {signal.Signals(number).name}", sigval=signal.Signals(number))

    before = {}
    if threading.current_thread() is threading.main_thread():
        for name in filter(None, map(str.strip, names.split(","))):
            if name not in signal.Signals.__members__:
                raise ValueError(f"signals_to_handle: there is no signal {name!r}")
            number = signal.Signals[name]
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)


class _Guardian:
    """The process that ends the ranks when this one was killed."""

    def __init__(self, mark: str):
        outside = {name: value for name, value in os.environ.items() if name != _guardian.MARK}  # another launcher's ranks may be launchers
        self._process = subprocess.Popen([sys.executable, "-I", "-S", _guardian.__file__, mark], env=outside, start_new_session=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def dismiss(self) -> None:
        """The job has ended, and no process is left."""
        with contextlib.suppress(OSError):
            self._process.communicate(b"1")


class _Job:
    def __init__(self, config, entrypoint, args: tuple):
        self.config, self.entrypoint, self.args = config, entrypoint, args
        self.name = getattr(entrypoint, "__name__", None) or self._script(entrypoint, args)
        self.mark, self.token = secrets.token_hex(16), secrets.token_hex(16)
        self.ranks: list = []
        self.logs_kept = bool(config.logs_specs.root_log_dir)
        if self.logs_kept:
            os.makedirs(config.logs_specs.root_log_dir, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix=f"{config.run_id.replace(os.sep, '_')}_", dir=config.logs_specs.root_log_dir or None))
        host, _, port = config.rdzv_endpoint.rpartition(":") if config.rdzv_endpoint else ("127.0.0.1", "", "0")
        self.store = TCPStore(host.strip("[]") or "127.0.0.1", int(port or 0), None, True, wait_for_workers=False, token=self.token)

    @staticmethod
    def _script(entrypoint: str, args: tuple) -> str:
        if entrypoint == sys.executable:
            return next((arg for arg in args if not str(arg).startswith("-")), entrypoint)
        return entrypoint

    def start(self, attempt: int) -> None:
        """All ranks."""
        config, n, logs = self.config, self.config.nproc_per_node, self.config.logs_specs
        redirects, tees = to_map(logs._redirects, n), to_map(logs._tee, n)
        for rank in range(n):
            if logs._filter is not None and rank not in logs._filter:  # nothing of it on the console
                redirects[rank], tees[rank] = Std.ALL, Std.NONE
            prefix = Template(config.log_line_prefix_template or "[${role_name}${local_rank}]:").safe_substitute(
                role_name=config.role, local_rank=rank, rank=rank)
            rest = (rank, self._environment(rank, attempt), self.folder / f"attempt_{attempt}" / str(rank), redirects[rank], tees[rank], prefix)
            if callable(self.entrypoint):
                self.ranks.append(FunctionRank(config.start_method, self.entrypoint, self.args, *rest))
            else:
                command = [str(part).replace("${local_rank}", str(rank)) for part in (self.entrypoint, *self.args)]
                self.ranks.append(CommandRank(command, *rest))

    def _environment(self, rank: int, attempt: int) -> dict:
        config, n, store = self.config, str(self.config.nproc_per_node), self.store
        made = {
            "RANK": str(rank), "WORLD_SIZE": n, "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": n, "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1",
            "ROLE_RANK": str(rank), "ROLE_WORLD_SIZE": n, "ROLE_NAME": config.role, "MASTER_ADDR": store.host, "MASTER_PORT": str(store.port),
            "TORCHELASTIC_RESTART_COUNT": str(attempt), "TORCHELASTIC_MAX_RESTARTS": str(config.max_restarts),
            "TORCHELASTIC_RUN_ID": config.run_id, "TORCHELASTIC_USE_AGENT_STORE": "True", "TAPEGRAD_AGENT_STORE": f"{store.host}:{store.port}",
            "TAPEGRAD_JOB_TOKEN": self.token, _guardian.MARK: self.mark,
        }
        if config.virtual_local_rank:
            made["LOCAL_RANK"] = "0"
            devices = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
            made["CUDA_VISIBLE_DEVICES"] = devices[rank] if rank < len(devices) and devices[0] else str(rank)
        if "OMP_NUM_THREADS" not in os.environ and config.nproc_per_node > 1:
            made["OMP_NUM_THREADS"] = str(max(1, _cores() // config.nproc_per_node))
        return made

    def watch(self) -> dict:
        """Until all ranks have ended well, or one has not: the failures by rank."""
        while True:
            codes = [rank.poll() for rank in self.ranks]
            failed = {rank.local_rank: rank for rank, code in zip(self.ranks, codes) if code not in (None, 0)}
            if failed:
                return {i: rank.failure() for i, rank in failed.items()}
            if all(code == 0 for code in codes):
                return {}
            time.sleep(self.config.monitor_interval)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Ends the ranks: with the signal, then with SIGKILL those that stay, and what they have left behind."""
        deadline = time.monotonic() + self.config.shutdown_timeout
        try:
            for rank in self.ranks:
                rank.send_signal(number)
            while time.monotonic() < deadline and any(rank.poll() is None for rank in self.ranks):
                time.sleep(0.01)
        finally:  # a second signal ends the waiting
            for rank in self.ranks:
                rank.send_signal(signal.SIGKILL)
            _guardian.end_marked(self.mark, grace=0)
            for rank in self.ranks:
                while rank.poll() is None:
                    time.sleep(0.005)
                rank.finish()

    def clean_up(self, failed: bool) -> None:
        """The folder stays where it was asked for, or is named in an error."""
        if not self.logs_kept and not failed:
            shutil.rmtree(self.folder, ignore_errors=True)


def _cores() -> int:
    from ... import get_num_threads

    return get_num_threads()


def _say(text: str) -> None:
    print(f"tapegrad.distributed.run: {text}", file=sys.stderr, flush=True)


def run_agent(config, entrypoint, args: tuple) -> dict:
    """The results of all ranks, by rank; ChildFailedError or SignalException."""
    job = _Job(config, entrypoint, args)
    failed = False
    guardian = _Guardian(job.mark)
    try:
        with _signals(config.signals_to_handle):
            for attempt in range(config.max_restarts + 1):
                try:
                    job.start(attempt)
                    failures = job.watch()
                except SignalException as e:
                    _say(f"got {e.sigval.name}: {len(job.ranks)} ranks are sent it")
                    job.stop(e.sigval)
                    raise
                except BaseException:
                    job.stop()
                    raise
                if not failures:
                    results = {rank.local_rank: rank.result() for rank in job.ranks}
                    for rank in job.ranks:
                        rank.finish()
                    return results
                error = ChildFailedError(job.name, failures)
                job.stop()
                if attempt == config.max_restarts:
                    failed = True
                    raise error
                first, failure = error.get_first_failure()
                _say(f"rank {first} failed (exit code {failure.exitcode}): all {len(job.ranks)} ranks are started again, "
                     f"{config.max_restarts - attempt} of {config.max_restarts} restarts left\n  {failure.text()}")
                job.ranks = []
    finally:
        guardian.dismiss()
        job.clean_up(failed)
    raise AssertionError("unreachable")
