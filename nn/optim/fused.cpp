#include "tapegrad/nn/optim/fused.h"

#include <algorithm>
#include <cmath>

#include "tapegrad/autograd/call_site.h"
#include "tapegrad/c10/kernel_table.h"
#include "tapegrad/c10/modes.h"
#include "tapegrad/c10/parallel.h"
#include "tapegrad/nn/optim/kernels.h"

namespace tapegrad {

#define TG_OPTIM_KERNELS(isa)                                           \
  namespace cpu::isa {                                                  \
  void fused_adam(DType, const nn::AdamRun&, const nn::AdamConstants&); \
  void fused_sgd(DType, const nn::SgdRun&, const nn::SgdConstants&);    \
  }
#ifdef TG_HAVE_ISA_GENERIC
TG_OPTIM_KERNELS(generic)
#endif
#ifdef TG_HAVE_ISA_AVX2
TG_OPTIM_KERNELS(avx2)
#endif
#ifdef TG_HAVE_ISA_AVX512
TG_OPTIM_KERNELS(avx512)
#endif

namespace nn {
namespace {

struct CpuKernels {
  AdamKernel adam = nullptr;
  SgdKernel sgd = nullptr;
};

CpuKernels choose() {
  CpuKernels kernels;
  [[maybe_unused]] const Isa isa = cpu_isa();
#ifdef TG_HAVE_ISA_GENERIC
  kernels = {&cpu::generic::fused_adam, &cpu::generic::fused_sgd};
#endif
#ifdef TG_HAVE_ISA_AVX2
  if (isa >= Isa::Avx2) kernels = {&cpu::avx2::fused_adam, &cpu::avx2::fused_sgd};
#endif
#ifdef TG_HAVE_ISA_AVX512
  if (isa >= Isa::Avx512) kernels = {&cpu::avx512::fused_adam, &cpu::avx512::fused_sgd};
#endif
  if (kernels.adam == nullptr)
    TG_THROW(Runtime, "optimizer step: this processor lacks AVX2, and no kernels for older ones were built");
  return kernels;
}

const CpuKernels& kernels() {
  static const CpuKernels chosen = choose();
  return chosen;
}

// Elements per thread that pay for waking it.
constexpr int64_t kGrain = 16384;

void check_entry(const char* op, const Tensor& param, const Tensor& other, const char* what) {
  TG_CHECK(other.sizes() == param.sizes(), Runtime, "{}: the {} has another shape than its parameter: {} and {}", op,
           what, format_ints(other.sizes()), format_ints(param.sizes()));
  TG_CHECK(other.dtype() == param.dtype(), Runtime, "{}: the {} has another dtype than its parameter: {} and {}", op,
           what, other.dtype(), param.dtype());
  TG_CHECK(other.is_cpu(), NotImplemented, "{}: no kernel for tensors on {}", op, other.device());
}

// The loops walk memory in one run per tensor, so all tensors of an entry must lie in memory in the same order.
// Those that do not are replaced by copies in the parameter's order, and written back in the end.
class Layouts {
 public:
  explicit Layouts(const char* op) : op_(op), site_(autograd::current_site()) {}

  void param(const Tensor& p) {
    TG_CHECK(is_floating_point(p.dtype()), Runtime, "{}: expected a floating point parameter: got {}", op_, p.dtype());
    TG_CHECK(p.is_cpu(), NotImplemented, "{}: no kernel for tensors on {}", op_, p.device());
    dense_ = p.impl()->is_non_overlapping_and_dense();
    param_ = &p;
  }
  void* written(const Tensor& t, const char* what) {
    check_entry(op_, *param_, t, what);
    t.impl()->bump_version(op_, site_);
    if (fits(t)) return t.data_ptr();
    Tensor copy = matching(t);
    back_.emplace_back(t, copy);
    return copy.data_ptr();
  }
  const void* read(const Tensor& t, const char* what) {
    check_entry(op_, *param_, t, what);
    if (fits(t)) return t.data_ptr();
    keep_.push_back(matching(t));
    return keep_.back().data_ptr();
  }
  void write_back() {
    for (const auto& [target, copy] : back_) target.copy_(copy);
  }

 private:
  bool fits(const Tensor& t) const {
    if (!dense_) return false;
    return t.strides() == param_->strides() || (t.is_contiguous() && param_->is_contiguous());
  }
  Tensor matching(const Tensor& t) const {
    TensorSpec spec{DimVector(t.sizes()), t.dtype(), t.device(), {}};
    if (dense_) spec.strides = DimVector(param_->strides());
    Tensor copy = empty_tensor(spec);
    copy.copy_(t);
    return copy;
  }

