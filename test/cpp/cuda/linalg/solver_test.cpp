// cuSOLVER where it cannot be used: a version that lacks a function, no memory for its handles.
#include <catch2/catch.hpp>

#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_solve.h"
#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/memory/device_allocator.h"
#include "tapegrad/cuda/runtime/driver.h"
#include "tapegrad/cuda/simulated/simulated_solver.h"

using namespace tapegrad;
using namespace tapegrad::cuda;

namespace {

const solver_api::Functions* of_another_version() {
  TG_THROW(Runtime, "cuda: this cuSOLVER is of another version: it has no cusolverDnXgetrf");
}
std::string error_of(const Tensor& A) {
  try {
    (void)linalg_inv(A);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("A solver that cannot be used raises, and the next call tries again", "[cuda]") {
  REQUIRE(tapegrad_cuda_init() > 0);
  const Device card(DeviceType::CUDA, 0);
  const Tensor A = mul(eye(80, std::nullopt, DType::float64, card), 4);
  const auto same = [](const Tensor& a, const Tensor& b) {
    return to(all(eq(a, b)), std::nullopt, Device()).item<bool>();
  };
  const auto inverts = [&] { return same(mul(linalg_inv(A), 16), A); };
  const auto solves = [&] { return same(mul(linalg_solve_triangular(A, A, true), 4), A); };
  CHECK(inverts());  // there is none
  solver_api::use_solver(&of_another_version);
  CHECK(error_of(A) == "cuda: this cuSOLVER is of another version: it has no cusolverDnXgetrf");
  simulated::use_simulated_solver(true);
  // Handles are tried for twice, the second time without what our allocator has cached.
  simulated::solver_fails("create", 2, 2);
  CHECK_THROWS_WITH(solves(), Catch::Contains("cusolverDnCreate: out of memory"));
  simulated::solver_fails("create", 1);
  simulated::solver_fails("create_blas", 3, 2);
  CHECK_THROWS_WITH(solves(), Catch::Contains("cublasCreate: out of memory"));
  const auto reserved = [] { return device_allocator(0).stats().reserved_bytes[AllocatorStats::All].current; };
  (void)empty({64 << 20}, DType::uint8, card);
  const auto before = reserved();
  simulated::solver_fails("create_blas", 1);
  CHECK(solves());
  CHECK(reserved() < before);
  CHECK(inverts());
  CHECK(simulated::solver_calls("lu") == 1);
  simulated::use_simulated_solver(false);
  CHECK(inverts());
  CHECK(simulated::solver_calls("lu") == 0);
}
