#include "tapegrad/c10/random/generator.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "tapegrad/c10/error.h"
#include "tapegrad/c10/memory/available_memory.h"
#include "tapegrad/c10/random/default_generators.h"
#include "tapegrad/c10/random/thread_generator.h"

namespace tapegrad {

namespace {

constexpr uint64_t kTag = 0x01006E6567736774u;  // "tgsgen", format 1

void put(uint8_t* bytes, uint64_t value) {
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
}

uint64_t get(const uint8_t* bytes) {
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value |= uint64_t{bytes[i]} << (8 * i);
  return value;
}

}  // namespace

uint64_t entropy64() {
  uint64_t value = 0;
  auto* bytes = reinterpret_cast<unsigned char*>(&value);
  for (size_t done = 0; done < sizeof(value);) {
    const ssize_t n = getrandom(bytes + done, sizeof(value) - done, 0);
    TG_CHECK(n > 0 || errno == EINTR, Runtime, "seed: the system gives no random numbers: error {}", errno);
    if (n > 0) done += static_cast<size_t>(n);
  }
  return value;
}

void Generator::manual_seed(uint64_t seed) noexcept {
  std::lock_guard lock(lock_);
  seed_ = seed;
  offset_ = 0;
}

uint64_t Generator::seed() {
  // 53 bits, so that the seed survives a trip through a double (JSON, Lua, spreadsheets).
  const uint64_t fresh = entropy64() >> 11;
  manual_seed(fresh);
  return fresh;
}

uint64_t Generator::initial_seed() const noexcept {
  std::lock_guard lock(lock_);
  return seed_;
}

PhiloxState Generator::next(uint64_t n_elements, uint64_t rounds) noexcept {
  std::lock_guard lock(lock_);
  const PhiloxState state{seed_, offset_};
  if (n_elements != 0) offset_ += rounds;
  return state;
}

uint64_t Generator::offset() const noexcept {
  std::lock_guard lock(lock_);
  return offset_;
}

void Generator::set_offset(uint64_t offset) noexcept {
  std::lock_guard lock(lock_);
  offset_ = offset;
}

std::vector<uint8_t> Generator::get_state() const {
  std::vector<uint8_t> bytes(kStateBytes);
  std::lock_guard lock(lock_);
  put(bytes.data(), kTag);
  put(bytes.data() + 8, seed_);
  put(bytes.data() + 16, offset_);
  return bytes;
}

void Generator::set_state(const uint8_t* bytes, size_t n) {
  const bool of_pytorch = n == 5056 || n == 16;  // on the CPU, on a GPU
  TG_CHECK(n == kStateBytes, Value, "set_state: a generator's state has {} bytes: got {}{}", kStateBytes, n,
           of_pytorch ? "\nit may be PyTorch's, whose generators are others: use manual_seed()" : "");
  TG_CHECK(get(bytes) == kTag, Value,
           "set_state: not the state of a tapegrad generator: the first 8 bytes are {:#018x}", get(bytes));
  std::lock_guard lock(lock_);
  seed_ = get(bytes + 8);
  offset_ = get(bytes + 16);
}

intrusive_ptr<Generator> Generator::clone() const {
  std::lock_guard lock(lock_);
  auto copy = make_intrusive<Generator>(seed_);
  copy->offset_ = offset_;
  return copy;
}

// The calling thread's own generator, null where it has none.
static intrusive_ptr<Generator>& thread_generator() {
  static thread_local intrusive_ptr<Generator> own;
  return own;
}
static constinit thread_local bool may_have_own = false;  // nothing is made for a thread that never set one

void set_thread_generator(intrusive_ptr<Generator> generator) {
  if (!generator && !may_have_own) return;
  require_thread_memory<Generator>();
  may_have_own = true;
  thread_generator() = std::move(generator);
}
bool has_thread_generator() noexcept { return TG_UNLIKELY(may_have_own) && thread_generator().get() != nullptr; }

const intrusive_ptr<Generator>& default_cpu_generator() {
  static const auto& instance = *new intrusive_ptr<Generator>(make_intrusive<Generator>());
  return TG_UNLIKELY(has_thread_generator()) ? thread_generator() : instance;
}

namespace {

using GeneratorPtr = intrusive_ptr<Generator>;

// The default generators of CUDA devices, each created on first use, with the seed that was last set for all.
class DeviceGenerators {
 public:
  const GeneratorPtr& of(int index) {
    const GeneratorPtr* current = current_[static_cast<size_t>(index)].load(std::memory_order_acquire);
    return TG_LIKELY(current != nullptr) ? *current : make(static_cast<size_t>(index));
  }

  void replace(int index, GeneratorPtr generator) {
    auto cell = std::make_unique<const GeneratorPtr>(std::move(generator));
    std::unique_ptr<const GeneratorPtr> forgotten;  // destroyed without the lock
    const std::lock_guard lock(lock_);
    const auto known = std::ranges::find_if(cells_, [&](const auto& c) { return *c == *cell; });
    const GeneratorPtr* current = known != cells_.end() ? known->get() : cell.get();
    if (known == cells_.end()) cells_.push_back(std::move(cell));
    current_[static_cast<size_t>(index)].store(current, std::memory_order_release);
    if (cells_.size() <= kKept) return;
    const auto unused = std::ranges::find_if(cells_, [&](const auto& c) {
      return std::ranges::none_of(current_, [&](const auto& slot) { return slot.load() == c.get(); });
    });
    forgotten = std::move(*unused);
    cells_.erase(unused);
  }

  void manual_seed(uint64_t seed) {
    const std::lock_guard lock(lock_);
    seed_ = seed;
    for (const auto& slot : current_)
      if (const GeneratorPtr* generator = slot.load(std::memory_order_relaxed)) (*generator)->manual_seed(seed);
  }

 private:
  const GeneratorPtr& make(size_t index) {
    auto made = std::make_unique<const GeneratorPtr>(make_intrusive<Generator>());
    const std::lock_guard lock(lock_);
    if (current_[index].load(std::memory_order_relaxed) == nullptr) {
      (*made)->manual_seed(seed_);
      current_[index].store(made.get(), std::memory_order_release);
      cells_.push_back(std::move(made));
    }
    return *current_[index].load(std::memory_order_relaxed);
  }

  // `of` gives references without a lock: what was replaced stays until so many others have come, long after the calls
  // that were looking at it have ended.
  static constexpr size_t kKept = 1024;

  ForkSafeLock lock_;
  uint64_t seed_ = Generator::kDefaultSeed;
  std::array<std::atomic<const GeneratorPtr*>, 128> current_{};  // by index; null: not created yet
  std::deque<std::unique_ptr<const GeneratorPtr>> cells_;
};

DeviceGenerators& device_generators() {
  static auto& all = *new DeviceGenerators;
  return all;
}

}  // namespace

const intrusive_ptr<Generator>& default_generator_of(Device device) {
  if (TG_LIKELY(!device.is_cuda()) || has_thread_generator()) return default_cpu_generator();
  TG_ASSERT(device.index >= 0);
  return device_generators().of(device.index);
}

void set_default_generator_of(Device device, intrusive_ptr<Generator> generator) {
  TG_ASSERT(device.is_cuda() && device.index >= 0 && generator);
  device_generators().replace(device.index, std::move(generator));
}

void manual_seed_all(uint64_t seed) {
  default_cpu_generator()->manual_seed(seed);
  if (has_thread_generator()) return;
  device_generators().manual_seed(seed);
}

}  // namespace tapegrad
