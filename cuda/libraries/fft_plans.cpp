// Fourier transforms by cuFFT. Plans are kept per layout, kMostPlans of them per device; their work areas come from the
// caching allocator, in the order of the stream.
#include <cufft.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/fft/fft_library.h"
#include "tapegrad/cuda/libraries/library.h"
#include "tapegrad/cuda/libraries/plan_cache.h"
#include "tapegrad/cuda/memory/storage.h"
#include "tapegrad/cuda/runtime/driver.h"
#include "tapegrad/cuda/runtime/per_device.h"

namespace tapegrad::cuda {
namespace {

using fft::Between;
using fft::Request;

#define TG_FFT(function) TG_LIBRARY_CALL(cufft(), function)

void check(cufftResult result, const char* call) {
  if (TG_LIKELY(result == CUFFT_SUCCESS)) return;
  TG_CHECK(result != CUFFT_ALLOC_FAILED, OutOfMemory, "cuda: {}: out of memory", call);
  TG_THROW(Runtime, "cuda: {}: error {}", call, static_cast<int>(result));
}
#define TG_FFT_CHECK(function, ...) check(TG_FFT(function)(__VA_ARGS__), #function)

constexpr size_t kMostPlans = 64;

cufftType type_of(const Request& r) {
  switch (r.between) {
    case Between::ComplexToComplex:
      return r.wide ? CUFFT_Z2Z : CUFFT_C2C;
    case Between::RealToComplex:
      return r.wide ? CUFFT_D2Z : CUFFT_R2C;
    default:
      return r.wide ? CUFFT_Z2D : CUFFT_C2R;
  }
}

// All that a plan depends on.
struct Key {
  int64_t type, rank;
  std::array<int64_t, 3> n;
  int64_t count, in_step, in_dist, out_step, out_dist;
  auto operator<=>(const Key&) const = default;
};

struct Plan {
  cufftHandle handle = 0;
  size_t workspace = 0;
  bool found = false;  // the library does it
  bool kept = false;   // a graph uses its tables in device memory, so that they are not freed

  Plan() = default;
  Plan(Plan&& o) noexcept
      : handle(o.handle), workspace(o.workspace), found(o.found), kept(o.kept), made_(std::exchange(o.made_, false)) {}
  ~Plan() {
    if (made_ && !kept) (void)TG_FFT(cufftDestroy)(handle);
  }
  void make(const Key& key) {
    TG_FFT_CHECK(cufftCreate, &handle);
    made_ = true;
    TG_FFT_CHECK(cufftSetAutoAllocation, handle, 0);
    // With these (not null) steps and distances count; the outermost one is not read. Half of the last dimension lies
    // on one side of a real transform.
    long long n[3], in[3], out[3];
    for (size_t d = 0; d < 3; ++d) n[d] = in[d] = out[d] = key.n[d];
    const auto last = static_cast<size_t>(key.rank - 1);
    if (key.type == CUFFT_R2C || key.type == CUFFT_D2Z) out[last] = n[last] / 2 + 1;
    if (key.type == CUFFT_C2R || key.type == CUFFT_Z2D) in[last] = n[last] / 2 + 1;
    const cufftResult result = TG_FFT(cufftMakePlanMany64)(handle, static_cast<int>(key.rank), n, in, key.in_step,
                                                           key.in_dist, out, key.out_step, key.out_dist,
                                                           static_cast<cufftType>(key.type), key.count, &workspace);
    found = result == CUFFT_SUCCESS;
    // What it cannot do, or has no memory of its own for, is done by our kernels.
    constexpr cufftResult kRefused[] = {CUFFT_INVALID_SIZE,     CUFFT_NOT_SUPPORTED,      CUFFT_NOT_IMPLEMENTED,
                                        CUFFT_ALLOC_FAILED,     CUFFT_MISSING_DEPENDENCY, CUFFT_NVRTC_FAILURE,
                                        CUFFT_NVJITLINK_FAILURE};
    if (!found && std::ranges::find(kRefused, result) == std::end(kRefused)) check(result, "cufftMakePlanMany64");
  }

 private:
  bool made_ = false;
};

class Plans {
 public:
  bool run(const Stream& stream, const Request& r) {
    std::unique_lock lock(mutex_);
    // Plans cannot be made during a capture; our kernels can be captured.
    const bool capturing = driver().capture_id(stream.handle) != 0;
    const Key key{type_of(r), r.rank, r.n, r.count, r.in_step, r.in_dist, r.out_step, r.out_dist};
    if (plans_.find(key) == nullptr) {
      if (capturing) return false;
      Plan plan;
      plan.make(key);
      plans_.put(key, std::move(plan));
    }
    if (!plans_.find(key)->found) return false;
    const size_t bytes = plans_.find(key)->workspace;
    // Outside of the lock: short of memory, it runs Python's collector, and with it other transforms.
    lock.unlock();
    const Workspace workspace(bytes, stream);
    lock.lock();
    Plan* const found = plans_.find(key);
    if (found == nullptr) {  // there were many of other layouts
      lock.unlock();
      return run(stream, r);
    }
    Plan& plan = *found;
    plan.kept |= capturing;
    TG_FFT_CHECK(cufftSetStream, plan.handle, static_cast<cudaStream_t>(stream.handle));
    TG_FFT_CHECK(cufftSetWorkArea, plan.handle, workspace.data());
    execute(plan.handle, r);
    return true;
  }

 private:
  static void execute(cufftHandle plan, const Request& r) {
    void* in = const_cast<void*>(r.in);
    const int direction = r.forward ? CUFFT_FORWARD : CUFFT_INVERSE;
    switch (type_of(r)) {
      case CUFFT_C2C:
        return TG_FFT_CHECK(cufftExecC2C, plan, static_cast<cufftComplex*>(in), static_cast<cufftComplex*>(r.out),
                            direction);
      case CUFFT_Z2Z:
        return TG_FFT_CHECK(cufftExecZ2Z, plan, static_cast<cufftDoubleComplex*>(in),
                            static_cast<cufftDoubleComplex*>(r.out), direction);
      case CUFFT_R2C:
        return TG_FFT_CHECK(cufftExecR2C, plan, static_cast<cufftReal*>(in), static_cast<cufftComplex*>(r.out));
      case CUFFT_D2Z:
        return TG_FFT_CHECK(cufftExecD2Z, plan, static_cast<cufftDoubleReal*>(in),
                            static_cast<cufftDoubleComplex*>(r.out));
      case CUFFT_C2R:
        return TG_FFT_CHECK(cufftExecC2R, plan, static_cast<cufftComplex*>(in), static_cast<cufftReal*>(r.out));
      default:
        return TG_FFT_CHECK(cufftExecZ2D, plan, static_cast<cufftDoubleComplex*>(in),
                            static_cast<cufftDoubleReal*>(r.out));
    }
  }

  std::mutex mutex_;
  PlanCache<Key, Plan> plans_{kMostPlans};
};

bool fft_by_cufft(const Stream& stream, const Request& request) {
  // Real numbers in places that complex ones do not fit are refused by the library at any time; a plan per address
  // would be needed to know.
  const size_t part = request.wide ? 8 : 4;
  const auto misplaced = [&](const void* p) { return reinterpret_cast<uintptr_t>(p) % (2 * part) != 0; };
  if (misplaced(request.in) || misplaced(request.out)) return false;
  return cufft().available() && per_device<Plans>(stream.device).run(stream, request);
}

}  // namespace

TG_API void register_fft() { fft::library.store(&fft_by_cufft, std::memory_order_release); }

}  // namespace tapegrad::cuda
