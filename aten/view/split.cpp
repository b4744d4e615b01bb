#include "tapegrad/aten/batch/batched_tensor.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_view.h"
#include "tapegrad/aten/record/recorder.h"
#include "tapegrad/aten/view/geometry.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::composite {

std::vector<Tensor> chunk(const Tensor& input, int64_t chunks, int64_t dim) {
  TG_CHECK(input.ndim() > 0, Runtime, "chunk: cannot be applied to a tensor without dimensions");
  TG_CHECK(chunks > 0, Runtime, "chunk: chunk expects `chunks` to be greater than 0: got {}", chunks);
  dim = wrap_dim(dim, input.ndim(), "chunk");
  int64_t size = input.size(dim);
  // All chunks of an empty dimension are empty; their number is as requested.
  if (size == 0) {
    geometry::check_pieces(chunks, "chunk");
    return split_with_sizes(input, DimVector(static_cast<size_t>(chunks)), dim);
  }
  return split(input, (size - 1) / chunks + 1, dim);
}

namespace {
// Views that are made one by one: the tape lets them be written to, which it cannot where one node makes several.
std::vector<Tensor> one_by_one(const Tensor& input, const std::vector<Tensor>& pieces, int64_t dim) {
  std::vector<Tensor> views;
  int64_t at = 0;
  for (const Tensor& piece : pieces) {
    views.push_back(narrow(input, dim, at, piece.size(dim)));
    at += piece.size(dim);
  }
  return views;
}
}  // namespace

std::vector<Tensor> unsafe_chunk(const Tensor& input, int64_t chunks, int64_t dim) {
  return one_by_one(input, tapegrad::chunk(input.detach(), chunks, dim), dim);
}

std::vector<Tensor> unsafe_split(const Tensor& tensor, int64_t split_size, int64_t dim) {
  return one_by_one(tensor, split(tensor.detach(), split_size, dim), dim);
}

std::vector<Tensor> unsafe_split_with_sizes(const Tensor& input, IntSpan split_sizes, int64_t dim) {
  return one_by_one(input, split_with_sizes(input.detach(), split_sizes, dim), dim);
}

std::vector<Tensor> tensor_split_sections(const Tensor& input, int64_t sections, int64_t dim) {
  TG_CHECK(input.ndim() > 0, Runtime,
           "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims");
  TG_CHECK(sections > 0, Runtime, "tensor_split: number of sections must be larger than 0, got {}", sections);
  dim = wrap_dim(dim, input.ndim(), "tensor_split");
  geometry::check_pieces(sections, "tensor_split");
  int64_t size = input.size(dim), least = size / sections, longer = size % sections;
  std::vector<Tensor> pieces;
  int64_t start = 0;
  for (int64_t i = 0; i < sections; ++i) {
    if (i % 4096 == 4095) check_interrupt();
    int64_t length = least + (i < longer);
    pieces.push_back(_slice(input, dim, start, start + length));
    start += length;
  }
  return pieces;
}

std::vector<Tensor> tensor_split_indices(const Tensor& input, IntSpan indices, int64_t dim) {
  TG_CHECK(input.ndim() > 0, Runtime,
           "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims");
  dim = wrap_dim(dim, input.ndim(), "tensor_split");
  std::vector<Tensor> pieces;
  int64_t start = 0;
  for (int64_t i : indices) {
    if (pieces.size() % 4096 == 4095) check_interrupt();
    pieces.push_back(_slice(input, dim, start, i));
    start = i;
  }
  pieces.push_back(_slice(input, dim, start));
  return pieces;
}

std::vector<Tensor> tensor_split_tensor(const Tensor& input, const Tensor& indices_or_sections, int64_t dim) {
  if (indices_or_sections.is_batched()) batch::throw_needs_values("tensor_split");
  TG_CHECK(
      indices_or_sections.dtype() == DType::int64 && indices_or_sections.is_cpu() && indices_or_sections.ndim() <= 1,
      Runtime, "tensor_split: expected an int64 tensor on the CPU with at most 1 dimension: got {} on {}, sizes {}",
      indices_or_sections.dtype(), indices_or_sections.device(), format_ints(indices_or_sections.sizes()));
  if (indices_or_sections.ndim() == 0) return tensor_split_sections(input, indices_or_sections.item<int64_t>(), dim);
  record::note_host_read("tensor_split");
  Tensor dense = raw::contiguous(indices_or_sections);
  DimVector indices;
  indices.assign(dense.data<int64_t>(), static_cast<size_t>(dense.numel()));
  return tensor_split_indices(input, indices, dim);
}

namespace {
// `sections` equal pieces along dim; raises where they do not come out even or dimensions are missing.
std::vector<Tensor> split_evenly(const Tensor& input, int64_t sections, int64_t dim, int min_ndim, const char* op) {
  TG_CHECK(input.ndim() >= min_ndim, Runtime, "{}: expected at least {} dimensions: got {}", op, min_ndim,
           format_ints(input.sizes()));
  TG_CHECK(sections > 0 && input.size(dim) % sections == 0, Runtime,
           "{}: dimension {} with size {} does not split into {} equal sections", op, dim, input.size(dim), sections);
  return tensor_split_sections(input, sections, dim);
}
}  // namespace

std::vector<Tensor> hsplit_sections(const Tensor& input, int64_t sections) {
  return split_evenly(input, sections, input.ndim() == 1 ? 0 : 1, 1, "hsplit");
}
std::vector<Tensor> vsplit_sections(const Tensor& input, int64_t sections) {
  return split_evenly(input, sections, 0, 2, "vsplit");
}
std::vector<Tensor> dsplit_sections(const Tensor& input, int64_t sections) {
  return split_evenly(input, sections, 2, 3, "dsplit");
}

}  // namespace tapegrad::composite
