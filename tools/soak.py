"""Jobs whose ranks are killed at random, for some minutes: each must end with the bits of an undisturbed one, and leave nothing behind.

usage: PYTHONPATH=build/python python tools/soak.py [--minutes 30] [--ranks 2] [--steps 400] [--seed 0]
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from datetime import timedelta

MARK = "TAPEGRAD_SOAK"  # in the environment of all that it starts


def job(folder: str, steps: int) -> None:
    """One rank: a network that is cut among the ranks on random digits, saved every 10 steps."""
    import tapegrad as tg
    import tapegrad.distributed as dist
    from tapegrad.distributed import checkpoint
    from tapegrad.distributed.fsdp import fully_shard

    tg.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=10))
    tg.manual_seed(0)
    net = tg.nn.Sequential(tg.nn.Linear(64, 128), tg.nn.Dropout(0.1), tg.nn.ReLU(), tg.nn.Linear(128, 10))
    fully_shard(net)
    optimizer = tg.optim.AdamW(net.parameters(), lr=1e-2)
    run = checkpoint.Checkpoints(folder, model=net, optimizers=optimizer, every_steps=10)
    if run.resume() is None:
        tg.manual_seed(dist.get_rank())
    while run.steps < steps:
        x = tg.randn(32, 64)
        loss = tg.nn.functional.cross_entropy(net(x), x[:, :10].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)
        run.step()
    weights = checkpoint.get_model_state_dict(net, options=checkpoint.StateDictOptions(full_state_dict=True))
    if dist.get_rank() == 0:
        print("END", *(f"{w.double().sum().item():.17g}" for w in weights.values()), flush=True)
    dist.destroy_process_group()


def descendants(pid: int) -> list[int]:
    """The processes below one, itself not."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    parents.setdefault(int(file.read().rpartition(")")[2].split()[1]), []).append(int(entry))
            except OSError:
                continue
    found, open_ = [], [pid]
    while open_:
        children = parents.get(open_.pop(), [])
        found += children
        open_ += children
    return found


def is_rank(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return b"\0TORCHELASTIC_RUN_ID=" in b"\0" + file.read() and os.path.exists(f"/proc/{pid}/exe")
    except OSError:
        return False


def run_job(folder: str, options, chance: random.Random | None) -> tuple[str, int]:
    """The last line of a job and the number of kills; with `chance` ranks are killed, or stopped so that their group gives up."""
    command = [sys.executable, "-m", "tapegrad.distributed.run", "--nproc-per-node", str(options.ranks), "--max-restarts", "10000", __file__,
               "--job", folder, "--steps", str(options.steps)]
    environment = {**os.environ, MARK: str(os.getpid()), "TMPDIR": options.temporary}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    kills, began = 0, time.monotonic()
    try:
        while process.poll() is None:
            time.sleep(chance.uniform(0.5, 4) * (1 + kills / 20) if chance else 0.1)  # on a busy machine a start takes longer than that
            if time.monotonic() - began > 600:
                raise SystemExit(f"soak: a job has not ended after 600 s and {kills} kills")
            ranks = [p for p in descendants(process.pid) if is_rank(p)]
            if chance and ranks and process.poll() is None:
                try:
                    os.kill(chance.choice(ranks), signal.SIGSTOP if chance.random() < 0.1 else signal.SIGKILL)
                    kills += 1
                except ProcessLookupError:
                    pass
    finally:
        if process.poll() is None:
            process.terminate()  # it ends its ranks
            process.wait()
    ends = [line for line in process.stdout.read().splitlines() if line.startswith("END")]
    process.stdout.close()
    if process.returncode or len(set(ends)) != 1:  # twice where a rank was killed behind its last line
        raise SystemExit(f"soak: a job has ended with {process.returncode} after {kills} kills and said {ends}")
    return ends[0], kills


def of_this_soak() -> list[int]:
    """All processes that it has started, also those whose parents have ended."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    if f"{MARK}={os.getpid()}".encode() in file.read().split(b"\0"):
                        found.append(int(entry))
            except OSError:
                continue
    return sorted(set(found) | set(descendants(os.getpid())))


def used_files() -> set:
    """The names in /dev/shm that some process has mapped: what other programs make there is theirs."""
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/maps") as file:
                    found.update(line.split(None, 5)[5].strip().removeprefix("/dev/shm/") for line in file if "/dev/shm/" in line)
            except OSError:
                continue
    return found


def left_behind(temporary: str) -> dict:
    return {"processes": of_this_soak(), "shared memory": sorted(set(os.listdir("/dev/shm")) - used_files()), "files": sorted(os.listdir(temporary)),
            "descriptors": list(range(len(os.listdir("/proc/self/fd"))))}


def stays(before: dict, temporary: str) -> dict:
    """What was not there before and is there for a minute: what has just ended may take a moment to go."""
    new, until = None, time.monotonic() + 60
    while new is None or any(new.values()) and time.monotonic() < until:
        time.sleep(0.5)
        found = {kind: set(names) - set(before[kind]) for kind, names in left_behind(temporary).items()}
        new = found if new is None else {kind: names & found[kind] for kind, names in new.items()}
    return {kind: sorted(names) for kind, names in new.items() if names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        return job(options.job, options.steps)
    chance, began, jobs, kills = random.Random(options.seed), time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as options.temporary:
        undisturbed, _ = run_job(os.path.join(folder, "undisturbed"), options, None)
        before = left_behind(options.temporary)
        while time.monotonic() - began < 60 * options.minutes:
            end, killed = run_job(os.path.join(folder, str(jobs)), options, chance)
            jobs, kills = jobs + 1, kills + killed
            print(f"{time.monotonic() - began:6.0f} s: job {jobs} ended after {killed} kills: {'the same bits' if end == undisturbed else 'OTHER BITS'}", flush=True)
            if end != undisturbed:
                raise SystemExit(f"soak: {end}, undisturbed {undisturbed}")
            if left := stays(before, options.temporary):
                raise SystemExit(f"soak: left behind: {left}")
    print(f"{jobs} jobs, {kills} kills, {time.monotonic() - began:.0f} s: all ended with the bits of an undisturbed one, nothing is left behind")


if __name__ == "__main__":
    main()
