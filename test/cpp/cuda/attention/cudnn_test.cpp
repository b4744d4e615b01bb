// Attention by cuDNN, with a double in its place: what it is told computes what the CPU does, what is not told goes to
// our own kernels, and what is kept.
#include <catch2/catch.hpp>
#include <set>

#include "cuda/cudnn/double.h"
#include "tapegrad/aten/cudnn_switches.h"
#include "tapegrad/aten/functions.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/cuda/attention/cudnn_layout.h"
#include "tapegrad/cuda/kernel_table.h"

using namespace tapegrad;
using namespace tapegrad::cuda;
using namespace tapegrad::cuda::cudnn_graph;
using cudnn_double::Engine;
using cudnn_double::state;

namespace {

struct Case {
  int64_t batch, heads, shared, rows, keys, width, value_width;
  bool causal;
  double scale = 0.3;
};
const std::vector<Case> kCases{
    {2, 3, 3, 5, 7, 8, 8, false},  {1, 2, 2, 9, 9, 16, 8, true},   {2, 4, 2, 6, 11, 8, 16, false, 1.5},
    {1, 6, 1, 70, 40, 8, 8, true}, {3, 2, 1, 3, 130, 24, 8, true}, {1, 1, 1, 1, 5, 8, 8, false, -0.5},
};

struct Setup : cudnn_double::Setup {
  explicit Setup(std::vector<Engine> engines = {{}}) : cudnn_double::Setup(std::move(engines)) {
    REQUIRE(tapegrad_cuda_init() > 0);
  }
};

const Device kDevice(DeviceType::CUDA, 0);

Tensor filled(IntSpan sizes, DType dtype, int64_t seed) {
  const Tensor t = empty_tensor(sizes, DType::float32);
  for (int64_t i = 0; i < t.numel(); ++i)
    static_cast<float*>(t.data_ptr())[i] = static_cast<float>((i * 37 + seed * 101) % 61 - 30) / 24;
  return to(t, dtype);
}
Tensor on_device(IntSpan sizes, DType dtype) { return empty_tensor(TensorSpec{sizes, dtype, kDevice, {}}); }
// On the device, with heads beside columns (as a projection gives them) or in rows.
Tensor there(const Tensor& t, bool interleaved) {
  if (!interleaved) {
    const Tensor copy = on_device(t.sizes(), t.dtype());
    copy.copy_(t);
    return copy;
  }
  return transpose(there(t.ndim() == 4 ? transpose(t, 1, 2).contiguous() : t, false), 1, 2);
}
Tensor here(const Tensor& t) {
  const Tensor copy = empty_tensor(t.sizes(), t.dtype());
  copy.copy_(t);
  return copy;
}
double difference(const Tensor& a, const Tensor& b) {
  const Tensor x = to(here(a), DType::float64), y = to(here(b), DType::float64);
  REQUIRE(x.sizes() == y.sizes());
  double most = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double p = static_cast<const double*>(x.data_ptr())[i], q = static_cast<const double*>(y.data_ptr())[i];
    const double d = p == q ? 0 : std::abs(p - q);  // infinities, too
    most = d > most || std::isnan(d) ? d : most;
  }
  return most;
}

struct Operands {
  Tensor query, key, value, grad;
  Operands(const Case& c, DType dtype)
      : query(filled(DimVector{c.batch, c.heads, c.rows, c.width}, dtype, 1)),
        key(filled(DimVector{c.batch, c.shared, c.keys, c.width}, dtype, 2)),
        value(filled(DimVector{c.batch, c.shared, c.keys, c.value_width}, dtype, 3)),
        grad(filled(DimVector{c.batch, c.heads, c.rows, c.value_width}, dtype, 4)) {}
  void move(bool interleaved) {
    for (Tensor* t : {&query, &key, &value, &grad}) *t = there(*t, interleaved);
  }
};

attention::Sizes sizes_of(const Case& c) {
  const Operands x(c, DType::float16);
  return {x.query, x.key, x.value};
}

