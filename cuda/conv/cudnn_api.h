// What convolutions need of cuDNN 9: eight functions of its graph interface and the numbers that its header gives to
// descriptors, attributes and types. The interface has no structures, and stays as it is within version 9; NVIDIA's
// header comes only with the library, 500 MB that nothing else of a build would need. Where it is there,
// libraries/cudnn_convolutions.cpp compares.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tapegrad/c10/macros.h"

namespace tapegrad::cuda::cudnn_graph {

inline constexpr int kSuccess = 0, kBadParameters = 2000, kNotSupported = 3000, kInternal = 4000,
                     kDeviceAllocationFailed = 4004, kExecutionFailed = 5000;
// Statuses come in thousands: 1000 the library is not usable, and the four above.
inline int category(int status) { return status / 1000 * 1000; }

enum DataType : int { kFloat = 0, kDouble = 1, kHalf = 2, kBfloat16 = 9 };
inline constexpr int kCrossCorrelation = 1;
enum HeuristicMode : int { kHeuristicFallback = 2, kHeuristicA = 3 };

enum DescriptorType : int {
  kConvolution = 1,
  kEngine = 2,
  kEngineConfig = 3,
  kHeuristics = 4,
  kExecutionPlan = 5,
  kOperationForward = 10,
  kOperationWeightGrad = 11,
  kOperationInputGrad = 12,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17
};

enum AttributeType : int {
  kTypeHandle = 0,
  kTypeDataType = 1,
  kTypeInt64 = 3,
  kTypeFloat = 4,
  kTypeDouble = 5,
  kTypePointer = 6,
  kTypeConvolutionMode = 7,
  kTypeHeuristicMode = 8,
  kTypeNumericalNote = 11,
  kTypeDescriptor = 15
};

enum Attribute : int {
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
  kEngineConfigEngine = 300,
  kPlanHandle = 400,
  kPlanEngineConfig = 401,
  kPlanWorkspace = 402,
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
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorDataType = 901,
  kTensorSizes = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kPackIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineNumericalNote = 1303
};

enum NumericalNote : int {
  kNoteTensorCore = 0,
  kNoteDownConvertInputs = 1,
  kNoteReducedPrecisionReduction = 2,
  kNoteNondeterministic = 4
};
inline constexpr int kMostNotes = 32;  // more than any version 9 has

// The functions, found in the library when it is opened; a test gives its own. Numbers that they return are statuses.
struct Functions {
  int (*create)(void** handle);
  int (*set_stream)(void* handle, void* stream);
  int (*create_descriptor)(int type, void** descriptor);
  int (*destroy_descriptor)(void* descriptor);
  int (*set)(void* descriptor, int attribute, int type, int64_t count, const void* values);
  int (*get)(void* descriptor, int attribute, int type, int64_t most, int64_t* count, void* values);
  int (*finalize)(void* descriptor);
  int (*execute)(void* handle, void* plan, void* pack);
  const char* (*error_string)(int status);
  void (*last_error)(char* message, size_t size);
  // cudaThreadExchangeStreamCaptureMode: what a new plan allocates belongs to no graph that is being captured.
  int (*exchange_capture_mode)(int* mode);
};

// Registers cuDNN as the library of convolutions. `functions` is asked once, by the first convolution: null where cuDNN
// is not there.
TG_API void use_cudnn(const Functions* (*functions)());

}  // namespace tapegrad::cuda::cudnn_graph
