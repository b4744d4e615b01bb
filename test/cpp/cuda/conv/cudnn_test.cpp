// Convolutions by cuDNN, with a double in its place: what it is told, which of its algorithms are taken, and what is
// kept.
#include <catch2/catch.hpp>
#include <random>

#include "cuda/cudnn/double.h"
#include "tapegrad/aten/cudnn_switches.h"
#include "tapegrad/aten/functions.h"
#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/conv/cudnn_layout.h"
#include "tapegrad/cuda/kernel_table.h"
#include "tapegrad/cuda/libraries/plan_cache.h"

using namespace tapegrad;
using namespace tapegrad::cuda;
using namespace tapegrad::cuda::cudnn_graph;
using cudnn_double::Engine;
using cudnn_double::Setup;
using cudnn_double::state;

namespace {

struct Case {
  int64_t n, ic, oc, groups;
  DimVector in, kernel, stride, padding, dilation, out;  // out: empty for what the formula gives
};

conv::Geometry geometry(const Case& c) {
  DimVector in{c.n, c.ic}, weight{c.oc, c.ic / c.groups}, out{c.n, c.oc};
  for (size_t d = 0; d < c.in.size(); ++d) {
    in.push_back(c.in[d]);
    weight.push_back(c.kernel[d]);
    out.push_back(c.out.empty() ? (c.in[d] + 2 * c.padding[d] - c.dilation[d] * (c.kernel[d] - 1) - 1) / c.stride[d] + 1
                                : c.out[d]);
  }
  return conv::make_geometry(in, weight, out, c.stride, c.padding, c.dilation, c.groups);
}

const std::vector<Case> kCases{
    {2, 3, 4, 1, {7, 9}, {3, 2}, {1, 1}, {1, 0}, {1, 1}, {}},
    {2, 4, 6, 2, {8, 7}, {3, 3}, {2, 3}, {2, 1}, {2, 1}, {}},
    {3, 4, 4, 4, {6, 5}, {2, 2}, {1, 1}, {0, 1}, {1, 2}, {}},
    {2, 3, 5, 1, {11}, {4}, {3}, {2}, {2}, {}},
    {1, 2, 4, 2, {4, 5, 6}, {2, 3, 2}, {1, 2, 2}, {1, 0, 1}, {1, 1, 2}, {}},
    {2, 2, 3, 1, {9, 8}, {2, 2}, {1, 2}, {2, 1}, {3, 3}, {8, 4}},  // less than the formula gives
};

// A convolution of no interest but for its number of images.
struct Small {
  float x[64] = {}, w[1] = {2}, y[64] = {};
  bool run(int64_t n, DType dtype = DType::float32, int64_t stride = 1) {
    for (float& value : x) value = 3;
    std::ranges::fill(y, 0.0f);
    return library_convolution({}, {Wanted::Output, dtype, false,
                                    geometry({n, 1, 1, 1, {1, 1}, {1, 1}, {stride, 1}, {0, 0}, {1, 1}, {}}), x, w, y});
  }
};

}  // namespace

TEST_CASE("cuDNN's layouts are the dense ones of both orders", "[cuda]") {
  for (const Case& c : kCases) {
    const conv::Geometry g = geometry(c);
    for (const Wanted part : {Wanted::Input, Wanted::Weight, Wanted::Output}) {
      const Layout rows = layout_of(g, part, false), last = layout_of(g, part, true);
      REQUIRE(rows.dims == std::max<int>(4, static_cast<int>(c.in.size()) + 2));
      const IntSpan sizes(rows.sizes, static_cast<size_t>(rows.dims));
      CHECK(contiguous_strides(sizes) == DimVector(IntSpan(rows.strides, sizes.size())));
      CHECK(channels_last_strides(sizes) == DimVector(IntSpan(last.strides, sizes.size())));
      CHECK(rows.numel() == (part == Wanted::Weight
                                 ? g.weight_numel()
                                 : g.n * (part == Wanted::Input ? g.ic * g.in_spatial() : g.oc * g.out_spatial())));
    }
  }
  const Layout line = layout_of(geometry(kCases[3]), Wanted::Input, false);
  CHECK((line.sizes[2] == 1 && line.sizes[3] == 11));
}

TEST_CASE("Padding behind makes the output as large as it is", "[cuda]") {
  for (const Case& c : kCases) {
    const conv::Geometry g = geometry(c);
    for (int d = 0; d < 3; ++d) {
      int64_t behind;
      REQUIRE(padding_behind(g, d, behind));
      CHECK((g.in[d] + g.pad[d] + behind - g.dilation[d] * (g.kernel[d] - 1) - 1) / g.stride[d] + 1 == g.out[d]);
    }
  }
  int64_t behind;  // not one element of this input's end would be read
  CHECK(!padding_behind(geometry({1, 1, 1, 1, {9, 1}, {2, 1}, {1, 1}, {0, 0}, {1, 1}, {3, 1}}), 1, behind));
}