// A call of no interest but for its number of keys; whether cuDNN did it.
bool asked(int64_t keys, DType dtype = DType::float16, bool causal = false) {
  Operands x({1, 1, 1, 2, keys, 8, 8, causal}, dtype);
  x.move(false);
  const size_t before = state().executed.size();
  const auto [output, logsumexp] = _attention(x.query, x.key, x.value, Tensor(), causal, 1.0);
  (void)here(output);
  return state().executed.size() != before;
}

}  // namespace

TEST_CASE("cuDNN's attention and its gradient are the CPU's", "[cuda]") {
  const Setup setup;
  for (const Case& c : kCases)
    for (const DType dtype : {DType::float16, DType::bfloat16})
      for (const bool interleaved : {false, true}) {
        CAPTURE(&c - kCases.data(), interleaved, dtype == DType::float16);
        const double near = dtype == DType::float16 ? 4e-3 : 4e-2;
        Operands x(c, dtype);
        const auto [output, logsumexp] = _attention(x.query, x.key, x.value, Tensor(), c.causal, c.scale);
        const auto [dq, dk, dv] =
            _attention_grad(x.grad, x.query, x.key, x.value, Tensor(), output, logsumexp, c.causal, c.scale);
        x.move(interleaved);
        state().executed.clear();
        const auto [o, lse] = _attention(x.query, x.key, x.value, Tensor(), c.causal, c.scale);
        CHECK(state().executed.size() == 1);
        CHECK(difference(o, output) < near);
        CHECK(difference(lse, logsumexp) < 1e-3);
        const auto [gq, gk, gv] = _attention_grad(x.grad, x.query, x.key, x.value, Tensor(), o, lse, c.causal, c.scale);
        CHECK(state().executed.size() == 2);
        CHECK(difference(gq, dq) < near * 4);
        CHECK(difference(gk, dk) < near * 4);
        CHECK(difference(gv, dv) < near * 4);
        // Either may compute the gradient of what the other did.
        set_cudnn_switch(CudnnSwitch::Attention, 0);
        const auto [oq, ok, ov] = _attention_grad(x.grad, x.query, x.key, x.value, Tensor(), o, lse, c.causal, c.scale);
        set_cudnn_switch(CudnnSwitch::Attention, 1);
        CHECK(state().executed.size() == 2);
        CHECK(difference(oq, dq) < near * 4);
        CHECK(difference(ok, dk) < near * 4);
        CHECK(difference(ov, dv) < near * 4);
      }
}

namespace {

// A mask that hides the first half of the keys, or some here and there, and all of them from `row`.
Tensor mask_of(DimVector sizes, DType dtype, bool first_half, int64_t row) {
  const Tensor x = filled(sizes, DType::float32, 5);
  float* p = static_cast<float*>(x.data_ptr());
  const int64_t keys = sizes[3], rows = sizes[2];
  for (int64_t i = 0; i < x.numel(); ++i) {
    const int64_t key = i % keys;
    const bool hidden = i / keys % rows == row || (first_half ? key < keys / 2 : (i * 7 + i / keys) % 5 == 0);
    p[i] = dtype == DType::bool_ ? (hidden ? 0.0F : 1.0F) : (hidden ? -std::numeric_limits<float>::infinity() : p[i]);
  }
  return to(x, dtype);
}

// Either may compute the gradient of what the other did, and it is the CPU's; that one's output and logsumexp.
std::tuple<Tensor, Tensor> check_each_pair(const Case& c, DType dtype, double near, const Tensor& mask,
                                           const Tensor& mask_there, const Tensor& kept = {},
                                           const Tensor& kept_there = {}, double kept_scale = 1) {
  Operands x(c, dtype);
  const auto [output, logsumexp] = _attention(x.query, x.key, x.value, mask, c.causal, c.scale, kept, kept_scale);
  const auto [dq, dk, dv] =
      _attention_grad(x.grad, x.query, x.key, x.value, mask, output, logsumexp, c.causal, c.scale, kept, kept_scale);
  x.move(true);
  state().executed.clear();
  for (const auto& [forward, backward] : {std::pair(1, 1), {0, 1}, {1, 0}}) {
    set_cudnn_switch(CudnnSwitch::Attention, forward);
    const auto [o, lse] = _attention(x.query, x.key, x.value, mask_there, c.causal, c.scale, kept_there, kept_scale);
    CHECK(difference(o, output) < near);
    CHECK(difference(lse, logsumexp) < 1e-3);
    set_cudnn_switch(CudnnSwitch::Attention, backward);
    const auto [gq, gk, gv] =
        _attention_grad(x.grad, x.query, x.key, x.value, mask_there, o, lse, c.causal, c.scale, kept_there, kept_scale);
    CHECK(difference(gq, dq) < near * 4);
    CHECK(difference(gk, dk) < near * 4);
    CHECK(difference(gv, dv) < near * 4);
  }
  CHECK(state().executed.size() == 4);
  return {output, logsumexp};
}

}  // namespace

