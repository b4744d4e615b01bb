"""Optimizer: parameter groups, state, hooks. What a step computes is in the subclasses."""

import functools
import typing
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from copy import deepcopy

from .. import _C, Tensor, enable_grad, float32, float64, get_default_dtype, no_grad, tensor, view_as_real, zeros
from .._warn import warn
from ..utils._foreach_utils import _foreach_supported_types, _group_tensors_by_device_and_dtype  # noqa: F401
from ..utils.hooks import RemovableHandle

__all__ = ["Optimizer", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook", "required"]


class _Required:
    """Stands for a default that has to be given."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


def _check_number(name: str, value) -> None:
    if isinstance(value, str):  # from the command line
        raise TypeError(f"{name} must be a number: got the text {value!r}")


def _check_lr(lr) -> None:
    _check_number("lr", lr)
    if isinstance(lr, Tensor):
        if lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        lr = lr.item()
    if not lr >= 0.0:
        raise ValueError(f"Invalid learning rate: {lr}")


def _check_betas(betas) -> None:
    for i in (0, 1):
        if not 0.0 <= betas[i] < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {betas[i]}")


def _check_supported(foreach, fused, differentiable) -> None:
    """`foreach` and `fused` choose among PyTorch's implementations; here there is one, and it is fused."""
    if fused and differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")


def _scalar(value: float) -> Tensor:
    """A number of state, such as a count of steps: a tensor without dimensions in float32 (float64 where that is the default)."""
    return tensor(float(value), dtype=_get_scalar_dtype())


def _use_grad_for_differentiable(step):
    """A decorator of step() that records gradients where the optimizer is `differentiable`."""

    @functools.wraps(step)
    def within(self, *args, **kwargs):
        with enable_grad() if self.defaults.get("differentiable") else no_grad():
            return step(self, *args, **kwargs)

    return within


def _get_value(x):
    """A tensor of one element as a number."""
    return x.item() if isinstance(x, Tensor) else x


def _default_to_fused_or_foreach(params, differentiable: bool, use_fused: bool = False) -> tuple:
    """(fused, foreach) if neither was given: neither, on the CPU."""
    return False, False


def _view_as_real(params, *state_and_grads) -> None:
    """Puts views of pairs of numbers in the place of complex tensors, in the lists themselves."""
    for i, p in enumerate(params):
        if p.is_complex():
            for tensors in (params, *state_and_grads):
                tensors[i] = view_as_real(tensors[i])


def _get_scalar_dtype(is_fused=None):
    """The dtype of counts of steps."""
    return float64 if get_default_dtype() == float64 and not is_fused else float32


def _to_scalar(x):
    """A tensor of one element without dimensions; a number as it is."""
    return x.squeeze() if isinstance(x, Tensor) and x.dim() else x


def _stack_if_compiling(x):
    """The argument: nothing is compiled."""
    return x


def _disable_dynamo_if_unsupported(single_tensor_fn=None):
    """A decorator that gives its function back: nothing is compiled."""
    return lambda function: function


def _device_dtype_check_for_fused(p, cuda_unsupported: bool = False) -> None:
    """Raises RuntimeError where a parameter's dtype or device has no fused form."""
    if cuda_unsupported and p.is_cuda:
        raise RuntimeError("_device_dtype_check_for_fused: this optimizer has no fused form on CUDA devices")
    if not p.is_floating_point():
        raise RuntimeError(f"_device_dtype_check_for_fused: fused forms need floating point parameters: got {p.dtype}")


# What optimizers of others put into their documentation and annotations.
ParamsT = typing.Union[Iterable[Tensor], Iterable[dict[str, typing.Any]], Iterable[tuple[str, Tensor]]]  # noqa: UP007  a name, also at run time
_params_t = ParamsT  # its name in older programs
_params_doc = "params: tensors, groups of them as dictionaries, or pairs of a name and a tensor"
_foreach_doc = "foreach: accepted, there is one implementation"
_fused_doc = "fused: accepted, there is one implementation"
_capturable_doc = "capturable: whether steps may be recorded in a CUDA graph"
_differentiable_doc = "differentiable: whether step() is recorded for autograd"
_maximize_doc = "maximize: whether the objective is made larger"


def _counts_on_device(group: dict) -> bool:
    """Whether the steps of a group's CUDA parameters are counted there."""
    return bool(group.get("capturable") or group.get("fused"))


def _get_capturable_supported_devices(supports_xla: bool = True) -> list:
    """Kinds of device whose work can be recorded."""
    return ["cuda"]


# Hooks of all optimizers, by the ids of their handles.
_global_optimizer_pre_hooks: OrderedDict = OrderedDict()
_global_optimizer_post_hooks: OrderedDict = OrderedDict()


def _register_global(hooks: OrderedDict, hook) -> RemovableHandle:
    Optimizer._watch_all_steps()
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


def register_optimizer_step_pre_hook(hook) -> RemovableHandle:
    """Calls hook(optimizer, args, kwargs) before each step of every optimizer."""
    return _register_global(_global_optimizer_pre_hooks, hook)


def register_optimizer_step_post_hook(hook) -> RemovableHandle:
    """Calls hook(optimizer, args, kwargs) after each step of every optimizer."""
    return _register_global(_global_optimizer_post_hooks, hook)


class Optimizer:
    """Holds parameters in groups, each with its options, and one state dictionary per parameter.

    `params` is a list of tensors, of (name, tensor) pairs or of dictionaries with the key `params` (groups).
    """

    _takes_capturable = False  # an option that only those groups have which were given it
    _numbers: tuple = ("step",)  # what of the state is a number, not something in the parameter's dtype

    def __init__(self, params, defaults: dict) -> None:
        self.defaults = defaults
        self._init_hooks()
        if isinstance(params, Tensor):
            raise TypeError("params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                            + params.type())
        self.state: defaultdict = defaultdict(dict)
        self.param_groups: list[dict] = []
        if hasattr(params, "parameters") and not hasattr(params, "__iter__"):
            raise TypeError(f"params argument given to the optimizer should be an iterable of Tensors or dicts, but got {type(params).__name__}\n"
                            "give its parameters()")
        groups = list(params)
        if len(groups) == 0:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(dict(group) if isinstance(group, dict) else group)

    _group_tensors_by_device_and_dtype = staticmethod(_group_tensors_by_device_and_dtype)

    def _init_hooks(self) -> None:
        self._optimizer_step_pre_hooks: OrderedDict = OrderedDict()
        self._optimizer_step_post_hooks: OrderedDict = OrderedDict()
        self._optimizer_state_dict_pre_hooks: OrderedDict = OrderedDict()
        self._optimizer_state_dict_post_hooks: OrderedDict = OrderedDict()
        self._optimizer_load_state_dict_pre_hooks: OrderedDict = OrderedDict()
        self._optimizer_load_state_dict_post_hooks: OrderedDict = OrderedDict()

    def __getstate__(self):
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state) -> None:
        self.__dict__.update(state)
        if "_optimizer_step_pre_hooks" not in self.__dict__:
            self._init_hooks()
        self.defaults.setdefault("differentiable", False)

    # What __setstate__ of a subclass does for files from before an option, or before steps were tensors.
    def _complete_groups(self, *switches: str) -> None:
        for group in self.param_groups:
            for key in switches:
                group.setdefault(key, False)
            for key in self._may_be_none:
                group.setdefault(key, None)

    def _to_tensors(self, *keys: str) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                own = self.state.get(p)
                for key in keys:
                    if own and not isinstance(own.get(key), Tensor):
                        own[key] = _scalar(own[key])

    def __repr__(self) -> str:
        lines = [type(self).__name__ + " ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])

    # Groups.
    def add_param_group(self, param_group: dict) -> None:
        """Adds parameters with options of their own; options that are left out take the optimizer's defaults."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections, but the ordering of tensors in "
                            "sets will change between runs. Please use a list instead.")
        params = list(params)
        names = [p[0] for p in params if isinstance(p, tuple)]
        if names and len(names) != len(params):
            raise ValueError("all optimizer params should be with/without names. Some param names are missing")
        params = [p[1] for p in params] if names else params
        param_group["params"] = params
        if names:
            param_group["param_names"] = names
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}")
            if not (p.is_leaf or p.retains_grad or self.defaults.get("differentiable")):
                raise ValueError("can't optimize a non-leaf Tensor")
        for key, default in self.defaults.items():
            if default is required and key not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {key}")
            param_group.setdefault(key, default)
        ours = set(params)
        if len(ours) != len(params):
            warn("optimizer contains a parameter group with duplicate parameters; in future, this will cause an error")
        for group in self.param_groups:
            if ("param_names" in param_group) != ("param_names" in group):
                kind = "with names" if "param_names" in param_group else "without names"
                raise ValueError("all optimizer param groups should be with/without names. cannot add param group "
                                 f"{kind} to the optimizer")
            if not ours.isdisjoint(group["params"]):
                raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients of all parameters, or fills them with zeros."""
        _C._zero_grad(self.param_groups, set_to_none)

    def step(self, closure=None):
        """One step; closure, when given, computes the loss anew and is called with gradients on."""
        raise NotImplementedError

    def _refuse_in_graphs(self) -> None:
        """Raises RuntimeError where a step is recorded into a CUDA graph that would be the same in all replays."""
        if _C._cuda_is_captured() and not all(group.get("capturable") for group in self.param_groups):
            raise RuntimeError(f"{type(self).__name__}: a step in a CUDA graph would repeat the number of the step that was captured\n"
                               + ("make the optimizer with capturable=True" if self._takes_capturable or "capturable" in self.defaults else
                                  "capture the forward and backward pass, and call step() after replay()"))

    def _to_devices(self) -> None:
        """Moves the numbers of the state to where they are counted."""
        for group in self.param_groups:
            if not _counts_on_device(group):
                continue
            for p in group["params"]:
                own = self.state.get(p) or {}
                for key in self._numbers:
                    if p.is_cuda and key in own:
                        own[key] = own[key].to(p.device)

    @staticmethod
    def _loss(closure):
        if closure is None:
            return None
        with enable_grad():
            return closure()

    _steps_on_parts = True  # of a parameter that is cut among ranks; else its step is one of DTensors, and so is its state

    # State.
    def state_dict(self) -> dict:
        """The state by number of parameter, and the groups with numbers in place of parameters."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        number: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for p in group["params"]:
                number.setdefault(id(p), len(number))
            packed = {key: value for key, value in group.items() if key != "params"}
            packed["params"] = [number[id(p)] for p in group["params"]]
            groups.append(packed)
        state = {(number[id(k)] if isinstance(k, Tensor) else k): k._shared_state(v) if hasattr(k, "_shared_state") else v
                 for k, v in self.state.items()}
        result = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            changed = hook(self, result)
            if changed is not None:
                result = changed
        return result

    def _cast(self, param, value, key=None):
        """A value of the state as this parameter needs it: its dtype and device; step counters and the like stay as they are."""
        if isinstance(value, Tensor):
            if key in self._numbers:
                return value.clone()
            if hasattr(param, "_own_state"):
                value = param._own_state(value, self._steps_on_parts)
            return value.to(device=param.device, dtype=param.dtype if param.is_floating_point() else value.dtype, copy=True)
        if isinstance(value, dict):
            return {k: self._cast(param, v, k) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self._cast(param, v, key) for v in value)
        return value

    def load_state_dict(self, state_dict: dict) -> None:
        """Takes over a state. Parameters are matched by name where both sides have names, else by position."""
        state_dict = dict(state_dict)
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            changed = hook(self, state_dict)
            if changed is not None:
                state_dict = changed
        groups, saved_groups = self.param_groups, deepcopy(state_dict["param_groups"])
        if len(groups) != len(saved_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        for own, saved in zip(groups, saved_groups, strict=True):
            if len(own["params"]) != len(saved["params"]):
                raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's group")
        params = {}
        for own, saved in zip(groups, saved_groups, strict=True):
            params.update(self._match(own, saved))
        state: defaultdict = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in params:
                state[params[key]] = self._cast(params[key], value)
            else:
                state[key] = value
        merged = []
        for own, saved in zip(groups, saved_groups, strict=True):
            names = {"param_names": own["param_names"]} if "param_names" in own else {}
            saved.pop("param_names", None)
            merged.append({**saved, **names, "params": own["params"]})
        self.__setstate__({"state": state, "param_groups": merged})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    @staticmethod
    def _match(own: dict, saved: dict) -> dict:
        """Saved number -> parameter."""
        names, saved_names = own.get("param_names"), saved.get("param_names")
        if names is None or saved_names is None or names == saved_names:
            return dict(zip(saved["params"], own["params"], strict=True))
        by_name = dict(zip(names, own["params"], strict=True))
        unknown = [name for name in saved_names if name not in by_name]
        if unknown:
            raise ValueError(f"loaded state dict has parameters that the optimizer does not: {', '.join(unknown)}")
        return {n: by_name[name] for n, name in zip(saved["params"], saved_names, strict=True)}

    # Hooks. `step` is wrapped only from the first hook on, so that a step without hooks costs nothing: in the optimizer for a
    # hook of its own, in all classes for one of all optimizers.
    @staticmethod
    def _with_hooks(step, owner=None):
        @functools.wraps(step)
        def with_hooks(*args, **kwargs):
            self = args[0] if owner is None else owner
            for hook in [*_global_optimizer_pre_hooks.values(), *self._optimizer_step_pre_hooks.values()]:
                changed = hook(self, args, kwargs)
                if changed is None:
                    continue
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise RuntimeError(f"{step} must return None or a tuple of (new_args, new_kwargs), but got {changed}.")
                args, kwargs = changed
            result = step(*args, **kwargs)
            for hook in [*self._optimizer_step_post_hooks.values(), *_global_optimizer_post_hooks.values()]:
                hook(self, args, kwargs)
            return result

        with_hooks._runs_hooks = True
        return with_hooks

    def _wrap_step(self) -> None:
        if not getattr(self.step, "_runs_hooks", False):
            self.step = self._with_hooks(self.step, self)

    @classmethod
    def _watch_all_steps(cls) -> None:
        """Wraps the step of every class, of those to come as well (`__init_subclass__`)."""
        Optimizer._watched = True
        classes = [Optimizer]
        while classes:
            each = classes.pop()
            classes += each.__subclasses__()
            if "step" in vars(each) and not getattr(each.step, "_runs_hooks", False):
                each.step = cls._with_hooks(each.step)

    _watched = False

    def __init_subclass__(cls, **kwargs) -> None:
        super().__init_subclass__(**kwargs)
        if Optimizer._watched:
            Optimizer._watch_all_steps()

    def _add_hook(self, hooks, hook, prepend=False) -> RemovableHandle:
        handle = RemovableHandle(hooks)
        hooks[handle.id] = hook
        if prepend:
            hooks.move_to_end(handle.id, last=False)
        return handle

    def register_step_pre_hook(self, hook) -> RemovableHandle:
        """Calls hook(optimizer, args, kwargs) before each step."""
        self._wrap_step()
        return self._add_hook(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook) -> RemovableHandle:
        """Calls hook(optimizer, args, kwargs) after each step."""
        self._wrap_step()
        return self._add_hook(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook, prepend: bool = False) -> RemovableHandle:
        """Calls hook(optimizer) before state_dict."""
        return self._add_hook(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook, prepend: bool = False) -> RemovableHandle:
        """Calls hook(optimizer, state_dict) after state_dict; what it returns replaces the result."""
        return self._add_hook(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook, prepend: bool = False) -> RemovableHandle:
        """Calls hook(optimizer, state_dict) before load_state_dict; what it returns is loaded instead."""
        return self._add_hook(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook, prepend: bool = False) -> RemovableHandle:
        """Calls hook(optimizer) after load_state_dict."""
        return self._add_hook(self._optimizer_load_state_dict_post_hooks, hook, prepend)


class RuleOptimizer(Optimizer):
    """One whose step is one native pass over all parameters, by the formula of `aten/optim/rules.h` that `_rule` names."""

    _rule = ""
    _switches: tuple = ("maximize", "capturable", "differentiable")
    _may_be_none: tuple = ("foreach",)  # options that say nothing where they are None
    # Whose steps are all alike, so that a CUDA graph may repeat one; the others count steps, on the host.
    _REPEATABLE = frozenset(("Adadelta", "RMSprop", "Rprop", "SGD"))
    _sparse_update = None  # or what a sparse gradient leads to, as _sparse_update(param, grad, group)
    _not_negative: tuple = ("eps", "weight_decay")  # options that must be at least 0

    def __init__(self, params, options: dict) -> None:
        """Raises ValueError where lr, betas or one of `_not_negative` is out of its range."""
        _check_lr(options["lr"])
        for name in self._not_negative:
            _check_number(name, options[name])
            if not options[name] >= 0.0:
                raise ValueError(f"Invalid {'epsilon' if name == 'eps' else name} value: {options[name]}")
        if "betas" in options:
            _check_betas(options["betas"])
        _check_supported(options["foreach"], options.get("fused"), options["differentiable"])
        super().__init__(params, options)

    def __setstate__(self, state) -> None:
        super().__setstate__(state)
        self._complete_groups(*self._switches)
        self._to_tensors(*self._numbers)
        self._to_devices()

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Whether a step can leave all as it is where the device finds an infinity, unknown to the host, as GradScaler would like it: gradients
        are dense and on CUDA, nothing is counted on the host, and the state is there."""
        for group in self.param_groups:
            if group.get("differentiable") or (self._numbers and not _counts_on_device(group)):
                return False
            stateful = self._numbers or group.get("momentum")
            for p in group["params"]:
                if p.grad is None:
                    continue
                own = self.state.get(p)
                if not p.is_cuda or p.grad.is_sparse or (stateful and (not own or None in own.values())):
                    return False
        return True

    def _found_inf(self) -> list | None:
        """What `found_inf` says, if there is one, on each device; the gradients are divided by `grad_scale`, if there is one."""
        grads: dict = {}
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    grads.setdefault(p.device, []).append(p.grad)
        scale, found = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        if scale is not None:
            inverse = scale.double().reciprocal().float()
            for device, own in grads.items():
                _C._unscale(own, zeros((), dtype=float32, device=device), inverse.to(device))
        return None if found is None else [found.float().to(device) for device in grads]

    def step(self, closure=None):
        """One step. Returns the loss when a closure is given.

        With `capturable` the steps of parameters on CUDA devices are counted there, and an option that is a tensor of the device, such as lr,
        is read there, so that a CUDA graph with a step in it goes on counting when it is replayed. The state has to be there before: take a
        step before the capture. `fused` does so outside of graphs. Raises RuntimeError inside a CUDA graph where the formula asks for the
        number of the step and `capturable` is not set.

        As in PyTorch, gradients are divided by the tensor `grad_scale` where the optimizer has such an attribute, and where it has `found_inf`, a
        tensor that is not 0 on the device leaves parameters, state and the number of the step as they are, without waiting for it.
        """
        if self._rule not in self._REPEATABLE:
            self._refuse_in_graphs()
        loss = None if closure is None else self._loss(closure)
        found = self._found_inf() if "found_inf" in self.__dict__ or "grad_scale" in self.__dict__ else None
        _C._optimizer_step(self._rule, self.param_groups, self.state, self._sparse_update, found)
        return loss


class PerParameterOptimizer(Optimizer):
    """One whose step treats the parameters that have a gradient one after the other: a subclass writes `_update`."""

    _counts_steps = True  # on the host; else its steps are all alike
    _steps_on_parts = False

    def step(self, closure=None):
        """One step. Returns the loss when a closure is given."""
        if self._counts_steps:
            self._refuse_in_graphs()
        loss = self._loss(closure)
        with no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        self._update(p, p.grad, group)
        return loss

    def _update(self, p: Tensor, grad: Tensor, group: dict) -> None:
        """Changes `p` in place."""
        raise NotImplementedError
