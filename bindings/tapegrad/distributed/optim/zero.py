"""ZeroRedundancyOptimizer: each rank keeps the state of its share of the parameters and updates only these (ZeRO, stage 1;
Rajbhandari et al. 2020, arXiv:1910.02054)."""

from collections import deque

from ... import Tensor, no_grad
from ...optim import Optimizer
from .. import distributed_c10d as dist
from ..algorithms.join import Joinable, JoinHook

__all__ = ["ZeroRedundancyOptimizer"]


_PART = 1 << 20  # bytes of small parameters that are sent as one message; they are copied for it
_AT_ONCE = 4     # messages under way, so that the copies stay few


def _parts(params: list) -> list:
    """Neighbours whose sum is small go together; a large parameter alone, which is sent from where it is."""
    parts: list = []
    left = 0
    for p in params:
        nbytes = p.numel() * p.element_size()
        if nbytes > left:
            parts.append([])
            left = _PART
        parts[-1].append(p)
        left -= nbytes
    return parts


class _KeepBroadcasting(JoinHook):
    """A rank without input left goes on with its share of the updates."""

    def __init__(self, zero):
        self._zero = zero

    def main_hook(self) -> None:
        """One step, with the gradients that the others have made."""
        self._zero.step()


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """An optimizer whose state is shared out among the ranks of a group.

    Each parameter belongs to one rank, which keeps its state, updates it and gives the new values to the others. Gradients must be
    the same on all ranks when step() is called, as DistributedDataParallel makes them. The state takes 1/n of the memory that it
    takes on one rank (as evenly as whole parameters can be shared out), and every parameter gets the bits that optimizer_class
    alone would give it.

    Args:
        params: parameters or groups, as any optimizer's; the same on all ranks.
        optimizer_class: the optimizer of a share; further keywords are its options.
        process_group: the ranks; the world.
        parameters_as_bucket_view: parameters of one rank become views of one vector, which is sent without copies.
        overlap_with_ddp: refused.

    Raises NotImplementedError for overlap_with_ddp.
    """

    def __init__(self, params, optimizer_class, process_group=None, parameters_as_bucket_view=False, overlap_with_ddp=False, **defaults):
        if overlap_with_ddp:
            raise NotImplementedError("ZeroRedundancyOptimizer: overlap_with_ddp is not supported: step() updates after the backward pass")
        self._ready = False
        Optimizer.__init__(self, params, dict(defaults))
        Joinable.__init__(self)
        self.process_group = process_group if process_group is not None else dist._get_default_group()
        self.rank, self.world_size = dist.get_rank(self.process_group), dist.get_world_size(self.process_group)
        self.parameters_as_bucket_view = parameters_as_bucket_view
        self._class, self._class_options = optimizer_class, defaults
        self._consolidated: dict | None = None
        self._ready = True
        self._share_out()

    # --- who has what ---

    def _share_out(self) -> None:
        """Gives each parameter to the rank that has least so far, the largest first; the same answer on all ranks."""
        parameters = [p for group in self.param_groups for p in group["params"]]
        loads = [0] * self.world_size
        self._owner: dict[int, int] = {}
        for p in sorted(parameters, key=lambda p: p.numel(), reverse=True):
            owner = loads.index(min(loads))
            self._owner[id(p)] = owner
            loads[owner] += p.numel()
        kept = getattr(self, "optim", None)
        groups = []
        for group in self.param_groups:
            mine = [p for p in group["params"] if self._owner[id(p)] == self.rank]
            groups.append({**{k: v for k, v in group.items() if k != "params"}, "params": mine})
        self.optim = self._class(groups, **self._class_options)
        if kept is not None:
            self.optim.state.update({p: s for p, s in kept.state.items() if self._owner[id(p)] == self.rank})
        # Options that the class fills in are shown in the groups of all parameters, where schedulers find them.
        for group, share in zip(self.param_groups, self.optim.param_groups, strict=True):
            for key, value in share.items():
                if key != "params":
                    group.setdefault(key, value)
        self.defaults = {**self.optim.defaults, **self.defaults}
        self.state = self.optim.state
        self._make_buckets(parameters)

    def _make_buckets(self, parameters: list) -> None:
        """For each rank and dtype the parameters that it gives to the others."""
        shares: dict[tuple, list] = {}
        for p in parameters:
            shares.setdefault((self._owner[id(p)], p.dtype, p.device), []).append(p)
        if not self.parameters_as_bucket_view:
            self._shares = [(owner, part, None) for (owner, _, _), params in shares.items() for part in _parts(params)]
            return
        self._shares = [(owner, params, None) for (owner, _, _), params in shares.items()]
        with no_grad():
            for i, (owner, params, _) in enumerate(self._shares):
                flat = params[0].new_empty(sum(p.numel() for p in params))
                at = 0
                for p in params:
                    view = flat[at:at + p.numel()].view(p.shape)
                    view.copy_(p)
                    p.data = view
                    at += p.numel()
                self._shares[i] = (owner, params, flat)

    def _sync_groups(self) -> None:
        """Options that the program or a scheduler changed reach the share's optimizer."""
        for group, share in zip(self.param_groups, self.optim.param_groups, strict=True):
            for key, value in group.items():
                if key != "params":
                    share[key] = value

    # --- steps ---

    def step(self, closure=None, **kwargs):
        """Updates this rank's share and takes the others' shares from them. Gives the closure's loss."""
        from ..algorithms.join import Join

        Join.notify_join_context(self)
        self._sync_groups()
        self._consolidated = None
        loss = self.optim.step(closure, **kwargs) if closure is not None else self.optim.step(**kwargs)
        if self.world_size > 1:
            with no_grad():
                works: deque = deque()
                for owner, params, flat in self._shares:
                    if len(works) == _AT_ONCE:
                        works.popleft().wait()
                    works.append(self._give(owner, params, flat))
                for work in works:
                    work.wait()
        return loss

    def _give(self, owner: int, params: list, flat: Tensor | None):
        opts = dist.BroadcastOptions()
        opts.rootRank, opts.asyncOp = owner, True
        return self.process_group.broadcast([flat] if flat is not None else params, opts)

    def add_param_group(self, param_group) -> None:
        """Adds parameters with options of their own; shares are dealt out anew. Collected states are forgotten."""
        super().add_param_group(param_group)
        if self._ready:
            self._move_shares()

    def _move_shares(self) -> None:
        """After new parameters: state moves with its parameter."""
        has_state = self.world_size > 1 and any(self._everyone(bool(self.optim.state)))
        if has_state:
            self.consolidate_state_dict(to=None)
        everything = self._consolidated if has_state else None
        self._share_out()
        if everything is not None:
            self._take(everything)

    def _everyone(self, value) -> list:
        values = [None] * self.world_size
        dist.all_gather_object(values, value, group=self.process_group)
        return values

    # --- state ---

    def _indices(self) -> dict[int, int]:
        return {id(p): i for i, p in enumerate(p for group in self.param_groups for p in group["params"])}

    def consolidate_state_dict(self, to: int | None = 0) -> None:
        """Collects the shares' states on one rank (None: on all), for state_dict(). Every rank must call it."""
        index = self._indices()
        mine = {index[id(p)]: state for p, state in self.optim.state.items()}
        shares = self._everyone(mine) if self.world_size > 1 else [mine]
        if to is not None and to != self.rank:
            return
        state = {i: s for share in shares for i, s in share.items()}
        self._consolidated = {"state": dict(sorted(state.items())), "param_groups": self._packed_groups()}

    def _packed_groups(self) -> list:
        index = self._indices()
        return [{**{k: v for k, v in group.items() if k != "params"}, "params": [index[id(p)] for p in group["params"]]}
                for group in self.param_groups]

    def state_dict(self) -> dict:
        """The whole state, as optimizer_class alone has it; consolidate_state_dict() must have collected it on this rank.

        Raises RuntimeError where it was not.
        """
        if self._consolidated is None:
            if self.world_size == 1:
                self.consolidate_state_dict()
            else:
                raise RuntimeError("Optimizer state has not been consolidated on this rank. Please call "
                                   f"`consolidate_state_dict(to={self.rank})` on all ranks beforehand if you meant to save the global state.")
        return self._consolidated

    def load_state_dict(self, state_dict) -> None:
        """Takes a whole state; of which this rank keeps its share. Also one that optimizer_class alone has saved."""
        sizes = [len(g["params"]) for g in state_dict["param_groups"]]
        if sizes != [len(g["params"]) for g in self.param_groups]:
            raise ValueError(f"ZeroRedundancyOptimizer: the state has groups of {sizes} parameters, this optimizer of "
                             f"{[len(g['params']) for g in self.param_groups]}")
        for group, saved in zip(self.param_groups, state_dict["param_groups"], strict=True):
            group.update({k: v for k, v in saved.items() if k != "params"})
        self._take(state_dict)

    def _take(self, whole: dict) -> None:
        index = self._indices()
        numbers = [i for g in whole["param_groups"] for i in g["params"]]
        place = {number: k for k, number in enumerate(numbers)}
        states = {place[number]: state for number, state in whole["state"].items()}
        shares, at = [], 0
        local: dict = {}
        for share in self.optim.param_groups:
            shares.append({**{k: v for k, v in share.items() if k != "params"}, "params": list(range(at, at + len(share["params"])))})
            for p in share["params"]:
                if index[id(p)] in states:
                    local[at] = states[index[id(p)]]
                at += 1
        self._sync_groups()
        self.optim.load_state_dict({"state": local, "param_groups": shares})
        self._sync_groups()
        self.state = self.optim.state
        self._consolidated = None

    # --- uneven inputs ---

    def join_hook(self, **kwargs) -> JoinHook:
        """What a rank without input left does: further steps."""
        return _KeepBroadcasting(self)

    @property
    def join_device(self):
        """Where the parameters are."""
        return self.param_groups[0]["params"][0].device

    @property
    def join_process_group(self):
        """The ranks."""
        return self.process_group
