#include "tapegrad/aten/conv/onednn.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "tapegrad/aten/conv/onednn_plan.h"
#include "tapegrad/c10/parallel.h"

namespace tapegrad::onednn {
namespace {

using conv::Geometry;

// How a convolution is cut: pieces of `images` images and `channels` channels of the split side.
struct Pieces {
  int64_t images, image_count;
  int64_t channels, channel_count;
  int64_t count() const { return image_count * channel_count; }
};

// The activations of a piece and their reordered copies should stay in the second-level cache.
constexpr double kPieceBytes = 768 * 1024;
constexpr double kPieceWork = 1e6;  // multiplications, about 10 us
constexpr double kChannelPieceWork = 8e6;
constexpr int64_t kWantedPieces = 8;

// The channels (of the output in a forward pass, of the input in a gradient of the input) are cut only where
// there are too few images for several threads.
Pieces cut(const Geometry& g, int64_t channels, double bytes_per_piece, int64_t most_images) {
  Pieces p;
  double per_image = g.work() / static_cast<double>(g.n);
  double bytes = 4.0 * static_cast<double>(g.ic * g.in_spatial() + g.oc * g.out_spatial());
  int64_t images = std::max<int64_t>(1, static_cast<int64_t>(bytes_per_piece / bytes));
  images = std::max(images, static_cast<int64_t>(kPieceWork / std::max(per_image, 1.0)));
  images = std::min({images, g.n, most_images});
  p.image_count = (g.n + images - 1) / images;
  p.images = (g.n + p.image_count - 1) / p.image_count;
  // A slightly smaller piece that divides the batch saves a second primitive.
  for (int64_t i = p.images; i > p.images / 2 && i > 0; --i)
    if (g.n % i == 0) {
      p.images = i;
      break;
    }
  p.image_count = (g.n + p.images - 1) / p.images;
  int64_t parts = 1;
  if (g.groups == 1 && p.image_count < kWantedPieces) {
    parts = std::min({kWantedPieces / p.image_count, channels / 32,
                      static_cast<int64_t>(per_image * static_cast<double>(p.images) / kChannelPieceWork)});
    parts = std::max<int64_t>(parts, 1);
  }
  p.channels = parts == 1 ? channels : ((channels + parts - 1) / parts + 15) / 16 * 16;
  p.channel_count = (channels + p.channels - 1) / p.channels;
  return p;
}

PlanKey key_of(const Geometry& g, Pass pass, bool bias) {
  PlanKey k;
  std::memset(static_cast<void*>(&k), 0, sizeof k);
  k.n = g.n;
  k.ic = k.ic_all = g.ic;
  k.oc = k.oc_all = g.oc;
  k.groups = g.groups;
  for (int d = 0; d < 3; ++d) {
    k.in[d] = g.in[d];
    k.out[d] = g.out[d];
    k.kernel[d] = g.kernel[d];
    k.stride[d] = g.stride[d];
    k.pad[d] = g.pad[d];
    k.dilation[d] = g.dilation[d];
  }
  k.spatial = g.spatial;
  k.pass = pass;
  k.bias = bias;
  return k;
}

using Buffer = Tensor;
float* take(Buffer& holder, size_t bytes) {
  holder = empty_tensor({static_cast<int64_t>((bytes + 3) / 4)}, DType::float32);
  return static_cast<float*>(holder.data_ptr());
}

dnnl::memory wrap(const dnnl::memory::desc& d, const float* p) {
  return dnnl::memory(d, engine(), const_cast<float*>(p));
}

// What is read, as the primitive wants it.
dnnl::memory load(const PlanArg& a, const float* user, Buffer& holder) {
  if (!a.needs_reorder) return wrap(a.inner, user);
  dnnl::memory from = wrap(a.user, user), to = wrap(a.inner, take(holder, a.inner_bytes));
  a.reorder.execute(stream(), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  return to;
}

void check_done(const dnnl::error& e) {
  if (e.status == dnnl_out_of_memory) TG_THROW(OutOfMemory, "conv: oneDNN ran out of memory");
  TG_THROW(Runtime, "conv: oneDNN failed: {}", e.what());
}

// One piece. `weight_ready`: the second operand was reordered before.
void run_piece(const Plan& plan, const float* source, const float* weight, const dnnl::memory* weight_ready,
               const float* bias, float* destination) {
  OneThread one;
  Buffer hs, hw, hd, hp;
  try {
    dnnl::memory x = load(plan.source, source, hs);
    dnnl::memory w = weight_ready ? *weight_ready : load(plan.weight, weight, hw);
    const PlanArg& d = plan.destination;
    dnnl::memory y = wrap(d.inner, d.needs_reorder ? take(hd, d.inner_bytes) : destination);
    std::unordered_map<int, dnnl::memory> args;
    switch (plan.key.pass) {
      case Pass::Forward:
        args = {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DST, y}};
        if (bias) args.emplace(DNNL_ARG_BIAS, wrap(plan.bias, bias));
        break;
      case Pass::GradInput:
        args = {{DNNL_ARG_DIFF_DST, x}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DIFF_SRC, y}};
        break;
      case Pass::GradWeight:
        args = {{DNNL_ARG_SRC, x}, {DNNL_ARG_DIFF_DST, w}, {DNNL_ARG_DIFF_WEIGHTS, y}};
        break;
    }
    if (size_t bytes = plan.scratchpad.get_size())
      args.emplace(DNNL_ARG_SCRATCHPAD, wrap(plan.scratchpad, take(hp, bytes)));
    plan.primitive.execute(stream(), args);
    if (d.needs_reorder) d.reorder.execute(stream(), {{DNNL_ARG_FROM, y}, {DNNL_ARG_TO, wrap(d.user, destination)}});
  } catch (const dnnl::error& e) {
    check_done(e);
  }
}

// The plans of a cut: of whole pieces and of the last ones, which may be smaller, in both directions.
struct Plans {
  std::shared_ptr<const Plan> plan[2][2];  // [last images][last channels]
  bool complete = true;

