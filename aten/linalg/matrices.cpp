#include "tapegrad/aten/linalg/matrices.h"

#include "tapegrad/aten/batch/batched_tensor.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/linalg/blas/blas.h"

namespace tapegrad {

std::string batch_element(IntSpan batch, int64_t index) {
  return batch.empty() ? "" : fmt::format("(Batch element {}): ", index);
}

void Failures::keep(int64_t matrix, int info) noexcept {
  lock_.lock();
  First& known = info == kNotFinite ? not_finite_ : failed_;
  if (matrix < known.matrix) known = {matrix, info};
  lock_.unlock();
}

void Failures::check(const char* op, IntSpan batch, const char* what) const {
  if (not_finite_.info != 0)
    TG_THROW(LinAlg, "{}: {}the matrix has infinite elements or NaN", op, batch_element(batch, not_finite_.matrix));
  if (failed_.info != 0)
    TG_THROW(LinAlg, "{}: {}{}", op, batch_element(batch, failed_.matrix),
             fmt::format(fmt::runtime(what), failed_.info));
}

void check_infos(const char* op, const Tensor& given, const char* what) {
  if (given.is_meta()) return;
  Tensor all = given;  // of all samples of a vmap
  while (batch::is_batched(all)) all = batch::impl_of(all).physical();
  const Tensor info = raw::contiguous(raw::to(all, std::nullopt, Device()));
  Matrices<const int> infos(info, 0);
  for (int64_t i = 0; i < infos.count; ++i)
    if (*infos[i] != 0)
      TG_THROW(LinAlg, "{}: {}{}", op, batch_element(info.sizes(), i), fmt::format(fmt::runtime(what), *infos[i]));
}

void check_matrix(const char* op, const Tensor& t, const char* name) {
  TG_CHECK(t.ndim() >= 2, Runtime, "{}: {} must have at least 2 dimensions: got shape {}", op, name,
           format_ints(t.sizes()));
  TG_CHECK(t.is_floating_point() || t.is_complex(), Runtime,
           "{}: Expected a floating point or complex tensor as {}: got {}\nhint: convert it with .to()", op, name,
           t.dtype());
  TG_CHECK(!is_half(t.dtype()), Runtime,
           "{}: Low precision dtypes not supported: {} is {}\nhint: convert it with .float()", op, name, t.dtype());
  TG_CHECK(t.size(-1) < blas::kMaxInt && t.size(-2) < blas::kMaxInt, Runtime,
           "{}: {} is too large for LAPACK: shape {}", op, name, format_ints(t.sizes()));
}

void check_square(const char* op, const Tensor& t, const char* name) {
  check_matrix(op, t, name);
  TG_CHECK(t.size(-1) == t.size(-2), Runtime, "{}: {} must be batches of square matrices: got shape {}", op, name,
           format_ints(t.sizes()));
}

void check_same_dtype(const char* op, const Tensor& a, const Tensor& b) {
  TG_CHECK(a.dtype() == b.dtype(), Runtime, "{}: both must have one dtype: got {} and {}", op, a.dtype(), b.dtype());
}

bool is_vector_batch(const Tensor& A, const Tensor& B) {
  return B.ndim() == 1 || (A.ndim() - 1 == B.ndim() && B.sizes() == IntSpan(A.sizes().data(), A.sizes().size() - 1));
}

}  // namespace tapegrad
