"""Messages between neighbouring stages: tensors of a micro-batch with their shapes, or that a stage has failed.

A message is a head of a fixed size, a text in JSON that says which step, direction and micro-batch it belongs to and what follows, and
then the tensors. So shapes may differ from one micro-batch to the next, and what is left of a step that failed is known and passed over.
"""

import json

from ... import _C, empty, frombuffer, uint8
from .. import distributed_c10d as c10d

__all__ = ["Neighbour", "StageFailed"]

_HEAD = 1024  # bytes
_DTYPES = {str(getattr(_C, name)).rpartition(".")[2]: getattr(_C, name) for name in (
    "float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool", "complex64", "complex128")}


class StageFailed(RuntimeError):
    """Another stage of the pipeline raised."""


def _bytes(text: bytes):
    return frombuffer(bytearray(text), dtype=uint8)


class Neighbour:
    """The stage before or after this one."""

    def __init__(self, group, rank: int, device):
        self.group, self.rank, self.device = group, rank, device
        self._under_way: list = []  # sends and their tensors, which must not go before they are done

    def _start(self, tensor) -> None:
        self._under_way.append((c10d.isend(tensor, group=self.group, group_dst=self.rank), tensor))

    def _receive(self, tensor):
        c10d.irecv(tensor, group=self.group, group_src=self.rank).wait()
        return tensor

    def forget_what_is_done(self) -> None:
        """Lets go of tensors that have been sent; raises what a send failed with."""
        for work, _ in self._under_way:
            if work.is_completed():
                work.wait()
        self._under_way = [(work, t) for work, t in self._under_way if not work.is_completed()]

    def send(self, about: dict, tensors) -> None:
        """Sends tensors (None: there is none) without waiting. about: what the receiver is to expect."""
        self.forget_what_is_done()
        tensors = [None if t is None else t.detach().contiguous() for t in tensors]
        about["tensors"] = [None if t is None else [str(t.dtype).rpartition(".")[2], list(t.shape), flag] for t, flag in
                            zip(tensors, about.pop("flags", None) or [False] * len(tensors), strict=True)]
        text = json.dumps(about).encode()
        more = b""
        if len(text) > _HEAD:
            text, more = json.dumps({"more": len(text)}).encode(), text
        self._start(_bytes(text.ljust(_HEAD)))
        if more:
            self._start(_bytes(more))
        for t in tensors:
            if t is not None and t.numel():
                self._start(t)

    def _read(self) -> tuple[dict, list]:
        about = json.loads(bytes(self._receive(empty(_HEAD, dtype=uint8)).tolist()))
        if "more" in about:
            about = json.loads(bytes(self._receive(empty(about["more"], dtype=uint8)).tolist()))
        tensors = []
        for entry in about["tensors"]:
            if entry is None:
                tensors.append(None)
                continue
            name, shape, _ = entry
            t = empty(shape, dtype=_DTYPES[name], device=self.device)
            tensors.append(self._receive(t) if t.numel() else t)
        return about, tensors

    def receive(self, expected: dict) -> tuple[list, list]:
        """The tensors of the message that is expected, and their senders' flags.

        Raises StageFailed where the other stage, or one behind it, has failed in this step, RuntimeError for another message.
        """
        while True:
            about, tensors = self._read()
            if about["step"] < expected["step"]:
                continue  # of a step that failed
            if "failed" in about:
                raise StageFailed(about["failed"])
            wrong = {key: about.get(key) for key in expected if about.get(key) != expected[key]}
            if wrong:
                raise RuntimeError(f"pipeline: the stages do not agree: expected {expected} from rank {self.rank} of the group, which sent {wrong}\n"
                                   "every stage must be stepped with the same schedule and number of micro-batches")
            return tensors, [entry[2] if entry else False for entry in about["tensors"]]
