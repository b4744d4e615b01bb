// The functions of libcudnn for cuda/rnn/cudnn.cpp.
#include "tapegrad/cuda/libraries/library.h"
#include "tapegrad/cuda/libraries/signature.h"
#include "tapegrad/cuda/rnn/cudnn_api.h"

// Our name of each function, and its own.
#define TG_CUDNN_FUNCTIONS(X)                       \
  X(create_dropout, cudnnCreateDropoutDescriptor)   \
  X(destroy_dropout, cudnnDestroyDropoutDescriptor) \
  X(set_dropout, cudnnSetDropoutDescriptor)         \
  X(create_tensor, cudnnCreateTensorDescriptor)     \
  X(destroy_tensor, cudnnDestroyTensorDescriptor)   \
  X(set_tensor, cudnnSetTensorNdDescriptor)         \
  X(get_tensor, cudnnGetTensorNdDescriptor)         \
  X(create_data, cudnnCreateRNNDataDescriptor)      \
  X(destroy_data, cudnnDestroyRNNDataDescriptor)    \
  X(set_data, cudnnSetRNNDataDescriptor)            \
  X(create_network, cudnnCreateRNNDescriptor)       \
  X(destroy_network, cudnnDestroyRNNDescriptor)     \
  X(set_network, cudnnSetRNNDescriptor_v8)          \
  X(weight_bytes, cudnnGetRNNWeightSpaceSize)       \
  X(find_weight, cudnnGetRNNWeightParams)           \
  X(temporary_bytes, cudnnGetRNNTempSpaceSizes)     \
  X(forward, cudnnRNNForward)                       \
  X(backward_data, cudnnRNNBackwardData_v8)         \
  X(backward_weights, cudnnRNNBackwardWeights_v8)

#if __has_include(<cudnn.h>)
#include <cudnn.h>
#define TG_SAME(ours, theirs) static_assert(static_cast<int>(ours) == static_cast<int>(theirs))
namespace tapegrad::cuda::cudnn_rnn {
TG_SAME(kStandard, CUDNN_RNN_ALGO_STANDARD);
TG_SAME(kPersistStatic, CUDNN_RNN_ALGO_PERSIST_STATIC);
TG_SAME(kReluCell, CUDNN_RNN_RELU);
TG_SAME(kTanhCell, CUDNN_RNN_TANH);
TG_SAME(kLstmCell, CUDNN_LSTM);
TG_SAME(kGruCell, CUDNN_GRU);
TG_SAME(kNoBias, CUDNN_RNN_NO_BIAS);
TG_SAME(kDoubleBias, CUDNN_RNN_DOUBLE_BIAS);
TG_SAME(kOneDirection, CUDNN_UNIDIRECTIONAL);
TG_SAME(kBothDirections, CUDNN_BIDIRECTIONAL);
TG_SAME(kLinearInput, CUDNN_LINEAR_INPUT);
TG_SAME(kDefaultMath, CUDNN_DEFAULT_MATH);
TG_SAME(kTensorOpMath, CUDNN_TENSOR_OP_MATH);
TG_SAME(kFmaMath, CUDNN_FMA_MATH);
TG_SAME(kPackedLayout, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED);
TG_SAME(kUnpadded, CUDNN_RNN_PADDED_IO_DISABLED);
TG_SAME(kInference, CUDNN_FWD_MODE_INFERENCE);
TG_SAME(kTraining, CUDNN_FWD_MODE_TRAINING);
TG_SAME(kAddGradients, CUDNN_WGRAD_MODE_ADD);

#define TG_SAME_FUNCTION(ours, theirs) \
  static_assert(std::is_same_v<SignatureOf<decltype(Functions::ours)>, SignatureOf<decltype(&theirs)>>);
TG_CUDNN_FUNCTIONS(TG_SAME_FUNCTION)
#undef TG_SAME_FUNCTION
}  // namespace tapegrad::cuda::cudnn_rnn
#undef TG_SAME
#endif

namespace tapegrad::cuda {
namespace {

const cudnn_rnn::Functions* find_all() {
  static cudnn_rnn::Functions all;
  if (!cudnn_calls::find_calls(all)) return nullptr;
#define TG_FIND(ours, theirs) cudnn().find(all.ours, #theirs);
  TG_CUDNN_FUNCTIONS(TG_FIND)
#undef TG_FIND
  return &all;
}

const cudnn_rnn::Functions* functions() {
  static const cudnn_rnn::Functions* const all = find_all();
  return all;
}

}  // namespace

void register_networks() { cudnn_rnn::use_cudnn(&functions); }

}  // namespace tapegrad::cuda
