"""torch.utils.weak: dictionaries whose keys are held weakly and told apart by identity, as tensors compare element by element."""

from __future__ import annotations

import weakref
from collections.abc import MutableMapping

from .. import _C

__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary"]


class WeakIdRef(weakref.ref):
    """A weak reference that is equal to another one of the same object, and keeps its hash when the object is gone."""

    __slots__ = ("_id",)

    def __init__(self, key, callback=None):
        super().__init__(key, callback)
        self._id = id(key)

    def __call__(self):
        return super().__call__()

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other) -> bool:
        if not isinstance(other, weakref.ref):
            return NotImplemented
        mine, others = self(), other()
        return mine is others if mine is not None and others is not None else self is other


class TensorWeakRef:
    """A weak reference to a tensor: called, it gives the tensor, or None when it is gone."""

    def __init__(self, tensor):
        if not isinstance(tensor, _C.Tensor):
            raise AssertionError(f"expected torch.Tensor, got {type(tensor)}")
        self.ref = weakref.ref(tensor)

    def __call__(self):
        return self.ref()


class WeakIdKeyDictionary(MutableMapping):
    """A dictionary whose entries end with their keys; keys are equal when they are the same object."""

    def __init__(self, dict=None, ref_type=WeakIdRef):
        self.data: dict = {}
        self.ref_type = ref_type
        data, this = self.data, weakref.ref(self)

        def gone(reference):
            if this() is not None:
                data.pop(reference, None)

        self._gone = gone
        if dict is not None:
            self.update(dict)

    def __getitem__(self, key):
        return self.data[self.ref_type(key)]

    def __setitem__(self, key, value) -> None:
        self.data[self.ref_type(key, self._gone)] = value

    def __delitem__(self, key) -> None:
        del self.data[self.ref_type(key)]

    def __contains__(self, key) -> bool:
        try:
            return self.ref_type(key) in self.data
        except TypeError:  # of what there are no weak references
            return False

    def __iter__(self):
        for reference in list(self.data):
            key = reference()
            if key is not None:
                yield key

    def __len__(self) -> int:
        return sum(reference() is not None for reference in list(self.data))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x}>"

    def keyrefs(self) -> list:
        """The references to the keys."""
        return list(self.data)

    def copy(self):
        """Another dictionary of the same entries."""
        return type(self)(self)

    __copy__ = copy


WeakTensorKeyDictionary = WeakIdKeyDictionary
