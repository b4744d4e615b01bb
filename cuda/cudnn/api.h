// The used part of cuDNN 9: functions of its graph interface and the constants of descriptors, attributes and types.
// The interface has no structures and is stable within version 9. NVIDIA's header comes only with the library, 500 MB
// that a build does not need otherwise; where the header is available, libraries/cudnn.cpp checks the constants against
// it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tapegrad/cuda/cudnn/calls.h"
#include "tapegrad/cuda/libraries/constants.h"

// kDevice: a description of a device, for use without one.
#define TG_CUDNN_HEURISTIC_MODES(X)            \
  X(kHeuristicFallback, 2, HEUR_MODE_FALLBACK) \
  X(kHeuristicA, 3, HEUR_MODE_A)
#define TG_CUDNN_POINTWISE_MODES(X)       \
  X(kAdd, 0, POINTWISE_ADD)               \
  X(kMultiply, 1, POINTWISE_MUL)          \
  X(kDivide, 6, POINTWISE_DIV)            \
  X(kSubtract, 9, POINTWISE_SUB)          \
  X(kExp, 13, POINTWISE_EXP)              \
  X(kLog, 15, POINTWISE_LOG)              \
  X(kGreaterEqual, 303, POINTWISE_CMP_GE) \
  X(kIndex, 501, POINTWISE_GEN_INDEX)     \
  X(kSelect, 601, POINTWISE_BINARY_SELECT)
#define TG_CUDNN_REDUCE_MODES(X)      \
  X(kReduceSum, 0, REDUCE_TENSOR_ADD) \
  X(kReduceMax, 3, REDUCE_TENSOR_MAX)
#define TG_CUDNN_DESCRIPTORS(X)                                                         \
  X(kPointwise, 0, BACKEND_POINTWISE_DESCRIPTOR)                                        \
  X(kConvolution, 1, BACKEND_CONVOLUTION_DESCRIPTOR)                                    \
  X(kEngine, 2, BACKEND_ENGINE_DESCRIPTOR)                                              \
  X(kEngineConfig, 3, BACKEND_ENGINECFG_DESCRIPTOR)                                     \
  X(kHeuristics, 4, BACKEND_ENGINEHEUR_DESCRIPTOR)                                      \
  X(kExecutionPlan, 5, BACKEND_EXECUTION_PLAN_DESCRIPTOR)                               \
  X(kOperationForward, 10, BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)            \
  X(kOperationWeightGrad, 11, BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR) \
  X(kOperationInputGrad, 12, BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)    \
  X(kOperationPointwise, 13, BACKEND_OPERATION_POINTWISE_DESCRIPTOR)                    \
  X(kOperationGraph, 15, BACKEND_OPERATIONGRAPH_DESCRIPTOR)                             \
  X(kVariantPack, 16, BACKEND_VARIANT_PACK_DESCRIPTOR)                                  \
  X(kTensor, 17, BACKEND_TENSOR_DESCRIPTOR)                                             \
  X(kMatmul, 18, BACKEND_MATMUL_DESCRIPTOR)                                             \
  X(kOperationMatmul, 19, BACKEND_OPERATION_MATMUL_DESCRIPTOR)                          \
  X(kReduction, 21, BACKEND_REDUCTION_DESCRIPTOR)                                       \
  X(kOperationReduction, 22, BACKEND_OPERATION_REDUCTION_DESCRIPTOR)                    \
  X(kOperationReshape, 31, BACKEND_OPERATION_RESHAPE_DESCRIPTOR)                        \
  X(kDevice, 38, BACKEND_DEVICEPROP_DESCRIPTOR)
#define TG_CUDNN_TYPES(X)                              \
  X(kTypeHandle, 0, TYPE_HANDLE)                       \
  X(kTypeDataType, 1, TYPE_DATA_TYPE)                  \
  X(kTypeBoolean, 2, TYPE_BOOLEAN)                     \
  X(kTypeInt64, 3, TYPE_INT64)                         \
  X(kTypeFloat, 4, TYPE_FLOAT)                         \
  X(kTypeDouble, 5, TYPE_DOUBLE)                       \
  X(kTypePointer, 6, TYPE_VOID_PTR)                    \
  X(kTypeConvolutionMode, 7, TYPE_CONVOLUTION_MODE)    \
  X(kTypeHeuristicMode, 8, TYPE_HEUR_MODE)             \
  X(kTypeNumericalNote, 11, TYPE_NUMERICAL_NOTE)       \
  X(kTypePointwiseMode, 14, TYPE_POINTWISE_MODE)       \
  X(kTypeDescriptor, 15, TYPE_BACKEND_DESCRIPTOR)      \
  X(kTypeReduceMode, 18, TYPE_REDUCTION_OPERATOR_TYPE) \
  X(kTypeChar, 24, TYPE_CHAR)
