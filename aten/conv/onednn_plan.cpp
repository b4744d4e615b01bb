#include "tapegrad/aten/conv/onednn_plan.h"

#include <cstring>
#include <list>
#include <mutex>
#include <unordered_map>

#include "tapegrad/c10/memory/available_memory.h"

// Of the OpenMP runtime that oneDNN uses.
extern "C" int omp_get_max_threads();
extern "C" void omp_set_num_threads(int n);

namespace tapegrad::onednn {
namespace {

using dims = dnnl::memory::dims;
constexpr auto kFloat = dnnl::memory::data_type::f32;

// The last `spatial` of three numbers.
dims tail(const int64_t* v, int spatial) { return dims(v + 3 - spatial, v + 3); }

int64_t product(const int64_t* v) { return v[0] * v[1] * v[2]; }

// N, C, spatial...: a part of a tensor of `channels_all` channels of the sizes `all`.
dnnl::memory::desc activation(int64_t n, int64_t c, int64_t channels_all, const int64_t* size, const int64_t* all,
                              int spatial) {
  dims sizes{n, c}, strides{channels_all * product(all), product(all)};
  for (int d = 3 - spatial; d < 3; ++d) {
    sizes.push_back(size[d]);
    int64_t s = 1;
    for (int e = d + 1; e < 3; ++e) s *= all[e];
    strides.push_back(s);
  }
  return {sizes, kFloat, strides};
}

dnnl::memory::desc any_like(const dnnl::memory::desc& d) {
  return {d.get_dims(), kFloat, dnnl::memory::format_tag::any};
}

// (groups,) O, I, spatial...: rows of `ic_all / groups` input channels.
dnnl::memory::desc weights(const PlanKey& k) {
  dims sizes, strides;
  int64_t per_in = product(k.kernel), per_out = per_in * (k.ic_all / k.groups);
  if (k.groups > 1) {
    sizes.push_back(k.groups);
    strides.push_back(per_out * (k.oc / k.groups));
  }
  sizes.push_back(k.oc / k.groups);
  sizes.push_back(k.ic / k.groups);
  strides.push_back(per_out);
  strides.push_back(per_in);
  for (int d = 3 - k.spatial; d < 3; ++d) {
    sizes.push_back(k.kernel[d]);
    int64_t s = 1;
    for (int e = d + 1; e < 3; ++e) s *= k.kernel[e];
    strides.push_back(s);
  }
  return {sizes, kFloat, strides};
}

// How a tensor lies for the caller, and how the primitive wants it.
struct Layouts {
  dnnl::memory::desc user, inner;
};

void settle(PlanArg& a, const Layouts& of, bool read) {
  const auto& inner = of.inner;
  a.user = of.user;
  a.inner = inner;
  a.needs_reorder = a.user != inner;
  if (!a.needs_reorder) return;
  a.inner_bytes = inner.get_size();
  auto pd = read ? dnnl::reorder::primitive_desc(engine(), a.user, engine(), inner)
                 : dnnl::reorder::primitive_desc(engine(), inner, engine(), a.user);
  a.reorder = dnnl::reorder(pd);
}

void settle_all(Plan& plan, const dnnl::memory::desc& scratchpad, const Layouts& source, const Layouts& weight,
                const Layouts& destination) {
  settle(plan.source, source, true);
  settle(plan.weight, weight, true);
  settle(plan.destination, destination, false);
  plan.scratchpad = scratchpad;
}

// More than any plan takes. With less oneDNN would look for another implementation, one that finds what it wants.
constexpr size_t kPlanMemory = size_t{8} << 20;

std::shared_ptr<const Plan> make_plan(const PlanKey& k) {
  require_memory(kPlanMemory);
  OneThread one;
  auto plan = std::make_shared<Plan>();
  plan->key = k;
  auto x = activation(k.n, k.ic, k.ic_all, k.in, k.in_all, k.spatial);
  auto y = activation(k.n, k.oc, k.oc_all, k.out, k.out_all, k.spatial);
  auto w = weights(k);
  dims strides = tail(k.stride, k.spatial), dilation = tail(k.dilation, k.spatial);
  dims left = tail(k.pad_left, k.spatial), right = tail(k.pad_right, k.spatial);
  for (auto& d : dilation) --d;  // oneDNN counts the gaps
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const auto kind = dnnl::algorithm::convolution_direct;
  if (k.bias) plan->bias = dnnl::memory::desc({k.oc}, kFloat, dnnl::memory::format_tag::x);
  auto forward = [&](dnnl::prop_kind prop) {
    if (k.bias)
      return dnnl::convolution_forward::primitive_desc(engine(), prop, kind, any_like(x), any_like(w), plan->bias,
                                                       any_like(y), strides, dilation, left, right, attr);
    return dnnl::convolution_forward::primitive_desc(engine(), prop, kind, any_like(x), any_like(w), any_like(y),
                                                     strides, dilation, left, right, attr);
  };
  if (k.pass == Pass::Forward) {
    auto pd = forward(dnnl::prop_kind::forward_inference);
    plan->primitive = dnnl::convolution_forward(pd);
    settle_all(*plan, pd.scratchpad_desc(), {x, pd.src_desc()}, {w, pd.weights_desc()}, {y, pd.dst_desc()});
  } else if (k.pass == Pass::GradInput) {
    dnnl::convolution_backward_data::primitive_desc pd(engine(), kind, any_like(x), any_like(w), any_like(y), strides,
                                                       dilation, left, right,
                                                       forward(dnnl::prop_kind::forward_training), attr);
    plan->primitive = dnnl::convolution_backward_data(pd);
    settle_all(*plan, pd.scratchpad_desc(), {y, pd.diff_dst_desc()}, {w, pd.weights_desc()}, {x, pd.diff_src_desc()});
  } else {
    dnnl::convolution_backward_weights::primitive_desc pd(engine(), kind, any_like(x), any_like(w), any_like(y),
                                                          strides, dilation, left, right,
                                                          forward(dnnl::prop_kind::forward_training), attr);
    plan->primitive = dnnl::convolution_backward_weights(pd);
    // The second operand is what is read beside the input: the gradient of the output.
    settle_all(*plan, pd.scratchpad_desc(), {x, pd.src_desc()}, {y, pd.diff_dst_desc()}, {w, pd.diff_weights_desc()});
  }
  return plan;
}

struct KeyHash {
  size_t operator()(const PlanKey& k) const noexcept {
    const auto* p = reinterpret_cast<const int64_t*>(&k);
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < offsetof(PlanKey, spatial) / sizeof(int64_t); ++i)
      h = (h ^ static_cast<uint64_t>(p[i])) * 0xff51afd7ed558ccdu + (h >> 29);
    h ^= static_cast<uint64_t>(k.pass) * 2 + k.bias + static_cast<uint64_t>(k.spatial) * 16;
    return static_cast<size_t>(h * 0xff51afd7ed558ccdu >> 7);
  }
};

// Least recently used goes first. A plan holds generated code of 20 to 100 kB, so 512 of them stay below 64
// MiB.
class PlanCache {
 public:
  std::shared_ptr<const Plan> get(const PlanKey& key) {
    {
      std::lock_guard lock(mutex_);
      auto it = index_.find(key);
      if (it != index_.end()) {
        order_.splice(order_.begin(), order_, it->second);
        return it->second->second;
      }
    }
    std::shared_ptr<const Plan> plan;
    try {
      plan = make_plan(key);
    } catch (const dnnl::error& e) {
      if (e.status == dnnl_out_of_memory)
        TG_THROW(OutOfMemory, "conv: oneDNN ran out of memory while preparing a convolution");
      if (e.status == dnnl_runtime_error) return nullptr;  // it may find what it misses the next time
      // Null is remembered: no implementation.
    }
    std::lock_guard lock(mutex_);
    auto it = index_.find(key);
    if (it != index_.end()) return it->second->second;
    order_.emplace_front(key, plan);
    index_[key] = order_.begin();
    if (order_.size() > kCapacity) {
      index_.erase(order_.back().first);
      order_.pop_back();
    }
    return plan;
  }

 private:
  static constexpr size_t kCapacity = 512;
  using Entry = std::pair<PlanKey, std::shared_ptr<const Plan>>;
  std::mutex mutex_;
  std::list<Entry> order_;
  std::unordered_map<PlanKey, std::list<Entry>::iterator, KeyHash> index_;
};

}  // namespace

std::shared_ptr<const Plan> plan_for(const PlanKey& key) {
  static auto* cache = new PlanCache;  // never destroyed: threads may still run at exit
  return cache->get(key);
}

// The memory that a call of oneDNN and of its OpenMP runtime allocates in small pieces; if that fails, they end the
// process or use a null pointer.
constexpr size_t kCallMemory = 64 << 10;

dnnl::engine& engine() {
  static auto* e = [] {
    dnnl::set_primitive_cache_capacity(0);  // ours is enough
    return new dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return *e;
}

dnnl::stream& stream() {
  static thread_local dnnl::stream s(engine());
  return s;
}

OneThread::OneThread() {
  require_memory(kCallMemory);
  saved_ = omp_get_max_threads();
  if (saved_ != 1) omp_set_num_threads(1);
}

OneThread::~OneThread() {
  if (saved_ != 1) omp_set_num_threads(saved_);
}

}  // namespace tapegrad::onednn
