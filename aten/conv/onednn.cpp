#include "tapegrad/aten/conv/onednn.h"

#include <cstring>
#include <vector>

#include "tapegrad/aten/conv/onednn_plan.h"
#include "tapegrad/aten/conv/parts.h"
#include "tapegrad/aten/functions_index.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/c10/dispatch/work_counters.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::onednn {
namespace {

using conv::Geometry;

PlanKey key_of(const Geometry& g, DType type, Pass pass, bool bias) {
  PlanKey k;
  std::memset(static_cast<void*>(&k), 0, sizeof k);
  k.n = g.n;
  k.ic = k.ic_all = g.ic;
  k.oc = k.oc_all = g.oc;
  k.groups = g.groups;
  for (int d = 0; d < 3; ++d) {
    k.in[d] = k.in_all[d] = g.in[d];
    k.out[d] = k.out_all[d] = g.out[d];
    k.kernel[d] = g.kernel[d];
    k.stride[d] = g.stride[d];
    k.pad_left[d] = k.pad_right[d] = g.pad[d];
    k.dilation[d] = g.dilation[d];
  }
  k.spatial = g.spatial;
  k.pass = pass;
  k.type = type;
  k.channels_innermost = g.channels_innermost;
  k.bias = bias;
  return k;
}

const char* at(const void* p, int64_t elements, DType type) {
  return static_cast<const char*>(p) + elements * static_cast<int64_t>(element_size(type));
}

// What is read, as the primitive wants it.
dnnl::memory load(const PlanArg& a, const void* user, Tensor& holder) {
  if (!a.needs_reorder) return wrap(a.inner, user);
  dnnl::memory from = wrap(a.user, user), to = wrap(a.inner, take(holder, a.inner_bytes));
  a.reorder.execute(stream(), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  return to;
}

dnnl::memory loaded(const PlanArg& a, const void* user, Tensor& holder) {
  CallScope scope;
  try {
    return load(a, user, holder);
  } catch (const dnnl::error& e) {
    raise("conv", e);
  }
}

// What was written, as the user wants it.
void store(const PlanArg& a, const dnnl::memory& from, void* user) {
  if (!a.needs_reorder)
    std::memcpy(user, from.get_data_handle(), a.inner.get_size());
  else
    a.reorder.execute(stream(), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, wrap(a.user, user)}});
}

// One piece. `source_ready`, `weight_ready`: operands that were reordered before; `result`: where what is computed is
// left as the primitive lays it out, instead of `destination`.
void run_piece(const Plan& plan, const void* source, const dnnl::memory* source_ready, const void* weight,
               const dnnl::memory* weight_ready, const void* bias, void* destination,
               const dnnl::memory* result = nullptr) {
  CallScope scope;
  Tensor hs, hw, hd, hp;
  try {
    dnnl::memory x = source_ready ? *source_ready : load(plan.source, source, hs);
    dnnl::memory w = weight_ready ? *weight_ready : load(plan.weight, weight, hw);
    const PlanArg& d = plan.destination;
    const bool kept = result && result->get_desc() == d.inner;
    dnnl::memory y = kept                        ? *result
                     : d.needs_reorder || result ? wrap(d.inner, take(hd, d.inner.get_size()))
                                                 : wrap(d.inner, destination);
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
    count_work(Work::LibraryCall);
    plan.primitive.execute(stream(), args);
    if (result && !kept)
      dnnl::reorder(y, *result).execute(stream(), y, const_cast<dnnl::memory&>(*result));
    else if (!result && d.needs_reorder)
      store(d, y, destination);
  } catch (const dnnl::error& e) {
    raise("conv", e);
  }
}

// One piece of a cut, by its place in the order images, bands, channels.
struct Piece {
  int64_t image, band, channel;

  Piece(const Pieces& p, int64_t at)
      : image(at / p.channel_count / p.band_count()),
        band(at / p.channel_count % p.band_count()),
        channel(at % p.channel_count) {}
};

// Where what a piece reads and writes begins in the tensors.
struct Offsets {
  int64_t input, output, weight, channel;

  Offsets(const Geometry& g, const Pieces& p, Pass pass, const Piece& t) {
    const Band& band = p.bands[static_cast<size_t>(t.band)];
    int64_t row_in = 1, row_out = 1;
    for (int d = p.dimension + 1; d < 3; ++d) {
      row_in *= g.in[d];
      row_out *= g.out[d];
    }
    channel = t.channel * p.channels;
    const bool of_input = pass == Pass::GradInput;
    const auto place = [&](int64_t channels, int64_t spatial, int64_t first_channel, int64_t first) {
      return t.image * p.images * channels * spatial +
             (g.channels_innermost ? first_channel + first * channels : first_channel * spatial + first);
    };
    input = place(g.ic, g.in_spatial(), of_input ? channel : 0, band.in_first * row_in);
    output = place(g.oc, g.out_spatial(), of_input ? 0 : channel, band.out_first * row_out);
    weight = channel * g.kernel_spatial() * (of_input ? 1 : g.ic / g.groups);
  }
};