#define TG_CUDNN_ATTRIBUTES(X)                                                    \
  X(kPointwiseMode, 0, ATTR_POINTWISE_MODE)                                       \
  X(kPointwiseComputeType, 1, ATTR_POINTWISE_MATH_PREC)                           \
  X(kPointwiseAxis, 9, ATTR_POINTWISE_AXIS)                                       \
  X(kConvolutionComputeType, 100, ATTR_CONVOLUTION_COMP_TYPE)                     \
  X(kConvolutionMode, 101, ATTR_CONVOLUTION_CONV_MODE)                            \
  X(kConvolutionDilations, 102, ATTR_CONVOLUTION_DILATIONS)                       \
  X(kConvolutionStrides, 103, ATTR_CONVOLUTION_FILTER_STRIDES)                    \
  X(kConvolutionPaddingBehind, 104, ATTR_CONVOLUTION_POST_PADDINGS)               \
  X(kConvolutionPaddingBefore, 105, ATTR_CONVOLUTION_PRE_PADDINGS)                \
  X(kConvolutionSpatialDims, 106, ATTR_CONVOLUTION_SPATIAL_DIMS)                  \
  X(kHeuristicsMode, 200, ATTR_ENGINEHEUR_MODE)                                   \
  X(kHeuristicsGraph, 201, ATTR_ENGINEHEUR_OPERATION_GRAPH)                       \
  X(kHeuristicsResults, 202, ATTR_ENGINEHEUR_RESULTS)                             \
  X(kHeuristicsDevice, 204, ATTR_ENGINEHEUR_DEVICEPROP)                           \
  X(kEngineConfigEngine, 300, ATTR_ENGINECFG_ENGINE)                              \
  X(kPlanHandle, 400, ATTR_EXECUTION_PLAN_HANDLE)                                 \
  X(kPlanEngineConfig, 401, ATTR_EXECUTION_PLAN_ENGINE_CONFIG)                    \
  X(kPlanWorkspace, 402, ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)                      \
  X(kPlanDevice, 407, ATTR_EXECUTION_PLAN_DEVICEPROP)                             \
  X(kForwardAlpha, 700, ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA)                 \
  X(kForwardBeta, 701, ATTR_OPERATION_CONVOLUTION_FORWARD_BETA)                   \
  X(kForwardConvolution, 702, ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC)       \
  X(kForwardW, 703, ATTR_OPERATION_CONVOLUTION_FORWARD_W)                         \
  X(kForwardX, 704, ATTR_OPERATION_CONVOLUTION_FORWARD_X)                         \
  X(kForwardY, 705, ATTR_OPERATION_CONVOLUTION_FORWARD_Y)                         \
  X(kInputGradAlpha, 706, ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA)              \
  X(kInputGradBeta, 707, ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA)                \
  X(kInputGradConvolution, 708, ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC)    \
  X(kInputGradW, 709, ATTR_OPERATION_CONVOLUTION_BWD_DATA_W)                      \
  X(kInputGradX, 710, ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX)                     \
  X(kInputGradY, 711, ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY)                     \
  X(kWeightGradAlpha, 712, ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA)           \
  X(kWeightGradBeta, 713, ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA)             \
  X(kWeightGradConvolution, 714, ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC) \
  X(kWeightGradW, 715, ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW)                  \
  X(kWeightGradX, 716, ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X)                   \
  X(kWeightGradY, 717, ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY)                  \
  X(kPointwiseOf, 750, ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)                    \
  X(kPointwiseX, 751, ATTR_OPERATION_POINTWISE_XDESC)                             \
  X(kPointwiseB, 752, ATTR_OPERATION_POINTWISE_BDESC)                             \
  X(kPointwiseY, 753, ATTR_OPERATION_POINTWISE_YDESC)                             \
  X(kPointwiseT, 758, ATTR_OPERATION_POINTWISE_TDESC)                             \
  X(kGraphHandle, 800, ATTR_OPERATIONGRAPH_HANDLE)                                \
  X(kGraphOperations, 801, ATTR_OPERATIONGRAPH_OPS)                               \
  X(kTensorAlignment, 900, ATTR_TENSOR_BYTE_ALIGNMENT)                            \
  X(kTensorDataType, 901, ATTR_TENSOR_DATA_TYPE)                                  \
  X(kTensorSizes, 902, ATTR_TENSOR_DIMENSIONS)                                    \
  X(kTensorStrides, 903, ATTR_TENSOR_STRIDES)                                     \
  X(kTensorId, 906, ATTR_TENSOR_UNIQUE_ID)                                        \
  X(kTensorVirtual, 907, ATTR_TENSOR_IS_VIRTUAL)                                  \
  X(kTensorByValue, 908, ATTR_TENSOR_IS_BY_VALUE)                                 \
  X(kPackIds, 1000, ATTR_VARIANT_PACK_UNIQUE_IDS)                                 \
  X(kPackPointers, 1001, ATTR_VARIANT_PACK_DATA_POINTERS)                         \
  X(kPackWorkspace, 1003, ATTR_VARIANT_PACK_WORKSPACE)                            \
  X(kEngineNumericalNote, 1303, ATTR_ENGINE_NUMERICAL_NOTE)                       \
  X(kMatmulComputeType, 1500, ATTR_MATMUL_COMP_TYPE)                              \
  X(kMatmulA, 1520, ATTR_OPERATION_MATMUL_ADESC)                                  \
  X(kMatmulB, 1521, ATTR_OPERATION_MATMUL_BDESC)                                  \
  X(kMatmulC, 1522, ATTR_OPERATION_MATMUL_CDESC)                                  \
  X(kMatmulOf, 1523, ATTR_OPERATION_MATMUL_DESC)                                  \
  X(kReductionMode, 1600, ATTR_REDUCTION_OPERATOR)                                \
  X(kReductionComputeType, 1601, ATTR_REDUCTION_COMP_TYPE)                        \
  X(kReductionX, 1610, ATTR_OPERATION_REDUCTION_XDESC)                            \
  X(kReductionY, 1611, ATTR_OPERATION_REDUCTION_YDESC)                            \
  X(kReductionOf, 1612, ATTR_OPERATION_REDUCTION_DESC)                            \
  X(kReshapeX, 2200, ATTR_OPERATION_RESHAPE_XDESC)                                \
  X(kReshapeY, 2201, ATTR_OPERATION_RESHAPE_YDESC)                                \
  X(kDeviceJson, 2702, ATTR_DEVICEPROP_JSON_REPRESENTATION)
