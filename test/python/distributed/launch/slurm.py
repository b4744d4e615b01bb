"""A Slurm of this machine alone: its three daemons on the loopback, with files in a folder, for as long as a `with` lasts.

    with cluster(folder) as environment:        # needs Debian's slurmctld, slurmd, slurm-client and munge, and root
        subprocess.run(["srun", "-n", "2", ...], env={**os.environ, **environment})
"""

import contextlib
import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

_PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo", "squeue")

_CONFIGURATION = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmctldParameters=enable_configless
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


def why_not() -> str:
    """Why no cluster can be started here; nothing where one can."""
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"needs Slurm: {', '.join(missing)} not found"
    return "" if os.geteuid() == 0 else "Slurm's daemons are started as root"


def _free_ports(n: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


def _kill_steps(configuration: Path) -> None:
    """Ends what slurmd has started: a step that cannot report its end to it goes on trying."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"SLURM_CONF={configuration}".encode() in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)


@contextlib.contextmanager
def cluster(folder: Path, patience: float = 30):
    """Starts the daemons and gives the variables by which srun finds them. RuntimeError, with what they logged, if they do not come up."""
    folder = Path(folder)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    host = socket.gethostname().partition(".")[0]
    configuration = folder / "slurm.conf"
    configuration.write_text(_CONFIGURATION.format(host=host, user=getpass.getuser(), folder=folder, ports=_free_ports(2), cpus=os.cpu_count()))
    environment = {"SLURM_CONF": str(configuration), "PATH": os.environ["PATH"]}
    daemons = []

    def start(*command):
        with open(folder / f"{command[0]}.out", "wb") as out:
            daemons.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={**os.environ, **environment}))

    def wait_for(ready):
        deadline = time.monotonic() + patience
        while not ready():
            if time.monotonic() > deadline or any(d.poll() is not None for d in daemons):
                logs = "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-2000:]}" for path in [*folder.glob("*.out"), *folder.glob("*.log")])
                raise RuntimeError(f"slurm: the daemons did not come up\n{logs}")
            time.sleep(0.05)

    def idle():
        done = subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True, text=True, env={**os.environ, **environment})
        return done.stdout.strip() in ("idle", "mixed", "allocated")

    def all_done():
        return not subprocess.run(["squeue", "-h"], capture_output=True, env={**os.environ, **environment}).stdout

    try:
        # --force: folders of tests may be written to by more than the owner.
        start("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket", f"--log-file={folder}/munge.log",
              f"--pid-file={folder}/munge.pid", f"--seed-file={folder}/munge.seed")
        wait_for((folder / "munge.socket").exists)
        start("slurmctld", "-D", "-i", "-f", str(configuration))
        start("slurmd", "-D", "-f", str(configuration), "-N", host)
        wait_for(idle)
        yield environment
        wait_for(all_done)  # steps report their end to the daemons, and stay where they cannot
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            try:
                daemon.wait(5)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        _kill_steps(configuration)
