// What lt_products.cpp tells cuBLASLt, and when: a double of the library in the place of the real one, which multiplies
// float32 on the host. Like the real one it allocates and loads code in any call that may be the first.
#include <cublasLt.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <thread>

#include "cuda/linalg/products.h"
#include "tapegrad/aten/functions_linalg.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/c10/device/device_interface.h"
#include "tapegrad/cuda/libraries/library.h"
#include "tapegrad/cuda/memory/device_allocator.h"
#include "tapegrad/cuda/simulated/simulated_driver.h"

namespace tapegrad::cuda {

TG_API void register_products();  // lt_products.cpp

namespace {

constexpr size_t kWorkspaceOfDouble = 4096;

struct Object {  // a description of an operation, of a matrix, or a preference
  int64_t rows = 0, cols = 0, step = 0;
  std::map<int, std::vector<char>> attributes;
  template <class T>
  T get(int attribute, T otherwise) const {
    const auto at = attributes.find(attribute);
    if (at != attributes.end()) std::memcpy(&otherwise, at->second.data(), sizeof(T));
    return otherwise;
  }
};

std::set<const void*> live;
int products = 0;

void may_be_first(const char* call) { simulated::simulated_driver().forbid_in_capture(call); }
const Object& object(const void* p) { return *static_cast<const Object*>(p); }

template <class Handle>
cublasStatus_t make(Handle* out, Object like = {}) {
  auto* made = new Object(std::move(like));
  live.insert(made);
  *out = reinterpret_cast<Handle>(made);
  return CUBLAS_STATUS_SUCCESS;
}
template <class Handle>
cublasStatus_t destroy(Handle p) {
  if (live.erase(p) != 1) return CUBLAS_STATUS_INVALID_VALUE;
  delete reinterpret_cast<Object*>(p);
  return CUBLAS_STATUS_SUCCESS;
}
template <class Handle, class Attribute>
cublasStatus_t set_attribute(Handle p, Attribute attribute, const void* value, size_t nbytes) {
  if (!live.contains(p)) return CUBLAS_STATUS_INVALID_VALUE;
  const auto* bytes = static_cast<const char*>(value);
  reinterpret_cast<Object*>(p)->attributes[attribute].assign(bytes, bytes + nbytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t create(cublasLtHandle_t* handle) {
  may_be_first("cublasLtCreate");
  return make(handle);
}
const char* status_string(cublasStatus_t) { return "the double's words"; }
cublasStatus_t create_operation(cublasLtMatmulDesc_t* out, cublasComputeType_t, cudaDataType_t) { return make(out); }
cublasStatus_t create_layout(cublasLtMatrixLayout_t* out, cudaDataType, uint64_t rows, uint64_t cols, int64_t step) {
  return make(out, {static_cast<int64_t>(rows), static_cast<int64_t>(cols), step, {}});
}
cublasStatus_t create_preference(cublasLtMatmulPreference_t* out) { return make(out); }
cublasStatus_t heuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                         cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
                         cublasLtMatmulHeuristicResult_t* result, int* count) {
  may_be_first("cublasLtMatmulAlgoGetHeuristic");
  *count = 1;
  result->state = CUBLAS_STATUS_SUCCESS;
  result->workspaceSize = kWorkspaceOfDouble;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t multiply(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                        cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                        const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                        cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t*, void* workspace, size_t nbytes,
                        cudaStream_t stream) {
  may_be_first("cublasLtMatmul");
  for (const void* used : {static_cast<const void*>(operation), static_cast<const void*>(a_layout),
                           static_cast<const void*>(b_layout), static_cast<const void*>(d_layout)})
    if (!live.contains(used)) return CUBLAS_STATUS_INVALID_VALUE;
  if (workspace == nullptr || nbytes < kWorkspaceOfDouble || c != d || c_layout != d_layout)
    return CUBLAS_STATUS_INVALID_VALUE;
  ++products;
  if (driver().capture_state(stream) != CaptureState::None) return CUBLAS_STATUS_SUCCESS;  // would be recorded
  const simulated::HostAccess access(stream);
  const Object &how = object(operation), &x = object(a_layout), &y = object(b_layout), &z = object(d_layout);
  const bool x_t = how.get(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N) == CUBLAS_OP_T,
             y_t = how.get(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N) == CUBLAS_OP_T;
  const bool biased = how.get(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT) == CUBLASLT_EPILOGUE_BIAS;
  const auto* bias = how.get<const float*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, nullptr);
  const int64_t depth = x_t ? x.rows : x.cols;
  const float scale = *static_cast<const float*>(alpha), keep = *static_cast<const float*>(beta);
  for (int32_t n = 0; n < z.get(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t{1}); ++n) {
    const auto at = [&](const Object& o, const void* p) {
      return static_cast<const float*>(p) + n * o.get(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, int64_t{0});
    };
    const float *p = at(x, a), *q = at(y, b);
    float* out = const_cast<float*>(at(z, d));
    for (int64_t j = 0; j < z.cols; ++j)
      for (int64_t i = 0; i < z.rows; ++i) {
        float sum = 0;
        for (int64_t l = 0; l < depth; ++l)
          sum += p[x_t ? l + i * x.step : i + l * x.step] * q[y_t ? j + l * y.step : l + j * y.step];
        float& to = out[i + j * z.step];
        to = scale * sum + (keep == 0 ? 0 : keep * to) + (biased ? bias[i] : 0);
      }
  }
  return CUBLAS_STATUS_SUCCESS;
}

// A function by its name, which must have the real one's type.
#define TG_DOUBLE(name, function) {#name, reinterpret_cast<void*>(static_cast<decltype(&::name)>(&function))}
const std::map<std::string_view, void*>& functions() {
  static const std::map<std::string_view, void*> all{TG_DOUBLE(cublasLtCreate, create),
                                                     TG_DOUBLE(cublasLtGetStatusString, status_string),
                                                     TG_DOUBLE(cublasLtMatmulDescCreate, create_operation),
                                                     TG_DOUBLE(cublasLtMatmulDescDestroy, destroy),
                                                     TG_DOUBLE(cublasLtMatmulDescSetAttribute, set_attribute),
                                                     TG_DOUBLE(cublasLtMatrixLayoutCreate, create_layout),
                                                     TG_DOUBLE(cublasLtMatrixLayoutDestroy, destroy),
                                                     TG_DOUBLE(cublasLtMatrixLayoutSetAttribute, set_attribute),
                                                     TG_DOUBLE(cublasLtMatmulPreferenceCreate, create_preference),
                                                     TG_DOUBLE(cublasLtMatmulPreferenceDestroy, destroy),
                                                     TG_DOUBLE(cublasLtMatmulPreferenceSetAttribute, set_attribute),
                                                     TG_DOUBLE(cublasLtMatmulAlgoGetHeuristic, heuristic),
                                                     TG_DOUBLE(cublasLtMatmul, multiply)};
  return all;
}

struct Setup {
  Setup() {
    REQUIRE(tapegrad_cuda_init() > 0);
    products = 0;
    register_products();
  }
  ~Setup() { product_library = nullptr; }
};

Tensor by_own_kernel(const Tensor& a, const Tensor& b) {
  const ProductLibrary library = product_library.exchange(nullptr);
  const Tensor result = matmul(a, b);
  product_library = library;
  return result;
}

}  // namespace

// Of the class in libraries/library.h, whose own file opens NVIDIA's.
bool Library::available() noexcept { return true; }
void* Library::symbol(const char* s) { return functions().at(s); }
Library& cublas_lt() {
  static Library library("cuBLASLt", "");
  return library;
}

}  // namespace tapegrad::cuda

using namespace tapegrad;
using namespace tapegrad::cuda;
using own_products::difference;
using own_products::filled;

TEST_CASE("cuBLASLt is told where matrices lie, whichever way round", "[cuda]") {
  const Setup setup;
  for (const bool a_transposed : {false, true})
    for (const bool b_transposed : {false, true}) {
      const auto matrix = [](bool transposed, int64_t rows, int64_t cols, int64_t seed) {
        return transposed ? transpose(filled(DimVector{3, cols, rows}, DType::float32, seed), 1, 2)
                          : filled(DimVector{3, rows, cols}, DType::float32, seed);
      };
      const Tensor a = matrix(a_transposed, 5, 7, 1), b = matrix(b_transposed, 7, 4, 2);
      CHECK(difference(matmul(a, b), by_own_kernel(a, b)) < 1e-5);
      CHECK(difference(matmul(select(a, 0, 1), select(b, 0, 2)), by_own_kernel(select(a, 0, 1), select(b, 0, 2))) <
            1e-5);
    }
  CHECK(products == 8);
}

TEST_CASE("What cuBLASLt makes when it is first called spoils no capture", "[cuda]") {
  const Setup setup;
  const Stream stream = stream_from_pool(0);
  const auto multiply_new_shape = [] {
    static int64_t n = 100;
    ++n;
    return matmul(filled(DimVector{2, n}, DType::float32, 1), filled(DimVector{n, 3}, DType::float32, 2));
  };
  SECTION("in the thread that captures") {
    const Tensor a = filled(DimVector{2, 90}, DType::float32, 1), b = filled(DimVector{90, 3}, DType::float32, 2);
    const Tensor out = filled(DimVector{2, 3}, DType::float32, 3);
    const StreamGuard guard(stream);
    driver().begin_capture(stream.handle, "global");
    gemm(stream, DType::float32, 1, 2, 3, 90, 1.0, {a.data_ptr(), 90, 1}, {b.data_ptr(), 3, 1}, 0.0, out.data_ptr());
    CHECK(driver().capture_state(stream.handle) == CaptureState::Active);
    driver().destroy_graph(driver().end_capture(stream.handle));
  }
  SECTION("in another thread") {
    driver().begin_capture(stream.handle, "global");
    std::thread([&] { CHECK_NOTHROW(multiply_new_shape()); }).join();
    CHECK(driver().capture_state(stream.handle) == CaptureState::Active);
    driver().destroy_graph(driver().end_capture(stream.handle));
  }
  CHECK(products == 1);
}

TEST_CASE("A plan of cuBLASLt lasts while the collector, run for its workspace, makes hundreds of others", "[cuda]") {
  const Setup setup;
  const Tensor a = filled(DimVector{2, 6}, DType::float32, 1), b = filled(DimVector{6, 3}, DType::float32, 2);
  const Tensor bias = filled(DimVector{3}, DType::float32, 4), other_bias = filled(DimVector{3}, DType::float32, 9);
  const Tensor weight = transpose(b, 0, 1), expected = add(by_own_kernel(a, b), bias);
  const Tensor out = filled(DimVector{2, 3}, DType::float32, 3);
  static std::function<void()> collect;
  const auto before = host_hooks().collect;
  int collected = 0;
  collect = [&] {
    ++collected;
    host_hooks().collect = nullptr;
    simulated::simulated_driver().set_memory_limit(0, size_t{1} << 30);
    (void)linear(a, weight, other_bias);  // the same plan
    for (int64_t k = 1; k <= 600; ++k)
      (void)matmul(filled(DimVector{2, k}, DType::float32, 1), filled(DimVector{k, 3}, DType::float32, 2));
  };
  const Product product{
      DType::float32, 1, 2, 3, 6, 1.0, {a.data_ptr(), 6, 1}, {b.data_ptr(), 3, 1}, 0.0, out.data_ptr(),
      bias.data_ptr()};
  REQUIRE(product_library.load()({nullptr, 0}, product));  // so that there is a plan
  // All memory is taken: the workspace finds none, and the collector is run.
  DeviceAllocator& allocator = device_allocator(0);
  allocator.empty_cache();
  simulated::simulated_driver().set_memory_limit(0, simulated::simulated_driver().bytes_in_use(0));
  std::vector<Tensor> fill;
  host_hooks().collect = nullptr;
  try {
    for (;;) fill.push_back(empty_tensor(TensorSpec{DimVector{128}, DType::float32, Device(DeviceType::CUDA, 0), {}}));
  } catch (const Error&) {
  }
  host_hooks().collect = [] { collect(); };
  CHECK_NOTHROW(product_library.load()({nullptr, 0}, product));
  host_hooks().collect = before;
  simulated::simulated_driver().set_memory_limit(0, size_t{4} << 30);
  CHECK(collected == 1);
  CHECK(difference(out, expected) < 1e-5);
}
