"""Chains over data sets (utils.data.datapipes) against PyTorch's."""

import copy
import pickle

import pytest
import tapegrad as tg
from tapegrad.utils import data as mine

theirs = pytest.importorskip("torch.utils.data")


def add(a, b):
    return a + b


CHAINS = [
    lambda w, m: w(range(5)).map(lambda x: x * 2).filter(lambda x: x > 1),
    lambda w, m: w(range(5)).batch(2), lambda w, m: w(range(5)).batch(2, drop_last=True), lambda w, m: w(range(5)).batch(2).map(sum),
    lambda w, m: w([[1, 2], [3], []]).unbatch(), lambda w, m: w([[[1], [2]], [[3]]]).unbatch(-1), lambda w, m: w([[[1], [2]], [[3]]]).unbatch(2), lambda w, m: w([1]).unbatch(),
    lambda w, m: w([(1, 2, 3), (4, 5, 6)]).map(lambda x: -x, input_col=1), lambda w, m: w([(1, 2, 3)]).map(add, input_col=[0, 2]),
    lambda w, m: w([[1, 2, 3]]).map(add, input_col=[0, 2], output_col=1), lambda w, m: w([(1, 2, 3)]).map(add, input_col=[0, 2], output_col=-1),
    lambda w, m: w([{"a": 1, "b": 2}]).map(lambda x: x + 1, input_col="a", output_col="c"), lambda w, m: w([(1, 2)]).map(len, output_col=1),
    lambda w, m: w([(1, 2), (3, 0)]).filter(lambda x: x > 1, input_col=1), lambda w, m: w([1]).filter(lambda x: 1), lambda w, m: w([1]).batch(0),
    lambda w, m: w(range(3)).zip(w("abcd")), lambda w, m: w(range(3)).concat(w("ab")), lambda w, m: w(range(3)).mux(w("abcd")), lambda w, m: w(range(3)).zip([1]),
    lambda w, m: w(range(6)).groupby(lambda x: x % 2), lambda w, m: w(range(7)).groupby(lambda x: x % 3, group_size=2, keep_key=True),
    lambda w, m: w(range(7)).groupby(lambda x: x % 3, group_size=2, drop_remaining=True), lambda w, m: w(range(9)).groupby(lambda x: x % 3, buffer_size=4, group_size=3),
    lambda w, m: [list(c) for c in w(range(4)).fork(2)], lambda w, m: list(zip(*w(range(4)).fork(3))), lambda w, m: [list(c) for c in w(range(5)).demux(2, lambda x: x % 2)],
    lambda w, m: [list(c) for c in w(range(4)).fork(2, buffer_size=2)], lambda w, m: [list(c) for c in w(range(5)).demux(2, lambda x: None if x > 2 else 0, drop_none=True)],
    lambda w, m: [list(c) for c in w(range(5)).demux(2, lambda x: x)], lambda w, m: w(range(4)).fork(0), lambda w, m: [len(c) for c in w(range(4)).fork(2)],
    lambda w, m: w(range(4)).sharding_filter(), lambda w, m: w([1, 2, 3]).collate(lambda x: x + 1), lambda w, m: w(range(3)).nothing(),
    lambda w, m: list(m([5, 6, 7]).map(lambda x: x + 1).batch(2)), lambda w, m: list(m([1, 2]).concat(m([3]))), lambda w, m: list(m([1, 2]).zip(m([3, 4, 5]))),
    lambda w, m: [m({"a": 1})["a"], len(m({"a": 1}))], lambda w, m: sorted(m([3, 1, 2]).shuffle()), lambda w, m: sorted(w(range(40)).shuffle(buffer_size=5)),
    lambda w, m: list(w(range(9)).shuffle().set_shuffle(False)), lambda w, m: [len(w(range(7)).batch(3)), len(w(range(7)).shuffle()), len(w(range(3)).concat(w(range(2))))],
    lambda w, m: len(w(range(3)).filter(bool)), lambda w, m: [w(range(3)).map(abs), m([1]).map(abs)].__repr__(), lambda w, m: w(range(2)) + w(range(2))]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CHAINS)))
@pytest.mark.filterwarnings("ignore")
def test_chains(number):
    def outcome(library):
        import importlib

        importlib.import_module(f"{library.__name__}.datapipes.map")
        try:
            made = CHAINS[number](library.datapipes.iter.IterableWrapper, library.datapipes.map.SequenceWrapper)
            return made if isinstance(made, str) else [list(made), list(made)]
        except Exception as error:
            return type(error)

    assert outcome(mine) == outcome(theirs)


def test_a_step_of_the_programs_own():
    @mine.functional_datapipe("doubled_here")
    class Doubled(mine.IterDataPipe[int]):
        def __init__(self, source):
            self.source = source

        def __iter__(self):
            for item in self.source:
                yield 2 * item

    wrapper = mine.datapipes.iter.IterableWrapper
    assert list(wrapper(range(3)).doubled_here()) == [0, 2, 4] and isinstance(wrapper([1]).doubled_here(), mine.IterableDataset)
    with pytest.raises(ValueError, match="name doubled_here as it is already taken"):
        mine.functional_datapipe("doubled_here")(Doubled)
    with pytest.raises(TypeError, match="can only decorate"):
        mine.functional_datapipe("other")(int)
    chain = wrapper([1, 2]).map(abs).batch(2)
    assert [list(c) for c in (copy.deepcopy(chain), pickle.loads(pickle.dumps(chain)))] == [[[1, 2]], [[1, 2]]]


def test_shuffled_chains_follow_seeds():
    chain = mine.datapipes.iter.IterableWrapper(range(50)).shuffle()
    tg.manual_seed(1)
    first, second = list(chain), list(chain)
    tg.manual_seed(1)
    assert first == list(chain) != second and sorted(second) == list(range(50))
    assert list(chain.set_seed(3)) == list(chain.set_seed(3)) != list(chain)
    window = list(mine.datapipes.iter.IterableWrapper(range(50)).shuffle(buffer_size=4))
    assert all(item <= place + 4 for place, item in enumerate(window)) and window != sorted(window)


def test_an_older_pass_over_a_fork_ends():
    one, two = mine.datapipes.iter.IterableWrapper(range(4)).fork(2)
    left, right = iter(one), iter(two)
    assert (next(left), next(right), next(left)) == (0, 0, 1)
    assert list(one) == [0, 1, 2, 3] and list(two) == [0, 1, 2, 3]
    with pytest.raises(RuntimeError, match="invalidated"):
        next(right)


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_share_a_chain_out(workers):
    chain = mine.datapipes.iter.IterableWrapper(range(10)).sharding_filter().map(float)
    batches = list(mine.DataLoader(chain, batch_size=2, num_workers=workers))
    assert sorted(tg.cat(batches).tolist()) == list(range(10)) and len(batches) in (5, 6) and len(chain) == 10
    share = mine.datapipes.iter.IterableWrapper(range(10)).sharding_filter()
    share.apply_sharding(3, 0)
    assert list(share) == [0, 3, 6, 9] and len(share) == 4