#define TG_CUDNN_NOTES(X)                                                          \
  X(kNoteTensorCore, 0, NUMERICAL_NOTE_TENSOR_CORE)                                \
  X(kNoteDownConvertInputs, 1, NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)                 \
  X(kNoteReducedPrecisionReduction, 2, NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) \
  X(kNoteFft, 3, NUMERICAL_NOTE_FFT)                                               \
  X(kNoteNondeterministic, 4, NUMERICAL_NOTE_NONDETERMINISTIC)

namespace tapegrad::cuda::cudnn_graph {

using namespace cudnn_calls;

inline constexpr int kCrossCorrelation = 1;
enum HeuristicMode : int { TG_CUDNN_HEURISTIC_MODES(TG_CONSTANT) };
enum PointwiseMode : int { TG_CUDNN_POINTWISE_MODES(TG_CONSTANT) };
enum ReduceMode : int { TG_CUDNN_REDUCE_MODES(TG_CONSTANT) };
enum DescriptorType : int { TG_CUDNN_DESCRIPTORS(TG_CONSTANT) };
enum AttributeType : int { TG_CUDNN_TYPES(TG_CONSTANT) };
enum Attribute : int { TG_CUDNN_ATTRIBUTES(TG_CONSTANT) };
enum NumericalNote : int { TG_CUDNN_NOTES(TG_CONSTANT) };
inline constexpr int kMostNotes = 32;  // more than any version 9 has

// The functions, looked up when the library is opened; tests supply their own. The int results are statuses.
struct Functions : Calls {
  LibraryFunction<size_t()> version;
  LibraryFunction<int(int type, void** descriptor)> create_descriptor;
  LibraryFunction<int(void* descriptor)> destroy_descriptor;
  LibraryFunction<int(void* descriptor, int attribute, int type, int64_t count, const void* values)> set;
  LibraryFunction<int(void* descriptor, int attribute, int type, int64_t most, int64_t* count, void* values)> get;
  LibraryFunction<int(void* descriptor)> finalize;
  LibraryFunction<int(void* handle, void* plan, void* pack)> execute;
};

// Registers cuDNN. `functions` is called by the first operation that cuDNN might compute: null if cuDNN is not
// available.
TG_API void use_cudnn(const Functions* (*functions)());

}  // namespace tapegrad::cuda::cudnn_graph
