// The used part of cuDNN 9: functions of its graph interface and the constants of descriptors, attributes and types.
// The interface has no structures and is stable within version 9. NVIDIA's header comes only with the library, 500 MB
// that a build does not need otherwise; where the header is available, libraries/cudnn.cpp checks the constants against
// it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tapegrad/cuda/cudnn/calls.h"

namespace tapegrad::cuda::cudnn_graph {

using namespace cudnn_calls;

inline constexpr int kCrossCorrelation = 1;
enum HeuristicMode : int { kHeuristicFallback = 2, kHeuristicA = 3 };

enum PointwiseMode : int {
  kAdd = 0,
  kMultiply = 1,
  kDivide = 6,
  kSubtract = 9,
  kExp = 13,
  kLog = 15,
  kGreaterEqual = 303,
  kIndex = 501,
  kSelect = 601
};
enum ReduceMode : int { kReduceSum = 0, kReduceMax = 3 };

enum DescriptorType : int {
  kPointwise = 0,
  kConvolution = 1,
  kEngine = 2,
  kEngineConfig = 3,
  kHeuristics = 4,
  kExecutionPlan = 5,
  kOperationForward = 10,
  kOperationWeightGrad = 11,
  kOperationInputGrad = 12,
  kOperationPointwise = 13,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
  kMatmul = 18,
  kOperationMatmul = 19,
  kReduction = 21,
  kOperationReduction = 22,
  kOperationReshape = 31,
  kDevice = 38  // a description of a device, for use without one
};

enum AttributeType : int {
  kTypeHandle = 0,
  kTypeDataType = 1,
  kTypeBoolean = 2,
  kTypeInt64 = 3,
  kTypeFloat = 4,
  kTypeDouble = 5,
  kTypePointer = 6,
  kTypeConvolutionMode = 7,
  kTypeHeuristicMode = 8,
  kTypeNumericalNote = 11,
  kTypePointwiseMode = 14,
  kTypeDescriptor = 15,
  kTypeReduceMode = 18,
  kTypeChar = 24
};

enum Attribute : int {
  kPointwiseMode = 0,
  kPointwiseComputeType = 1,
  kPointwiseAxis = 9,
  kConvolutionComputeType = 100,
  kConvolutionMode = 101,
  kConvolutionDilations = 102,
  kConvolutionStrides = 103,
  kConvolutionPaddingBehind = 104,
  kConvolutionPaddingBefore = 105,
  kConvolutionSpatialDims = 106,
  kHeuristicsMode = 200,
  kHeuristicsGraph = 201,
  kHeuristicsResults = 202,
  kHeuristicsDevice = 204,
  kEngineConfigEngine = 300,
  kPlanHandle = 400,
  kPlanEngineConfig = 401,
  kPlanWorkspace = 402,
  kPlanDevice = 407,
  kForwardAlpha = 700,
  kForwardBeta = 701,
  kForwardConvolution = 702,
  kForwardW = 703,
  kForwardX = 704,
  kForwardY = 705,
  kInputGradAlpha = 706,
  kInputGradBeta = 707,
  kInputGradConvolution = 708,
  kInputGradW = 709,
  kInputGradX = 710,
  kInputGradY = 711,
  kWeightGradAlpha = 712,
  kWeightGradBeta = 713,
  kWeightGradConvolution = 714,
  kWeightGradW = 715,
  kWeightGradX = 716,
  kWeightGradY = 717,
  kPointwiseOf = 750,
  kPointwiseX = 751,
  kPointwiseB = 752,
  kPointwiseY = 753,
  kPointwiseT = 758,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorDataType = 901,
  kTensorSizes = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kTensorVirtual = 907,
  kTensorByValue = 908,
  kPackIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineNumericalNote = 1303,
  kMatmulComputeType = 1500,
  kMatmulA = 1520,
  kMatmulB = 1521,
  kMatmulC = 1522,
  kMatmulOf = 1523,
  kReductionMode = 1600,
  kReductionComputeType = 1601,
  kReductionX = 1610,
  kReductionY = 1611,
  kReductionOf = 1612,
  kReshapeX = 2200,
  kReshapeY = 2201,
  kDeviceJson = 2702
};

enum NumericalNote : int {
  kNoteTensorCore = 0,
  kNoteDownConvertInputs = 1,
  kNoteReducedPrecisionReduction = 2,
  kNoteNondeterministic = 4
};
inline constexpr int kMostNotes = 32;  // more than any version 9 has

// The functions, looked up when the library is opened; tests supply their own. The int results are statuses.
struct Functions : Calls {
  size_t (*version)();
  int (*create_descriptor)(int type, void** descriptor);
  int (*destroy_descriptor)(void* descriptor);
  int (*set)(void* descriptor, int attribute, int type, int64_t count, const void* values);
  int (*get)(void* descriptor, int attribute, int type, int64_t most, int64_t* count, void* values);
  int (*finalize)(void* descriptor);
  int (*execute)(void* handle, void* plan, void* pack);
};

// Registers cuDNN. `functions` is called by the first operation that cuDNN might compute: null if cuDNN is not
// available.
TG_API void use_cudnn(const Functions* (*functions)());

}  // namespace tapegrad::cuda::cudnn_graph
