"""torch.testing._internal's names: parameters and devices make the tests that PyTorch makes, and comparisons accept and refuse what they should."""

import socket
import unittest

import numpy as np
import pytest
import tapegrad as tg
from tapegrad.testing._internal import common_device_type as devices
from tapegrad.testing._internal import common_dtype, common_methods_invocations, common_utils
from tapegrad.testing._internal.common_utils import TestCase, instantiate_parametrized_tests, parametrize, subtest


def _tests(cls) -> list[str]:
    return sorted(name for name in dir(cls) if name.startswith("test"))


def _outcome(cls) -> unittest.TestResult:
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(cls).run(result)
    return result


def test_parametrize_names_and_arguments():
    seen = []

    class Case(TestCase):
        @parametrize("x", [1, 0.5, tg.float32, None])
        @parametrize("y,z", [("a", True), subtest(("b", False), name="second")])
        def test_it(self, x, y, z):
            seen.append((x, y, z))

        @parametrize("x", [1, subtest(2, decorators=[unittest.expectedFailure])])
        def test_fails(self, x):
            self.assertEqual(x, 1)

    instantiate_parametrized_tests(Case)
    names = [f"test_it_{x}_{y}" for x in ("float32", "x3", "x_0_5", "x_1") for y in ("second", "y_a_z_True")]
    assert _tests(Case) == ["test_fails_x_1", "test_fails_x_2", *names]
    result = _outcome(Case)
    assert result.wasSuccessful() and len(result.expectedFailures) == 1 and result.testsRun == 10
    assert sorted(map(repr, seen)) == sorted(repr((x, y, z)) for x in (1, 0.5, tg.float32, None) for y, z in (("a", True), ("b", False)))


def test_parametrize_mistakes():
    def same(self, x):
        pass

    with pytest.raises(RuntimeError, match="following parameters are handled multiple times"):
        instantiate_parametrized_tests(type("Case", (TestCase,), {"test_it": parametrize("x", [1])(parametrize("x", [2])(same))}))
    with pytest.raises(ValueError, match="An empty arg_values"):
        instantiate_parametrized_tests(type("Case", (TestCase,), {"test_it": parametrize("x", [])(lambda self, x: None)}))
    with pytest.raises(RuntimeError, match="Expected # values == # arg names"):
        instantiate_parametrized_tests(type("Case", (TestCase,), {"test_it": parametrize("x,y", [(1, 2, 3)])(lambda self, x, y: None)}))


def test_dtypes_that_are_names_alone_make_tests():
    class TestThings(TestCase):
        @devices.dtypes(tg.int8, tg.quint8, tg.qint32, tg.complex32)
        def test_it(self, device, dtype):
            pass

    scope = {"TestThings": TestThings}
    devices.instantiate_device_type_tests(TestThings, scope, only_for="cpu")
    assert {n for n in dir(scope["TestThingsCPU"]) if n.startswith("test_")} == {f"test_it_cpu_{d}" for d in ("int8", "quint8", "qint32", "complex32")}
    with pytest.raises(AssertionError, match="Unknown dtype"):
        devices.dtypes("int8")


def test_device_types():
    seen = []

    class TestThings(TestCase):
        @classmethod
        def setUpClass(cls):
            super().setUpClass()
            seen.append("class")

        @devices.dtypes(tg.float32, tg.int64)
        @devices.dtypesIfCPU(tg.float64, tg.bool)
        @parametrize("n", [1])
        def test_dtypes(self, device, dtype, n):
            seen.append((device, dtype, n))

        @devices.dtypes((tg.float32, tg.int64))
        @devices.precisionOverride({tg.float32: 1.0})
        def test_pair(self, device, dtypes):
            seen.append(dtypes)

        @devices.precisionOverride({tg.float16: 0.25})
        @devices.toleranceOverride({tg.float32: devices.tol(atol=0.5, rtol=0.125)})
        @devices.dtypes(tg.float16, tg.float32)
        def test_precision(self, dtype):
            seen.append((self.precision, self.rel_tol))

        @devices.onlyCUDA
        def test_gpu(self, device):
            raise AssertionError("this is no GPU")

        @devices.expectedFailureCPU
        def test_expected(self, device):
            raise ValueError

        @devices.ops([])
        def test_ops(self, device, dtype, op):
            raise AssertionError("there is no operator")

        @devices.skipCPUIf(True, "why")
        def test_skipped(self, device):
            raise AssertionError

        @devices.deviceCountAtLeast(2)
        def test_two(self, devices):
            raise AssertionError

        def helper(self):
            return 3

    scope = {"TestThings": TestThings}
    devices.instantiate_device_type_tests(TestThings, scope, only_for=("cpu",))
    assert list(scope) == ["TestThingsCPU"] and not _tests(TestThings)
    made = scope["TestThingsCPU"]
    assert _tests(made) == ["test_dtypes_n_1_cpu_bool", "test_dtypes_n_1_cpu_float64", "test_expected_cpu", "test_gpu_cpu", "test_ops_cpu",
                            "test_pair_cpu_float32_int64", "test_precision_cpu_float16", "test_precision_cpu_float32", "test_skipped_cpu", "test_two_cpu"]
    result = _outcome(made)
    assert result.wasSuccessful() and result.testsRun == 10
    assert sorted(reason for _, reason in result.skipped) == ["Only runs on cuda", "PyTorch's database of operators is not here", "fewer than 2 devices detected", "why"]
    assert seen == ["class", ("cpu", tg.bool, 1), ("cpu", tg.float64, 1), (tg.float32, tg.int64), (0.25, 0.0), (0.5, 0.125)]
    assert made.helper(None) == 3
    devices.instantiate_device_type_tests(type("TestOther", (TestCase,), {"test_a": lambda self, device: None}), other := {"TestOther": None}, except_for="cpu")
    assert "TestOtherCPU" not in other


