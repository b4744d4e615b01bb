"""Methods without public names that subclasses in public programs override or call, as PyTorch's classes have them."""

import warnings

import pytest
import tapegrad as tg
from tapegrad import nn
from tapegrad.optim import lr_scheduler
from tapegrad.utils import data


def test_instance_norm_asks_its_own_check():
    class Loose(nn.InstanceNorm2d):
        def _check_input_dim(self, input):
            seen.append(input.dim())

    seen = []
    Loose(3)(tg.ones(2, 3, 4, 4))
    assert seen == [4]
    with pytest.raises(ValueError, match="expected 3D or 4D input"):
        nn.InstanceNorm2d(3)._check_input_dim(tg.ones(2))


def test_plateau_reduces_by_its_own_method():
    optimizer = tg.optim.SGD([tg.ones(1, requires_grad=True)], lr=1.0)
    schedule = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    epochs = []
    schedule._reduce_lr = epochs.append
    for _ in range(3):
        schedule.step(1.0)
    assert epochs == [2, 3]
    assert schedule._is_better(a=0.5, best=1.0)


def test_sequential_schedule_takes_back_first_steps():
    optimizer = tg.optim.SGD([tg.ones(1, requires_grad=True)], lr=1.0)
    parts = [lr_scheduler.ConstantLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.9)]
    schedule = lr_scheduler.SequentialLR(optimizer, parts, [2])
    before = [part.last_epoch for part in parts]
    schedule.recursive_undo()
    assert [part.last_epoch for part in parts] == [epoch - 1 for epoch in before]


def test_containers_find_entries():
    layers = nn.Sequential(nn.ReLU(), nn.Tanh())
    assert layers._get_item_by_idx(layers._modules.values(), -1) is layers[1]
    assert nn.ModuleList(layers)._get_abs_string_index(-2) == "0"
    for wrong in (2, -3):
        with pytest.raises(IndexError):
            layers._get_item_by_idx(layers._modules.values(), wrong)
        with pytest.raises(IndexError):
            nn.ModuleList(layers)._get_abs_string_index(wrong)


def test_members_by_keyword():
    layer = nn.Linear(2, 1)
    assert [n for n, _ in layer._named_members(get_members_fn=lambda m: m._parameters.items())] == ["weight", "bias"]


def test_padding_of_tables_is_set_to_zero():
    class Drawn(nn.Embedding):
        def reset_parameters(self):
            nn.init.ones_(self.weight)
            self._fill_padding_idx_with_zero()

    assert Drawn(3, 2, padding_idx=-1).weight.tolist() == [[1, 1], [1, 1], [0, 0]]
    assert Drawn(3, 2).weight.tolist() == [[1, 1]] * 3
    bag = nn.EmbeddingBag(3, 2, padding_idx=1)
    with tg.no_grad():
        bag.weight.fill_(1)
    bag._fill_padding_idx_with_zero()
    assert bag.weight.tolist() == [[1, 1], [0, 0], [1, 1]]


def test_loaders_and_datasets():
    class Counted(data.DataLoader):
        def _get_iterator(self):
            made.append(1)
            return super()._get_iterator()

    made = []
    assert len(list(Counted(range(4)))) == 4 and made == [1]
    assert data.ConcatDataset.cumsum([range(2), range(3)]) == [2, 5]


def test_unknown_print_profile_changes_nothing():
    before = tg.get_printoptions()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tg.set_printoptions(profile="long")
    assert len(caught) == 1 and "unknown profile" in str(caught[0].message) and caught[0].filename == __file__
    assert tg.get_printoptions() == before
