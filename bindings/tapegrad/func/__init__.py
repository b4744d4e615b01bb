"""Function transforms: gradients, Jacobians, vmap, modules as functions of their parameters."""

from .._lazy import more_names as _more_names
from ._gradients import grad, grad_and_value, jvp, linearize, vjp
from ._jacobians import hessian, jacfwd, jacrev
from ._modules import functional_call, replace_all_batch_norm_modules_, stack_module_state
from ._vmap import debug_unwrap, functionalize, vmap

__all__ = ["debug_unwrap", "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
           "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap"]
__getattr__, __dir__ = _more_names(__name__)
