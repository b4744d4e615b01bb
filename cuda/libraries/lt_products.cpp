// Matrix products by cuBLASLt. A product of rows is the product of the transposes the other way round, which is how
// BLAS sees the same memory: C^T = B^T A^T. The library's plan of a product (descriptors, and the algorithm chosen by
// its heuristics) is cached per shape, kMostPlans per device. Algorithms whose order of summation varies, or that
// accumulate in 16 bits, are excluded: the same product has the same bits in every run. Products of float8 with scales
// need an sm_89, those with scales of lines, parts and tiles an sm_90: others have no algorithm.
#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "tapegrad/c10/dispatch/float32_precision.h"
#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/libraries/library.h"
#include "tapegrad/cuda/libraries/plan_cache.h"
#include "tapegrad/cuda/linalg/product_library.h"
#include "tapegrad/cuda/memory/storage.h"
#include "tapegrad/cuda/runtime/per_device.h"

namespace tapegrad::cuda {
namespace {

#define TG_LT(function) TG_LIBRARY_CALL(cublas_lt(), function)

void check(cublasStatus_t status, const char* call) {
  if (TG_LIKELY(status == CUBLAS_STATUS_SUCCESS)) return;
  TG_CHECK(status != CUBLAS_STATUS_ALLOC_FAILED, OutOfMemory, "cuda: {}: out of memory", call);
  TG_THROW(Runtime, "cuda: {}: {}", call, TG_LT(cublasLtGetStatusString)(status));
}
#define TG_LT_CHECK(function, ...) check(TG_LT(function)(__VA_ARGS__), #function)

constexpr size_t kMostPlans = 512;
constexpr size_t kWorkspace = size_t{32} << 20;  // what NVIDIA recommends for its newest devices
constexpr uint32_t kReductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

struct Types {
  cudaDataType_t a = CUDA_R_32F, scale = CUDA_R_32F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t b = a, c = a;
};

bool types_of(DType dtype, bool tf32, Types& types) {
  const auto float32 = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  const std::pair<DType, Types> all[] = {{DType::float16, {CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F}},
                                         {DType::bfloat16, {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F}},
                                         {DType::float32, {CUDA_R_32F, CUDA_R_32F, float32}},
                                         {DType::float64, {CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F}},
                                         {DType::complex64, {CUDA_C_32F, CUDA_C_32F, float32}},
                                         {DType::complex128, {CUDA_C_64F, CUDA_C_64F, CUBLAS_COMPUTE_64F}},
                                         {DType::float8_e4m3fn, {CUDA_R_8F_E4M3, CUDA_R_32F, CUBLAS_COMPUTE_32F}},
                                         {DType::float8_e5m2, {CUDA_R_8F_E5M2, CUDA_R_32F, CUBLAS_COMPUTE_32F}}};
  const auto* found = std::ranges::find(all, dtype, &std::pair<DType, Types>::first);
  if (found == std::end(all)) return false;
  types = found->second;
  return true;
}
// a's types come from p.dtype; those of b and c from what is mixed.
bool types_of(const Product& p, bool tf32, Types& types) {
  Types b, c;
  if (!types_of(p.dtype, tf32, types)) return false;
  if (p.mixed == nullptr) return !is_float8(p.dtype);
  if (!types_of(p.mixed->b, tf32, b) || !types_of(p.mixed->c, tf32, c)) return false;
  types.b = b.a, types.c = c.a;
  return true;
}

// alpha or beta in the type in which the library wants it.
struct Factor {
  alignas(16) unsigned char bytes[16] = {};
  Factor(const Scalar& value, cudaDataType_t type) {
    if (type == CUDA_R_32F)
      put(value.to<float>());
    else if (type == CUDA_R_64F)
      put(value.to<double>());
    else if (type == CUDA_C_32F)
      put(value.to<complex64_t>());
    else
      put(value.to<complex128_t>());
  }