// The plans of a cut: for each band, of whole pieces and of the last ones, which may be smaller, in both directions.
class Plans {
 public:
  bool complete = true;

  Plans(const Geometry& g, const Pieces& p, DType type, Pass pass, bool bias) : pieces_(p), plan_(p.bands.size() * 4) {
    PlanKey key = key_of(g, type, pass, bias);
    int64_t& width = pass == Pass::GradInput ? key.ic : key.oc;
    const int64_t channels = width, d = p.dimension;
    for (size_t at = 0; complete && at < plan_.size(); ++at) {
      const Band& band = p.bands[at / 4];
      key.in[d] = band.in;
      key.out[d] = band.out;
      key.pad_left[d] = band.pad_left;
      key.pad_right[d] = band.pad_right;
      key.n = at & 2 ? g.n - p.images * (p.image_count - 1) : p.images;
      width = at & 1 ? channels - p.channels * (p.channel_count - 1) : p.channels;
      plan_[at] = at > 3 && plan_[at - 4]->key == key ? plan_[at - 4] : plan_for(key);
      complete = plan_[at] != nullptr;
    }
  }
  const Plan& of(const Piece& t) const {
    return *plan_[static_cast<size_t>(t.band * 4 + (t.image == pieces_.image_count - 1) * 2 +
                                      (t.channel == pieces_.channel_count - 1))];
  }

 private:
  const Pieces& pieces_;
  std::vector<std::shared_ptr<const Plan>> plan_;
};

// The weights of every range of channels, reordered once for all images and bands.
class Weights {
 public:
  Weights(const Geometry& g, const Pieces& p, const Plans& plans, DType type, Pass pass, const void* weight) {
    CallScope scope;
    try {
      const int64_t per_image = p.band_count() * p.channel_count;
      for (int64_t i = 0; i < 2 * per_image; ++i) {
        const Piece t(p,
                      i < per_image ? i : i + (p.image_count - 2) * per_image);  // of the first image and of the last
        const PlanArg& a = plans.of(t).weight;
        if (find(t, a)) continue;
        if (!ready_.empty()) check_interrupt();
        Tensor holder;
        dnnl::memory memory = load(a, at(weight, Offsets(g, p, pass, t).weight, type), holder);
        ready_.push_back({t.channel, &a, memory, holder});
      }
    } catch (const dnnl::error& e) {
      raise("conv", e);
    }
  }
  const dnnl::memory* of(const Piece& t, const Plan& plan) const { return find(t, plan.weight); }

 private:
  struct Ready {
    int64_t channel;
    const PlanArg* wanted;
    dnnl::memory memory;
    Tensor holder;
  };
  const dnnl::memory* find(const Piece& t, const PlanArg& a) const {
    for (const Ready& r : ready_)
      if (r.channel == t.channel && (r.wanted == &a || r.wanted->inner == a.inner)) return &r.memory;
    return nullptr;
  }
  std::vector<Ready> ready_;
};

// A forward pass and a gradient of the input: pieces that are written once.
bool run_pieces(const Geometry& g, DType type, Pass pass, const void* source, const void* weight, const void* bias,
                void* destination) {
  const Pieces p = cut(g, pass, type);
  const Plans plans(g, p, type, pass, bias != nullptr);
  if (!plans.complete) return false;
  const Weights weights(g, p, plans, type, pass, weight);
  parallel_for(0, p.count(), 1, [&](int64_t first, int64_t last) {
    // What ranges of channels that follow each other read, in the layout of the primitives.
    Tensor holder;
    dnnl::memory shared;
    int64_t shared_part = -1;
    for (int64_t i = first; i < last; ++i) {
      if (i > first) check_interrupt();
      const Piece t(p, i);
      const Offsets o(g, p, pass, t);
      const Plan& plan = plans.of(t);
      const bool forward = pass == Pass::Forward;
      const char* from = at(source, forward ? o.input : o.output, type);
      const bool shares = p.channel_count > 1 && plan.source.needs_reorder;
      if (const int64_t part = i / p.channel_count;
          shares && (part != shared_part || shared.get_desc() != plan.source.inner)) {
        shared = loaded(plan.source, from, holder);
        shared_part = part;
      }
      run_piece(plan, from, shares ? &shared : nullptr, nullptr, weights.of(t, plan),
                bias ? at(bias, o.channel, type) : nullptr,
                const_cast<char*>(at(destination, forward ? o.output : o.input, type)));
    }
  });
  return true;
}

}  // namespace

