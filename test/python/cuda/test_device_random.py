"""One default generator per device: the same seed gives the CPU's numbers on each, and each counts its own calls.

Runs where the environment asks for a device, as test_operators.py does; test_simulated.py starts it on the simulated one.
"""

import warnings

import device_asked_for  # noqa: F401
import pytest
import tapegrad as tg
from devices import several

cuda = tg.cuda


def drawn(device="cuda", n=3):
    return tg.rand(n, device=device).tolist()


def test_a_seed_gives_every_device_the_numbers_of_the_cpu():
    tg.manual_seed(4)
    first, second = drawn("cpu"), drawn("cpu")
    for i in range(cuda.device_count()):
        assert (drawn(f"cuda:{i}"), drawn(f"cuda:{i}")) == (first, second)  # the others' draws change nothing
    for n in (5, 100, 5000, 40_000):
        assert tg.randperm(n, device="cuda:0", generator=tg.Generator("cuda").manual_seed(n)).tolist() == tg.randperm(n, generator=tg.Generator().manual_seed(n)).tolist()
    own = tg.Generator("cuda").manual_seed(4)
    assert tg.rand(3, device="cuda", generator=own).tolist() == first and own.device == own.clone_state().device == tg.device("cuda", 0)
    with pytest.raises(RuntimeError, match="there is no device cuda:9"):
        tg.Generator("cuda:9")
    fresh = tg.seed()
    assert tg.initial_seed() == cuda.initial_seed() == fresh and drawn() == drawn("cpu")


def test_the_gpus_generators():
    assert len(cuda.default_generators) == cuda.device_count()
    assert [g.device for g in cuda.default_generators] == [tg.device("cuda", i) for i in range(cuda.device_count())]
    tg.manual_seed(4)
    before = tg.get_rng_state()
    numbers = drawn()
    assert cuda.default_generators[0].get_offset() == 1 and tg.default_generator.get_offset() == 0
    cuda.manual_seed(5)
    assert cuda.initial_seed() == 5 and tg.initial_seed() == 4 and tg.equal(tg.get_rng_state(), before)
    state = cuda.get_rng_state()
    other = drawn()
    assert other != numbers and other == tg.rand(3, generator=tg.Generator().manual_seed(5)).tolist()
    cuda.set_rng_state(state)
    assert drawn() == other
    cuda.set_rng_state(state, tg.device("cuda", 0)), cuda.set_rng_state_all(cuda.get_rng_state_all())
    assert drawn() == other
    cuda.default_generators[0].manual_seed(4)
    assert drawn() == numbers
    cuda.seed()
    assert cuda.initial_seed() != 4 and tg.initial_seed() == 4
    for wrong in (lambda: cuda.get_rng_state(9), lambda: cuda.set_rng_state(state, "cuda:9")):
        with pytest.raises(RuntimeError, match="device index out of range: cuda:9"):
            wrong()


@several
def test_several_gpus_have_several_states():
    cuda.manual_seed_all(8)
    with cuda.device(1):
        cuda.manual_seed(9)
        assert cuda.initial_seed() == 9
    assert [g.initial_seed() for g in cuda.default_generators[:2]] == [8, 9] and cuda.initial_seed() == 8
    states = cuda.get_rng_state_all()
    numbers = drawn("cuda:0"), drawn("cuda:1")
    assert numbers[0] != numbers[1]
    cuda.set_rng_state_all(states)
    assert (drawn("cuda:0"), drawn("cuda:1")) == numbers
    cuda.seed_all()
    assert len({g.initial_seed() for g in cuda.default_generators}) == 1


