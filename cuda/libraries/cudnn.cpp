// The functions of libcudnn for cuda/cudnn/.
#include <cuda_runtime_api.h>

#include "tapegrad/cuda/cudnn/api.h"
#include "tapegrad/cuda/libraries/library.h"

#if __has_include(<cudnn.h>)
#include <cudnn.h>
#define TG_SAME(ours, theirs) static_assert(static_cast<int>(ours) == static_cast<int>(theirs))
namespace tapegrad::cuda::cudnn_graph {
TG_SAME(kSuccess, CUDNN_STATUS_SUCCESS);
TG_SAME(kBadParameters, CUDNN_STATUS_BAD_PARAM);
TG_SAME(kNotSupported, CUDNN_STATUS_NOT_SUPPORTED);
TG_SAME(kInternal, CUDNN_STATUS_INTERNAL_ERROR);
TG_SAME(kDeviceAllocationFailed, CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
TG_SAME(kExecutionFailed, CUDNN_STATUS_EXECUTION_FAILED);
TG_SAME(kFloat, CUDNN_DATA_FLOAT);
TG_SAME(kDouble, CUDNN_DATA_DOUBLE);
TG_SAME(kHalf, CUDNN_DATA_HALF);
TG_SAME(kBfloat16, CUDNN_DATA_BFLOAT16);
TG_SAME(kCrossCorrelation, CUDNN_CROSS_CORRELATION);
TG_SAME(kHeuristicFallback, CUDNN_HEUR_MODE_FALLBACK);
TG_SAME(kHeuristicA, CUDNN_HEUR_MODE_A);
TG_SAME(kConvolution, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
TG_SAME(kEngine, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
TG_SAME(kEngineConfig, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
TG_SAME(kHeuristics, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
TG_SAME(kExecutionPlan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
TG_SAME(kOperationForward, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
TG_SAME(kOperationWeightGrad, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
TG_SAME(kOperationInputGrad, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
TG_SAME(kOperationGraph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
TG_SAME(kVariantPack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
TG_SAME(kTensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
TG_SAME(kTypeHandle, CUDNN_TYPE_HANDLE);
TG_SAME(kTypeDataType, CUDNN_TYPE_DATA_TYPE);
TG_SAME(kTypeInt64, CUDNN_TYPE_INT64);
TG_SAME(kTypeFloat, CUDNN_TYPE_FLOAT);
TG_SAME(kTypeDouble, CUDNN_TYPE_DOUBLE);
TG_SAME(kTypePointer, CUDNN_TYPE_VOID_PTR);
TG_SAME(kTypeConvolutionMode, CUDNN_TYPE_CONVOLUTION_MODE);
TG_SAME(kTypeHeuristicMode, CUDNN_TYPE_HEUR_MODE);
TG_SAME(kTypeNumericalNote, CUDNN_TYPE_NUMERICAL_NOTE);
TG_SAME(kTypeDescriptor, CUDNN_TYPE_BACKEND_DESCRIPTOR);
TG_SAME(kConvolutionComputeType, CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
TG_SAME(kConvolutionMode, CUDNN_ATTR_CONVOLUTION_CONV_MODE);
TG_SAME(kConvolutionDilations, CUDNN_ATTR_CONVOLUTION_DILATIONS);
TG_SAME(kConvolutionStrides, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
TG_SAME(kConvolutionPaddingBehind, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
TG_SAME(kConvolutionPaddingBefore, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
TG_SAME(kConvolutionSpatialDims, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
TG_SAME(kHeuristicsMode, CUDNN_ATTR_ENGINEHEUR_MODE);
TG_SAME(kHeuristicsGraph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
TG_SAME(kHeuristicsResults, CUDNN_ATTR_ENGINEHEUR_RESULTS);
TG_SAME(kEngineConfigEngine, CUDNN_ATTR_ENGINECFG_ENGINE);
TG_SAME(kPlanHandle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
TG_SAME(kPlanEngineConfig, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
TG_SAME(kPlanWorkspace, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
TG_SAME(kForwardAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA);
TG_SAME(kForwardBeta, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA);
TG_SAME(kForwardConvolution, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC);
TG_SAME(kForwardW, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W);
TG_SAME(kForwardX, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X);
TG_SAME(kForwardY, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
TG_SAME(kInputGradAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA);
TG_SAME(kInputGradBeta, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA);
TG_SAME(kInputGradConvolution, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC);
TG_SAME(kInputGradW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W);
TG_SAME(kInputGradX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX);
TG_SAME(kInputGradY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY);
TG_SAME(kWeightGradAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA);
TG_SAME(kWeightGradBeta, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA);
TG_SAME(kWeightGradConvolution, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC);
TG_SAME(kWeightGradW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW);
TG_SAME(kWeightGradX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X);
TG_SAME(kWeightGradY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY);
TG_SAME(kGraphHandle, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
TG_SAME(kGraphOperations, CUDNN_ATTR_OPERATIONGRAPH_OPS);
TG_SAME(kTensorAlignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
TG_SAME(kTensorDataType, CUDNN_ATTR_TENSOR_DATA_TYPE);
TG_SAME(kTensorSizes, CUDNN_ATTR_TENSOR_DIMENSIONS);
TG_SAME(kTensorStrides, CUDNN_ATTR_TENSOR_STRIDES);
TG_SAME(kTensorId, CUDNN_ATTR_TENSOR_UNIQUE_ID);
TG_SAME(kPackIds, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
TG_SAME(kPackPointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
TG_SAME(kPackWorkspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
TG_SAME(kEngineNumericalNote, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
TG_SAME(kNoteTensorCore, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
TG_SAME(kNoteDownConvertInputs, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
TG_SAME(kNoteReducedPrecisionReduction, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
TG_SAME(kNoteNondeterministic, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
TG_SAME(kInt32, CUDNN_DATA_INT32);
TG_SAME(kBoolean, CUDNN_DATA_BOOLEAN);
TG_SAME(kAdd, CUDNN_POINTWISE_ADD);
TG_SAME(kMultiply, CUDNN_POINTWISE_MUL);
TG_SAME(kDivide, CUDNN_POINTWISE_DIV);
TG_SAME(kSubtract, CUDNN_POINTWISE_SUB);
TG_SAME(kExp, CUDNN_POINTWISE_EXP);
TG_SAME(kLog, CUDNN_POINTWISE_LOG);
TG_SAME(kGreaterEqual, CUDNN_POINTWISE_CMP_GE);
TG_SAME(kIndex, CUDNN_POINTWISE_GEN_INDEX);
TG_SAME(kSelect, CUDNN_POINTWISE_BINARY_SELECT);
TG_SAME(kReduceSum, CUDNN_REDUCE_TENSOR_ADD);
TG_SAME(kReduceMax, CUDNN_REDUCE_TENSOR_MAX);
TG_SAME(kPointwise, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
TG_SAME(kOperationPointwise, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
TG_SAME(kMatmul, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
TG_SAME(kOperationMatmul, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
TG_SAME(kReduction, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
TG_SAME(kOperationReduction, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
TG_SAME(kOperationReshape, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
TG_SAME(kTypeBoolean, CUDNN_TYPE_BOOLEAN);
TG_SAME(kTypePointwiseMode, CUDNN_TYPE_POINTWISE_MODE);
TG_SAME(kTypeReduceMode, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE);
TG_SAME(kTypeChar, CUDNN_TYPE_CHAR);
TG_SAME(kPointwiseMode, CUDNN_ATTR_POINTWISE_MODE);
TG_SAME(kPointwiseComputeType, CUDNN_ATTR_POINTWISE_MATH_PREC);
TG_SAME(kPointwiseAxis, CUDNN_ATTR_POINTWISE_AXIS);
TG_SAME(kPointwiseOf, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
TG_SAME(kPointwiseX, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
TG_SAME(kPointwiseB, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
TG_SAME(kPointwiseY, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
TG_SAME(kPointwiseT, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
TG_SAME(kTensorVirtual, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
TG_SAME(kTensorByValue, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
TG_SAME(kMatmulComputeType, CUDNN_ATTR_MATMUL_COMP_TYPE);
TG_SAME(kMatmulA, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
TG_SAME(kMatmulB, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
TG_SAME(kMatmulC, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
TG_SAME(kMatmulOf, CUDNN_ATTR_OPERATION_MATMUL_DESC);
TG_SAME(kReductionMode, CUDNN_ATTR_REDUCTION_OPERATOR);
TG_SAME(kReductionComputeType, CUDNN_ATTR_REDUCTION_COMP_TYPE);
TG_SAME(kReductionX, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
TG_SAME(kReductionY, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
TG_SAME(kReductionOf, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
TG_SAME(kReshapeX, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
TG_SAME(kReshapeY, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
TG_SAME(kDevice, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
TG_SAME(kHeuristicsDevice, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
TG_SAME(kPlanDevice, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
TG_SAME(kDeviceJson, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
static_assert(kMostNotes >= static_cast<int>(CUDNN_NUMERICAL_NOTE_TYPE_COUNT));
static_assert(sizeof(cudnnStatus_t) == sizeof(int) && sizeof(cudnnBackendAttributeName_t) == sizeof(int));
}  // namespace tapegrad::cuda::cudnn_graph
#undef TG_SAME
#endif

namespace tapegrad::cuda {

namespace cudnn_calls {
namespace {

int exchange_capture_mode(int* mode) {
  auto now = static_cast<cudaStreamCaptureMode>(*mode);
  const cudaError_t status = cudaThreadExchangeStreamCaptureMode(&now);
  *mode = static_cast<int>(now);
  return static_cast<int>(status);
}

}  // namespace

bool find_calls(Calls& to) {
  // It opens these two by their names when an engine wants them, and finds them where ours are. Without the first it
  // ends the process; without the second it has fewer engines.
  if (!cudnn().available() || !cublas_lt().available()) return false;
  (void)nvrtc().available();
  cudnn().find(to.create, "cudnnCreate");
  cudnn().find(to.set_stream, "cudnnSetStream");
  cudnn().find(to.error_string, "cudnnGetErrorString");
  cudnn().find(to.last_error, "cudnnGetLastErrorString");
  to.exchange_capture_mode = &exchange_capture_mode;
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
