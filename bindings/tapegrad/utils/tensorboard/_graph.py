"""A model's graph of operators for TensorBoard: the tape of one call, each operator in the scope of its module."""

from tensorboard.compat.proto.attr_value_pb2 import AttrValue
from tensorboard.compat.proto.config_pb2 import RunMetadata
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.node_def_pb2 import NodeDef
from tensorboard.compat.proto.step_stats_pb2 import DeviceStepStats, StepStats
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.versions_pb2 import VersionDef

from ... import _C, Tensor, enable_grad
from ...profiler._events import read_logs


def _tensors(value):
    """The tensors of nested tuples, lists and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for v in value.values():
            yield from _tensors(v)
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _tensors(v)
    elif hasattr(value, "to_tuple"):
        yield from _tensors(value.to_tuple())


def _node(name: str, op: str, inputs=(), shape=None, text: str = "") -> NodeDef:
    attributes = {"attr": AttrValue(s=text.encode())}
    if shape is not None:
        size = TensorShapeProto(dim=[TensorShapeProto.Dim(size=n) for n in shape])
        attributes["_output_shapes"] = AttrValue(list=AttrValue.ListValue(shape=[size]))
    return NodeDef(name=name, op=op, input=list(inputs), attr=attributes)


class _Recorded:
    """A call of the model with all its parameters and inputs on the tape; everything is put back behind it."""

    def __init__(self, model, args):
        self.model, self.args = model, args

    def run(self):
        self.inputs = list(_tensors(self.args))
        leaves = [t for t in [*self.inputs, *self.model.parameters()] if t.is_leaf and (t.is_floating_point() or t.is_complex())]
        before = [(t, t.requires_grad) for t in leaves]
        buffers = [(b, b.detach().clone()) for b in self.model.buffers()]
        for t, _ in before:
            t.requires_grad_(True)
        _C._profiler_start(False, False, False, True)
        try:
            with enable_grad():
                result = self.model(*self.args)
        finally:
            log = _C._profiler_stop()
            for t, wanted in before:
                t.requires_grad_(wanted)
            for b, value in buffers:
                b.detach().copy_(value)
        self.outputs = list(_tensors(result))
        self.makers = {e.sequence_nr: e for e in read_logs(*log)[0] if e.kind == 0 and e.sequence_nr >= 0}


def graph(model, args):
    """GraphDef and RunMetadata of model(*args). Raises RuntimeError where a profiler runs."""
    args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    call = _Recorded(model, args)
    call.run()
    root = type(model).__name__
    names_of_leaves = {id(p): f"{root}/{name.replace('.', '/')}" for name, p in model.named_parameters()}
    nodes: list[NodeDef] = []
    for k, t in enumerate(call.inputs):
        names_of_leaves[id(t)] = f"input/input.{k}"
        nodes.append(_node(f"input/input.{k}", "IO Node", shape=t.shape))
    names: dict[int, str] = {}
    kept = []  # Python's objects of nodes, whose ids are keys
    parameters = set()

    def leaf(variable) -> str:
        name = names_of_leaves.setdefault(id(variable), f"constant/{len(names_of_leaves)}")
        if not name.startswith("input/") and name not in parameters:
            parameters.add(name)
            nodes.append(_node(name, "Parameter", shape=variable.shape))
        return name

    def name_of(node) -> str:
        """Names a node of the tape once, after its operator and module."""
        if id(node) not in names:
            kept.append(node)
            variable = getattr(node, "variable", None)
            if variable is not None:
                names[id(node)] = leaf(variable)
            else:
                maker = call.makers.get(node._sequence_nr())
                scope = (maker.module_path or root) if maker is not None else root
                op = maker.name if maker is not None else node.name()
                names[id(node)] = f"{scope.replace('.', '/')}/{op.rpartition('::')[2]}_{node._sequence_nr()}"
        return names[id(node)]

    waiting = [t.grad_fn for t in call.outputs if t.grad_fn is not None]
    seen = set()
    while waiting:  # without recursion: a tape may be long
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        name = name_of(node)
        if getattr(node, "variable", None) is not None:
            continue
        before = [n for n, _ in node.next_functions if n is not None]
        waiting += before
        maker = call.makers.get(node._sequence_nr())
        nodes.append(_node(name, maker.name if maker is not None else node.name(), [name_of(n) for n in before], text=node._site or ""))
    for k, t in enumerate(call.outputs):
        source = [name_of(t.grad_fn)] if t.grad_fn is not None else []
        nodes.append(_node(f"output/output.{k}", "IO Node", source, t.shape))
    stats = RunMetadata(step_stats=StepStats(dev_stats=[DeviceStepStats(device="/device:CPU:0")]))
    return GraphDef(node=nodes, versions=VersionDef(producer=22)), stats