bool conv_forward(const Geometry& g, DType type, const void* input, const void* weight, const void* bias,
                  void* output) {
  return run_pieces(g, type, Pass::Forward, input, weight, bias, output);
}

bool conv_grad_input(const Geometry& g, DType type, const void* output, const void* weight, void* input) {
  return run_pieces(g, type, Pass::GradInput, output, weight, nullptr, input);
}

bool conv_grad_weight(const Geometry& g, DType type, const void* output, const void* input, void* weight) {
  const Pass pass = Pass::GradWeight;
  const Pieces p = cut(g, pass, type);
  const Plans plans(g, p, type, pass, false);
  if (!plans.complete) return false;
  const int64_t parts = p.image_count * p.band_count(), sums = partial_sums(g, p, type);
  const auto of_weight = [&](int64_t channel) {
    return const_cast<char*>(at(weight, Offsets(g, p, pass, Piece(p, channel)).weight, type));
  };
  // The input of each part, which all ranges of channels read.
  std::vector<Tensor> holders(static_cast<size_t>(p.channel_count > 1 ? parts : 0));
  std::vector<dnnl::memory> sources(holders.size());
  parallel_for(0, static_cast<int64_t>(holders.size()), 1, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) {
      const Piece t(p, part * p.channel_count);
      const size_t i = static_cast<size_t>(part);
      sources[i] = loaded(plans.of(t).source, at(input, Offsets(g, p, pass, t).input, type), holders[i]);
    }
  });
  const auto run = [&](int64_t part, int64_t channel, void* destination, const dnnl::memory* result) {
    const Piece t(p, part * p.channel_count + channel);
    const Offsets o(g, p, pass, t);
    const Plan& plan = plans.of(t);
    const dnnl::memory* ready = sources.empty() ? nullptr : &sources[static_cast<size_t>(part)];
    if (ready && ready->get_desc() != plan.source.inner) ready = nullptr;
    run_piece(plan, at(input, o.input, type), ready, at(output, o.output, type), nullptr, nullptr, destination, result);
  };
  if (parts == 1) {
    parallel_for(0, p.channel_count, 1, [&](int64_t first, int64_t last) {
      for (int64_t channel = first; channel < last; ++channel) run(0, channel, of_weight(channel), nullptr);
    });
    return true;
  }
  // Several parts are added up as the primitives lay them out, and reordered once.
  std::vector<const PlanArg*> results;
  std::vector<int64_t> places{0};  // where the elements of each range of channels begin
  for (int64_t channel = 0; channel < p.channel_count; ++channel) {
    results.push_back(&plans.of(Piece(p, channel)).destination);
    places.push_back(places.back() + static_cast<int64_t>(results.back()->inner.get_size() / sizeof(float)));
  }
  const int64_t size = places.back();
  const auto floats = [](Tensor& t, int64_t n) {
    return static_cast<float*>(take(t, static_cast<size_t>(n) * sizeof(float)));
  };
  Tensor holder;
  float* partial = floats(holder, sums * size);
  parallel_for(0, sums * p.channel_count, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t sum = i / p.channel_count, channel = i % p.channel_count;
      const size_t c = static_cast<size_t>(channel);
      const int64_t begin = parts * sum / sums, end = parts * (sum + 1) / sums, count = places[c + 1] - places[c];
      float* so_far = partial + sum * size + places[c];
      Tensor next_holder;
      float* next = end - begin > 1 ? floats(next_holder, count) : nullptr;
      for (int64_t part = begin; part < end; ++part) {
        if (part > begin) check_interrupt();
        const dnnl::memory result = wrap(results[c]->inner, part > begin ? next : so_far);
        run(part, channel, nullptr, &result);
        for (int64_t j = 0; part > begin && j < count; ++j) so_far[j] += next[j];
      }
    }
  });
  if (sums > 1) conv::add_parts(partial, sums, size, partial);
  parallel_for(0, p.channel_count, 1, [&](int64_t first, int64_t last) {
    for (int64_t channel = first; channel < last; ++channel) {
      CallScope scope;
      const size_t c = static_cast<size_t>(channel);
      try {
        store(*results[c], wrap(results[c]->inner, partial + places[c]), of_weight(channel));
      } catch (const dnnl::error& e) {
        raise("conv", e);
      }
    }
  });
  return true;
}

}  // namespace tapegrad::onednn