  const char* op_;
  uint32_t site_;
  const Tensor* param_ = nullptr;
  bool dense_ = true;
  std::vector<Tensor> keep_;
  std::vector<std::pair<Tensor, Tensor>> back_;
};

// Runs of one element type; all their elements form one range that the threads share.
template <class Run>
struct Batch {
  std::vector<Run> runs;
  std::vector<DType> dtypes;
  std::vector<int64_t> ends;  // position in the range after each run

  void add(const Run& run, DType dtype) {
    if (run.n == 0) return;
    runs.push_back(run);
    dtypes.push_back(dtype);
    ends.push_back(run.n + (ends.empty() ? 0 : ends.back()));
  }

  template <class F>  // f(run, dtype) with a part of a run
  void for_each_part(F&& f) const {
    if (runs.empty()) return;
    parallel_for(0, ends.back(), kGrain, [&](int64_t first, int64_t last) {
      size_t i = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), first) - ends.begin());
      while (first < last) {
        const int64_t start = ends[i] - runs[i].n;
        const int64_t stop = std::min(last, ends[i]);
        f(runs[i], dtypes[i], first - start, stop - first);
        first = stop;
        ++i;
      }
    });
  }
};

template <class T>
T* shift(T* p, int64_t bytes) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return p ? static_cast<Byte*>(p) + bytes : nullptr;
}

}  // namespace

void fused_adam_step(std::span<const AdamEntry> entries, const AdamSettings& s) {
  constexpr const char* kOp = "adam_step";
  const NoGradGuard no_grad;
  Layouts layouts(kOp);
  Batch<AdamRun> batch;
  for (const AdamEntry& e : entries) {
    layouts.param(e.param);
    AdamRun run{};
    run.grad = layouts.read(e.grad, "gradient");
    run.param = layouts.written(e.param, "parameter");
    run.exp_avg = layouts.written(e.exp_avg, "average of gradients");
    run.exp_avg_sq = layouts.written(e.exp_avg_sq, "average of squared gradients");
    if (s.amsgrad) run.max_exp_avg_sq = layouts.written(e.max_exp_avg_sq, "maximum of squared gradients");
    run.n = e.param.numel();
    run.step_size = s.lr / (1 - std::pow(s.beta1, e.step));
    run.root = std::sqrt(1 - std::pow(s.beta2, e.step));
    batch.add(run, e.param.dtype());
  }
  const AdamConstants constants{
      s.beta1,   s.beta2, s.eps, s.decoupled ? 0 : s.weight_decay, s.decoupled ? 1 - s.lr * s.weight_decay : 1,
      s.maximize};
  batch.for_each_part([&](AdamRun run, DType dtype, int64_t from, int64_t n) {
    const int64_t bytes = from * static_cast<int64_t>(element_size(dtype));
    run.param = shift(run.param, bytes);
    run.grad = shift(run.grad, bytes);
    run.exp_avg = shift(run.exp_avg, bytes);
    run.exp_avg_sq = shift(run.exp_avg_sq, bytes);
    run.max_exp_avg_sq = shift(run.max_exp_avg_sq, bytes);
    run.n = n;
    kernels().adam(dtype, run, constants);
  });
  layouts.write_back();
}

void fused_sgd_step(std::span<const SgdEntry> entries, const SgdSettings& s) {
  constexpr const char* kOp = "sgd_step";
  const NoGradGuard no_grad;
  Layouts layouts(kOp);
  Batch<SgdRun> batch;
  for (const SgdEntry& e : entries) {
    layouts.param(e.param);
    SgdRun run{};
    run.grad = layouts.read(e.grad, "gradient");
    run.param = layouts.written(e.param, "parameter");
    if (s.momentum != 0) run.buffer = layouts.written(e.momentum_buffer, "momentum buffer");
    run.n = e.param.numel();
    run.first = e.first;
    batch.add(run, e.param.dtype());
  }
  const SgdConstants constants{s.lr, s.momentum, s.dampening, s.weight_decay, s.nesterov, s.maximize};
  batch.for_each_part([&](SgdRun run, DType dtype, int64_t from, int64_t n) {
    const int64_t bytes = from * static_cast<int64_t>(element_size(dtype));
    run.param = shift(run.param, bytes);
    run.grad = shift(run.grad, bytes);
    run.buffer = shift(run.buffer, bytes);
    run.n = n;
    kernels().sgd(dtype, run, constants);
  });
  layouts.write_back();
}

}  // namespace nn
}  // namespace tapegrad
