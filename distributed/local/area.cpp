#include "tapegrad/distributed/local/area.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <new>

namespace tapegrad::distributed::local {

namespace {

constexpr auto kBackend = DistError::Part::Backend;
constexpr uint64_t kMagic = 0x3161657261736774;  // another one for another layout
// A death is noticed after a slice and must be known after 100 ms.
constexpr auto kSlice = std::chrono::milliseconds(20);
// Longer than a rank takes to get from the end of one call to the next; waking it up takes as long.
constexpr auto kSpinning = std::chrono::microseconds(50);

constexpr size_t kChunk = size_t{128} << 10;
constexpr size_t kMostChunkBytes = size_t{64} << 20;  // of all ranks

constexpr size_t round_up(size_t n, size_t step = kLine) { return (n + step - 1) / step * step; }

constexpr char kPassMark = '\0';  // no message begins with it

std::string key(int r) { return fmt::format("area/{}", r); }

void sleep_on(Word& word, uint32_t seen, std::chrono::nanoseconds limit) noexcept {
  const timespec t{static_cast<time_t>(limit.count() / 1'000'000'000),
                   static_cast<long>(limit.count() % 1'000'000'000)};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &t, nullptr, 0);
}

int processors() noexcept {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

void Area::pause() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

// ---- Layout

size_t Area::lay_out() noexcept {
  const auto n = static_cast<size_t>(size_);
  slots_at_ = round_up(sizeof(Header)) + n * sizeof(Rank);
  entries_at_ = slots_at_ + 2 * n * sizeof(ExchangeSlot);
  chunks_at_ = round_up(entries_at_ + n * n * sizeof(ChannelEntry), 4096);
  chunk_bytes_ = std::min(kChunk, kMostChunkBytes / (n * kBuffers) / 4096 * 4096);
  return chunks_at_ + n * kBuffers * chunk_bytes_;
}

Area::Rank& Area::at(int r) const noexcept {
  static_assert(sizeof(Rank) % kLine == 0 && sizeof(ExchangeSlot) % kLine == 0 && sizeof(ChannelEntry) % kLine == 0);
  return reinterpret_cast<Rank*>(piece_.data + round_up(sizeof(Header)))[r];
}

Area::ExchangeSlot& Area::exchange_slot(int r, uint64_t number) const noexcept {
  return reinterpret_cast<ExchangeSlot*>(piece_.data + slots_at_)[2 * static_cast<size_t>(r) + number % 2];
}

Area::ChannelEntry& Area::channel_entry(int from, int to) const noexcept {
  const size_t i = static_cast<size_t>(from) * static_cast<size_t>(size_) + static_cast<size_t>(to);
  return reinterpret_cast<ChannelEntry*>(piece_.data + entries_at_)[i];
}

char* Area::chunk(int r, uint64_t step) const noexcept {
  return piece_.data + chunks_at_ + (static_cast<size_t>(r) * kBuffers + step % kBuffers) * chunk_bytes_;
}

// ---- Meeting

Area::Area(CommonMemory& memory, const BackendPlace& place)
    : memory_(memory),
      rank_(place.rank),
      size_(place.size),
      failure_(place.failure ? place.failure : std::make_shared<Failure>()) {
  TG_CHECK(size_ >= 1 && size_ <= kMostRanks, Value, "process group: at most {} ranks can share memory: got {}",
           kMostRanks, size_);
  TG_CHECK(rank_ >= 0 && rank_ < size_, Value, "process group: the rank is not one of {}: got {}", size_, rank_);
  // If ranks outnumber processors, a spinning rank may keep the one that it waits for from running.
  spinning_ = processors() >= size_ ? kSpinning : std::chrono::microseconds(1);
  const size_t nbytes = lay_out();
  rank_ == 0 ? make(place, nbytes) : join(place, nbytes);
  try {
    meet(place);
  } catch (const std::exception& e) {
    tell(e.what());
    leave();
    throw;
  }
}

Area::~Area() {
  if (generation_ == fork_generation()) leave();
}

void Area::leave() noexcept {
  at(rank_).left.store(1);
  for (int r = 0; r < size_; ++r) wake(at(r));
  for (const CommonMemory::Pass& pass : passes_) memory_.take_back(pass);
}

void Area::make(const BackendPlace& place, size_t nbytes) try {
  piece_ = memory_.allocate(nbytes);
  std::memset(piece_.data, 0, entries_at_);
  auto* head = new (piece_.data) Header{};
  for (int r = 0; r < size_; ++r) new (&at(r)) Rank{};
  for (int r = 0; r < size_; ++r) {
    exchange_slot(r, 0).posted.store(0, std::memory_order_relaxed);
    exchange_slot(r, 1).posted.store(0, std::memory_order_relaxed);
    for (int to = 0; to < size_; ++to) new (&channel_entry(r, to)) ChannelEntry{};
  }
  head->magic = kMagic;
  head->nbytes = nbytes;
  for (int r = 1; r < size_; ++r) {
    passes_.push_back(memory_.give(piece_));
    place.store->set(key(r), kPassMark + std::string(passes_.back().data(), passes_.back().size()));
  }
} catch (const std::exception& e) {
  for (const CommonMemory::Pass& pass : passes_) memory_.take_back(pass);
  // The others need not wait for what does not come.
  try {
    for (int r = 1; r < size_; ++r) place.store->set(key(r), e.what());
  } catch (const std::exception&) {  // the store has gone, too
  }
  throw;
}

void Area::join(const BackendPlace& place, size_t nbytes) {
  const std::string text = place.store->get(key(rank_), place.timeout);
  // A pass may be any bytes: only the mark distinguishes it from a failure message.
  if (!text.starts_with(kPassMark)) fail(kBackend, "process group: rank 0 has no memory to share: {}", text);
  CommonMemory::Pass pass;
  if (text.size() != 1 + pass.size()) fail(kBackend, "process group: the store holds no pass of rank 0's memory");
  std::memcpy(pass.data(), text.data() + 1, pass.size());
  try {
    piece_ = memory_.receive(pass);
  } catch (const std::exception& e) {
    fail(kBackend, "process group: the memory of rank 0 cannot be opened: {}", e.what());
  }
  if (piece_.nbytes != nbytes || header().magic != kMagic || header().nbytes != nbytes)
    fail(kBackend, "process group: rank 0 has another version of tapegrad, or another number of ranks than {}", size_);
}

void Area::meet(const BackendPlace& place) {
  at(rank_).mark.store(shared::mark_of(getpid()));
  notify_all();
  Wait wait;
  wait.deadline = Clock::now() + place.timeout;
  wait.failure = failure_.get();
  wait.may_be_interrupted = true;
  wait.what = "process group";
  auto missing = [&] {
    if (place.check) place.check();
    std::vector<int> ranks;
    for (int r = 0; r < size_; ++r)
      if (at(r).mark.load() == 0) ranks.push_back(r);
    return ranks;
  };
  until(wait, [&] { return missing().empty(); }, missing);
  for (int r = 0; r < size_; ++r) {
    const shared::ProcessMark mark = at(r).mark.load();
    processes_.push_back(mark == at(rank_).mark.load() ? nullptr : Process::find(mark));
  }
}

// ---- Waiting

void Area::wake(Rank& rank) noexcept {
  rank.wakeups.fetch_add(1);
  syscall(SYS_futex, &rank.wakeups, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

// Either this sees the sleeper, or the sleeper, which counts itself first, sees what was written: all of it is in one
// order.
void Area::notify(int r) const noexcept {
  Rank& rank = at(r);
  if (rank.sleepers.load() != 0) wake(rank);
}

void Area::notify_all() const noexcept {
  for (int r = 0; r < size_; ++r)
    if (r != rank_) notify(r);
}

void Area::sleep_until(const Wait& wait, const std::function<bool()>& ready,
                       const std::function<std::vector<int>()>& missing, bool any) const {
  const Clock::time_point since = Clock::now();
  Rank& self = at(rank_);
  for (;;) {
    self.sleepers.fetch_add(1);
    const uint32_t seen = self.wakeups.load();
    const bool come = ready() || header().failed.load() != 0;
    if (const auto left = std::min<std::chrono::nanoseconds>(kSlice, wait.deadline - Clock::now());
        !come && left.count() > 0)
      sleep_on(self.wakeups, seen, left);
    self.sleepers.fetch_sub(1);
    if (ready()) return;
    if (header().failed.load() != 0 || failure_->is_set()) raise_failed(wait);
    if (!ended(missing(), any).empty()) {
      if (ready()) return;
      // What it did before it ended is seen by now: it may be missing no more.
      raise_ended(wait, missing(), any);
    }
    wait.poll(since, missing);
  }
}

void Area::raise_ended(const Wait& wait, const std::vector<int>& ranks, bool any) const {
  const std::string text = ended(ranks, any);
  if (text.empty()) return;
  // A rank that leaves because of a failure reports it first.
  if (header().failed.load() != 0 || failure_->is_set()) raise_failed(wait);
  fail(kBackend, "{}: {}", wait.what, text);
}

std::string Area::ended(const std::vector<int>& ranks, bool any) const {
  size_t left = 0;
  for (int r : ranks) {
    const Process* process =
        static_cast<size_t>(r) < processes_.size() ? processes_[static_cast<size_t>(r)].get() : nullptr;
    if (at(r).left.load() != 0) {
      if (++left == ranks.size() || !any) return fmt::format("rank {} has left the group", r);
    } else if (process != nullptr && process->ended()) {
      return fmt::format("rank {} has died: process {}", r, process->id());
    }
  }
  return {};
}

// ---- Failures

void Area::tell(const char* why) noexcept {
  if (generation_ != fork_generation() || told_.exchange(true)) return;
  Rank& self = at(rank_);
  const size_t length = std::min(std::strlen(why), kWhyWords * sizeof(uint64_t));
  for (size_t i = 0; i < length; i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, why + i, std::min(sizeof(word), length - i));
    self.why[i / sizeof(word)].store(word, std::memory_order_relaxed);
  }
  uint32_t nobody = 0;
  header().failed.compare_exchange_strong(nobody, static_cast<uint32_t>(rank_) + 1);
  for (int r = 0; r < size_; ++r) wake(at(r));
}

void Area::abort(const std::string& why) noexcept {
  failure_->set(why);
  tell(why.c_str());
}

std::string Area::why(int r) const {
  char text[kWhyWords * sizeof(uint64_t)];
  for (size_t i = 0; i < kWhyWords; ++i) {
    const uint64_t word = at(r).why[i].load(std::memory_order_relaxed);
    std::memcpy(text + i * sizeof(word), &word, sizeof(word));
  }
  return std::string(text, strnlen(text, sizeof(text)));
}

void Area::raise_failed(const Wait& wait) const {
  if (generation_ != fork_generation())
    fail(kBackend, "{}: the group belongs to the process that this one was forked from\nmake a group of its own here",
         wait.what);
  if (failure_->is_set()) fail(kBackend, "{}: {}", wait.what, failure_->why());
  const auto r = static_cast<int>(header().failed.load()) - 1;
  if (r == rank_) fail(kBackend, "{}: {}", wait.what, why(r));
  if (r < 0 || r >= size_) fail(kBackend, "{}: the memory of the group is damaged", wait.what);
  fail(kBackend, "{}: rank {} has failed: {}", wait.what, r, why(r));
}

}  // namespace tapegrad::distributed::local
