"""A layer that the caller allows is found in a file that names it by another of its paths."""

import pytest
import tapegrad as tg
from tapegrad import nn


def test_allowed_layers_are_known_by_their_class(tmp_path):
    model = nn.Sequential(nn.Dropout(0.1), nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 1))
    path = tmp_path / "model.pt"
    tg.save(model, path)
    kinds = [type(m) for m in model.modules()]
    with tg.serialization.safe_globals([*kinds, nn.functional.relu]):
        loaded = tg.load(path)
    assert repr(loaded) == repr(model)
    with pytest.raises(RuntimeError, match="the file needs .*Dropout"):
        with tg.serialization.safe_globals([k for k in kinds if k is not nn.Dropout]):
            tg.load(path)
