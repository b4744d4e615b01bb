#include "tapegrad/c10/room.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace tapegrad {

// From here on malloc maps pages, too, and learns from what is freed what it should keep: nothing of this.
static constexpr size_t kMapped = size_t{128} << 10;

void need_room(size_t nbytes) {
  if (nbytes >= kMapped) {
    void* p = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    munmap(p, nbytes);
    return;
  }
  void* volatile p = std::malloc(nbytes);  // volatile: a pair that nobody looks at may be left out
  if (p == nullptr) throw std::bad_alloc();
  std::free(p);
}

}  // namespace tapegrad
