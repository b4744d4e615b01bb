"""An error that an operator raises inside a tree of modules names the module."""

import pytest
import tapegrad as tg
from tapegrad import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(9, 2))
        self.loose = [nn.Linear(4, 4)]

    def forward(self, x, loose=False):
        return self.loose[0](x) if loose else self.body(x)


def message(call):
    with pytest.raises(RuntimeError) as caught:
        call()
    return str(caught.value)


def test_path_and_description():
    x = tg.ones(3, 2, 4)
    expected = "in Classifier.body.2: Linear(in_features=9, out_features=2, bias=True)"
    assert message(lambda: Classifier()(x)).splitlines()[-1] == expected
    assert message(lambda: Classifier()(x=x)).splitlines()[-1] == expected
    assert message(lambda: nn.Linear(9, 2)(x)).splitlines()[-1] == "in Linear: Linear(in_features=9, out_features=2, bias=True)"


def test_path_appears_once_per_error():
    model = Classifier()
    for _ in range(2):  # nothing of the first error is left for the second
        text = message(lambda: model(tg.ones(3, 8)))
        assert text.count("in Classifier") == 1 and text.count("Linear(") == 1


def test_with_hooks():
    model = Classifier()
    model.body.register_forward_hook(lambda *a: None)
    assert message(lambda: model(tg.ones(3, 8))).splitlines()[-1].startswith("in Classifier.body.2: ")


def test_module_that_its_parent_does_not_know():
    text = message(lambda: nn.Sequential(Classifier())(tg.ones(3, 8)))
    assert "in Sequential.0.body.2: Linear(" in text
    text = message(lambda: Classifier()(tg.ones(3, 8), loose=True))
    assert text.splitlines()[-1] == "in Classifier > Linear: Linear(in_features=4, out_features=4, bias=True)"


def test_errors_of_python_stay_as_they_are():
    class Raises(nn.Module):
        def forward(self, x):
            raise RuntimeError("my own words")

    assert message(lambda: nn.Sequential(Raises())(tg.ones(1))) == "my own words"

    class Catches(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(9, 2)

        def forward(self, x):
            try:
                return self.inner(x)
            except RuntimeError:
                raise RuntimeError("my own words") from None

    assert message(lambda: nn.Sequential(Catches())(tg.ones(1))) == "my own words"


def test_operators_outside_of_modules_have_no_path():
    message(lambda: Classifier()(tg.ones(3, 8)))
    assert "\nin " not in message(lambda: tg.ones(2, 3) @ tg.ones(2, 3))