@pytest.mark.parametrize("pair", [
    (tg.ones(2), np.ones(2, np.float32)), (tg.ones(2), [1, 1]), ((1.0, 2.0), tg.tensor([1.0, 2.0])), (tg.tensor(3), 3), (2, tg.tensor([2.0])), (1, 1.0),
    (1.0, 1 + 1e-7), (float("nan"), float("nan")), (tg.tensor([float("nan")]), tg.tensor([float("nan")])), (True, tg.tensor(True)), (True, 1),
    ({"a": [tg.ones(1)]}, {"a": (tg.ones(1),)}), ("text", "text"), ({1, 2}, {2, 1}), (None, None), (int, int), (np.float64(2), 2.0),
    (tg.Size([2]), (2,)), (np.array(["a"]), ["a"]), (tg.FloatStorage([1, 2]), tg.FloatStorage([1, 2])), (tg.ones(2, 0), tg.ones(2, 0)), ([], [])])
def test_equal(pair):
    TestCase().assertEqual(*pair)
    TestCase().assertEqual(*pair[::-1])


@pytest.mark.parametrize("pair, text", [
    ((tg.ones(2), tg.ones(3)), "shape"), ((tg.ones(2), tg.ones(2).double()), "dtype"), ((tg.ones(2), tg.zeros(2)), "Tensor-likes"), ((1, 2), "Scalars"),
    ((1.0, 1.01), "Scalars"), (([1], [1, 2]), "length"), (({"a": 1}, {"b": 1}), "keys"), ((None, 0), "None mismatch"), (("a", "b"), "comparison failed"),
    ((True, False), "Booleans"), (([tg.ones(1), {"k": (1, 2)}], [tg.ones(1), {"k": (1, 3)}]), r"\[1\]\['k'\]\[1\]"), ((object(), object()), "failed"),
    ((tg.FloatStorage([1, 2]), tg.FloatStorage([1, 3])), "Tensor-likes"), (("1", 1), "failed")])
def test_unequal(pair, text):
    for one in (pair, pair[::-1]):
        with pytest.raises(AssertionError, match=text):
            TestCase().assertEqual(*one)
        TestCase().assertNotEqual(*one)
    with pytest.raises(AssertionError, match="said so$"):
        TestCase().assertEqual(*pair, "said so")


def test_tolerances_and_mistakes():
    case = TestCase()
    case.assertEqual(1.0, 1.1, atol=0.2, rtol=0)
    case.assertEqual(tg.ones(1), tg.ones(1).double(), exact_dtype=False)
    case.precision = 0.5
    case.assertEqual(tg.tensor([1.0]), tg.tensor([1.4]))
    with pytest.raises(ValueError, match="must be either specified or omitted"):
        case.assertEqual(1.0, 1.0, atol=1)
    with pytest.raises(ValueError, match="Only single element"):
        case.assertEqual(tg.ones(2), 1)
    with pytest.raises(AssertionError):
        with case.assertWarnsOnceRegex(UserWarning, "b"):
            import warnings

            warnings.warn("ab", stacklevel=1)


def test_groups_and_decorators():
    assert common_dtype.floating_types_and(tg.half) == (tg.float32, tg.float64, tg.half)
    assert tg.int32 in common_dtype.all_types() + (tg.bool,) and len(common_dtype.all_types_and_complex()) == 9
    with pytest.raises(AssertionError, match="a dtype was expected"):
        common_dtype.integral_types_and("half")
    info = common_methods_invocations.DecorateInfo(unittest.skip, "TestA", "test_b", device_type="cpu", dtypes=[tg.half])
    assert info.is_active("TestA", "test_b", "cpu", tg.half, {}) and not info.is_active("TestA", "test_b", "cpu", tg.float32, {})
    assert not info.is_active("TestA", "test_c", "cpu", tg.half, {}) and not info.is_active("TestA", "test_b", "cuda", tg.half, {})
    with pytest.raises(NotImplementedError, match="database of operators"):
        common_methods_invocations.OpInfo("add")


