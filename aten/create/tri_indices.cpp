#include "tapegrad/aten/create/triangle.h"

#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/kernels_create.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad {

namespace {

using triangle::Columns;
using triangle::lower;
using triangle::lower_rows;
using triangle::Rows;
using triangle::upper;
using triangle::upper_rows;

TensorSpec triangle_spec(int64_t row, int64_t col, int64_t offset, std::optional<DType> wanted,
                         std::optional<Device> device, Rows (*rows)(int64_t, int64_t, int64_t), const char* op) {
  TG_CHECK(row >= 0 && col >= 0, Runtime, "{}: sizes must not be negative: got {} rows, {} columns", op, row, col);
  const DType dtype = wanted.value_or(DType::int64);
  TG_CHECK(dtype == DType::int32 || dtype == DType::int64, Runtime, "{}: expected dtype int32 or int64: got {}", op,
           dtype);
  checked_numel({row, col}, op);
  constexpr int64_t kLimit = int64_t{1} << 61;
  TG_CHECK(offset > -kLimit && offset < kLimit && row < kLimit && col < kLimit, Runtime,
           "{}: sizes and offset are out of range: got {} rows, {} columns, offset {}", op, row, col, offset);
  return create_spec({2, rows(row, col, offset).count}, dtype, device, op);
}

template <class F>
void write_triangle(Rows rows, int64_t col, int64_t offset, const Tensor& out, F&& columns) {
  auto write = [&]<class T>() {
    T* r = out.data<T>();
    T* c = r + out.size(1);
    WorkCount work;
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      Columns range = columns(i, col, offset);
      serial_for(range.begin, range.end, [&](int64_t first, int64_t last) {
        for (int64_t j = first; j < last; ++j) {
          *r++ = static_cast<T>(i);
          *c++ = static_cast<T>(j);
        }
        work(last - first);
      });
    }
  };
  if (out.numel() == 0) return;
  if (out.dtype() == DType::int32)
    write.template operator()<int32_t>();
  else
    write.template operator()<int64_t>();
}

}  // namespace

TensorSpec tril_indices_shape(int64_t row, int64_t col, int64_t offset, std::optional<DType> dtype,
                              std::optional<Device> device) {
  return triangle_spec(row, col, offset, dtype, device, lower_rows, "tril_indices");
}
TensorSpec triu_indices_shape(int64_t row, int64_t col, int64_t offset, std::optional<DType> dtype,
                              std::optional<Device> device) {
  return triangle_spec(row, col, offset, dtype, device, upper_rows, "triu_indices");
}

namespace cpu {

void tril_indices_cpu(int64_t row, int64_t col, int64_t offset, std::optional<DType>, std::optional<Device>,
                      const Tensor& out) {
  write_triangle(lower_rows(row, col, offset), col, offset, out, lower);
}
void triu_indices_cpu(int64_t row, int64_t col, int64_t offset, std::optional<DType>, std::optional<Device>,
                      const Tensor& out) {
  write_triangle(upper_rows(row, col, offset), col, offset, out, upper);
}

}  // namespace cpu

}  // namespace tapegrad
