#include "tapegrad/aten/onednn/library.h"

#include "tapegrad/c10/error.h"

// Of the OpenMP runtime that oneDNN uses.
extern "C" int omp_get_max_threads();
extern "C" void omp_set_num_threads(int n);

namespace tapegrad::onednn {
namespace {

// The memory that a call of oneDNN and of its OpenMP runtime allocates in small pieces; if that fails, they end the
// process or use a null pointer.
constexpr size_t kCallMemory = 64 << 10;

}  // namespace

dnnl::engine& engine() {
  static auto* e = [] {
    dnnl::set_primitive_cache_capacity(0);  // PlanCache is enough
    return new dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return *e;
}

dnnl::stream& stream() {
  static thread_local dnnl::stream s(engine());
  return s;
}

dnnl::memory::data_type data_type(DType dtype) {
  using type = dnnl::memory::data_type;
  if (dtype == DType::int8 || dtype == DType::int32) return dtype == DType::int8 ? type::s8 : type::s32;
  return dtype == DType::bfloat16 ? type::bf16 : dtype == DType::float16 ? type::f16 : type::f32;
}

void* take(Tensor& holder, size_t bytes) {
  holder = empty_tensor({static_cast<int64_t>((bytes + 3) / 4)}, DType::float32);
  return holder.data_ptr();
}

void raise(const char* name, const dnnl::error& e) {
  if (e.status == dnnl_out_of_memory) TG_THROW(OutOfMemory, "{}: oneDNN ran out of memory", name);
  TG_THROW(Runtime, "{}: oneDNN failed: {}", name, e.what());
}

CallScope::CallScope() {
  static const sigset_t kAsynchronous = [] {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) sigdelset(&all, fault);
    return all;
  }();
  require_memory(kCallMemory);
  pthread_sigmask(SIG_BLOCK, &kAsynchronous, &signals_);
  threads_ = omp_get_max_threads();
  if (threads_ != 1) omp_set_num_threads(1);
}

CallScope::~CallScope() {
  if (threads_ != 1) omp_set_num_threads(threads_);
  pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
}

}  // namespace tapegrad::onednn