TEST_CASE("Masks are added to the scores that cuDNN computes", "[cuda]") {
  const Setup setup;
  for (const Case& c : kCases)
    for (const DType dtype : {DType::float16, DType::bfloat16})
      for (const auto& [batch, heads, rows] :
           {std::tuple(true, true, true), {true, false, false}, {false, true, true}, {false, false, true}})
        for (const bool additive : {false, true}) {
          CAPTURE(&c - kCases.data(), dtype == DType::float16, batch, heads, rows, additive);
          const double near = dtype == DType::float16 ? 4e-3 : 4e-2;
          const Tensor small = mask_of(DimVector{batch ? c.batch : 1, heads ? c.heads : 1, rows ? c.rows : 1, c.keys},
                                       additive ? dtype : DType::bool_, !heads, rows && c.rows > 1 ? 1 : -1);
          const DimVector full{c.batch, c.heads, c.rows, c.keys};
          check_each_pair(c, dtype, near, expand(small, full), expand(there(small, false), full));
        }
}

TEST_CASE("Kept weights are multiplied in cuDNN's graphs", "[cuda]") {
  const Setup setup;
  for (const Case& c : kCases)
    for (const DType dtype : {DType::float16, DType::bfloat16})
      for (const bool masked : {false, true}) {
        CAPTURE(&c - kCases.data(), dtype == DType::float16, masked);
        const double near = dtype == DType::float16 ? 8e-3 : 8e-2;
        const DimVector full{c.batch, c.heads, c.rows, c.keys};
        const Tensor small = masked ? mask_of(DimVector{c.batch, 1, 1, c.keys}, DType::bool_, true, -1) : Tensor();
        const Tensor mask = masked ? expand(small, full) : Tensor();
        const Tensor mask_there = masked ? expand(there(small, false), full) : Tensor();
        const Tensor kept = mask_of(full, DType::bool_, false, -1), kept_there = there(kept, false);
        const auto [output, logsumexp] = check_each_pair(c, dtype, near, mask, mask_there, kept, kept_there, 1.25);
        const Operands x(c, dtype);
        const auto [all, same] = _attention(x.query, x.key, x.value, mask, c.causal, c.scale);
        CHECK((c.rows == 1 || (masked && c.causal) || difference(all, output) > near));
        CHECK(difference(same, logsumexp) == 0);
      }
}

TEST_CASE("A bias has the sizes along which a mask changes", "[cuda]") {
  const attention::Sizes z = sizes_of({3, 4, 2, 5, 6, 8, 8, false});
  const auto bias = [&](IntSpan sizes, bool causal = false) {
    return bias_of(expand(empty_tensor(sizes, DType::bool_), DimVector{3, 4, 5, 6}), causal, z);
  };
  const AttentionBias all = bias({3, 4, 5, 6}), keys = bias({3, 1, 1, 6}), rows = bias({1, 1, 1, 6}, true);
  CHECK((all.batch == 3 && all.heads == 4 && all.rows == 5 && all.pitch == 8));
  CHECK((keys.batch == 3 && keys.heads == 1 && keys.rows == 1));
  CHECK((rows.batch == 1 && rows.heads == 1 && rows.rows == 5));
  CHECK((all.defined() && !bias_of(Tensor(), true, z).defined()));
  AttentionForward a{.dtype = DType::float16, .sizes = z, .causal = false, .scale = 1, .bias = all};
  CHECK(takes(a, true));
  a.bias = {nullptr, 3, 4, int64_t{1} << 20, 256};
  CHECK(!takes(a, true));
  a.bias = {};
  a.kept = {nullptr, 8, 1.25};
  CHECK(takes(a, true));
  a.kept.scale = 0;
  CHECK(!takes(a, true));
  a.kept = {nullptr, int64_t{1} << 26, 1.25};
  CHECK(!takes(a, true));
}

