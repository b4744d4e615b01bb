"""What `make wheel` and `make release-check` rest on, without building a wheel: versions, links, interpreters, paths in commands."""

import json
import re
import sys
import zipfile
from pathlib import Path

import pytest
import tapegrad as tg

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(tg._C.__file__).resolve().parents[2]


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return lambda name: __import__(name)


def test_one_version(tool):
    check = tool("release_check")
    assert tg.__version__ == tg.version.__version__ == check.version()
    assert list(check.wrong_versions()) == []


def test_links_of_the_documents(tool, tmp_path, monkeypatch):
    check = tool("release_check")
    assert list(check.dead_links()) == []
    page = tmp_path / "page.md"
    page.write_text("# One\n[a](gone.md) [b](page.md#one) [c](#two) [d](https://there.example) `[e](code)`\n")
    monkeypatch.setattr(check, "ROOT", tmp_path)
    assert list(check.dead_links([page])) == ["page.md: gone.md is not there", "page.md: #two: no such heading"]


def test_a_wheel_that_lacks_something_is_refused(tool, tmp_path):
    check = tool("release_check")
    wheel = tmp_path / "tapegrad-0.1.0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tapegrad-0.1.0.dist-info/METADATA", "Version: 0.0.9\n")
        archive.writestr("tapegrad/py.typed", "")
    found = list(check.wrong_wheel(wheel))
    for text in ("no manylinux tag", f"lacks 'Version: {check.version()}'", "libgomp.txt is not in it", "oneDNN is not in it once", "auditwheel proves"):
        assert any(text in line for line in found), text
    assert not any("py.typed" in line for line in found)


def test_a_wheel_for_aarch64_is_without_onednn(tool, tmp_path):
    check = tool("release_check")
    wheel = tmp_path / "tapegrad-0.1.0-cp311-cp311-manylinux_2_34_aarch64.whl"
    for more, wrong in ((), False), (("tapegrad/lib/libdnnl.so.3",), True):
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("tapegrad-0.1.0.dist-info/METADATA", "")
            for name in more:
                archive.writestr(name, "")
        found = list(check.wrong_wheel(wheel))
        assert ("oneDNN is not in it zero times" in found) == wrong
        assert not any("libgomp" in line or "onednn-LICENSE" in line for line in found) and any("libsleef.txt is not in it" in line for line in found)


def test_the_wheel_of_cuda_holds_one_library_and_needs_its_tapegrad(tool, tmp_path):
    check, made = tool("release_check"), tool("wheel_cuda")
    wheel = tmp_path / f"tapegrad_cuda-{check.version()}-py3-none-manylinux_2_34_x86_64.whl"
    for more, found in ((), []), (("tapegrad/__init__.py",), ["it should hold libtapegrad_cuda.so alone: got ['tapegrad/lib/libtapegrad_cuda.so', 'tapegrad/__init__.py']"]):
        with zipfile.ZipFile(wheel, "w") as archive:
            for name in (made.LIBRARY, *more):
                archive.writestr(name, "")
            archive.writestr(f"tapegrad_cuda-{check.version()}.dist-info/METADATA", made.metadata())
        assert list(check.wrong_cuda_wheel(wheel)) == found
    assert f"Requires-Dist: tapegrad=={check.version()}\n" in made.metadata()


def test_wheels_are_for_interpreters_with_headers(tool):
    wheel = tool("wheel")
    ((version, path),) = wheel.interpreters([sys.executable])
    assert version == sys.version_info[:3] and path == sys.executable
    with pytest.raises(SystemExit, match="not a CPython"):
        wheel.interpreters(["/bin/true"])
    found = wheel.interpreters([])
    assert len({v[:2] for v, _ in found}) == len(found)


def test_no_command_depends_on_where_an_environment_is():
    """The compiler cache keeps paths relative to the sources: one to an environment of pip's would be another one each time."""
    commands = BUILD / "compile_commands.json"
    if not commands.exists():
        pytest.skip("not a build tree of CMake's")
    python = re.search(r"^_?Python_INCLUDE_DIR:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M)[1]
    for entry in json.loads(commands.read_text()):
        if entry["file"].endswith(".cpp") and "/test/" not in entry["file"]:
            folders = re.findall(r"(?:-I|-isystem )(\S+)", entry["command"])
            assert [f for f in folders if not f.startswith((str(BUILD), str(ROOT), "/usr/")) and f != python] == [], entry["file"]


def test_the_package_says_that_it_is_typed():
    assert (Path(tg.__file__).parent / "py.typed").exists()