 private:
  template <class T>
  void put(const T& value) {
    static_assert(sizeof(T) <= sizeof(bytes));
    std::memcpy(bytes, &value, sizeof(T));
  }
};

// The largest power of two that divides an address, at most 256.
uint32_t alignment(const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  return uint32_t{1} << std::min(8, address == 0 ? 8 : std::countr_zero(address));
}

// All that the choice of an algorithm depends on.
struct Key {
  int64_t dtype, tf32, batch, m, n, k, a_transposed, b_transposed, a_step, b_step, a_batch, b_batch, bias;
  int64_t a_align, b_align, c_align, reads_c, c_batch, mixed;
  auto operator<=>(const Key&) const = default;
};

int64_t mixed_key(const MixedProduct* m) {
  if (m == nullptr) return -1;
  const auto part = [](auto value, int shift) { return static_cast<int64_t>(value) << shift; };
  return part(m->b, 0) | part(m->c, 8) | part(m->a_kind, 16) | part(m->b_kind, 24) | part(m->fast, 32);
}

struct Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  cublasLtMatmulAlgo_t algorithm;
  size_t workspace = 0;
  bool found = false;  // the library has an algorithm

  Plan() = default;
  Plan(Plan&& o) noexcept
      : operation(std::exchange(o.operation, nullptr)),
        first(std::exchange(o.first, nullptr)),
        second(std::exchange(o.second, nullptr)),
        result(std::exchange(o.result, nullptr)),
        algorithm(o.algorithm),
        workspace(o.workspace),
        found(o.found) {}
  ~Plan() {
    if (operation) (void)TG_LT(cublasLtMatmulDescDestroy)(operation);
    for (auto layout : {first, second, result})
      if (layout) (void)TG_LT(cublasLtMatrixLayoutDestroy)(layout);
  }
};

template <class T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  TG_LT_CHECK(cublasLtMatmulDescSetAttribute, operation, attribute, &value, sizeof(value));
}
template <class T>
void prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  TG_LT_CHECK(cublasLtMatmulPreferenceSetAttribute, preference, attribute, &value, sizeof(value));
}

void make_layout(cublasLtMatrixLayout_t& layout, cudaDataType_t type, int64_t rows, int64_t cols, int64_t step,
                 int64_t batch, int64_t batch_step) {
  TG_LT_CHECK(cublasLtMatrixLayoutCreate, &layout, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols),
              step);
  if (batch == 1) return;
  const auto count = static_cast<int32_t>(batch);
  TG_LT_CHECK(cublasLtMatrixLayoutSetAttribute, layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count));
  TG_LT_CHECK(cublasLtMatrixLayoutSetAttribute, layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch_step,
              sizeof(batch_step));
}

struct Preference {
  cublasLtMatmulPreference_t handle = nullptr;
  Preference() { TG_LT_CHECK(cublasLtMatmulPreferenceCreate, &handle); }
  ~Preference() { (void)TG_LT(cublasLtMatmulPreferenceDestroy)(handle); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
};

cublasLtMatmulMatrixScale_t mode_of(Scales kind) {
  switch (kind) {
    case Scales::lines:
      return CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    case Scales::parts:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case Scales::tiles:
      return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    default:
      return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  }
}

// What of a plan changes from call to call. b comes first.
void set_pointers(cublasLtMatmulDesc_t operation, const Product& p) {
  const void* const vector = p.row_sums != nullptr ? p.row_sums : p.bias;
  if (vector != nullptr) set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector);
  if (p.mixed == nullptr) return;
  if (p.mixed->b_scales != nullptr) set(operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.mixed->b_scales);
  if (p.mixed->a_scales != nullptr) set(operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.mixed->a_scales);
}

// What is asked for besides a product of matrices of one dtype may be refused by other words.
bool refused(const Product& p, cublasStatus_t status) {
  const bool more = p.mixed != nullptr || p.row_sums != nullptr;
  return status == CUBLAS_STATUS_NOT_SUPPORTED ||
         (more && (status == CUBLAS_STATUS_INVALID_VALUE || status == CUBLAS_STATUS_ARCH_MISMATCH));
}

