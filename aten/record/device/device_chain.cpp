#include "tapegrad/aten/record/device/device_chain.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/record/chain/chain.h"
#include "tapegrad/aten/record/chain/edges.h"
#include "tapegrad/aten/record/memory.h"
#include "tapegrad/c10/device/device_interface.h"

namespace tapegrad::record {

std::atomic<const ChainCompiler*> chain_compiler{nullptr};

bool has_device_chains(const Recording& r) noexcept {
  return r.device_chains && loops_enabled() && chain_compiler.load() != nullptr;
}

namespace {

constexpr int64_t kMostCompared = 1 << 16;  // elements: rows are whole, and a rest stays

// The calls over memory of their own, with fewer elements.
class Copy {
 public:
  // `chained`: what only registers would hold has memory, too.
  Copy(std::span<const Call> calls, Device device, bool chained, const std::function<bool(int)>& in_memory) {
    const Iterator& like = *calls[0].pointwise;
    int64_t columns = 0;
    for (const Call& call : calls)
      if (call.pointwise->ndim == 2) columns = call.pointwise->shape[1];
    const int64_t rows = columns > 0 ? std::clamp<int64_t>(kMostCompared / columns, 1, like.numel / columns) : 0;
    const int64_t numel = columns > 0                  ? rows * columns
                          : like.numel > kMostCompared ? kMostCompared + like.numel % 4096
                                                       : like.numel;
    for (const Call& from : calls) {
      Call& call = calls_.emplace_back();
      call.entry = from.entry;
      call.kernel = from.kernel;
      call.uses = from.uses;
      call.pointwise = std::make_unique<Iterator>(*from.pointwise);
      Iterator& it = *call.pointwise;
      it.numel = numel;
      it.shape[0] = it.ndim == 2 ? rows : numel;
      for (int k = 0; k <= it.num_inputs; ++k) {
        const Use& use = from.uses[static_cast<size_t>(k)];
        if (use.slot < 0) continue;
        const OperandLayout layout = layout_of(*from.pointwise, k);
        const auto item = static_cast<int64_t>(element_size(it.dtype[k]));
        if (layout == OperandLayout::PerRow) it.strides[k][0] = item;
        if (!chained && !in_memory(use.slot)) {
          it.data[k] = nullptr;
          continue;
        }
        const int64_t n = layout == OperandLayout::Dense       ? numel
                          : layout == OperandLayout::PerColumn ? columns
                          : layout == OperandLayout::PerRow    ? rows
                                                               : 1;
        const auto [at, fresh] = parts_.try_emplace({use.slot, use.offset, layout, it.dtype[k]}, Part{});
        Part& part = at->second;
        if (fresh) {
          part.tensor = fresh_part(n, item, it.dtype[k], k, use.slot, device);
          part.in_memory = in_memory(use.slot);
        }
        part.written |= k == 0;
        it.data[k] = static_cast<char*>(part.tensor.data_ptr());
      }
    }
  }
  std::span<const Call> calls() const { return calls_; }
  // What the calls have written, on the host, in an order that is the same for all copies.
  std::vector<std::pair<int, Tensor>> written() const {
    std::vector<std::pair<int, Tensor>> all;
    for (const auto& [key, part] : parts_)
      if (part.written && part.in_memory) {
        Tensor host = bytes(allocate_storage(part.tensor.impl()->storage()->nbytes(), Device()));
        raw::copy_(host, part.tensor);
        all.emplace_back(std::get<0>(key), std::move(host));
      }
    return all;
  }