  template <class SetChannels>
  Plans(PlanKey key, const Geometry& g, const Pieces& p, int64_t channels, SetChannels set) {
    int64_t images[2] = {p.images, g.n - p.images * (p.image_count - 1)};
    int64_t width[2] = {p.channels, channels - p.channels * (p.channel_count - 1)};
    for (int i = 0; i < 2; ++i)
      for (int c = 0; c < 2; ++c) {
        key.n = images[i];
        set(key, width[c]);
        plan[i][c] = plan_for(key);
        complete = complete && plan[i][c];
      }
  }
  const Plan& of(const Pieces& p, int64_t image, int64_t channel) const {
    return *plan[image == p.image_count - 1][channel == p.channel_count - 1];
  }
};

// The weights of every range of channels, reordered once for all images.
struct Weights {
  std::vector<dnnl::memory> memory;  // [channel piece][last images]
  std::vector<Buffer> holders;

  Weights(const Plans& plans, const Pieces& p, const float* weight, int64_t step)
      : memory(static_cast<size_t>(2 * p.channel_count)), holders(memory.size()) {
    OneThread one;
    try {
      for (int64_t c = 0; c < p.channel_count; ++c) {
        const Plan& whole = plans.of(p, 0, c);
        const Plan& last = plans.of(p, p.image_count - 1, c);
        size_t at = static_cast<size_t>(2 * c);
        memory[at] = load(whole.weight, weight + c * step, holders[at]);
        bool same = &whole == &last || whole.weight.inner == last.weight.inner;
        memory[at + 1] = same ? memory[at] : load(last.weight, weight + c * step, holders[at + 1]);
      }
    } catch (const dnnl::error& e) {
      check_done(e);
    }
  }
  const dnnl::memory* of(const Pieces& p, int64_t image, int64_t channel) const {
    return &memory[static_cast<size_t>(2 * channel + (image == p.image_count - 1))];
  }
};

}  // namespace

bool conv_forward(const Geometry& g, const float* input, const float* weight, const float* bias, float* output) {
  Pieces p = cut(g, g.oc, kPieceBytes, g.n);
  Plans plans(key_of(g, Pass::Forward, bias != nullptr), g, p, g.oc, [](PlanKey& k, int64_t width) { k.oc = width; });
  if (!plans.complete) return false;
  Weights weights(plans, p, weight, p.channels * (g.ic / g.groups) * g.kernel_spatial());
  parallel_for(0, p.count(), 1, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      int64_t i = t / p.channel_count, c = t % p.channel_count;
      run_piece(plans.of(p, i, c), input + i * p.images * g.ic * g.in_spatial(), nullptr, weights.of(p, i, c),
                bias ? bias + c * p.channels : nullptr,
                output + (i * p.images * g.oc + c * p.channels) * g.out_spatial());
    }
  });
  return true;
}

bool conv_grad_input(const Geometry& g, const float* output, const float* weight, float* input) {
  Pieces p = cut(g, g.ic, kPieceBytes, g.n);
  Plans plans(key_of(g, Pass::GradInput, false), g, p, g.ic, [](PlanKey& k, int64_t width) { k.ic = width; });
  if (!plans.complete) return false;
  Weights weights(plans, p, weight, p.channels * g.kernel_spatial());
  parallel_for(0, p.count(), 1, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      int64_t i = t / p.channel_count, c = t % p.channel_count;
      run_piece(plans.of(p, i, c), output + i * p.images * g.oc * g.out_spatial(), nullptr, weights.of(p, i, c),
                nullptr, input + (i * p.images * g.ic + c * p.channels) * g.in_spatial());
    }
  });
  return true;
}

bool conv_grad_weight(const Geometry& g, const float* output, const float* input, float* weight) {
  // Every piece of images gives a sum over its images; the sums are added in order. At most 8 of them, and
  // few enough to keep them within 32 MB.
  int64_t size = g.weight_numel();
  int64_t sums = std::clamp<int64_t>((int64_t{8} << 20) / std::max<int64_t>(size, 1), 2, 8);
  int64_t least = (g.n + sums - 1) / sums;
  double image_bytes = 4.0 * static_cast<double>(g.ic * g.in_spatial() + g.oc * g.out_spatial());
  Pieces p = cut(g, g.oc, std::max(kPieceBytes, image_bytes * static_cast<double>(least)), g.n);
  Plans plans(key_of(g, Pass::GradWeight, false), g, p, g.oc, [](PlanKey& k, int64_t width) { k.oc = width; });
  if (!plans.complete) return false;
  Buffer holder;
  float* partial = p.image_count > 1 ? take(holder, static_cast<size_t>(p.image_count * size) * sizeof(float)) : weight;
  int64_t row = (g.ic / g.groups) * g.kernel_spatial();
  parallel_for(0, p.count(), 1, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      int64_t i = t / p.channel_count, c = t % p.channel_count;
      run_piece(plans.of(p, i, c), input + i * p.images * g.ic * g.in_spatial(),
                output + (i * p.images * g.oc + c * p.channels) * g.out_spatial(), nullptr, nullptr,
                partial + i * size + c * p.channels * row);
    }
  });
  if (p.image_count > 1)
    parallel_for(0, size, 32768, [&](int64_t first, int64_t last) {
      for (int64_t j = first; j < last; ++j) {
        float s = partial[j];
        for (int64_t i = 1; i < p.image_count; ++i) s += partial[i * size + j];
        weight[j] = s;
      }
    });
  return true;
}

}  // namespace tapegrad::onednn
