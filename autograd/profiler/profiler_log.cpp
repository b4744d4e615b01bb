#include "tapegrad/autograd/profiler/profiler_log.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <new>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "tapegrad/autograd/engine/node.h"
#include "tapegrad/autograd/profiler/call_site.h"
#include "tapegrad/c10/memory/allocator.h"

namespace tapegrad::autograd::profiler {

bool use_counter = false;

int64_t steady_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool counter_is_steady() noexcept {
#if defined(__x86_64__)
  // "Invariant TSC", Intel's manual, volume 3, 18.17.1; AMD's, volume 3, appendix E.4.
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007u, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;
#elif defined(__aarch64__)
  return true;  // the system counter of the architecture
#else
  return false;
#endif
}

// The pair whose readings lie closest together, of a few.
TickScale::Reading TickScale::read() noexcept {
  Reading best;
  int64_t gap = INT64_MAX;
  for (int k = 0; k < 5; ++k) {
    const int64_t before = ticks(), ns = steady_ns(), after = ticks();
    if (after - before < gap) {
      gap = after - before;
      best = {before + (after - before) / 2, ns};
    }
  }
  return best;
}

void TickScale::end() noexcept {
  Reading last = read();
  while (last.ns - first_.ns < 100'000) last = read();
  if (last.tick > first_.tick)
    ns_per_tick_ = static_cast<double>(last.ns - first_.ns) / static_cast<double>(last.tick - first_.tick);
}

namespace {

// Blocks of sessions that are over, for the next one.
constexpr size_t kSpareBlocks = 8;
struct Spare {
  std::mutex mutex;
  std::vector<Event*> blocks;
};
Spare& spare() {
  static auto* one = [] {
    auto* s = new Spare;
    s->blocks.reserve(kSpareBlocks);
    return s;
  }();
  return *one;
}

Event* take_block() {
  constexpr size_t n = EventBlock::kBytes;
  {
    Spare& s = spare();
    std::lock_guard lock(s.mutex);
    if (!s.blocks.empty()) {
      Event* block = s.blocks.back();
      s.blocks.pop_back();
      return block;
    }
  }
  // Twice as much is mapped, and the parts outside of an aligned block are unmapped.
  void* mapped = mmap(nullptr, 2 * n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* begin = static_cast<char*>(mapped);
  auto* block = begin + (n - reinterpret_cast<uintptr_t>(begin) % n) % n;
  if (block != begin) munmap(begin, static_cast<size_t>(block - begin));
  if (block != begin + n) munmap(block + n, static_cast<size_t>(begin + n - block));
  madvise(block, n, MADV_HUGEPAGE);  // may fail: ordinary pages then
  for (size_t i = 0; i < n; i += 4096) block[i] = 0;
  return reinterpret_cast<Event*>(block);
}

void give_back(Event* block) noexcept {
  {
    Spare& s = spare();
    std::lock_guard lock(s.mutex);
    if (s.blocks.size() < kSpareBlocks) {
      s.blocks.push_back(block);  // reserved
      return;
    }
  }
  munmap(block, EventBlock::kBytes);
}

}  // namespace

Log::Log(uint64_t number, Options what)
    : session(number), options(what), thread(static_cast<uint64_t>(syscall(SYS_gettid))) {
  open_.reserve(64);
  scratch_.reserve(256);
  blocks_.reserve(kMostEvents / EventBlock::kEvents);
  add_event_block();
}

Log::~Log() {
  for (EventBlock* block = first_events_.load(); block;) {
    give_back(block->events);
    delete std::exchange(block, block->next.load());
  }
  for (InputBlock* block = first_inputs_.load(); block;) delete std::exchange(block, block->next.load());
}

void Log::add_event_block() {
  auto block = std::make_unique<EventBlock>();
  block->events = take_block();
  blocks_.push_back(block->events);  // reserved
  (last_events_ ? last_events_->next : first_events_).store(block.get(), std::memory_order_release);
  last_events_ = block.release();
}

namespace {

void describe(std::vector<int64_t>& to, const Tensor* t) {
  if (!t || !t->defined()) {
    to.push_back(-1);
    return;
  }
  to.push_back(static_cast<int64_t>(t->dtype()));
  to.push_back(t->ndim());
  for (int64_t n : t->sizes()) to.push_back(n);
}

uint64_t hash_of(const std::vector<int64_t>& numbers) noexcept {
  uint64_t h = numbers.size();
  for (int64_t n : numbers) h = (h ^ static_cast<uint64_t>(n)) * 0x9e3779b97f4a7c15ull;
  return h ^ h >> 32;
}

}  // namespace

uint32_t Log::append_inputs(const std::vector<int64_t>& numbers) {
  const size_t n = numbers.size();
  InputBlock* block = last_inputs_;
  uint64_t used = block ? block->used.load(std::memory_order_relaxed) : 0;
  if (!block || block->capacity - used < n) {
    auto fresh = std::make_unique<InputBlock>(std::max(n, kInputsPerBlock));
    fresh->base = block ? block->base + used : 0;
    (block ? block->next : first_inputs_).store(fresh.get(), std::memory_order_release);
    last_inputs_ = block = fresh.release();
    used = 0;
  }
  if (block->base + used + n >= kNone) return kNone;  // 32 GB of descriptions: this call is kept without
  std::copy(numbers.begin(), numbers.end(), block->numbers.get() + used);
  block->used.store(used + n, std::memory_order_relaxed);
  return static_cast<uint32_t>(block->base + used);
}

uint32_t Log::note_inputs(dispatch::Arguments inputs) {
  using dispatch::ArgumentType;
  scratch_.clear();
  scratch_.push_back(static_cast<int64_t>(inputs.size()));
  for (const dispatch::Argument& input : inputs) {
    switch (input.type()) {
      case ArgumentType::Tensors:
        scratch_.push_back(-2);
        scratch_.push_back(static_cast<int64_t>(input.list().size()));
        for (const Tensor& t : input.list()) describe(scratch_, &t);
        break;
      case ArgumentType::Ints: {
        const IntSpan ints = input.as<IntSpan>();
        scratch_.push_back(-3);
        scratch_.push_back(static_cast<int64_t>(ints.size()));
        scratch_.insert(scratch_.end(), ints.begin(), ints.end());
        break;
      }
      case ArgumentType::Int:
        scratch_.push_back(-4);
        scratch_.push_back(input.as<int64_t>());
        break;
      default:
        describe(scratch_, input.is_tensor() ? &input.tensor() : nullptr);
    }
  }
  const size_t n = scratch_.size();
  const uint64_t hash = hash_of(scratch_);
  size_t i = hash & (table_.size() - 1);
  for (; table_[i].numbers; i = (i + 1) & (table_.size() - 1)) {
    const Noted& known = table_[i];
    if (known.hash == hash && known.size == n && std::equal(scratch_.begin(), scratch_.end(), known.numbers))
      return known.at;
  }
  if (2 * (noted_ + 1) > table_.size()) {
    grow_table();
    i = hash & (table_.size() - 1);
    while (table_[i].numbers) i = (i + 1) & (table_.size() - 1);
  }
  const uint32_t at = append_inputs(scratch_);
  if (at == kNone) return kNone;
  table_[i] = {last_inputs_->numbers.get() + (at - last_inputs_->base), static_cast<uint32_t>(n), at, hash};
  ++noted_;
  return at;
}

void Log::grow_table() {
  std::vector<Noted> larger(2 * table_.size());
  for (const Noted& known : table_) {
    if (!known.numbers) continue;
    size_t i = known.hash & (larger.size() - 1);
    while (larger[i].numbers) i = (i + 1) & (larger.size() - 1);
    larger[i] = known;
  }
  table_ = std::move(larger);
}

uint32_t Log::begin(Kind kind, const char* name, int64_t sequence, uint32_t extra, const dispatch::Arguments* inputs) {
  const uint32_t at = count_;
  if (TG_UNLIKELY(at % EventBlock::kEvents == 0 && at != 0)) {
    if (at >= kMostEvents) {
      dropped_.fetch_add(1, std::memory_order_relaxed);
      return kNone;
    }
    if (at / EventBlock::kEvents == blocks_.size()) add_event_block();
  }
  Event& e = *slot(at);
  e.site = e.stack = 0;
  if (options.stack) {
    e.site = current_site();
    e.stack = current_stack();
  }
  if (inputs && options.shapes) extra = note_inputs(*inputs);
  const uint32_t parent = open_.empty() ? kNone : open_.back();
  open_.push_back(at);
  e.name = name;
  e.end = -1;
  e.bytes = options.memory ? cpu_allocator().thread_bytes() : 0;
  e.sequence = sequence;
  e.parent = parent;
  e.detail = extra;
  e.kind = kind;
  e.begin = ticks();
  published_.store(count_ = at + 1, std::memory_order_release);
  return at;
}

void Log::finish(uint32_t at) noexcept {
  const int64_t time = ticks();
  Event& event = *slot(at);
  if (options.memory) event.bytes = cpu_allocator().thread_bytes() - event.bytes;
  // An operator notes the first node that was made while it ran: its own, as those that accumulate follow.
  if (event.kind == Kind::Operator) {
    const auto newest = static_cast<int64_t>(autograd::detail::node_sequence);
    event.sequence = newest != event.sequence ? event.sequence + 1 : 0;
  }
  std::atomic_ref<int64_t>(event.end).store(time, std::memory_order_release);
  if (TG_LIKELY(!open_.empty() && open_.back() == at)) {
    open_.pop_back();
    return;
  }
  for (size_t k = open_.size(); k > 0; --k) {
    if (open_[k - 1] != at) continue;
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(k - 1));
    break;
  }
}

const char* Log::keep(std::string_view name) {
  Known& known = known_[(reinterpret_cast<size_t>(name.data()) >> 3) % known_.size()];
  if (TG_LIKELY(known.given == name.data() && known.size == name.size() &&
                std::memcmp(known.kept, name.data(), name.size()) == 0))
    return known.kept;
  const char* kept = names_.emplace(name).first->c_str();
  known = {name.data(), name.size(), kept};
  return kept;
}

void Log::read(ThreadRecord& into, const TickScale& scale, int64_t now) const {
  into.thread = thread;
  into.dropped = dropped_.load(std::memory_order_relaxed);
  const uint32_t count = published_.load(std::memory_order_acquire);
  into.events.reserve(count);
  const EventBlock* block = first_events_.load(std::memory_order_acquire);
  for (uint32_t at = 0; at < count; ++at) {
    if (at != 0 && at % EventBlock::kEvents == 0) block = block->next.load(std::memory_order_acquire);
    Event& written = block->events[at % EventBlock::kEvents];
    const int64_t end = std::atomic_ref<int64_t>(written.end).load(std::memory_order_acquire);
    Event e{written.name,  scale.ns(written.begin), 0,           0, 0, written.parent, written.site,
            written.stack, written.detail,          written.kind};
    // What is open is still being written by its thread: only what `begin` wrote is read.
    if (end != -1) {
      e.bytes = written.bytes;
      e.sequence = written.sequence;
    } else if (written.kind != Kind::Operator) {
      e.sequence = written.sequence;
    }
    e.end = std::max(e.begin, scale.ns(end == -1 ? now : end));
    into.events.push_back(e);
  }
  if (!options.shapes) return;
  for (const InputBlock* b = first_inputs_.load(std::memory_order_acquire); b;) {
    const InputBlock* next = b->next.load(std::memory_order_acquire);
    const uint64_t used = next ? next->base - b->base : b->used.load(std::memory_order_relaxed);
    into.inputs.insert(into.inputs.end(), b->numbers.get(), b->numbers.get() + used);
    b = next;
  }
}

}  // namespace tapegrad::autograd::profiler
