#include "tapegrad/c10/memory/available_memory.h"

#include <cxxabi.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace tapegrad {

// From here on malloc maps pages, too, and learns from what is freed what it should keep: nothing of this.
static constexpr size_t kMapped = size_t{128} << 10;

constinit thread_local bool detail::thread_prepared = false;

namespace {
constexpr size_t kReserve = 4096;
std::atomic<void*> reserve{std::malloc(kReserve)};
}  // namespace

void detail::prepare_thread_slowly() noexcept {
  void* volatile p = std::malloc(kReserve);
  if (p == nullptr) p = reserve.exchange(nullptr);
  if (p == nullptr) return;
  std::free(p);
  void* volatile globals = abi::__cxa_get_globals();
  static_cast<void>(globals);
  thread_prepared = true;
  if (reserve.load() != nullptr) return;
  void* fresh = std::malloc(kReserve);
  void* none = nullptr;
  if (!reserve.compare_exchange_strong(none, fresh)) std::free(fresh);
}

void require_memory(size_t nbytes) {
  prepare_thread();
  if (nbytes >= kMapped) {
    void* p = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    munmap(p, nbytes);
    return;
  }
  void* volatile p = std::malloc(nbytes);  // volatile: the compiler may remove an unused malloc/free pair
  if (p == nullptr) throw std::bad_alloc();
  std::free(p);
}

}  // namespace tapegrad
