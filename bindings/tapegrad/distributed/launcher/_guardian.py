"""Ends the processes of a job: those that have its mark in their environment, wherever they were moved in the process tree.

Run as a program, it waits until the launcher has gone (its end of standard input closes), however that happened, and then leaves none of
its ranks behind. It must start quickly and imports nothing of the package.
"""

import os
import signal
import sys
import time

MARK = "TAPEGRAD_LAUNCH_ID"
GRACE = 3.0  # seconds between SIGTERM and SIGKILL


def marked(mark: str) -> list:
    """The processes of a job."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if wanted not in file.read().split(b"\0"):
                        continue
                with open(f"/proc/{name}/stat") as file:
                    if file.read().rpartition(")")[2].split()[0] != "Z":
                        found.append(int(name))
            except (OSError, IndexError):  # it has ended, or is another user's
                pass
    return found


def end_marked(mark: str, grace: float = GRACE) -> None:
    """SIGTERM to all, SIGKILL to those that stay."""
    deadline, told = time.monotonic() + grace, set()
    while True:
        processes = marked(mark)
        if not processes:
            return
        late = time.monotonic() >= deadline
        for pid in processes:
            if late or pid not in told:
                try:
                    os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
                except OSError:
                    pass
            told.add(pid)
        time.sleep(0.02)


def main() -> None:
    """Waits for the end of the launcher."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)  # they are the launcher's
    if sys.stdin.buffer.read():  # it has ended well
        return
    end_marked(sys.argv[1])


if __name__ == "__main__":
    main()
