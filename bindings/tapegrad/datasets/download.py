"""Downloads with checksums, from the first mirror that answers."""

from __future__ import annotations

import hashlib
import os
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
    problems = []
    for mirror in mirrors:
        url = f"{mirror.rstrip('/')}/{name}"
        digest = hashlib.md5(usedforsecurity=False)
        try:
            with urllib.request.urlopen(url, timeout=timeout) as answer, atomic_writer(path) as file:
                while block := answer.read(1 << 16):
                    digest.update(block)
                    file.write(block)
                if digest.hexdigest() != md5:
                    raise ValueError(f"the checksum is {digest.hexdigest()}, expected {md5}")
            return path
        except (urllib.error.URLError, OSError, ValueError) as error:
            problems.append(f"{url}: {error}")
    raise RuntimeError(f"download: {name}: no mirror gave the file\n" + "\n".join(problems))
