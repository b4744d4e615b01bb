"""Classes and functions say that they are in PyTorch's modules while `import torch` gives tapegrad: pickles, configuration files and libraries
name them by `__module__`, and know a tensor, a layer or an optimizer by what it begins with.

Modules are loaded when they are first used, so this is done again after imports, for those that are new. Private functions keep their
module: by these a tensor's pickle is read in programs that say `import tapegrad`, too. tapegrad.vision stays as it is.
"""

import sys
from types import BuiltinFunctionType, FunctionType

_ROOT = __package__.partition(".")[0]
_LEFT = (f"{_ROOT}.compat", f"{_ROOT}.vision", f"{_ROOT}.testing._internal")
_ELSEWHERE = {(f"{_ROOT}.optim.adam", "AdamW"): "torch.optim.adamw", (f"{_ROOT}.nn", "Parameter"): "torch.nn.parameter",
              **{(_ROOT, name): "torch.autograd.grad_mode" for name in ("enable_grad", "inference_mode", "no_grad", "set_grad_enabled")}}  # other files there
_done: set[str] = set()  # modules
_former: list = []  # (class or function, its module as the library has it)


def _of_layers() -> dict:
    """Layers, whose files here are not PyTorch's: class -> the module of nn.modules that has it."""
    layers = f"{_ROOT}.nn.modules."
    return {value: path for path, module in reversed(list(sys.modules.items())) if path.startswith(layers) for value in vars(module).values()
            if isinstance(value, type) and value.__module__ in (f"{_ROOT}.nn.{path.removeprefix(layers)}", *_FILES)}


_FILES = tuple(f"{_ROOT}.nn.{file}" for file in ("_bases", "_layers", "_upsampling", "handwritten_layers", "lazy", "recurrent", "sync_batch_norm", "transformer"))


def _place(value, layers: dict) -> str:
    name, module = value.__name__, value.__module__
    if (module, name) in _ELSEWHERE:
        return _ELSEWHERE[module, name]
    if value in layers:
        return "torch" + layers[value][len(_ROOT):]
    public = module.partition("._")[0]
    if vars(sys.modules.get(public, sys)).get(name) is value:  # a private file of a package that has it
        module = public
    return "torch" + module[len(_ROOT):]


def _name(value, layers: dict) -> None:
    if not (isinstance(value, type) or isinstance(value, (FunctionType, BuiltinFunctionType)) and not value.__name__.startswith("_")):
        return
    module = value.__module__
    if isinstance(module, str) and (module == _ROOT or module.startswith(f"{_ROOT}.") and not module.startswith(_LEFT)):
        try:
            value.__module__ = _place(value, layers)
        except TypeError:  # a native type whose name is fixed
            return
        _former.append((value, module))
        if isinstance(value, type):
            _evaluate_annotations(value, vars(sys.modules.get(module, sys)))


def _evaluate_annotations(cls: type, names: dict) -> None:
    """Of a class typing.get_type_hints looks the names up in its module, and there they are not in PyTorch's."""
    annotations = vars(cls).get("__annotations__") or {}
    for name, text in annotations.items():
        if isinstance(text, str):
            try:
                annotations[name] = eval(text, names, dict(vars(cls)))  # noqa: S307
            except Exception:  # a name for type checkers alone
                pass


def rename() -> None:
    """Renames what modules have that were loaded since the last time."""
    new = [name for name in list(sys.modules) if name not in _done and (name == _ROOT or name.startswith(f"{_ROOT}.")) and not name.startswith(_LEFT)]
    new = [name for name in new if not getattr(getattr(sys.modules[name], "__spec__", None), "_initializing", False)]
    if not new:
        return
    _done.update(new)
    layers = _of_layers() if any(name.startswith(f"{_ROOT}.nn") for name in new) else {}
    for name in new:
        for value in list(vars(sys.modules[name]).values()):
            _name(value, layers)


def renamed(value):
    """The value, which was made after its module was loaded."""
    if _done:
        _name(value, {})
    return value


def restore() -> None:
    """Undoes it."""
    for value, module in _former:
        value.__module__ = module
    _former.clear()
    _done.clear()