def test_states_come_back():
    before = tg.get_rng_state(), tg.get_default_dtype()
    with common_utils.freeze_rng_state(), common_utils.set_default_dtype(tg.float64):
        assert tg.rand(3).dtype == tg.float64
    assert tg.get_rng_state().equal(before[0]) and tg.get_default_dtype() == before[1]
    was = tg.utils.deterministic.fill_uninitialized_memory
    with pytest.raises(ZeroDivisionError), common_utils.DeterministicGuard(True, fill_uninitialized_memory=not was):
        assert tg.utils.deterministic.fill_uninitialized_memory != was
        raise ZeroDivisionError
    assert tg.utils.deterministic.fill_uninitialized_memory == was
    assert common_utils.bytes_to_scalar([0, 0, 128, 63], tg.float32, "cpu").item() == 1.0
    gaps = common_utils.noncontiguous_like(tg.ones(3))
    assert gaps.equal(tg.ones(3)) and not gaps.is_contiguous()


def test_random_matrices_have_the_properties_of_their_names():
    kind = {"dtype": tg.complex128, "device": "cpu"}
    values = tg.linalg.svdvals(common_utils.make_fullrank_matrices_with_distinct_singular_values(3, 4, 6, **kind))
    assert values.shape == (3, 4) and values.min() > 0.6 and values.max() < 1.6 and (values[:, :-1] - values[:, 1:]).min() > 0.01
    assert tg.linalg.matrix_rank(common_utils.random_square_matrix_of_rank(6, 4, tg.float64)).item() == 4
    assert tg.linalg.matrix_rank(common_utils.random_lowrank_matrix(2, 5, 7, 3)).tolist() == [2, 2, 2]
    spread = tg.linalg.svdvals(common_utils.random_matrix(3, 5, **kind))
    assert tg.allclose(spread, tg.tensor([1.0, 0.625, 0.25], dtype=tg.float64))
    assert tg.linalg.matrix_rank(common_utils.random_matrix(4, 4, 2, singular=True)).tolist() == [2, 2]
    assert common_utils.random_matrix(0, 3).shape == (0, 3)
    a, b = common_utils.random_symmetric_matrix(4, 2), common_utils.random_hermitian_matrix(4, **kind)
    assert a.equal(a.mT) and a.shape == (2, 4, 4) and b.equal(b.mH) and not b.equal(b.mT)
    assert tg.linalg.eigvalsh(common_utils.random_symmetric_psd_matrix(5)).min() > -1e-9
    sparse = common_utils.random_sparse_matrix(6, 6, 0.3, dtype=tg.float32)
    assert sparse.is_coalesced() and sparse.dtype == tg.float32 and (sparse.to_dense() != 0).any(1).all()
    positive = common_utils.random_sparse_pd_matrix(8, 0.3)
    found = tg.linalg.eigvalsh(positive.to_dense())
    assert positive.is_sparse and tg.allclose(found, tg.arange(1, 9, dtype=tg.float64) / 8)
    assert common_utils.is_coalesced_indices(positive)
    assert not common_utils.is_coalesced_indices(tg.sparse_coo_tensor([[1, 0]], [1.0, 2.0], (3,)))
    assert not common_utils.is_coalesced_indices(tg.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (3,)))


def test_samples_and_both_kinds_of_sparse_tensors():
    class Case(TestCase):
        seen: list = []

        @common_utils.coalescedonoff
        def test_both(self, coalesced):
            self.seen.append(coalesced)

        def test_none(self):
            common_utils.first_sample(self, iter(()))

    assert _outcome(Case).skipped[0][1] == "there is no sample" and Case.seen == [True, False] and common_utils.first_sample(None, [3, 4]) == 3
    from tapegrad.testing._internal.opinfo.core import OpInfo
    from tapegrad.testing._internal.opinfo.definitions.sparse import validate_sample_input_sparse

    assert OpInfo is common_methods_invocations.OpInfo
    with pytest.raises(NotImplementedError, match="^validate_sample_input_sparse: samples of PyTorch's database"):
        validate_sample_input_sparse(None, None)
    with pytest.raises(AttributeError, match="has no attribute 'other'"):
        _ = common_methods_invocations.other


def test_ports_and_seeds_of_tests():
    with socket.create_server(("localhost", common_utils.find_free_port())):
        pass
    tg.manual_seed(1)
    before = tg.get_rng_state()
    mask = common_methods_invocations.wrapper_set_seed(tg.nn.functional.dropout, tg.ones(100), p=0.5)
    assert tg.equal(before, tg.get_rng_state())
    tg.manual_seed(42)
    assert tg.equal(mask, tg.nn.functional.dropout(tg.ones(100), 0.5))