TEST_CASE("cuDNN is not asked for what it does not know", "[cuda]") {
  const auto asked = [](Case c, DType dtype, bool last) {
    return accepts({Wanted::Output, dtype, last, geometry(c), nullptr, nullptr, nullptr});
  };
  for (const DType dtype : {DType::float16, DType::bfloat16, DType::float32, DType::float64})
    CHECK(asked(kCases[0], dtype, false));
  for (const DType dtype : {DType::int32, DType::complex64}) CHECK(!asked(kCases[0], dtype, false));
  CHECK((!asked(kCases[2], DType::float32, false) && asked(kCases[2], DType::float32, true) &&
         asked(kCases[2], DType::bfloat16, false)));
  CHECK(!asked({1 << 16, 1 << 8, 1, 1, {1 << 4, 1 << 4}, {1, 1}, {1, 1}, {0, 0}, {1, 1}, {}}, DType::float32, false));
  CHECK((alignment(reinterpret_cast<void*>(0x1008)) == 8 && alignment(reinterpret_cast<void*>(0x1100)) == 16));
}

TEST_CASE("Every size and alignment of a convolution makes another key", "[cuda]") {
  std::set<Key> keys;
  size_t n = 0;
  alignas(16) char at[32];
  for (const Case& c : kCases)
    for (const Wanted wanted : {Wanted::Output, Wanted::Input, Wanted::Weight})
      for (const bool last : {false, true})
        for (const DType dtype : {DType::float32, DType::bfloat16}) {
          const Convolution conv{wanted, dtype, last, geometry(c), at, at, at};
          keys.insert(key_of(conv)), ++n;
          for (int which = 0; which < 3; ++which) {
            Convolution moved = conv;
            (which == 0 ? moved.x : which == 1 ? moved.w : moved.y) = at + 4;
            keys.insert(key_of(moved)), ++n;
          }
        }
  CHECK(keys.size() == n);
}

TEST_CASE("A plan cache forgets what was not used for longest", "[cuda]") {
  PlanCache<int, std::unique_ptr<int>> cache(3);
  for (int i = 0; i < 3; ++i) cache.put(i, std::make_unique<int>(i));
  REQUIRE(**cache.find(0) == 0);
  cache.put(3, std::make_unique<int>(3));
  CHECK((cache.size() == 3 && cache.find(1) == nullptr && **cache.find(0) == 0 && **cache.find(2) == 2));
  cache.put(2, std::make_unique<int>(7));
  CHECK((cache.size() == 3 && **cache.find(2) == 7 && **cache.find(3) == 3));
}

TEST_CASE("cuDNN is told of convolutions what the CPU computes", "[cuda]") {
  const Setup setup;
  std::mt19937 random(1);
  for (const Case& c : kCases)
    for (const bool last : {false, true}) {
      CAPTURE(&c - kCases.data(), last);
      const conv::Geometry g = geometry(c);
      const auto tensor = [&](Wanted part, bool filled) {
        Layout l = layout_of(g, part, false);
        DimVector sizes{l.sizes[0], l.sizes[1]};
        for (size_t d = 0; d < c.in.size(); ++d)
          sizes.push_back(l.sizes[static_cast<size_t>(l.dims) - c.in.size() + d]);
        Tensor t = empty_tensor(sizes, DType::float64);
        for (int64_t i = 0; i < t.numel(); ++i)
          static_cast<double*>(t.data_ptr())[i] = filled ? static_cast<double>(random() % 9) - 4 : 77;
        return t;
      };
      // Elements in the order of memory that cuDNN is told.
      const auto packed = [&](const Tensor& t) {
        if (!last) return t.clone();
        DimVector order{0};
        for (int64_t d = 2; d < t.ndim(); ++d) order.push_back(d);
        order.push_back(1);
        return contiguous_or_copy(permute(t, order));
      };
      const Tensor x = tensor(Wanted::Input, true), w = tensor(Wanted::Weight, true), y = tensor(Wanted::Output, true);
      const Tensor expected[] = {_conv(x, w, Tensor(), c.stride, c.padding, c.dilation, c.groups),
                                 _conv_grad_input(y, w, x.sizes(), c.stride, c.padding, c.dilation, c.groups),
                                 _conv_grad_weight(y, x, w.sizes(), c.stride, c.padding, c.dilation, c.groups)};
      for (const Wanted wanted : {Wanted::Output, Wanted::Input, Wanted::Weight}) {
        if (wanted == Wanted::Output && !g.regular()) continue;
        const auto pick = [&](Wanted part, const Tensor& t) {
          return packed(part == wanted ? tensor(part, false) : t);
        };
        const Tensor px = pick(Wanted::Input, x), pw = pick(Wanted::Weight, w), py = pick(Wanted::Output, y);
        const Tensor& result = wanted == Wanted::Output ? py : wanted == Wanted::Input ? px : pw;
        Convolution task{wanted, DType::float64, last, g, px.data_ptr(), pw.data_ptr(), py.data_ptr()};
        const bool direct = depthwise(g) && !last;
        for (int again = 0; again < 2; ++again) {
          REQUIRE(library_convolution({}, task) == !direct);
          if (!direct)
            CHECK(equal(result, packed(expected[wanted == Wanted::Output ? 0 : wanted == Wanted::Input ? 1 : 2])));
        }
      }
    }
  CHECK(state().handles == 1);
}

