#include "tapegrad/aten/conv/onednn_plan.h"

namespace tapegrad::onednn {
namespace {

using dims = dnnl::memory::dims;
using Type = dnnl::memory::data_type;

// The last `spatial` of three numbers.
dims tail(const int64_t* v, int spatial) { return dims(v + 3 - spatial, v + 3); }

int64_t product(const int64_t* v) { return v[0] * v[1] * v[2]; }

// N, C, spatial...: a part of a tensor of `channels_all` channels of the sizes `all`.
dnnl::memory::desc activation(int64_t n, int64_t c, int64_t channels_all, const int64_t* size, const int64_t* all,
                              int spatial, Type type, bool channels_innermost) {
  dims sizes{n, c}, strides{channels_all * product(all), channels_innermost ? 1 : product(all)};
  for (int d = 3 - spatial; d < 3; ++d) {
    sizes.push_back(size[d]);
    int64_t s = channels_innermost ? channels_all : 1;
    for (int e = d + 1; e < 3; ++e) s *= all[e];
    strides.push_back(s);
  }
  return {sizes, type, strides};
}

dnnl::memory::desc any_like(const dnnl::memory::desc& d) {
  return {d.get_dims(), d.get_data_type(), dnnl::memory::format_tag::any};
}

// (groups,) O, I, spatial...: rows of `ic_all / groups` input channels.
dnnl::memory::desc weights(const PlanKey& k, Type type) {
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
  return {sizes, type, strides};
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

std::shared_ptr<const Plan> make_plan(const PlanKey& k) {
  auto plan = std::make_shared<Plan>();
  plan->key = k;
  const Type type = data_type(k.type);
  const int spatial = static_cast<int>(k.spatial);
  auto x = activation(k.n, k.ic, k.ic_all, k.in, k.in_all, spatial, type, k.channels_innermost);
  auto y = activation(k.n, k.oc, k.oc_all, k.out, k.out_all, spatial, type, k.channels_innermost);
  auto w = weights(k, type);
  dims strides = tail(k.stride, spatial), dilation = tail(k.dilation, spatial);
  dims left = tail(k.pad_left, spatial), right = tail(k.pad_right, spatial);
  for (auto& d : dilation) --d;  // oneDNN counts the gaps
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const auto kind = dnnl::algorithm::convolution_direct;
  if (k.bias) plan->bias = dnnl::memory::desc({k.oc}, type, dnnl::memory::format_tag::x);
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
    const auto sums = weights(k, Type::f32);
    dnnl::convolution_backward_weights::primitive_desc pd(engine(), kind, any_like(x), any_like(sums), any_like(y),
                                                          strides, dilation, left, right,
                                                          forward(dnnl::prop_kind::forward_training), attr);
    plan->primitive = dnnl::convolution_backward_weights(pd);
    // The second operand is what is read beside the input: the gradient of the output.
    settle_all(*plan, pd.scratchpad_desc(), {x, pd.src_desc()}, {y, pd.diff_dst_desc()}, {w, pd.diff_weights_desc()});
  }
  return plan;
}

}  // namespace

std::shared_ptr<const Plan> plan_for(const PlanKey& key) {
  using Cache = PlanCache<PlanKey, Plan, KeyHash<PlanKey>>;
  static auto* cache = new Cache;  // never destroyed: threads may still run at exit
  return cache->get(key, "conv", make_plan);
}

}  // namespace tapegrad::onednn