TEST_CASE("The gradient is taken in portions of the batch, or of its heads", "[cuda]") {
  const auto portion = [](Case c) { return portion_of(sizes_of(c)); };
  const Case small{5, 4, 2, 3, 5, 8, 8, false};
  CHECK((portion(small).batch == 5 && portion(small).shared == 2));
  attention::Sizes z = sizes_of(small);
  z.rows = z.keys = 4096;  // 2^24 scores each
  CHECK((portion_of(z).batch == 4 && portion_of(z).shared == 2));
  z.rows = 16384;  // 2^26
  CHECK((portion_of(z).batch == 1 && portion_of(z).shared == 2));
  z.keys = 8192;
  CHECK((portion_of(z).batch == 1 && portion_of(z).shared == 1));
  CHECK(takes(DType::float16, z, false, true));
  z.keys = 16384;
  CHECK((takes(DType::float16, z, false, false) && !takes(DType::float16, z, false, true)));
  // The portions together are the whole.
  const Setup setup;
  const Case c{3, 4, 2, 5, 6, 8, 16, true};
  Operands x(c, DType::float16);
  x.move(true);
  const auto [o, lse] = _attention(x.query, x.key, x.value, Tensor(), c.causal, c.scale);
  const auto [dq, dk, dv] = _attention_grad(x.grad, x.query, x.key, x.value, Tensor(), o, lse, c.causal, c.scale);
  const auto rows = [](const Tensor& t) { return AttentionRows{t.data_ptr(), t.stride(0), t.stride(1), t.stride(2)}; };
  const Tensor delta = on_device(lse.sizes(), DType::float32);
  const auto like = [](const Tensor& t) {
    const Tensor out = on_device(t.sizes(), t.dtype());
    out.fill_(77);
    return out;
  };
  const Tensor kept = there(filled(DimVector{3, 4, 5, 8}, DType::float16, 7), false);
  const Tensor bias = there(filled(DimVector{3, 4, 5, 8}, DType::float32, 6), false);
  for (const AttentionBias& added :
       {AttentionBias{}, AttentionBias{bias.data_ptr(), 3, 4, 5, 8}, AttentionBias{bias.data_ptr(), 3, 1, 1, 8},
        AttentionBias{bias.data_ptr(), 1, 4, 1, 8}}) {
    const AttentionKept weights = added.heads == 4 ? AttentionKept{kept.data_ptr(), 8, 2.0} : AttentionKept{};
    const Tensor wq = like(dq), wk = like(dk), wv = like(dv);
    const auto whole = [&](const Tensor& q, const Tensor& k, const Tensor& v) {
      return AttentionBackward{
          {DType::float16, attention::Sizes(x.query, x.key, x.value), c.causal, c.scale, rows(x.query), rows(x.key),
           rows(x.value), o.data_ptr(), lse.data_ptr(), added, weights},
          rows(x.grad),
          q.data_ptr(),
          k.data_ptr(),
          v.data_ptr(),
          delta.data_ptr()};
    };
    REQUIRE(library_attention_grad({}, whole(wq, wk, wv)));
    CHECK((difference(wq, dq) == 0) == !added.defined());
    CHECK((difference(wk, dk) == 0 && difference(wv, dv) == 0) == !added.defined());
    for (const Portion& most : {Portion{2, 2}, Portion{1, 1}, Portion{1, 2}}) {
      const Tensor gq = like(dq), gk = like(dk), gv = like(dv);
      for (int64_t batch = 0; batch < c.batch; batch += most.batch)
        for (int64_t shared = 0; shared < c.shared; shared += most.shared)
          REQUIRE(library_attention_grad({}, part_of(whole(gq, gk, gv), batch, shared, most)));
      CHECK((difference(gq, wq) == 0 && difference(gk, wk) == 0 && difference(gv, wv) == 0));
    }
  }
}

