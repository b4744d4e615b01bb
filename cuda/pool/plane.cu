// Reading and writing elements of planes at flat positions. Writing is deterministic and in the order of the positions:
// a block owns a part of a plane in shared memory and goes through all positions, 256 at a time; of those that name the
// same element the lowest comes first. Where the windows are known that the positions come from, each element looks at
// those that may hold it, in the same order. Planes of very many parts are written by way of sorted positions instead.
#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/pool/windows.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/index/places.h"
#include "tapegrad/cuda/index/steps.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/pool/planes.h"

namespace tapegrad::cuda {
namespace {

constexpr int kPart = 2048;  // elements of a plane that a block owns
constexpr int64_t kMostParts = 64;
constexpr uint32_t kNobody = 0xffffffffu;

// Bounds are the caller's promise for our own indices; those that a user gives to max_unpool are checked here.
struct Positions {
  const int64_t* data;
  int64_t count, size;  // of a plane
  FaultText op;
  FaultRecord* fault;
  // Of element i of all planes, or -1 with the fault recorded.
  TG_DEVICE int64_t at(int64_t i) const { return checked_index(fault, Fault::Index, op, data[i], size); }
};
// The same as places in the memory of all planes.
struct PlanePlaces {
  Positions positions;
  TG_DEVICE int64_t at(int64_t i) const {
    const int64_t p = positions.at(i);
    return p < 0 ? p : i / positions.count * positions.size + p;
  }
};

int64_t last_sizes(IntSpan sizes, int64_t spatial) {
  int64_t n = 1;
  for (int64_t d = 0; d < spatial; ++d) n *= sizes[sizes.size() - 1 - static_cast<size_t>(d)];
  return n;
}

template <class T>
struct Gather {
  Positions positions;
  const T* from;
  T* to;
  TG_DEVICE void operator()(int64_t i) const {
    const int64_t p = positions.at(i);
    if (p >= 0) to[i] = from[i / positions.count * positions.size + p];
  }
};

TG_DEVICE void set_lowest(uint32_t* p, uint32_t v) {
  uint32_t seen = *p;
  while (v < seen) {
    const uint32_t before = atomic_compare_and_set(p, seen, v);
    if (before == seen) return;
    seen = before;
  }
}

template <class T>
struct ScatterArgs {
  Positions positions;
  const T* from;
  T* to;
  int64_t planes;
  bool accumulate;
};
template <class T>
TG_KERNEL void scatter_kernel(ScatterArgs<T> args) {
  TG_SHARED(T, part, kPart);
  TG_SHARED(uint32_t, owner, kPart);
  TG_SHARED(int, scratch, kWarp);
  const int64_t n = args.positions.count, size = args.positions.size;
  const int64_t first = static_cast<int64_t>(block_index()) * kPart,
                count = size - first < kPart ? size - first : kPart;
  const uint32_t thread = thread_index();
  for (int64_t plane = block_row(); plane < args.planes; plane += grid_rows()) {
    for (int64_t e = thread; e < count; e += block_size()) {
      part[e] = T{};
      owner[e] = kNobody;
    }
    block_sync();
    for (int64_t begin = 0; begin < n; begin += block_size()) {
      const int64_t i = plane * n + begin + thread, p = begin + thread < n ? args.positions.at(i) - first : -1;
      bool pending = p >= 0 && p < count;
      for (int left = 1; left != 0;) {
        if (pending) set_lowest(&owner[p], thread);
        block_sync();
        const bool first_of_place = pending && owner[p] == thread;
        if (first_of_place)
          part[p] = args.accumulate
                        ? steps::narrow<T>(math::add(steps::widen<T>(part[p]), steps::widen<T>(args.from[i])))
                        : args.from[i];
        left = block_reduce(pending && !first_of_place ? 1 : 0, Largest(), scratch);
        if (first_of_place) {
          owner[p] = kNobody;
          pending = false;
        }
        block_sync();
      }
    }
    for (int64_t e = thread; e < count; e += block_size()) args.to[plane * size + first + e] = part[e];
    block_sync();
  }
}

template <class T>
void scatter_sorted(const Work& work, const ScatterArgs<T>& args, const Tensor& out) {
  const int64_t n = args.planes * args.positions.count, extent = out.numel();
  const SortedPlaces sorted = sorted_places(work, out.device(), PlanePlaces{args.positions}, n, extent);
  const PlaceGeometry side(alias_tensor(out, {extent}, {1}, out.storage_offset()), 1, 1);
  const auto write = [&](const auto& f) {
    for_elements(work, n,
                 WritePlaces<T, std::decay_t<decltype(f)>>{
                     args.to, args.from, side, {sorted.key_data(), sorted.order_data(), n, f}});
  };
  if (args.accumulate)
    write(steps::Add<T>{steps::Compute<T>(1)});
  else
    write(steps::Assign<T>{});
}

// Of one dimension: which windows may hold an element, in 32 bits.
struct Holding {
  int32_t out, extent, padding;
  FastDivide by_stride;
  explicit Holding(const pool::Rule& r)
      : out(static_cast<int32_t>(r.out)),
        extent(static_cast<int32_t>((r.kernel - 1) * r.step + 1)),
        padding(static_cast<int32_t>(r.padding)),
        by_stride(static_cast<uint32_t>(r.stride)) {}
  TG_DEVICE void windows(int32_t i, int32_t& first, int32_t& last) const {
    const int32_t end = i + padding;
    first = end < extent ? 0 : static_cast<int32_t>(by_stride.quotient(static_cast<uint32_t>(end - extent))) + 1;
    last = static_cast<int32_t>(by_stride.quotient(static_cast<uint32_t>(end))) + 1;
    if (last > out) last = out;
  }
};
template <class T>
struct AddWindows {
  Planes p;
  Holding y, x;
  bool flat;  // planes without depth, and everything in 32 bits
  const int64_t* positions;
  const T* from;
  T* to;
  // V elements of a row; of one where planes are not flat.
  template <int V>
  TG_DEVICE void operator()(int64_t i) const {
    int64_t plane, at;
    p.by_in.divide(i, plane, at);
    const Point here = p.in.point(at);
    const int64_t base = plane * p.out.numel();
    T out[V] = {};
    if (flat) {
      int32_t first[2], last[2];
      y.windows(static_cast<int32_t>(here.at[1]), first[0], last[0]);
      TG_UNROLL
      for (int v = 0; v < V; ++v) {
        auto sum = steps::widen<T>(T{});
        x.windows(static_cast<int32_t>(here.at[2]) + v, first[1], last[1]);
        for (int32_t a = first[0]; a < last[0]; ++a)
          for (int32_t b = first[1]; b < last[1]; ++b) {
            const int64_t o = base + static_cast<int64_t>(a) * x.out + b;
            if (positions[o] == at + v) sum = math::add(sum, steps::widen<T>(from[o]));
          }
        out[v] = steps::narrow<T>(sum);
      }
    } else {
      auto sum = steps::widen<T>(T{});
      const auto look = [&](int64_t o) {
        if (positions[o] == at) sum = math::add(sum, steps::widen<T>(from[o]));
      };
      int64_t first[3], last[3];
      for (int d = 0; d < 3; ++d) p.rule[d].holding(here.at[d], first[d], last[d]);
      for (int64_t a = first[0]; a < last[0]; ++a)
        for (int64_t b = first[1]; b < last[1]; ++b)
          for (int64_t c = first[2]; c < last[2]; ++c) look(base + p.out.place(a, b, c));
      out[0] = steps::narrow<T>(sum);
    }
    store_pieces<T, V>(to + i, out);
  }
};
void add_windows(const Tensor& output, const Tensor& indices, IntSpan input_size, IntSpan kernel_size, IntSpan stride,
                 IntSpan padding, IntSpan dilation, const Tensor& out) {
  const Planes planes(pool::plain_rules(input_size, output.sizes(), kernel_size, stride, padding, dilation, true));
  const auto small = [](const pool::Rule& r) {
    return std::max({r.in + r.padding, r.out, (r.kernel - 1) * r.step + 1, r.stride}) < (int64_t{1} << 30);
  };
  const bool flat = planes.in.size[0] == 1 && planes.out.size[0] == 1 && small(planes.rule[1]) && small(planes.rule[2]);
  const Work work(out.device(), {&output, &indices, &out});
  dispatch_real(out.dtype(), [&]<class T>() {
    for_element_packs<T>(work, out.numel(), flat ? planes.in.size[2] : 1, {&out},
                         AddWindows<T>{planes, Holding(planes.rule[1]), Holding(planes.rule[2]), flat,
                                       data_of<int64_t>(indices), data_of<T>(output), target_of<T>(out)});
  });
}

}  // namespace

void plane_gather_cuda(const Tensor& input, const Tensor& indices, int64_t spatial, const Tensor& out) {
  if (out.numel() == 0) return;
  const Work work(out.device(), {&input, &indices, &out});
  const Positions positions{data_of<int64_t>(indices), last_sizes(indices.sizes(), spatial),
                            last_sizes(input.sizes(), spatial), "max_unpool", fault_record(out.device().index)};
  dispatch_bytes(out.dtype(), [&]<class T>() {
    for_elements(work, out.numel(), Gather<T>{positions, data_of<T>(input), target_of<T>(out)});
  });
}

void plane_scatter_cuda(const Tensor& any_output, const Tensor& any_indices, IntSpan input_size, int64_t spatial,
                        bool accumulate, IntSpan kernel_size, IntSpan stride, IntSpan padding, IntSpan dilation,
                        const Tensor& out) {
  if (any_output.numel() == 0) return zero_dense(out);
  const Tensor output = contiguous_or_copy(any_output), indices = contiguous_or_copy(any_indices);
  const int64_t size = last_sizes(input_size, spatial), n = last_sizes(output.sizes(), spatial);
  const int64_t planes = output.numel() / n, parts = (size + kPart - 1) / kPart;
  if (size == 0) return;
  if (!kernel_size.empty())
    return add_windows(output, indices, input_size, kernel_size, stride, padding, dilation, out);
  if (parts > kMostParts) zero_dense(out);
  const Work work(out.device(), {&output, &indices, &out});
  dispatch_real(out.dtype(), [&]<class T>() {
    const ScatterArgs<T> args{
        {data_of<int64_t>(indices), n, size, accumulate ? "max_pool" : "max_unpool", fault_record(out.device().index)},
        data_of<T>(output),
        target_of<T>(out),
        planes,
        accumulate};
    if (parts > kMostParts)
      scatter_sorted<T>(work, args, out);
    else
      launch_block(work, &scatter_kernel<T>, Grid(parts, std::min<int64_t>(planes, 65535)), kBlock, 0, args);
  });
}

}  // namespace tapegrad::cuda
