// The functions of libcudnn for cuda/cudnn/.
#include "tapegrad/cuda/cudnn/api.h"
#include "tapegrad/cuda/libraries/library.h"

#if __has_include(<cudnn.h>)
#include <cudnn.h>
#define TG_SAME(ours, value, theirs) static_assert(static_cast<int>(CUDNN_##theirs) == value);
namespace tapegrad::cuda::cudnn_graph {
TG_SAME(kFloat, kFloat, DATA_FLOAT)
TG_SAME(kDouble, kDouble, DATA_DOUBLE)
TG_SAME(kHalf, kHalf, DATA_HALF)
TG_SAME(kInt32, kInt32, DATA_INT32)
TG_SAME(kBfloat16, kBfloat16, DATA_BFLOAT16)
TG_SAME(kBoolean, kBoolean, DATA_BOOLEAN)
TG_CUDNN_HEURISTIC_MODES(TG_SAME)
TG_CUDNN_POINTWISE_MODES(TG_SAME)
TG_CUDNN_REDUCE_MODES(TG_SAME)
TG_CUDNN_DESCRIPTORS(TG_SAME)
TG_CUDNN_TYPES(TG_SAME)
TG_CUDNN_ATTRIBUTES(TG_SAME)
TG_CUDNN_NOTES(TG_SAME)
static_assert(kSuccess == CUDNN_STATUS_SUCCESS);
static_assert(kBadParameters == CUDNN_STATUS_BAD_PARAM);
static_assert(kNotSupported == CUDNN_STATUS_NOT_SUPPORTED);
static_assert(kInternal == CUDNN_STATUS_INTERNAL_ERROR);
static_assert(kDeviceAllocationFailed == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
static_assert(kExecutionFailed == CUDNN_STATUS_EXECUTION_FAILED);
static_assert(kCrossCorrelation == CUDNN_CROSS_CORRELATION);
static_assert(kMostNotes >= static_cast<int>(CUDNN_NUMERICAL_NOTE_TYPE_COUNT));
static_assert(sizeof(cudnnStatus_t) == sizeof(int) && sizeof(cudnnBackendAttributeName_t) == sizeof(int));
}  // namespace tapegrad::cuda::cudnn_graph
#undef TG_SAME
#endif

namespace tapegrad::cuda {

namespace cudnn_calls {

bool find_calls(Calls& to) {
  // It opens these two by their names when an engine wants them, and finds them where ours are. Without the first it
  // ends the process; without the second it has fewer engines.
  if (!cudnn().available() || !cublas_lt().available()) return false;
  (void)nvrtc().available();
  cudnn().find(to.create, "cudnnCreate");
  cudnn().find(to.set_stream, "cudnnSetStream");
  cudnn().find(to.error_string, "cudnnGetErrorString");
  cudnn().find(to.last_error, "cudnnGetLastErrorString");
  return true;
}

}  // namespace cudnn_calls

namespace {

const cudnn_graph::Functions* find_all() {
  static cudnn_graph::Functions all;
  if (!cudnn_calls::find_calls(all)) return nullptr;
  cudnn().find(all.version, "cudnnGetVersion");
  cudnn().find(all.create_descriptor, "cudnnBackendCreateDescriptor");
  cudnn().find(all.destroy_descriptor, "cudnnBackendDestroyDescriptor");
  cudnn().find(all.set, "cudnnBackendSetAttribute");
  cudnn().find(all.get, "cudnnBackendGetAttribute");
  cudnn().find(all.finalize, "cudnnBackendFinalize");
  cudnn().find(all.execute, "cudnnBackendExecute");
  return &all;
}

const cudnn_graph::Functions* functions() {
  static const cudnn_graph::Functions* const all = find_all();
  return all;
}

}  // namespace

void register_networks();  // cudnn_networks.cpp

TG_API void register_cudnn() {
  cudnn_graph::use_cudnn(&functions);
  register_networks();
}

}  // namespace tapegrad::cuda
