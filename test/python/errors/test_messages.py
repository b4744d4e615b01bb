"""Every mistake of the table raises what the table says, and docs/errors.md says the same."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import tapegrad as tg
from errors import mistakes
from errors.mistakes import MISTAKES

ROOT = Path(__file__).resolve().parents[3]


def caught(code: str) -> Exception:
    names = {"tg": tg}
    with pytest.raises(BaseException) as info:  # noqa: PT011  the kind is compared below
        exec(compile(code, "train.py", "exec"), names)
    return info.value


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.title)
def test_mistake(mistake):
    error = caught(mistake.code)
    assert type(error).__name__ == mistake.kind
    pattern = ".*".join(re.escape(part) for part in mistake.message.split("..."))
    assert re.fullmatch(pattern, str(error), re.DOTALL), str(error)


def test_there_are_sixty_of_them_and_no_two_alike():
    assert len(MISTAKES) >= 60
    assert len({m.title for m in MISTAKES}) == len({m.code for m in MISTAKES}) == len(MISTAKES)


# Python's own words, and PyTorch's where scripts look for them.
OTHER_FORMS = ("TypeError", "AttributeError", "FileNotFoundError")


@pytest.mark.parametrize("mistake", [m for m in MISTAKES if m.kind not in OTHER_FORMS and not m.words_of_pytorch], ids=lambda m: m.title)
def test_the_form_of_a_message(mistake):
    """`op: what is wrong: the values`, lower case, no full stop, a hint on a line of its own."""
    first = mistake.message.splitlines()[0].removesuffix(", ...").removesuffix(": ...")
    assert re.match(r"[a-z_0-9.]+: \S", first), first
    assert not first.endswith((".", ":")), first


def test_the_page_says_the_same():
    assert (ROOT / "docs" / "errors.md").read_text() == mistakes.page(), "run python test/python/errors/mistakes.py"


def test_a_misspelt_method_is_suggested_where_python_shows_it():
    """Python's own "Did you mean", made when an error is shown: looking an attribute up costs nothing more."""
    run = subprocess.run([sys.executable, "-c", "import tapegrad as tg; tg.zeros(2).sofmax(0)"], capture_output=True, text=True)
    assert "'tapegrad.Tensor' object has no attribute 'sofmax'" in run.stderr
    assert "Did you mean: 'softmax'?" in run.stderr
    run = subprocess.run([sys.executable, "-c", "import tapegrad as tg; tg.nn.Linear(1, 1).wieght"], capture_output=True, text=True)
    assert "Did you mean: 'weight'?" in run.stderr or "object has no attribute 'wieght'" in run.stderr


@pytest.mark.parametrize("call, hint", [
    (lambda: tg.zeros(2).sum(dimension=0), "did you mean 'dim'?"),
    (lambda: tg.zeros(2).sum(keep_dim=True), "did you mean 'keepdim'?"),
    (lambda: tg.nn.functional.conv2d(tg.zeros(1), tg.zeros(1), paddin=1), "did you mean 'padding'?"),
    (lambda: tg.zeros(2, dtyp=tg.float32), "did you mean 'dtype'?"),
    (lambda: tg.zeros(2, 2).max(1, keepdimm=True), "did you mean 'keepdim'?"),
])
def test_a_misspelt_keyword_is_suggested(call, hint):
    with pytest.raises(TypeError) as info:
        call()
    assert hint in str(info.value)


def test_a_strange_keyword_is_not():
    with pytest.raises(TypeError) as info:
        tg.zeros(2).sum(colour=3)
    assert "did you mean" not in str(info.value)


@pytest.mark.parametrize("module, name, hint", [
    (tg, "zeroes", "zeros"), (tg, "Tenser", "Tensor"), (tg, "ndarray", "Tensor"), (tg.nn, "ReLu", "ReLU"), (tg.nn.functional, "max_pol2d", "max_pool2d"),
    (tg.optim, "Addam", "Adam"), (tg.special, "gamaln", "gammaln"),
])
def test_a_misspelt_name_is_suggested(module, name, hint):
    with pytest.raises(AttributeError, match=f"did you mean '{hint}'"):
        getattr(module, name)
    assert not hasattr(module, "_" + name)


def test_text_and_models_where_numbers_and_parameters_belong():
    """Every optimizer, and the functions beside it."""
    made = 0
    for kind in vars(tg.optim).values():
        if isinstance(kind, type) and issubclass(kind, tg.optim.Optimizer) and kind is not tg.optim.Optimizer:
            with pytest.raises(TypeError, match=r"^lr must be a number: got the text '0\.1'$"):
                kind([tg.ones(2, 2)], lr="0.1")
            with pytest.raises(TypeError, match=r"give its parameters\(\)$"):
                kind(tg.nn.Linear(1, 1))
            made += 1
    assert made > 12
    with pytest.raises(TypeError, match=r"but got Linear\ngive its parameters\(\)$"):
        tg.nn.utils.clip_grad_norm_(tg.nn.Linear(1, 1), 1.0)
    assert len(tg.optim.SGD(tg.nn.ParameterList([tg.ones(1), tg.ones(1)])).param_groups[0]["params"]) == 2


def test_public_exceptions_are_shown_by_their_public_names():

    for kind in (tg.serialization.FileError, tg.serialization.UnknownFormat, tg.onnx.OnnxExporterError, tg.onnx.UnsupportedOperatorError,
                 tg.distributed.QueueEmptyError):
        assert getattr(sys.modules[kind.__module__], kind.__name__) is kind and "._" not in kind.__module__
