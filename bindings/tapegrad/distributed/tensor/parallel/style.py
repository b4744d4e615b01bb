"""Parallel styles: how the parameters, inputs and outputs of a module are distributed."""

import abc

from .... import Tensor
from ....nn import Embedding, Linear, Parameter
from ..._placements import Placement, Replicate, Shard
from .._api import distribute_module, distribute_tensor
from .._dtensor import DTensor
from .._spec import contiguous_stride, normalized

__all__ = ["ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput", "RowwiseParallel",
           "SequenceParallel"]


def _moved(x: DTensor, placements) -> DTensor:
    wanted = normalized(placements, x.device_mesh, x.ndim, "redistribute")
    return x if x.placements == wanted else x.redistribute(placements=wanted)


class ParallelStyle(abc.ABC):
    """What parallelize_module does with one module."""

    src_data_rank: int | None = 0

    @abc.abstractmethod
    def _apply(self, module, device_mesh):
        """Shares the module out, in place; returns it."""

    def _put(self, module, mesh, name: str, placement: Placement) -> None:
        parameter = module._parameters.get(name)
        if parameter is not None:
            made = distribute_tensor(parameter.detach(), mesh, [placement], src_data_rank=self.src_data_rank)
            module.register_parameter(name, Parameter(made, parameter.requires_grad))

    def _fields(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in ("input_layouts", "output_layouts", "use_local_output"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._fields()})"


class _CutModule(ParallelStyle):
    """A Linear or Embedding whose weight is cut."""

    _inputs: Placement
    _outputs: Placement

    def __init__(self, *, input_layouts: Placement | None = None, output_layouts: Placement | None = None, use_local_output: bool = True):
        super().__init__()
        self.input_layouts, self.output_layouts = (input_layouts or self._inputs,), (output_layouts or self._outputs,)
        self.use_local_output = use_local_output

    def _input(self, module, inputs, mesh):
        x, *rest = inputs
        if not isinstance(x, DTensor):
            shape = None
            (p,) = normalized(self.input_layouts, mesh, x.dim(), type(self).__name__)
            if isinstance(module, Linear) and p == Shard(x.dim() - 1):
                shape = (*x.shape[:-1], module.in_features)  # parts of what does not divide evenly are not all of one size
            x = DTensor.from_local(x, mesh, [p], shape=shape, stride=None if shape is None else contiguous_stride(shape))
        return (_moved(x, self.desired_input_layouts), *rest)

    def _output(self, module, outputs, mesh):
        outputs = _moved(outputs, self.output_layouts)
        return outputs.to_local() if self.use_local_output else outputs

    def _shared_out(self, module, mesh, placements: dict):
        def partition(name, sub, mesh):
            for key, placement in placements.items():
                self._put(sub, mesh, key, placement)

        return distribute_module(module, mesh, partition, self._input, self._output)


class ColwiseParallel(_CutModule):
    """A Linear whose rows of outputs, or an Embedding whose columns lie with different ranks.

    Inputs come whole (input_layouts), results are cut along their last dimension (output_layouts) and given as plain parts unless
    use_local_output=False.
    """

    _inputs, _outputs = Replicate(), Shard(-1)
    desired_input_layouts = (Replicate(),)

    def _apply(self, module, device_mesh):
        if isinstance(module, Linear):
            return self._shared_out(module, device_mesh, {"weight": Shard(0), "bias": Shard(0)})
        if isinstance(module, Embedding):
            return self._shared_out(module, device_mesh, {"weight": Shard(1)})
        raise NotImplementedError(f"ColwiseParallel currently only support nn.Linear and nn.Embedding! got {type(module).__name__}")


class RowwiseParallel(_CutModule):
    """A Linear whose inputs, or an Embedding whose rows lie with different ranks; results are sums of the ranks' parts.

    Inputs come cut along their last dimension (input_layouts; an Embedding's indices whole), results are whole (output_layouts; Shard
    scatters the sums) and plain tensors unless use_local_output=False.
    """

    _inputs, _outputs = Shard(-1), Replicate()
    desired_input_layouts = (Shard(-1),)

    def _apply(self, module, device_mesh):
        if isinstance(module, Linear):
            self.desired_input_layouts = (Shard(-1),)
            return self._shared_out(module, device_mesh, {"weight": Shard(1), "bias": Replicate()})
        if isinstance(module, Embedding):
            self.desired_input_layouts = (Replicate(),)
            return self._shared_out(module, device_mesh, {"weight": Shard(0)})
        raise NotImplementedError(f"RowwiseParallel currently only support nn.Linear and nn.Embedding! got {type(module).__name__}")


class SequenceParallel(ParallelStyle):
    """A LayerNorm, RMSNorm or Dropout that works on parts of sequences; its parameters are whole, each rank's own.

    A plain input is a part of dimension sequence_dim; results are DTensors unless use_local_output=True.
    """

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False):
        super().__init__()
        self.sequence_sharding, self.use_local_output = (Shard(sequence_dim),), use_local_output

    def _apply(self, module, device_mesh):
        def partition(name, sub, mesh):
            for key, parameter in list(sub._parameters.items()):
                if parameter is not None:
                    made = DTensor.from_local(parameter.detach(), mesh, [Replicate()])
                    sub.register_parameter(key, Parameter(made, parameter.requires_grad))

        def before(mod, inputs, mesh):
            x, *rest = inputs
            if isinstance(x, DTensor):
                return (_moved(x, self.sequence_sharding), *rest)
            if isinstance(x, Tensor):
                return (DTensor.from_local(x, mesh, self.sequence_sharding), *rest)
            raise ValueError(f"expecting input of {mod} to be a torch.Tensor or DTensor, but got {x}")

        return distribute_module(module, device_mesh, partition, before,
                                 lambda mod, outputs, mesh: outputs.to_local() if self.use_local_output else outputs)

    def _fields(self) -> str:
        return f"sequence_dim={self.sequence_sharding[0].dim}, use_local_output={self.use_local_output}"