 private:
  using Iterator = pointwise::Iterator;
  struct Part {
    Tensor tensor;
    bool written = false, in_memory = false;
  };
  static Tensor bytes(const Storage& storage) {
    const auto n = static_cast<ptrdiff_t>(storage->nbytes());
    return Tensor(make_intrusive<TensorImpl>(storage, DType::uint8, DimVector{n}, DimVector{1}, 0));
  }
  // With numbers that are the same in all copies.
  static Tensor fresh_part(int64_t n, int64_t item, DType dtype, int k, int salt, Device device) {
    const Tensor host = bytes(allocate_storage(static_cast<size_t>(n * item), Device()));
    auto* to = static_cast<char*>(host.data_ptr());
    if (dtype == DType::bool_) {
      for (int64_t i = 0; i < n; ++i) to[i] = "\0\1\1\0\0\7\1"[(i + salt) % 7];
    } else if (dtype == DType::float32) {
      fill_with_edges<float, uint32_t>(to, n, std::max(k, 1), static_cast<uint64_t>(salt));
    } else {
      std::vector<float> wide(static_cast<size_t>(n));
      fill_with_edges<float, uint32_t>(reinterpret_cast<char*>(wide.data()), n, std::max(k, 1),
                                       static_cast<uint64_t>(salt));
      for (int64_t i = 0; i < n; ++i) {
        const float x = wide[static_cast<size_t>(i)];
        const uint16_t bits = dtype == DType::float16 ? Half(x).bits : BFloat16(x).bits;
        std::memcpy(to + 2 * i, &bits, 2);
      }
    }
    Tensor made = bytes(allocate_storage(static_cast<size_t>(n * item), device));
    raw::copy_(made, host);
    return made;
  }

  std::vector<Call> calls_;
  std::map<std::tuple<int, ptrdiff_t, OperandLayout, DType>, Part> parts_;
};

// All that the comparison depends on.
std::string key_of(std::span<const Call> calls, const DeviceChain& chain, Device device) {
  std::string key = fmt::format("{} {}", device, chain.text());
  for (const Call& call : calls) {
    const pointwise::Iterator& it = *call.pointwise;
    key += fmt::format(" {}", it.numel);
    if (it.ndim == 2) key += fmt::format(" {}", it.shape[1]);
    for (const Scalar& p : it.params) key += fmt::format(" {}", p.to<double>());
  }
  return key;
}

// The waits of a comparison are none of the program's, whose own may be reported (strict("sync")).
struct PlainWaits {
  explicit PlainWaits(DeviceInterface& device) : on(device), mode(std::get<int64_t>(on.call("wait_mode", {}))) {
    on.call("set_wait_mode", {int64_t{0}});
  }
  ~PlainWaits() { on.call("set_wait_mode", {mode}); }
  DeviceInterface& on;
  int64_t mode;
};

// On a simulated device, which of two NaN comes out is the choice of the host's compiler; devices have one.
void make_nan_one(char* bytes, size_t n, DType dtype) {
  const auto each = [&]<class Bits>(Bits infinity) {
    for (size_t i = 0; i < n; i += sizeof(Bits)) {
      Bits x;
      std::memcpy(&x, bytes + i, sizeof x);
      if ((x & static_cast<Bits>(~Bits{0} >> 1)) > infinity) std::memset(bytes + i, 0xff, sizeof x);
    }
  };
  if (dtype == DType::float32) each(uint32_t{0x7f800000});
  if (dtype == DType::float16) each(uint16_t{0x7c00});
  if (dtype == DType::bfloat16) each(uint16_t{0x7f80});
}

// "" or what is different.
std::string compare(std::span<const Call> calls, const DeviceChain& chain, Device device,
                    const std::function<bool(int)>& in_memory) {
  const Copy one_by_one(calls, device, true, in_memory), at_once(calls, device, false, in_memory);
  for (const Call& call : one_by_one.calls()) reinterpret_cast<pointwise::Kernel>(call.kernel)(*call.pointwise);
  chain.run(at_once.calls());
  const auto expected = one_by_one.written(), got = at_once.written();
  const bool simulated = need_device(device.type, "recorded step").simulated();
  for (size_t i = 0; i < expected.size(); ++i) {
    auto *a = static_cast<char*>(expected[i].second.data_ptr()), *b = static_cast<char*>(got[i].second.data_ptr());
    const auto n = static_cast<size_t>(expected[i].second.numel());
    const Call& writer =
        *std::ranges::find_if(calls, [&](const Call& call) { return call.uses[0].slot == expected[i].first; });
    const DType dtype = writer.pointwise->dtype[0];
    if (simulated)
      for (char* bytes : {a, b}) make_nan_one(bytes, n, dtype);
    if (std::memcmp(a, b, n) == 0) continue;
    const auto byte = static_cast<size_t>(std::mismatch(a, a + n, b).first - a);
    return fmt::format("{} gave other bits at element {}", writer.entry->name, byte / element_size(dtype));
  }
  return "";
}

// The parts of calls that a Copy needs, for when the step's own have other places.
std::vector<Call> parts_of(std::span<const Call> calls) {
  std::vector<Call> parts;
  for (const Call& from : calls) {
    Call& call = parts.emplace_back();
    call.entry = from.entry;
    call.kernel = from.kernel;
    call.uses = from.uses;
    call.pointwise = std::make_unique<pointwise::Iterator>(*from.pointwise);
  }
  return parts;
}

// Whether it gives the bits of the calls; else `why` is set.
bool is_equal(std::span<const Call> calls, const DeviceChain& chain, Device device,
              const std::function<bool(int)>& in_memory, std::string& why) {
  // A child process may be made while another thread holds the lock, so nobody waits for it.
  static std::mutex& lock = *new std::mutex;
  static std::set<std::string>& compared = *new std::set<std::string>;
  const std::string key = key_of(calls, chain, device);
  {
    const std::unique_lock guard(lock, std::try_to_lock);
    if (guard && compared.contains(key)) return true;
  }
  const NoGradGuard no_grad;
  DeviceInterface& on = need_device(device.type, "recorded step");
  // Here, and not as if the comparison had failed, is raised what earlier kernels have found.
  on.call("synchronize_stream", {int64_t{device.index}, on.current_stream(device.index)});
  const PlainWaits plain(on);
  std::string difference;
  try {
    difference = compare(calls, chain, device, in_memory);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::OutOfMemory) throw;
    difference = "there is no memory to compare a chain";
  }
  if (!difference.empty()) {
    why = difference.substr(0, difference.find('\n'));
    return false;
  }
  if (const std::unique_lock guard(lock, std::try_to_lock); guard) {
    if (compared.size() > 4096) compared.clear();
    compared.insert(key);
  }
  return true;
}

}  // namespace

