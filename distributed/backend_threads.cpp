// Ranks that are threads of this process: they pass memory through a table, whose indices are exchanged through the
// store.
#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include "tapegrad/c10/random/generator.h"
#include "tapegrad/distributed/local/local_backend.h"

namespace tapegrad::distributed {

namespace local {

namespace {

class ThreadMemory final : public CommonMemory {
 public:
  Piece allocate(size_t nbytes) override {
    constexpr auto kAlign = std::align_val_t{4096};
    std::shared_ptr<void> holds(::operator new(nbytes, kAlign), [](void* p) { ::operator delete(p, kAlign); });
    return {static_cast<char*>(holds.get()), nbytes, holds};
  }
  Pass give(const Piece& piece) override {
    Pass pass{};
    const std::lock_guard lock(mutex_);
    uint64_t number;
    do number = entropy64();
    while (!on_their_way_.emplace(number, piece).second);
    std::memcpy(pass.data(), &number, sizeof(number));
    return pass;
  }
  Piece receive(const Pass& pass) override {
    const std::lock_guard lock(mutex_);
    const auto it = on_their_way_.find(number_of(pass));
    if (it == on_their_way_.end())
      fail(DistError::Part::Backend,
           "no thread of this process has given that memory\nthe ranks of the engine "
           "'threads' are threads of one process");
    Piece piece = std::move(it->second);
    on_their_way_.erase(it);
    return piece;
  }
  void take_back(const Pass& pass) noexcept override {
    const std::lock_guard lock(mutex_);
    on_their_way_.erase(number_of(pass));
  }

 private:
  static uint64_t number_of(const Pass& pass) noexcept {
    uint64_t number;
    std::memcpy(&number, pass.data(), sizeof(number));
    return number;
  }
  std::mutex mutex_;
  std::map<uint64_t, Piece> on_their_way_;
};

}  // namespace

CommonMemory& memory_of_threads() {
  static auto& memory = *new ThreadMemory;  // ranks may end after the program's last line
  return memory;
}

}  // namespace local

std::unique_ptr<Backend> make_thread_backend(const BackendPlace& place) {
  return std::make_unique<local::LocalBackend>("threads", local::memory_of_threads(), place);
}

}  // namespace tapegrad::distributed