TEST_CASE("cuDNN is not asked for attention that it does not know", "[cuda]") {
  const auto knows = [](Case c, DType dtype = DType::bfloat16, bool backward = false) {
    return takes(dtype, sizes_of(c), c.causal, backward);
  };
  const Case plain{1, 2, 1, 4, 6, 64, 128, true};
  CHECK((knows(plain) && knows(plain, DType::float16)));
  CHECK((!knows(plain, DType::float32) && !knows(plain, DType::float64)));
  CHECK(!knows({1, 1, 1, 4, 6, 12, 8, false}));
  CHECK(!knows({1, 1, 1, 4, 6, 8, 264, false}));
  CHECK(!knows({1, 1, 1, 4, 1, 8, 8, false}));
  CHECK(!knows({1, 1, 1, 1, 4, 8, 8, true}));
  CHECK(knows({1, 1, 1, 1, 4, 8, 8, false}));
  const attention::Sizes z = sizes_of(plain), wide = sizes_of({1, 1, 1, 4, 256, 192, 128, false});
  const auto device = [](int major, int version, const attention::Sizes& s, bool backward) {
    return takes(major, version, s, backward);
  };
  CHECK((device(8, 91300, z, false) && !device(7, 92801, z, false) && !device(9, 91100, z, false)));
  CHECK((device(9, 91600, z, true) && !device(9, 91500, z, true) && device(9, 91500, wide, true)));
  CHECK((device(9, 92801, wide, true) && !device(8, 92801, wide, true) && device(8, 92801, wide, false)));
  CHECK((device(10, 91800, z, true) && !device(10, 91700, z, true) && device(12, 92801, z, true)));
  alignas(16) char at[32];
  CHECK((readable({at, 64, 32, 8}) && !readable({at + 8, 64, 32, 8}) && !readable({at, 64, 32, 12})));
  CHECK((!readable({at, 0, 32, 8}) && !readable({at, -64, 32, 8})));
}

TEST_CASE("Switches and other dtypes leave attention to our own kernels", "[cuda]") {
  const Setup setup;
  CHECK(asked(6));
  CHECK(!asked(6, DType::float32));
  CHECK(!asked(1));
  set_cudnn_switch(CudnnSwitch::Attention, 0);
  CHECK(!asked(6));
  set_cudnn_switch(CudnnSwitch::Attention, 1);
  set_cudnn_switch(CudnnSwitch::Enabled, 0);
  CHECK(!asked(6));
  set_cudnn_switch(CudnnSwitch::Enabled, 1);
  state().version = 91100;
  CHECK(!asked(6));
}

TEST_CASE("Rows that engines cannot load are copied first", "[cuda]") {
  const Setup setup;
  const Case c{2, 2, 2, 4, 6, 8, 8, false};
  Operands x(c, DType::float16);
  const Tensor expected = std::get<0>(_attention(x.query, x.key, x.value, Tensor(), false, 1.0));
  // Columns that are not dense, an odd offset, and one head for all.
  const Tensor query = transpose(there(transpose(x.query, 2, 3).contiguous(), false), 2, 3);
  const Tensor memory = there(filled(DimVector{x.key.numel() + 1}, DType::float16, 5), false);
  const Tensor key = reshape(narrow(memory, 0, 1, x.key.numel()), x.key.sizes());
  key.copy_(x.key);
  const Tensor one = narrow(x.value, 1, 0, 1).contiguous();
  const Tensor value = expand(there(one, false), x.value.sizes());
  const Tensor with_one =
      std::get<0>(_attention(x.query, x.key, expand(one, x.value.sizes()).contiguous(), Tensor(), false, 1.0));
  state().executed.clear();
  const Tensor o = std::get<0>(_attention(query, key, value, Tensor(), false, 1.0));
  CHECK(difference(o, with_one) < 4e-3);
  CHECK(state().executed.size() == 1);
  CHECK(difference(o, expected) > 1e-2);
}