std::shared_ptr<const DeviceChain> device_chain(const Recording& r, size_t first, size_t last) {
  std::function<void()> compile;
  std::shared_ptr<const DeviceChain> chain = chain_compiler.load()->find(
      std::span(r.calls.data() + first, last - first), [&](int slot) { return !only_used_in(r, slot, first, last); },
      compile);
  TG_ASSERT(chain != nullptr);
  return chain;
}

void settle(AwaitedChain& awaited, Device device) {
  if (awaited.job.why() != nullptr) {
    awaited.why = awaited.job.why();
    return;
  }
  const auto in_memory = [&](int slot) { return !awaited.registers.contains(slot); };
  std::function<void()> compile;
  const std::shared_ptr<const DeviceChain> chain = chain_compiler.load()->find(awaited.calls, in_memory, compile);
  TG_ASSERT(chain != nullptr);
  awaited.taken = is_equal(awaited.calls, *chain, device, in_memory, awaited.why);
}

bool check_device_chain(Recording& r, size_t first, size_t last, std::string& why) {
  for (const auto& awaited : r.awaited)
    if (awaited->first == first && awaited->last == last) {
      if (!awaited->why.empty()) why = awaited->why;
      return awaited->taken;
    }
  const std::span<const Call> calls(r.calls.data() + first, last - first);
  const auto in_memory = [&](int slot) { return !only_used_in(r, slot, first, last); };
  std::function<void()> compile;
  if (const std::shared_ptr<const DeviceChain> chain = chain_compiler.load()->find(calls, in_memory, compile))
    return is_equal(calls, *chain, *r.device, in_memory, why);
  auto awaited = std::make_shared<AwaitedChain>(first, last, std::move(compile));
  awaited->calls = parts_of(calls);
  for (const Call& call : calls)
    for (const Use& use : call.uses)
      if (use.slot >= 0 && !in_memory(use.slot)) awaited->registers.insert(use.slot);
  if (!compile_later(std::shared_ptr<CompileJob>(awaited, &awaited->job)))
    why = "too many kernels wait to be compiled";
  else
    r.awaited.push_back(std::move(awaited));
  return false;
}

}  // namespace tapegrad::record
