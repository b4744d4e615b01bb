#include <algorithm>

#include "tapegrad/aten/kernels_create.h"

namespace tapegrad {

namespace {

// The columns [begin, end) of row i that belong to the triangle.
struct Columns {
  int64_t begin, end;
};
Columns lower(int64_t i, int64_t columns, int64_t offset) {
  return {0, std::clamp<int64_t>(i + offset + 1, 0, columns)};
}
Columns upper(int64_t i, int64_t columns, int64_t offset) {
  return {std::clamp<int64_t>(i + offset, 0, columns), columns};
}

template <class F>
TensorSpec triangle_spec(int64_t row, int64_t col, int64_t offset, std::optional<DType> wanted,
                         std::optional<Device> device, F&& columns, const char* op) {
  TG_CHECK(row >= 0 && col >= 0, Runtime, "{}: sizes must not be negative: got {} rows, {} columns", op, row, col);
  const DType dtype = wanted.value_or(DType::int64);
  TG_CHECK(dtype == DType::int32 || dtype == DType::int64, Runtime, "{}: expected dtype int32 or int64: got {}", op,
           dtype);
  checked_numel({row, col}, op);
  constexpr int64_t kLimit = int64_t{1} << 62;
  TG_CHECK(offset > -kLimit && offset < kLimit, Runtime, "{}: the offset is out of range: got {}", op, offset);
  int64_t n = 0;
  for (int64_t i = 0; i < row; ++i) {
    Columns c = columns(i, col, offset);
    n += c.end - c.begin;
  }
  return {DimVector{2, n}, dtype, device.value_or(default_device()), {}};
}

template <class F>
void write_triangle(int64_t row, int64_t col, int64_t offset, const Tensor& out, F&& columns) {
  auto write = [&]<class T>() {
    T* r = out.data<T>();
    T* c = r + out.size(1);
    for (int64_t i = 0; i < row; ++i) {
      Columns range = columns(i, col, offset);
      for (int64_t j = range.begin; j < range.end; ++j) {
        *r++ = static_cast<T>(i);
        *c++ = static_cast<T>(j);
      }
    }
  };
  if (out.dtype() == DType::int32)
    write.template operator()<int32_t>();
  else
    write.template operator()<int64_t>();
}

}  // namespace

TensorSpec tril_indices_shape(int64_t row, int64_t col, int64_t offset, std::optional<DType> dtype,
                              std::optional<Device> device) {
  return triangle_spec(row, col, offset, dtype, device, lower, "tril_indices");
}
TensorSpec triu_indices_shape(int64_t row, int64_t col, int64_t offset, std::optional<DType> dtype,
                              std::optional<Device> device) {
  return triangle_spec(row, col, offset, dtype, device, upper, "triu_indices");
}

namespace cpu {

void tril_indices_cpu(int64_t row, int64_t col, int64_t offset, std::optional<DType>, std::optional<Device>,
                      const Tensor& out) {
  write_triangle(row, col, offset, out, lower);
}
void triu_indices_cpu(int64_t row, int64_t col, int64_t offset, std::optional<DType>, std::optional<Device>,
                      const Tensor& out) {
  write_triangle(row, col, offset, out, upper);
}

}  // namespace cpu

}  // namespace tapegrad