def _tuple(layouts):
    return (layouts,) if isinstance(layouts, Placement) else layouts


def _converted(x, mesh, layout, desired, local: bool):
    """A plain tensor or a DTensor that lies as desired."""
    if layout is None:
        return x
    if not isinstance(x, DTensor):
        if not isinstance(x, Tensor):
            raise AssertionError(f"expecting input to be a torch.Tensor! got {type(x).__name__}")
        x = DTensor.from_local(x, mesh, (layout,))
    if desired is not None:
        x = _moved(x, (desired,))
    return x.to_local() if local else x


class PrepareModuleInput(ParallelStyle):
    """Makes inputs of a module DTensors that lie as its parameters need it.

    input_layouts say how plain inputs lie (None: left as it is), desired_input_layouts how they are to lie, one of each for each
    argument; input_kwarg_layouts and desired_input_kwarg_layouts do so by name. use_local_output=True gives the parts.
    """

    def __init__(self, *, input_layouts=None, desired_input_layouts=None, input_kwarg_layouts: dict | None = None,
                 desired_input_kwarg_layouts: dict | None = None, use_local_output: bool = False):
        self.input_layouts, self.desired_input_layouts = _tuple(input_layouts), _tuple(desired_input_layouts)
        self.use_local_output, self.with_kwargs = use_local_output, input_kwarg_layouts is not None
        if self.input_layouts is not None:
            if self.desired_input_layouts is None:
                raise AssertionError("desired module inputs should not be None!")
            if len(self.input_layouts) != len(self.desired_input_layouts):
                raise AssertionError("input_layouts and desired_input_layouts should have same length!")
        self.input_kwarg_layouts, self.desired_input_kwarg_layouts = input_kwarg_layouts or {}, desired_input_kwarg_layouts or {}
        if len(self.input_kwarg_layouts) != len(self.desired_input_kwarg_layouts) and self.with_kwargs:
            raise AssertionError("input_kwarg_layouts and desired_input_kwarg_layouts should have same length!")

    def _arguments(self, inputs, mesh):
        if self.input_layouts is None:
            return inputs
        inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        if len(inputs) != len(self.input_layouts):
            raise ValueError("module inputs and input_layouts should have same length!")
        return tuple(_converted(x, mesh, layout, desired, self.use_local_output)
                     for x, layout, desired in zip(inputs, self.input_layouts, self.desired_input_layouts, strict=True))

    def _apply(self, module, device_mesh):
        def named(mod, inputs, kwargs):
            return self._arguments(inputs, device_mesh), {
                key: _converted(x, device_mesh, self.input_kwarg_layouts.get(key), self.desired_input_kwarg_layouts.get(key), self.use_local_output)
                for key, x in kwargs.items()}

        if self.with_kwargs:
            module.register_forward_pre_hook(named, with_kwargs=True)
        else:
            module.register_forward_pre_hook(lambda mod, inputs: self._arguments(inputs, device_mesh))
        return module

    def _fields(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in ("input_layouts", "desired_input_layouts", "input_kwarg_layouts",
                                                                      "desired_input_kwarg_layouts", "use_local_output"))


class PrepareModuleOutput(ParallelStyle):
    """Makes outputs of a module DTensors that lie as desired_output_layouts (plain ones lie as output_layouts), and gives their parts unless
    use_local_output=False."""

    def __init__(self, *, output_layouts, desired_output_layouts, use_local_output: bool = True):
        self.output_layouts, self.desired_output_layouts = _tuple(output_layouts), _tuple(desired_output_layouts)
        self.use_local_output = use_local_output
        if len(self.output_layouts) != len(self.desired_output_layouts):
            raise AssertionError("output_layouts and desired_output_layouts should have same length!")

    def _results(self, outputs, mesh):
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        if len(outputs) != len(self.output_layouts):
            raise ValueError("module outputs and output_layouts should have same length!")
        made = tuple(_converted(x, mesh, layout, desired, self.use_local_output)
                     for x, layout, desired in zip(outputs, self.output_layouts, self.desired_output_layouts, strict=True))
        return made[0] if len(made) == 1 else made

    def _apply(self, module, device_mesh):
        module.register_forward_hook(lambda mod, inputs, outputs: self._results(outputs, device_mesh))
        return module

    def _fields(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in ("output_layouts", "desired_output_layouts", "use_local_output"))


class PrepareModuleInputOutput(ParallelStyle):
    """PrepareModuleInput and PrepareModuleOutput of one module."""

    def __init__(self, *, input_layouts=None, desired_input_layouts=None, input_kwarg_layouts: dict | None = None,
                 desired_input_kwarg_layouts: dict | None = None, use_local_input: bool = False, output_layouts, desired_output_layouts,
                 use_local_output: bool = True):
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts, desired_input_layouts=desired_input_layouts, input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts, use_local_output=use_local_input)
        self.prepare_module_output = PrepareModuleOutput(output_layouts=output_layouts, desired_output_layouts=desired_output_layouts,
                                                         use_local_output=use_local_output)

    def _apply(self, module, device_mesh):
        self.prepare_module_input._apply(module, device_mesh)
        return self.prepare_module_output._apply(module, device_mesh)

    def _fields(self) -> str:
        return f"{self.prepare_module_input!r}, {self.prepare_module_output!r}"