TEST_CASE("The operators of a device give cuDNN their operands in one layout, and add the bias", "[cuda]") {
  const Setup setup;
  REQUIRE(tapegrad_cuda_init() > 0);
  const Device device(DeviceType::CUDA, 0);
  const auto make = [](IntSpan sizes, int64_t seed) {
    const Tensor t = empty_tensor(sizes, DType::float32);
    for (int64_t i = 0; i < t.numel(); ++i)
      static_cast<float*>(t.data_ptr())[i] = static_cast<float>((i * 7 + seed * 5) % 11 - 5);
    return t;
  };
  const auto there = [&](const Tensor& t, bool last) {
    const DimVector strides = last ? channels_last_strides(t.sizes()) : DimVector();
    const Tensor copy = empty_tensor(TensorSpec{t.sizes(), t.dtype(), device, strides});
    copy.copy_(t);
    return copy;
  };
  const auto here = [](const Tensor& t) {
    const Tensor copy = empty_tensor(t.sizes(), t.dtype());
    copy.copy_(t);
    return copy;
  };
  const DimVector stride{2, 1}, padding{1, 0}, dilation{1, 2};
  const Tensor x = make(DimVector{2, 4, 7, 6}, 1), w = make(DimVector{6, 2, 3, 2}, 2), b = make(DimVector{6}, 3);
  const Tensor y = _conv(x, w, b, stride, padding, dilation, 2), grad = make(y.sizes(), 4);
  const Tensor gx = _conv_grad_input(grad, w, x.sizes(), stride, padding, dilation, 2),
               gw = _conv_grad_weight(grad, x, w.sizes(), stride, padding, dilation, 2);
  size_t asked = 0;
  for (const bool library : {true, false}) {
    if (!library) set_cudnn_switch(CudnnSwitch::Enabled, 0);
    for (const bool x_last : {false, true})
      for (const bool w_last : {false, true})
        for (const bool grad_last : {false, true}) {
          CAPTURE(library, x_last, w_last, grad_last);
          const Tensor dx = there(x, x_last), dw = there(w, w_last), db = there(b, false), dg = there(grad, grad_last);
          const Tensor dy = _conv(dx, dw, db, stride, padding, dilation, 2);
          CHECK((equal(here(dy), y) && conv::channels_last(dy) == x_last));
          const Tensor to_x = _conv_grad_input(dg, dw, x.sizes(), stride, padding, dilation, 2);
          CHECK((equal(here(to_x), gx) && conv::channels_last(to_x) == grad_last));
          const Tensor to_w = _conv_grad_weight(dg, dx, w.sizes(), stride, padding, dilation, 2);
          CHECK((equal(here(to_w), gw) && to_w.is_contiguous()));
          asked += library ? 3 : 0;
          CHECK(state().executed.size() == asked);
        }
  }
}

TEST_CASE("Engines that transform are for convolutions without a stride", "[cuda]") {
  const Setup setup({{{kNoteFft}}, {{}}});
  Small small;
  REQUIRE(small.run(61));
  REQUIRE(small.run(61, DType::float32, 2));
  CHECK(state().executed == std::vector<int>{0, 1});
}

