#include "tapegrad/aten/linalg/blas/openblas_scratch.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <vector>

#include "tapegrad/c10/error.h"
#include "tapegrad/c10/memory/allocator.h"
#include "tapegrad/c10/memory/available_memory.h"
#include "tapegrad/c10/threads/fork.h"

// Of the dynamic linker: the calling thread's variables of a library, made where they are not there yet. Without memory
// for them it ends the process.
extern "C" void* __tls_get_addr(void* module_and_offset);

namespace tapegrad::blas {

constinit thread_local bool detail::have_scratch = false;

namespace {

// made + spare >= threads: no call uses more than one buffer at a time, so OpenBLAS never requests one that does not
// exist.
struct Buffers {
  ForkSafeLock lock;
  uint32_t generation = fork_generation();
  size_t nbytes = size_t{32} << 20;  // of each; updated if OpenBLAS requests another size
  int64_t made = 0;                  // handed out
  int64_t threads = 0;               // that may call
  std::vector<void*> spare;
  size_t thread_variables[2] = {0, 0};  // the linker's number of the library, 0 where it has none; an offset
  pthread_key_t key;
  bool have_key = false;

  // A child of fork has one thread. What the others used at that moment is lost to it, but not what was that thread's.
  void follow_fork() {
    if (generation == fork_generation()) return;
    generation = fork_generation();
    threads = 1;
    made = 1 - static_cast<int64_t>(spare.size());
  }
};

Buffers& buffers() {
  static Buffers& instance = *new Buffers;  // never destroyed: threads may still run at exit
  return instance;
}

void* new_buffer(size_t nbytes) {
  return mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

void thread_ends(void*) {
  Buffers& b = buffers();
  std::lock_guard lock(b.lock);
  b.follow_fork();
  --b.threads;
}

// What OpenBLAS calls in place of mmap.
void* hand_out(void* hint, size_t nbytes, int protection, int flags, int file, off_t offset) {
  Buffers& b = buffers();
  std::lock_guard lock(b.lock);
  b.follow_fork();
  if (file == -1 && nbytes <= b.nbytes && !b.spare.empty()) {
    void* p = b.spare.back();
    b.spare.pop_back();
    ++b.made;
    return p;
  }
  if (file == -1 && nbytes > b.nbytes) b.nbytes = nbytes;
  void* p = mmap(hint, nbytes, protection, flags, file, offset);
  if (p != MAP_FAILED) ++b.made;
  return p;
}

// Writes where the dynamic linker has made memory read-only. False where the system does not let it.
template <class T>
bool overwrite(T* place, T value) noexcept {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  if (mprotect(reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(place) & ~(page - 1)), page,
               PROT_READ | PROT_WRITE) != 0)
    return false;
  *place = value;
  return true;
}

// The place where the dynamic linker has put the address of a function for the library's calls; null where it is not
// called.
void** import_of(const link_map* map, const char* name) noexcept {
  const ElfW(Rela) * tables[2] = {nullptr, nullptr};
  size_t sizes[2] = {0, 0};
  const ElfW(Sym)* symbols = nullptr;
  const char* names = nullptr;
  for (const ElfW(Dyn)* d = map->l_ld; d->d_tag != DT_NULL; ++d) {
    if (d->d_tag == DT_JMPREL) tables[0] = reinterpret_cast<const ElfW(Rela)*>(d->d_un.d_ptr);
    if (d->d_tag == DT_RELA) tables[1] = reinterpret_cast<const ElfW(Rela)*>(d->d_un.d_ptr);
    if (d->d_tag == DT_PLTRELSZ) sizes[0] = d->d_un.d_val / sizeof(ElfW(Rela));
    if (d->d_tag == DT_RELASZ) sizes[1] = d->d_un.d_val / sizeof(ElfW(Rela));
    if (d->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(d->d_un.d_ptr);
    if (d->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(d->d_un.d_ptr);
  }
  for (int t = 0; t < 2; ++t)
    for (size_t i = 0; tables[t] != nullptr && i < sizes[t]; ++i) {
      const auto symbol = static_cast<size_t>(tables[t][i].r_info >> 32);  // of 64-bit ELF
      if (symbol != 0 && std::strcmp(names + symbols[symbol].st_name, name) == 0)
        return reinterpret_cast<void**>(map->l_addr + tables[t][i].r_offset);
    }
  return nullptr;
}

}  // namespace

void detail::take_scratch() {
  Buffers& b = buffers();
  if (b.thread_variables[0] != 0) {
    require_memory(size_t{256} << 10);  // 143 kB of 0.3.34
    __tls_get_addr(b.thread_variables);
  }
  std::lock_guard lock(b.lock);
  b.follow_fork();
  if (b.made + static_cast<int64_t>(b.spare.size()) <= b.threads) {
    b.spare.reserve(b.spare.size() + 1);
    void* p = new_buffer(b.nbytes);
    TG_CHECK(p != MAP_FAILED, OutOfMemory, "linear algebra: there is no memory for the scratch of one more thread: {}",
             format_bytes(b.nbytes));
    b.spare.push_back(p);
  }
  ++b.threads;
  have_scratch = true;
  if (b.have_key) pthread_setspecific(b.key, &b);  // without memory for that the slot is never freed
}

void skip_destructors(void* library) noexcept {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return;
  for (ElfW(Dyn)* d = map->l_ld; d->d_tag != DT_NULL; ++d)
    if (d->d_tag == DT_FINI_ARRAYSZ) overwrite(&d->d_un.d_val, ElfW(Xword){0});
}

void supply_scratch(void* library) noexcept try {
  link_map* map = nullptr;
  void** place = dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 ? import_of(map, "mmap") : nullptr;
  Buffers& b = buffers();
  dlinfo(library, RTLD_DI_TLS_MODID, &b.thread_variables[0]);
  b.have_key = pthread_key_create(&b.key, thread_ends) == 0;
  if (place != nullptr && !overwrite(place, reinterpret_cast<void*>(hand_out))) return;
  need_scratch();                  // the thread that imports the library will call it
} catch (const std::exception&) {  // OpenBLAS requests it again
}

}  // namespace tapegrad::blas
