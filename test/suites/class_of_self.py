"""For pytest -p: suites whose setUp says `super(self.__class__, self)`, which calls itself without an end in a subclass.

Test libraries make such subclasses, one per device. Here the method asks its own class, as was meant; nothing else of it is lost but
what it sets before and after, which such suites do for GPUs only.
"""


def _asks_itself(method) -> bool:
    return hasattr(method, "__code__") and {"super", "__class__"} <= set(method.__code__.co_names)


def pytest_collection_modifyitems(items):
    for cls in {base for item in items for base in getattr(item, "cls", object).__mro__}:
        for name in ("setUp", "tearDown"):
            if _asks_itself(vars(cls).get(name)):
                setattr(cls, name, lambda self, cls=cls, name=name: getattr(super(cls, self), name)())