def test_fork_rng_covers_the_devices_that_it_names():
    tg.manual_seed(1)
    expected = drawn(), drawn("cpu")
    tg.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are several devices
        with tg.random.fork_rng():
            drawn(), drawn("cpu"), tg.manual_seed(3)
    assert (drawn(), drawn("cpu")) == expected
    tg.manual_seed(1)
    with tg.random.fork_rng(devices=[]):
        drawn(), drawn("cpu")
    assert drawn("cpu") == expected[1] and drawn() != expected[0]
    tg.manual_seed(1)
    with tg.random.fork_rng(devices=["cuda:0"]):
        drawn()
    assert drawn() == expected[0]


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_dropout_draws_the_same_twice(reentrant):
    x = tg.ones(100, device="cuda", requires_grad=True)
    y = tg.utils.checkpoint.checkpoint(lambda t: tg.nn.functional.dropout(t, 0.5), x, use_reentrant=reentrant)
    y.sum().backward()
    assert x.grad.tolist() == y.tolist() and 0 < y.count_nonzero().item() < 100


def test_samples_do_not_depend_on_the_workers():
    class Draws(tg.utils.data.Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, i):
            return tg.cat([tg.rand(2, device="cuda").cpu(), tg.rand(2)])

    def batches(**options):
        loader = tg.utils.data.DataLoader(Draws(), batch_size=2, **options)
        tg.manual_seed(3)
        return [b.tolist() for b in loader], drawn(), drawn("cpu")

    assert batches() == batches(num_workers=2, worker_type="thread")


def test_coin_tosses_with_probabilities_of_the_host():
    p = tg.tensor([0.1, 0.9, 0.5])
    tg.manual_seed(2)
    tossed = tg.empty(4, 3, device="cuda").bernoulli_(p)
    tg.manual_seed(2)
    assert tossed.is_cuda and tossed.tolist() == tg.empty(4, 3).bernoulli_(p).tolist()
    for self, wrong in ((tg.empty(3), p.cuda()), (tg.empty(3, device="cuda"), p.to("meta"))):
        with pytest.raises(RuntimeError, match="expected p on the device of self, or on the CPU"):
            self.bernoulli_(wrong)


def test_factories_pin_their_memory():
    like = tg.ones(2, 2)
    made = {"empty": tg.empty(3, 2, pin_memory=True), "zeros": tg.zeros(3, pin_memory=True), "ones": tg.ones(3, pin_memory=True),
            "full": tg.full((3,), 2.0, pin_memory=True), "rand": tg.rand(3, pin_memory=True), "randn": tg.randn(3, pin_memory=True),
            "randint": tg.randint(0, 9, (3,), pin_memory=True), "randperm": tg.randperm(5, pin_memory=True), "arange": tg.arange(3, pin_memory=True),
            "linspace": tg.linspace(0, 1, 5, pin_memory=True), "eye": tg.eye(2, pin_memory=True), "tensor": tg.tensor([1.0, 2.0], pin_memory=True),
            "empty_like": tg.empty_like(like, pin_memory=True), "zeros_like": tg.zeros_like(like, pin_memory=True),
            "rand_like": tg.rand_like(like, pin_memory=True), "randint_like": tg.randint_like(like, 3, pin_memory=True),
            "new_zeros": like.new_zeros((2,), pin_memory=True)}
    for name, t in made.items():
        assert t.is_pinned() and t.device.type == "cpu", name
    assert made["full"].tolist() == [2, 2, 2] and made["arange"].tolist() == [0, 1, 2] and made["tensor"].tolist() == [1, 2]
    assert made["tensor"].to("cuda", non_blocking=True).tolist() == [1, 2]
    assert not tg.ones(3).is_pinned() and not tg.tensor([1.0], pin_memory=False).is_pinned() and not tg.empty(2, pin_memory=None).is_pinned()
    given = tg.tensor(like.numpy(), pin_memory=True)
    assert given.is_pinned() and tg.equal(given, like)
    assert tg.rand(2, pin_memory=True, requires_grad=True).requires_grad and tg.randn_like(like, requires_grad=True).requires_grad
    for wrong in (lambda: tg.empty(2, device="cuda", pin_memory=True), lambda: tg.tensor([1.0], device="cuda", pin_memory=True),
                  lambda: tg.zeros(2, device="meta", pin_memory=True)):
        with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
            wrong()
    assert not tg.empty(3).is_pinned()  # after the refusals