TEST_CASE("Refused attention is done by our own kernels, and what fails is raised", "[cuda]") {
  const Setup setup(
      {{{kNoteNondeterministic}}, {{}, 0, 3003}, {{}, 0, kSuccess, kNotSupported}, {{}, int64_t{1} << 40}});
  for (int again = 0; again < 2; ++again) {
    Operands x({1, 2, 2, 3, 21, 8, 8, true}, DType::bfloat16);
    const auto [expected, logsumexp] = _attention(x.query, x.key, x.value, Tensor(), true, 1.0);
    const auto [dq, dk, dv] =
        _attention_grad(x.grad, x.query, x.key, x.value, Tensor(), expected, logsumexp, true, 1.0);
    x.move(false);
    const int before = state().heuristics;
    const auto [o, lse] = _attention(x.query, x.key, x.value, Tensor(), true, 1.0);
    const auto [gq, gk, gv] = _attention_grad(x.grad, x.query, x.key, x.value, Tensor(), o, lse, true, 1.0);
    CHECK((difference(o, expected) < 4e-2 && difference(gq, dq) < 1e-1 && difference(gk, dk) < 1e-1 &&
           difference(gv, dv) < 1e-1));
    CHECK(state().heuristics - before == (again == 0 ? 4 : 0));  // remembered
  }
  CHECK(state().executed == std::vector<int>{2, 2});
  state().engines = {{{}, 0, kSuccess, kExecutionFailed}};
  CHECK_THROWS_WITH(asked(22), Catch::Contains("cuda: cudnnBackendExecute: EXECUTION_FAILED: why it was"));
  state().graph_status = kNotSupported;
  CHECK(!asked(23));
}

TEST_CASE("Every size, stride and kind of attention makes another key; the scale does not", "[cuda]") {
  std::set<Key> keys;
  size_t n = 0;
  const AttentionRows rows{nullptr, 512, 64, 8};
  for (const Case& c : kCases)
    for (const DType dtype : {DType::float16, DType::bfloat16}) {
      const AttentionForward a{dtype, sizes_of(c), c.causal, c.scale, rows, rows, rows, nullptr, nullptr};
      AttentionForward same = a;
      same.scale = 7;
      CHECK(key_of(a) == key_of(same));
      keys.insert(key_of(a)), ++n;
      for (int which = 0; which < 9; ++which) {
        AttentionForward moved = a;
        AttentionRows& t = which < 3 ? moved.query : which < 6 ? moved.key : moved.value;
        (which % 3 == 0 ? t.batch : which % 3 == 1 ? t.head : t.row) += 8;
        keys.insert(key_of(moved)), ++n;
        keys.insert(key_of(AttentionBackward{.forward = moved, .grad_output = rows})), ++n;
      }
      keys.insert(key_of(AttentionBackward{.forward = a, .grad_output = {nullptr, 512, 64, 16}})), ++n;
      AttentionBackward dropped{.forward = a, .grad_output = rows};
      dropped.forward.kept.pitch = 8;
      keys.insert(key_of(dropped)), keys.insert(key_of(dropped.forward)), n += 2;
      for (const AttentionBias& bias : {AttentionBias{nullptr, 1, 1, 1, 8},
                                        {nullptr, 2, 1, 1, 8},
                                        {nullptr, 1, 2, 1, 8},
                                        {nullptr, 1, 1, 2, 8},
                                        {nullptr, 1, 1, 1, 16}}) {
        AttentionBackward b{.forward = a, .grad_output = rows};
        b.forward.bias = bias;
        keys.insert(key_of(b)), keys.insert(key_of(b.forward)), n += 2;
      }
    }
  CHECK(keys.size() == n);
}

TEST_CASE("Plans of attention are kept, 512 per device, and belong to captured graphs", "[cuda]") {
  const Setup setup;
  CHECK(asked(40));
  const int before = state().heuristics;
  CHECK(asked(40));
  CHECK(state().heuristics == before);
  Operands x({1, 1, 1, 2, 700, 8, 8, false}, DType::float16);
  x.move(false);
  const auto run = [&](int64_t keys) {
    (void)_attention(x.query, narrow(x.key, 2, 0, keys), narrow(x.value, 2, 0, keys), Tensor(), false, 1.0);
  };
  for (int64_t keys = 100; keys < 700; ++keys) run(keys);
  const size_t held = state().live_of(kExecutionPlan);
  for (int64_t keys = 50; keys < 100; ++keys) run(keys);
  CHECK(state().live_of(kExecutionPlan) == held);
  CHECK(state().live_of(kTensor) == 0);
}
