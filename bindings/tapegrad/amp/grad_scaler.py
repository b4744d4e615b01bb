"""GradScaler: multiplies the loss so that small gradients survive float16, and takes the factor out before the step."""

import enum
import inspect
from collections import defaultdict
from collections.abc import Iterable

from .. import _C, _tensor
from .._warn import warn

__all__ = ["GradScaler", "OptState"]


class OptState(enum.Enum):
    """What has been done for an optimizer since the last update()."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _fresh_state() -> dict:
    return {"stage": OptState.READY, "found_inf_per_device": {}}


def _full(value: float, dtype, device):
    from .. import full

    return full((), value, dtype=dtype, device=device)


def _sum_on(device, flags: list):
    """The sum of tensors of several devices."""
    total = flags[0].to(device)
    for flag in flags[1:]:
        total = total + flag.to(device)
    return total


def _refuse_to_ask(flags: list) -> None:
    if any(flag.is_cuda for flag in flags) and _C._cuda_is_captured():
        raise RuntimeError("GradScaler.step: the host would have to ask whether there was an infinity, which a CUDA graph cannot\n"
                           "make the optimizer with capturable=True, and take a step before the capture")


def move_scale(scale, growth_tracker, found_inf, growth: float, backoff: float, interval: int) -> None:
    """Shrinks the factor, lets it grow or leaves it, in place and without waiting for a device."""
    from .. import where

    good = growth_tracker + 1
    full = good == interval
    grown = scale * growth
    kept = where(full & grown.isfinite(), grown, scale)
    scale.copy_(where(found_inf, scale * backoff, kept))
    growth_tracker.copy_(where(found_inf | full, 0, good))


class GradScaler:
    """scale(loss).backward(); step(optimizer); update(). A step whose gradients hold an infinity or NaN is left out, and the
    factor shrinks by `backoff_factor`; after `growth_interval` good steps it grows by `growth_factor`.

    With device 'cuda' and no GPU it warns and is disabled, as is enabled=False: then everything passes through.
    Raises AssertionError for factors on the wrong side of 1, and where scale() was not called before.
    """

    def __init__(self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, enabled: bool = True) -> None:
        self._device = device
        self._enabled = enabled
        if device == "cuda" and enabled:
            from .. import cuda

            if not cuda.is_available():
                warn("GradScaler: CUDA is not available: the scaler is disabled")
                self._enabled = False
        if not self._enabled:
            return
        if growth_factor <= 1.0:
            raise AssertionError(f"GradScaler: The growth factor must be > 1.0: got {growth_factor}")
        if backoff_factor >= 1.0:
            raise AssertionError(f"GradScaler: The backoff factor must be < 1.0: got {backoff_factor}")
        self._init_scale = init_scale
        self._scale = None
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._init_growth_tracker = 0
        self._growth_tracker = None
        self._per_optimizer_states = defaultdict(_fresh_state)

    def _check_started(self, name: str) -> None:
        if self._scale is None:
            raise AssertionError(f"Attempted {name} but _scale is None: call scale(loss) earlier in the iteration")

    def _start(self, device) -> None:
        self._scale = _full(self._init_scale, _C.float32, device)
        self._growth_tracker = _full(self._init_growth_tracker, _C.int32, device)

    def scale(self, outputs):
        """Tensors, or nested lists and tuples of them, times the factor. Raises ValueError for anything else."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, _C.Tensor):
            if self._scale is None:
                self._start(outputs.device)
            return outputs * self._scale.to(outputs.device)
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(value) for value in outputs)
        if isinstance(outputs, Iterable):
            return map(self.scale, outputs)
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def _unscale_grads_(self, optimizer, inv_scale, found_inf, allow_fp16: bool) -> dict:
        by_device: dict = {}
        meshes: dict = {}  # of gradients whose parts lie with several ranks
        for group in optimizer.param_groups:
            for param in group["params"]:
                grad = param.grad
                if grad is None:
                    continue
                if grad.dtype is _C.float16 and not allow_fp16:
                    raise ValueError("Attempting to unscale FP16 gradients.")
                if grad.is_sparse:
                    param.grad = grad = grad.coalesce()
                values = grad._values() if grad.is_sparse else grad
                if hasattr(grad, "device_mesh"):
                    meshes[grad.device_mesh] = None
                by_device.setdefault(values.device, []).append(values)
        found = {}
        for device, grads in by_device.items():  # one pass over all gradients of a device, without waiting for it
            found[device] = found_inf.clone().to(device)
            _C._unscale(grads, found[device], inv_scale.to(device))
        if meshes:
            from ..distributed.tensor._norms import largest_over

            for flag in found.values():
                largest_over(meshes, flag)
        return found

    def unscale_(self, optimizer) -> None:
        """Takes the factor out of the gradients of the optimizer's parameters, before they are clipped, say.

        Raises RuntimeError when it was done before, or after step(), since the last update(); ValueError for float16
        gradients.
        """
        if not self._enabled:
            return
        self._check_started("unscale_")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        inv_scale = self._scale.double().reciprocal().float()
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, inv_scale, _full(0.0, _C.float32, self._scale.device), False)
        state["stage"] = OptState.UNSCALED

    def _check_inf_per_device(self, optimizer) -> dict:
        one, none = _full(1.0, _C.float32, self._scale.device), _full(0.0, _C.float32, self._scale.device)
        found = self._unscale_grads_(optimizer, one, none, True)
        self._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = found
        return found

    def _found_inf_per_device(self, optimizer) -> dict:
        return self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]

    def step(self, optimizer, *args, **kwargs):
        """unscale_ where it was not done, then optimizer.step(*args, **kwargs), unless a gradient is infinite or NaN.

        Optimizers that can (`_step_supports_amp_scaling`: ours on CUDA with `capturable` or `fused`, and SGD, from the second step on) are given
        what was found as a tensor, their attribute `found_inf` during the step, and leave the step out on the device: the host does not wait,
        and the step may be recorded into a CUDA graph. With others the host asks once whether there was an infinity.

        Raises RuntimeError for a closure, for a second step without update(), and where the host would have to ask inside a CUDA graph.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._check_started("step")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if getattr(optimizer, "_step_supports_amp_scaling", False) and "grad_scaler" in inspect.signature(optimizer.step).parameters:
            warn("GradScaler is going to stop passing itself as a keyword argument to the passed optimizer: its attributes grad_scale and "
                          "found_inf say the same", FutureWarning)
            result = optimizer.step(*args, **kwargs, grad_scaler=self)
            state["stage"] = OptState.STEPPED
            return result
        fresh = state["stage"] is OptState.READY
        if fresh:
            self.unscale_(optimizer)
        if not state["found_inf_per_device"]:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        result = None
        flags = list(state["found_inf_per_device"].values())
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            result = self._step_on_device(optimizer, fresh, flags, args, kwargs)
        else:
            _refuse_to_ask(flags)
            if not any(flag.item() for flag in flags):
                result = optimizer.step(*args, **kwargs)
        state["stage"] = OptState.STEPPED
        return result

    @staticmethod
    def _step_on_device(optimizer, fresh: bool, flags, args, kwargs):
        # The gradients are unscaled already. As in PyTorch, an optimizer finds no factor only where the program has unscaled them itself.
        foreign = fresh and type(optimizer).__module__.partition(".")[0] not in ("tapegrad", _tensor._root_name)
        optimizer.grad_scale = _full(1.0, _C.float32, flags[0].device) if foreign else None
        optimizer.found_inf = _sum_on(flags[0].device, flags)
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            del optimizer.grad_scale, optimizer.found_inf

    def update(self, new_scale=None) -> None:
        """Ends an iteration: the factor shrinks, grows or stays; or becomes `new_scale`, a float or one-element tensor."""
        if not self._enabled:
            return
        self._check_started("update")
        if new_scale is not None:
            if isinstance(new_scale, _C.Tensor):
                if new_scale.numel() != 1 or new_scale.requires_grad:
                    raise AssertionError("update: new_scale should be a float or a tensor with 1 element and requires_grad=False")
                self._scale.copy_(new_scale.reshape(()))
            else:
                self._scale.fill_(float(new_scale))
        else:
            flags = [flag for state in self._per_optimizer_states.values() for flag in state["found_inf_per_device"].values()]
            if not flags:
                raise AssertionError("No inf checks were recorded prior to update.")
            move_scale(self._scale, self._growth_tracker, _sum_on(self._scale.device, flags) != 0, self._growth_factor, self._backoff_factor,
                       self._growth_interval)
        self._per_optimizer_states = defaultdict(_fresh_state)

    def _get_scale_async(self):
        return self._scale

    def get_scale(self) -> float:
        """The factor; 1.0 when disabled."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else self._scale.item()

    def get_growth_factor(self) -> float:
        """What the factor grows by."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Sets what the factor grows by."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """What the factor shrinks by."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Sets what the factor shrinks by."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """How many good steps in a row make it grow."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Sets how many good steps in a row make it grow."""
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        return self._init_growth_tracker if self._growth_tracker is None else int(self._growth_tracker.item())

    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self._enabled

    def state_dict(self) -> dict:
        """What load_state_dict takes: scale, growth_factor, backoff_factor, growth_interval, _growth_tracker; empty when disabled."""
        if not self._enabled:
            return {}
        return {"scale": self.get_scale(), "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
                "growth_interval": self._growth_interval, "_growth_tracker": self._get_growth_tracker()}

    def load_state_dict(self, state_dict: dict) -> None:
        """Takes over a state; nothing when disabled. Raises RuntimeError for an empty one."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler.")
        self._init_scale = state_dict["scale"]
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._scale is not None:
            self._scale.fill_(self._init_scale)
            self._growth_tracker.fill_(self._init_growth_tracker)

    def __getstate__(self) -> dict:
        state = self.__dict__.copy()
        if self._enabled:
            if self._per_optimizer_states:
                raise AssertionError("A GradScaler may only be pickled at the beginning of an iteration, or after update()")
            state["_init_scale"] = self.get_scale()
            state["_init_growth_tracker"] = self._get_growth_tracker()
            state["_scale"] = state["_growth_tracker"] = None
        return state

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
