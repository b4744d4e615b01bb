#include "tapegrad/aten/linalg/blas/openblas.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "tapegrad/aten/linalg/blas/openblas_scratch.h"
#include "tapegrad/c10/error.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace tapegrad::blas {
namespace {

// Sets a variable for as long as the library is being opened.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value, bool keep_users) : name_(name) {
    if (const char* old = std::getenv(name)) {
      had_ = true;
      old_ = old;
    }
    active_ = value && !(keep_users && had_);
    if (active_) setenv(name, value, 1);
  }
  ~ScopedVariable() {
    if (!active_) return;
    if (had_)
      setenv(name_, old_.c_str(), 1);
    else
      unsetenv(name_);
  }

 private:
  const char* name_;
  std::string old_;
  bool had_ = false, active_ = false;
};

const char* better_core() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_is("amd") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd"))
    return "SkylakeX";
#elif defined(__aarch64__)
  // OpenBLAS 0.3.34 has kernels for SME, whose products were wrong where they were tried (qemu 7.2, without
  // tapegrad, too). Those of plain SVE and NEON are right there.
  constexpr unsigned long kSve = 1UL << 22, kSme = 1UL << 23;  // of AT_HWCAP and AT_HWCAP2; older headers lack them
  if ((getauxval(AT_HWCAP2) & kSme) != 0) return (getauxval(AT_HWCAP) & kSve) != 0 ? "ARMV8SVE" : "ARMV8";
#endif
  return nullptr;
}

struct Library {
  void* handle = nullptr;
  std::string problem;

  Library() {
    ScopedVariable threads("OPENBLAS_NUM_THREADS", "1", false);
    ScopedVariable core("OPENBLAS_CORETYPE", better_core(), true);
    handle = dlopen("libscipy_openblas.so", RTLD_NOW | RTLD_LOCAL);  // found through this library's run path
    if (handle) {
      skip_destructors(handle);
      supply_scratch(handle);
    } else {
      problem = dlerror();
    }
  }
};

// Opened together with this library (0.8 ms), when other threads that read the environment are unlikely.
const Library library;

}  // namespace

void* find_routine(const char* name) {
  TG_CHECK(library.handle, NotImplemented, "blas: OpenBLAS could not be opened: {}", library.problem);
  std::string prefixed = std::string("scipy_") + name;
  void* address = dlsym(library.handle, prefixed.c_str());
  TG_CHECK(address, NotImplemented, "blas: OpenBLAS has no routine {}", name);
  return address;
}

}  // namespace tapegrad::blas