Plan make_plan(cublasLtHandle_t library, const Key& key, const Types& types, const Product& p) {
  Plan plan;
  TG_LT_CHECK(cublasLtMatmulDescCreate, &plan.operation, types.compute, types.scale);
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, key.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, key.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (p.bias != nullptr) set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  if (p.row_sums != nullptr)
    set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BGRADB);  // a is second
  if (is_float8(p.dtype)) {
    set(plan.operation, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode_of(p.mixed->b_kind));
    set(plan.operation, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode_of(p.mixed->a_kind));
    set(plan.operation, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(p.mixed->fast));
    if (p.bias != nullptr)
      set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, types.c == CUDA_R_32F ? CUDA_R_16BF : types.c);
  }
  set_pointers(plan.operation, p);
  // b (k x n) comes first: its transpose is n x k.
  make_layout(plan.first, types.b, key.b_transposed ? key.k : key.n, key.b_transposed ? key.n : key.k, key.b_step,
              key.batch, key.b_batch);
  make_layout(plan.second, types.a, key.a_transposed ? key.m : key.k, key.a_transposed ? key.k : key.m, key.a_step,
              key.batch, key.a_batch);
  make_layout(plan.result, types.c, key.n, key.m, key.n, key.batch, key.c_batch);

  const Preference preference;
  prefer(preference.handle, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
  prefer(preference.handle, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kReductions);
  prefer(preference.handle, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(key.b_align));
  prefer(preference.handle, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(key.a_align));
  prefer(preference.handle, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(key.c_align));
  prefer(preference.handle, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(key.c_align));
  cublasLtMatmulHeuristicResult_t best{};
  int count = 0;
  const cublasStatus_t status = TG_LT(cublasLtMatmulAlgoGetHeuristic)(
      library, plan.operation, plan.first, plan.second, plan.result, plan.result, preference.handle, 1, &best, &count);
  if (refused(p, status)) return plan;
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  plan.found = count > 0 && best.state == CUBLAS_STATUS_SUCCESS && best.workspaceSize <= kWorkspace;
  plan.algorithm = best.algo;
  plan.workspace = best.workspaceSize;
  return plan;
}

class Products {
 public:
  // The current device must be this object's.
  Products() { TG_LT_CHECK(cublasLtCreate, &library_); }

  bool run(const Stream& stream, const Product& p, const Key& key, const Types& types) {
    const SharedPlan plan = find(key, types, p);
    if (!plan->found) return false;
    // Outside of the lock: short of memory, it runs Python's collector, and with it other products.
    const Workspace workspace(plan->workspace, stream);
    const Factor alpha(p.alpha, types.scale), beta(p.beta, types.scale);
    const std::lock_guard lock(mutex_);
    set_pointers(plan->operation, p);
    const cublasStatus_t status =
        TG_LT(cublasLtMatmul)(library_, plan->operation, alpha.bytes, p.b.data, plan->first, p.a.data, plan->second,
                              beta.bytes, p.c, plan->result, p.c, plan->result, &plan->algorithm, workspace.data(),
                              plan->workspace, static_cast<cudaStream_t>(stream.handle));
    if (refused(p, status)) return false;
    check(status, "cublasLtMatmul");
    return true;
  }

 private:
  using SharedPlan = std::shared_ptr<const Plan>;  // others may take its place while it is used

  SharedPlan find(const Key& key, const Types& types, const Product& p) {
    const std::lock_guard lock(mutex_);
    const SharedPlan* plan = plans_.find(key);
    return plan != nullptr ? *plan : plans_.put(key, std::make_shared<const Plan>(make_plan(library_, key, types, p)));
  }

  std::mutex mutex_;
  cublasLtHandle_t library_ = nullptr;
  PlanCache<Key, SharedPlan> plans_{kMostPlans};
};

bool lt_product(const Stream& stream, const Product& p) {
  const bool tf32 = allow_tf32() && (p.dtype == DType::float32 || p.dtype == DType::complex64);
  Types types;
  BlasMatrix a, b;
  if (p.k == 0 || p.batch > INT32_MAX || !types_of(p, tf32, types)) return false;
  if (!blas_matrix(p.a, p.m, p.k, a) || !blas_matrix(p.b, p.k, p.n, b)) return false;
  if (!cublas_lt().available()) return false;
  const Key key{static_cast<int64_t>(p.dtype),
                tf32,
                p.batch,
                p.m,
                p.n,
                p.k,
                a.transposed,
                b.transposed,
                a.step,
                b.step,
                p.a.batch,
                p.b.batch,
                p.row_sums != nullptr ? -int64_t{alignment(p.row_sums)}
                : p.bias != nullptr   ? alignment(p.bias)
                                      : 0,
                alignment(p.a.data),
                alignment(p.b.data),
                alignment(p.c),
                !(p.beta == Scalar(0)),
                p.c_batch == 0 ? p.m * p.n : p.c_batch,
                mixed_key(p.mixed)};
  return per_device<Products>(stream.device).run(stream, p, key, types);
}

}  // namespace

TG_API void register_products() { product_library.store(&lt_product, std::memory_order_release); }

}  // namespace tapegrad::cuda
