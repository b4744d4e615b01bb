"""Long work on bytes, in steps between which Ctrl-C takes effect."""

import os
import threading
import zlib

_STEP = 1 << 22  # bytes for one call of the system or of zlib


def steps(data):
    """The parts of some bytes, in order, without copies."""
    view = memoryview(data)
    return (view[at:at + _STEP] for at in range(0, len(view), _STEP))


def write(file, data) -> None:
    for part in steps(data):
        file.write(part)


def checksum(data) -> int:
    crc = 0
    for part in steps(data):
        crc = zlib.crc32(part, crc)
    return crc


class Checksums:
    """The CRC-32 of each of the contents by name in `found`, computed in a second thread while the block runs."""

    def __init__(self, contents: dict) -> None:
        self.contents, self.found = contents, {}
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="tapegrad-checksums")

    def _run(self) -> None:
        for name, content in self.contents.items():
            crc = 0
            for part in steps(content):
                if self._stopped:
                    return
                crc = zlib.crc32(part, crc)
            self.found[name] = crc

    def __enter__(self) -> dict:
        self._thread.start()
        return self.found

    def __exit__(self, kind, *_) -> None:
        self._stopped = kind is not None
        try:
            self._thread.join()
        finally:
            self._stopped = True  # after Ctrl-C the rest is not needed


def sync(descriptor: int) -> None:
    """Waits until the file is on the disk. The system's call goes on through Ctrl-C, so a long one is made by a thread that is
    left behind then."""
    if os.fstat(descriptor).st_size < _STEP:
        return os.fsync(descriptor)
    own, errors = os.dup(descriptor), []

    def run() -> None:
        try:
            os.fsync(own)
        except OSError as error:
            errors.append(error)
        finally:
            os.close(own)

    try:
        thread = threading.Thread(target=run, name="tapegrad-sync", daemon=True)
        thread.start()
    except BaseException:
        os.close(own)
        raise
    thread.join()
    if errors:
        raise errors[0]
