"""hub: weights by URL with checksums, models from folders; no code from the network."""

import hashlib

import pytest
import tapegrad as tg
from tapegrad import hub


def test_weights_by_url(tmp_path, monkeypatch, capsys):
    model = tg.nn.Linear(3, 2)
    tg.save(model.state_dict(), tmp_path / "w.pt")
    data = (tmp_path / "w.pt").read_bytes()
    name = f"weights-{hashlib.sha256(data).hexdigest()[:8]}.pt"
    (tmp_path / name).write_bytes(data)
    monkeypatch.setattr(hub, "_folder", None)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    assert hub.get_dir() == str(tmp_path / "home" / "hub")
    state = hub.load_state_dict_from_url((tmp_path / name).as_uri(), check_hash=True, progress=False, map_location="cpu")
    assert state["weight"].equal(model.weight) and "Downloading" in capsys.readouterr().err
    (tmp_path / name).unlink()  # the second time it is there
    assert hub.load_state_dict_from_url((tmp_path / name).as_uri(), check_hash=True)["bias"].equal(model.bias)
    (tmp_path / "weights-00000000.pt").write_bytes(data)
    with pytest.raises(RuntimeError, match='invalid hash value \\(expected "00000000", got "'):
        hub.load_state_dict_from_url((tmp_path / "weights-00000000.pt").as_uri(), check_hash=True, progress=False)
    assert not (tmp_path / "home" / "hub" / "checkpoints" / "weights-00000000.pt").exists()
    hub.set_dir(tmp_path / "other")
    assert hub.get_dir() == str(tmp_path / "other")


def test_models_of_a_folder(tmp_path):
    (tmp_path / "hubconf.py").write_text('dependencies = ["math"]\ndef net(size, bias=True):\n    "A net."\n    return (size, bias)\n')
    folder = str(tmp_path)
    assert hub.load(folder, "net", 3, source="local", bias=False) == (3, False)
    assert hub.list(folder, source="local") == ["net"] and hub.help(folder, "net", source="local") == "A net."
    with pytest.raises(RuntimeError, match="Cannot find callable other in hubconf"):
        hub.load(folder, "other", source="local")
    with pytest.raises(FileNotFoundError, match="there is no hubconf.py"):
        hub.load(folder + "/none", "net", source="local")
    with pytest.raises(RuntimeError, match="^hub: code is not fetched from the network and run: got 'a/b' from github\n"):
        hub.load("a/b", "net")
    (tmp_path / "hubconf.py").write_text('dependencies = ["no_such_module_anywhere"]\n')
    with pytest.raises(RuntimeError, match="^Missing dependencies: no_such_module_anywhere$"):
        hub.list(folder, source="local")
