"""Checksums, downloads and archives."""

import os
import tarfile
import zipfile

from ..._files.atomic import atomic_writer
from ...datasets.download import download, md5_of

__all__ = ["calculate_md5", "check_integrity", "check_md5", "download_and_extract_archive", "download_url", "extract_archive",
           "list_dir", "list_files", "verify_str_arg"]

calculate_md5 = md5_of


def check_md5(fpath, md5: str) -> bool:
    """Whether the file has this MD5 sum."""
    return md5_of(fpath) == md5


def check_integrity(fpath, md5: str | None = None) -> bool:
    """Whether there is such a file, with this MD5 sum if one is given."""
    return os.path.isfile(fpath) and (md5 is None or check_md5(fpath, md5))


def download_url(url: str, root, filename=None, md5: str | None = None, max_redirect_hops: int = 3) -> None:
    """Downloads url to root/filename unless the right file is there; the file appears when it is whole and its sum right.

    Raises RuntimeError when the address does not answer or the checksum is another one.
    """
    root = os.path.expanduser(root)
    path = os.fspath(os.path.join(root, filename or os.path.basename(url)))
    if check_integrity(path, md5):
        return
    os.makedirs(root, exist_ok=True)
    download([url], path, md5)


def extract_archive(from_path, to_path=None, remove_finished: bool = False) -> str:
    """Unpacks a tar, zip, gz, bz2 or xz file into a folder (its own by default) and gives the path of the result.

    Members that would be written outside of the folder raise RuntimeError before anything is written.
    """
    from_path = os.fspath(from_path)
    to_path = os.fspath(to_path) if to_path is not None else os.path.dirname(from_path)
    if tarfile.is_tarfile(from_path):
        with tarfile.open(from_path) as archive:
            _check_members(to_path, (m.name for m in archive.getmembers()), from_path)
            if any(m.issym() or m.islnk() or m.isdev() for m in archive.getmembers()):
                raise RuntimeError(f"extract_archive: {from_path} has links or devices among its members")
            archive.extractall(to_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    elif zipfile.is_zipfile(from_path):
        with zipfile.ZipFile(from_path) as archive:
            _check_members(to_path, archive.namelist(), from_path)
            archive.extractall(to_path)
    else:
        to_path = _decompress(from_path, to_path)
    if remove_finished:
        os.remove(from_path)
    return to_path


def _check_members(folder: str, names, archive: str) -> None:
    base = os.path.realpath(folder)
    for name in names:
        target = os.path.realpath(os.path.join(base, name))
        if target != base and not target.startswith(base + os.sep):
            raise RuntimeError(f"extract_archive: {archive} has a member outside of its folder: {name}")


def _decompress(path: str, folder: str) -> str:
    import bz2
    import gzip
    import lzma
    import shutil

    stem, suffix = os.path.splitext(path)
    openers = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    if suffix not in openers:
        raise RuntimeError(f"extract_archive: unknown compression or archive type: '{suffix}': known are tar, zip and {sorted(openers)}")
    target = os.path.join(folder, os.path.basename(stem))
    with openers[suffix](path, "rb") as source, atomic_writer(target) as file:
        shutil.copyfileobj(source, file, 1 << 20)
    return target


def download_and_extract_archive(url: str, download_root, extract_root=None, filename=None, md5=None, remove_finished: bool = False):
    """download_url and extract_archive."""
    download_root = os.path.expanduser(download_root)
    extract_root = download_root if extract_root is None else extract_root
    filename = filename or os.path.basename(url)
    download_url(url, download_root, filename, md5)
    extract_archive(os.path.join(download_root, filename), extract_root, remove_finished)


def list_dir(root, prefix: bool = False) -> list[str]:
    """The folders in a folder, by name or with their path."""
    root = os.path.expanduser(root)
    names = [n for n in os.listdir(root) if os.path.isdir(os.path.join(root, n))]
    return [os.path.join(root, n) for n in names] if prefix else names


def list_files(root, suffix, prefix: bool = False) -> list[str]:
    """The files in a folder whose names end with suffix (a string or a tuple of strings)."""
    root = os.path.expanduser(root)
    names = [n for n in os.listdir(root) if n.endswith(suffix) and os.path.isfile(os.path.join(root, n))]
    return [os.path.join(root, n) for n in names] if prefix else names


def verify_str_arg(value, arg=None, valid_values=None, custom_msg=None) -> str:
    """value, if it is one of valid_values; else ValueError."""
    if not isinstance(value, str):
        raise ValueError(f"Expected type str{f' for argument {arg}' if arg else ''}, but got type {type(value)}.")
    if valid_values is not None and value not in valid_values:
        known = "{" + ", ".join(f"'{v}'" for v in valid_values) + "}"
        raise ValueError(custom_msg or f"Unknown value '{value}' for argument {arg}. Valid values are {known}.")
    return value