TEST_CASE("Engines that round, or sum in another order each time, are for those who ask", "[cuda]") {
  const Setup setup({{{kNoteReducedPrecisionReduction}},
                     {{kNoteDownConvertInputs}},
                     {{kNoteNondeterministic}},
                     {{kNoteTensorCore}},
                     {{}}});
  Small small;
  const auto engine = [&](int64_t n, DType dtype = DType::float32) {
    state().executed.clear();
    REQUIRE(small.run(n, dtype));
    return state().executed;
  };
  using Engines = std::vector<int>;
  CHECK(engine(11) == Engines{4});
  CHECK(engine(11) == Engines{4});
  set_cudnn_switch(CudnnSwitch::AllowTF32, 1);
  CHECK(engine(11) == Engines{3});
  CHECK(engine(11, DType::bfloat16) == Engines{3});  // tensor cores round nothing of it
  set_cudnn_switch(CudnnSwitch::AllowTF32, 0);
  CHECK(engine(11, DType::bfloat16) == Engines{3});
  set_cudnn_switch(CudnnSwitch::Benchmark, 1);
  CHECK(engine(11).size() == 2 * 4 + 1);  // two that fit: each once and three times, then the faster one
  CHECK(small.y[10] == 6);
  CHECK(engine(11).size() == 1);
  for (const CudnnSwitch reproducible : {CudnnSwitch::Deterministic, CudnnSwitch::Reproducible}) {
    set_cudnn_switch(reproducible, 1);
    CHECK(engine(reproducible == CudnnSwitch::Deterministic ? 12 : 13) == Engines{4, 4, 4, 4, 4});
    set_cudnn_switch(reproducible, 0);
  }
  set_cudnn_switch(CudnnSwitch::BenchmarkLimit, 1);
  CHECK(engine(14) == Engines{2, 2, 2, 2, 2});
  set_cudnn_switch(CudnnSwitch::Enabled, 0);
  CHECK(!small.run(11));
}

TEST_CASE("Engines that fail give way to the next one, and none for our own kernel", "[cuda]") {
  const Setup setup(
      {{{}, 0, 3003}, {{}, 0, kSuccess, kNotSupported}, {{}, int64_t{1} << 40}, {{}, 4096, kSuccess, kSuccess, true}});
  Small small;
  REQUIRE(small.run(21));
  CHECK((state().executed == std::vector<int>{1, 3} && state().workspaces[0] == 0 && state().workspaces[1] != 0));
  CHECK(small.y[20] == 6);
  state().engines[3].execute_status = kInternal;
  CHECK(!small.run(22));
  const int asked = state().heuristics;
  CHECK(!small.run(22));  // remembered
  CHECK(state().heuristics == asked);
  state().graph_status = kNotSupported;
  CHECK(!small.run(23));
  state().graph_status = kInternal;
  CHECK_THROWS_WITH(small.run(24), Catch::Contains("cudnnBackendFinalize: OTHER: why it was"));
  state().graph_status = kSuccess;
  state().engines[3].execute_status = kExecutionFailed;
  CHECK_THROWS_WITH(small.run(24), Catch::Contains("cuda: cudnnBackendExecute: EXECUTION_FAILED: why it was"));
  CHECK_THROWS_WITH(small.run(21), Catch::Contains("cudnnBackendExecute"));  // chosen before
}

TEST_CASE("At most 512 plans are kept per device", "[cuda]") {
  const Setup setup;
  float x[4] = {1, 2, 3, 4}, w[1] = {2}, y[4] = {};
  for (int64_t pad = 0; pad < 600; ++pad) {
    // Strides that skip the padding: all of them are of one size.
    const Case c{1, 1, 1, 1, {1, 1}, {1, 1}, {1000, 1000 + pad}, {0, pad}, {1, 1}, {}};
    REQUIRE(library_convolution({}, {Wanted::Output, DType::float32, false, geometry(c), x, w, y}));
  }
  CHECK(state().live_of(kExecutionPlan) == 512);
  CHECK(state().live_of(kTensor) == 0);
}

TEST_CASE("Plans of a captured graph are not measured and stay", "[cuda]") {
  const Setup setup;
  const size_t before = state().live_of(kExecutionPlan);
  set_cudnn_switch(CudnnSwitch::Benchmark, 1);
  const Stream stream{driver().create_stream(0, 0), 0};
  driver().begin_capture(stream.handle, "global");
  float x[4] = {}, w[1] = {}, y[4] = {};
  const auto run = [&](int64_t n, const Stream& on) {
    const Case c{1, 1, 1, 1, {1, 1}, {1, 1}, {2000, 2000 + n}, {0, n}, {1, 1}, {}};
    REQUIRE(library_convolution(on, {Wanted::Output, DType::float32, false, geometry(c), x, w, y}));
  };
  for (int again = 0; again < 2; ++again) run(0, stream);
  CHECK(state().executed.size() == 2);
  driver().destroy_graph(driver().end_capture(stream.handle));
  driver().destroy_stream(stream.handle);
  set_cudnn_switch(CudnnSwitch::Benchmark, 0);
  for (int64_t n = 1; n < 600; ++n) run(n, {});
  CHECK(state().live_of(kExecutionPlan) == 513);
  CHECK(before <= 512);
}
