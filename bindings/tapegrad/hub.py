"""Files of weights from the network, and models from folders with a hubconf.py."""

import hashlib
import importlib.util
import os
import re
import sys
from urllib.parse import urlparse

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
_folder: str | None = None
_list = list


def _get_torch_home() -> str:
    """The folder of caches: $TORCH_HOME, or torch in $XDG_CACHE_HOME, or ~/.cache/torch."""
    cache = os.getenv("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.getenv("TORCH_HOME", os.path.join(cache, "torch")))


def get_dir() -> str:
    """Where downloads are kept: what set_dir was given, or hub in the folder of caches."""
    return _folder if _folder is not None else os.path.join(_get_torch_home(), "hub")


def set_dir(d) -> None:
    """Chooses where downloads are kept."""
    global _folder
    _folder = os.path.expanduser(d)


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Downloads to a path, which is there only when all of it has come.

    `hash_prefix` is the beginning of the file's SHA-256 sum; RuntimeError when the sum is another one.
    """
    from ._files.atomic import atomic_writer
    from .datasets.download import receive

    digest = hashlib.sha256()
    bar = _Bar(progress)
    try:
        with atomic_writer(os.path.expanduser(dst)) as file:
            receive(url, file, digest, timeout=60, progress=bar.advance)
            if hash_prefix is not None and not digest.hexdigest().startswith(hash_prefix):
                raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}")')
    finally:
        bar.close()


_download_url_to_file = download_url_to_file


class _Bar:
    """A progress bar of bytes, or nothing where none is wanted or tqdm is not installed."""

    def __init__(self, wanted: bool):
        self._wanted, self._bar = wanted, None

    def advance(self, count: int, total: int | None) -> None:
        if self._bar is None and self._wanted:
            try:
                from tqdm import tqdm
            except ImportError:
                self._wanted = False
                return
            self._bar = tqdm(total=total, unit="B", unit_scale=True, unit_divisor=1024)
        if self._bar is not None:
            self._bar.update(count)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def load_state_dict_from_url(url: str, model_dir: str | None = None, map_location=None, progress: bool = True, check_hash: bool = False,
                             file_name: str | None = None, weights_only: bool = False):
    """The contents of a file of weights, downloaded unless it is in `model_dir` (hub's folder checkpoints).

    With `check_hash`, the name ends in the beginning of the file's SHA-256 sum: resnet18-f37072fd.pth. Such a file is read by
    `tapegrad.load`, which runs no code from it, whatever `weights_only` says.
    """
    from .serialization import load as load_file

    folder = os.path.join(get_dir(), "checkpoints") if model_dir is None else model_dir
    os.makedirs(folder, exist_ok=True)
    name = file_name if file_name is not None else os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        sys.stderr.write(f'Downloading: "{url}" to {path}\n')
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, path, found[1] if found else None, progress=progress)
    return load_file(path, map_location=map_location)


def _hubconf(repo_or_dir: str, source: str):
    """The module hubconf.py of a folder."""
    if source != "local":
        raise RuntimeError(f"hub: code is not fetched from the network and run: got {repo_or_dir!r} from {source}\n"
                           "clone the repository and give its folder with source='local'")
    path = os.path.join(repo_or_dir, "hubconf.py")
    if not os.path.exists(path):
        raise FileNotFoundError(f"hub: there is no hubconf.py in the folder: {repo_or_dir}")
    sys.path.insert(0, repo_or_dir)
    try:
        spec = importlib.util.spec_from_file_location("hubconf", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(repo_or_dir)
    missing = [name for name in getattr(module, "dependencies", []) if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    return module


def _entry(module, name: str):
    entry = getattr(module, name, None) if isinstance(name, str) else None
    if entry is None or not callable(entry):
        raise RuntimeError(f"Cannot find callable {name} in hubconf")
    return entry


def load(repo_or_dir, model, *args, source="github", trust_repo=None, force_reload=False, verbose=True, skip_validation=False, **kwargs):
    """What the function `model` of a folder's hubconf.py returns. Only source="local" is there."""
    return _entry(_hubconf(repo_or_dir, source), model)(*args, **kwargs)


def list(github, force_reload=False, skip_validation=False, trust_repo=None, verbose=True, source="github"):
    """The functions of a folder's hubconf.py. Only source="local" is there."""
    module = _hubconf(github, source)
    return [name for name in dir(module) if callable(getattr(module, name)) and not name.startswith("_")]


def help(github, model, force_reload=False, skip_validation=False, trust_repo=None, source="github"):
    """The docstring of a function of a folder's hubconf.py. Only source="local" is there."""
    return _entry(_hubconf(github, source), model).__doc__
