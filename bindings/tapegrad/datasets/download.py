"""Downloads with checksums, from the first mirror that answers; an interrupted download is resumed."""

import hashlib
import os
import time
import urllib.error
import urllib.request

from .._files.atomic import atomic_writer


def md5_of(path) -> str:
    """The MD5 sum of a file, as the data sets' pages print it."""
    digest = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def fetch(name: str, mirrors, folder: str, md5: str, timeout: float = 30) -> str:
    """The path of folder/name, downloaded unless a file with the right checksum is there."""
    path = os.path.join(folder, name)
    if os.path.exists(path) and md5_of(path) == md5:
        return path
    os.makedirs(folder, exist_ok=True)
    download([f"{mirror.rstrip('/')}/{name}" for mirror in mirrors], path, md5, timeout)
    return path


def download(urls, path: str, md5: str | None = None, timeout: float = 30) -> None:
    """Writes what the first url that answers gives to path; path changes only when all is there and the checksum right.

    Raises RuntimeError that says what was wrong with each of the urls.
    """
    problems = []
    for url in urls:
        digest = hashlib.md5(usedforsecurity=False)
        try:
            with atomic_writer(path) as file:
                receive(url, file, digest, timeout)
                if md5 is not None and digest.hexdigest() != md5:
                    raise ValueError(f"the checksum is {digest.hexdigest()}, expected {md5}")
            return
        except (urllib.error.URLError, OSError, ValueError) as error:
            problems.append(f"{url}: {error}")
    raise RuntimeError(f"download: {os.path.basename(path)}: no mirror gave the file\n" + "\n".join(problems))


def receive(url: str, file, digest, timeout: float, attempts: int = 4, progress=None) -> None:
    """Reads url into file and digest; after a broken connection the rest is asked for, `attempts` times in all.

    `progress` is called with the size of each block and of the whole in bytes (None where the server does not tell).
    """
    total = None
    for attempt in range(attempts):
        done = file.tell()
        headers = {"User-Agent": "tapegrad", **({"Range": f"bytes={done}-"} if done else {})}
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout) as answer:
                if done and answer.status != 206:  # a server without ranges begins again
                    skip = done
                    while skip and (block := answer.read(min(skip, 1 << 16))):
                        skip -= len(block)
                length = answer.headers.get("Content-Length")
                if total is None and length is not None:
                    total = int(length)
                while block := answer.read(1 << 16):
                    digest.update(block)
                    file.write(block)
                    if progress is not None:
                        progress(len(block), total)
            if total is None or file.tell() >= total:
                return
            problem: OSError = OSError(f"the connection ended after {file.tell()} of {total} bytes")
        except urllib.error.HTTPError:
            raise
        except OSError as error:  # refused, reset, timed out
            if not file.tell():
                raise
            problem = error
        if attempt + 1 < attempts:
            time.sleep(0.1 * 2**attempt)
    raise problem
