"""Submodels of networks."""

from collections import OrderedDict

from ... import nn

__all__ = ["IntermediateLayerGetter", "create_feature_extractor"]


class IntermediateLayerGetter(nn.ModuleDict):
    """The direct children of a network up to the last one asked for; called, it gives their outputs by the names of return_layers."""

    def __init__(self, model, return_layers) -> None:
        names = [name for name, _ in model.named_children()]
        if not set(return_layers) <= set(names):
            raise ValueError("return_layers are not present in model")
        left = {str(k): str(v) for k, v in return_layers.items()}
        self_layers = dict(left)
        layers = OrderedDict()
        for name, module in model.named_children():
            layers[name] = module
            left.pop(name, None)
            if not left:
                break
        super().__init__(layers)
        self.return_layers = self_layers

    def forward(self, x):
        out = OrderedDict()
        for name, module in self.items():
            x = module(x)
            if name in self.return_layers:
                out[self.return_layers[name]] = x
        return out


class _Extractor(nn.Module):
    def __init__(self, model, nodes) -> None:
        super().__init__()
        self.model, self.nodes = model, nodes
        modules = dict(model.named_modules())
        for name in nodes:
            if name not in modules:
                raise ValueError(f"node: '{name}' is not present in model. Hint: use the name of a module")

    def forward(self, *args, **kwargs):
        seen = {}
        modules = dict(self.model.named_modules())
        handles = [modules[name].register_forward_hook(lambda m, i, out, name=name: seen.__setitem__(name, out)) for name in self.nodes]
        try:
            self.model(*args, **kwargs)
        finally:
            for handle in handles:
                handle.remove()
        return {title: seen[name] for name, title in self.nodes.items()}


def create_feature_extractor(model, return_nodes):
    """A module that gives a dictionary of what the named modules of a network put out.

    return_nodes: a list of names, or a dictionary from names to keys of the result. Only modules can be named, not operations between them.
    """
    nodes = dict(return_nodes) if isinstance(return_nodes, dict) else {name: name for name in return_nodes}
    return _Extractor(model, nodes)
