// The functions of libcudnn for cuda/rnn/cudnn.cpp.
#include "tapegrad/cuda/libraries/library.h"
#include "tapegrad/cuda/rnn/cudnn_api.h"

#if __has_include(<cudnn.h>)
#include <cudnn.h>

#include <type_traits>
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

// Whether a function of the header has our signature: its handles and descriptors are pointers, its enumerations ints.
template <class T>
using Plain = std::conditional_t<std::is_enum_v<T>, int, std::conditional_t<std::is_pointer_v<T>, void*, T>>;
template <class F>
struct Signature;
template <class R, class... A>
struct Signature<R (*)(A...)> {
  using Type = Plain<R>(Plain<A>...);
};
#define TG_SAME_FUNCTION(ours, theirs) \
  static_assert(std::is_same_v<Signature<decltype(Functions::ours)>::Type, Signature<decltype(&theirs)>::Type>)
TG_SAME_FUNCTION(create_dropout, cudnnCreateDropoutDescriptor);
TG_SAME_FUNCTION(destroy_dropout, cudnnDestroyDropoutDescriptor);
TG_SAME_FUNCTION(set_dropout, cudnnSetDropoutDescriptor);
TG_SAME_FUNCTION(create_tensor, cudnnCreateTensorDescriptor);
TG_SAME_FUNCTION(destroy_tensor, cudnnDestroyTensorDescriptor);
TG_SAME_FUNCTION(set_tensor, cudnnSetTensorNdDescriptor);
TG_SAME_FUNCTION(get_tensor, cudnnGetTensorNdDescriptor);
TG_SAME_FUNCTION(create_data, cudnnCreateRNNDataDescriptor);
TG_SAME_FUNCTION(destroy_data, cudnnDestroyRNNDataDescriptor);
TG_SAME_FUNCTION(set_data, cudnnSetRNNDataDescriptor);
TG_SAME_FUNCTION(create_network, cudnnCreateRNNDescriptor);
TG_SAME_FUNCTION(destroy_network, cudnnDestroyRNNDescriptor);
TG_SAME_FUNCTION(set_network, cudnnSetRNNDescriptor_v8);
TG_SAME_FUNCTION(weight_bytes, cudnnGetRNNWeightSpaceSize);
TG_SAME_FUNCTION(find_weight, cudnnGetRNNWeightParams);
TG_SAME_FUNCTION(room, cudnnGetRNNTempSpaceSizes);
TG_SAME_FUNCTION(forward, cudnnRNNForward);
TG_SAME_FUNCTION(backward_data, cudnnRNNBackwardData_v8);
TG_SAME_FUNCTION(backward_weights, cudnnRNNBackwardWeights_v8);
#undef TG_SAME_FUNCTION
}  // namespace tapegrad::cuda::cudnn_rnn
#undef TG_SAME
#endif

namespace tapegrad::cuda {
namespace {

const cudnn_rnn::Functions* find_all() {
  static cudnn_rnn::Functions all;
  if (!cudnn_calls::find_calls(all)) return nullptr;
  cudnn().find(all.create_dropout, "cudnnCreateDropoutDescriptor");
  cudnn().find(all.destroy_dropout, "cudnnDestroyDropoutDescriptor");
  cudnn().find(all.set_dropout, "cudnnSetDropoutDescriptor");
  cudnn().find(all.create_tensor, "cudnnCreateTensorDescriptor");
  cudnn().find(all.destroy_tensor, "cudnnDestroyTensorDescriptor");
  cudnn().find(all.set_tensor, "cudnnSetTensorNdDescriptor");
  cudnn().find(all.get_tensor, "cudnnGetTensorNdDescriptor");
  cudnn().find(all.create_data, "cudnnCreateRNNDataDescriptor");
  cudnn().find(all.destroy_data, "cudnnDestroyRNNDataDescriptor");
  cudnn().find(all.set_data, "cudnnSetRNNDataDescriptor");
  cudnn().find(all.create_network, "cudnnCreateRNNDescriptor");
  cudnn().find(all.destroy_network, "cudnnDestroyRNNDescriptor");
  cudnn().find(all.set_network, "cudnnSetRNNDescriptor_v8");
  cudnn().find(all.weight_bytes, "cudnnGetRNNWeightSpaceSize");
  cudnn().find(all.find_weight, "cudnnGetRNNWeightParams");
  cudnn().find(all.room, "cudnnGetRNNTempSpaceSizes");
  cudnn().find(all.forward, "cudnnRNNForward");
  cudnn().find(all.backward_data, "cudnnRNNBackwardData_v8");
  cudnn().find(all.backward_weights, "cudnnRNNBackwardWeights_v8");
  return &all;
}

const cudnn_rnn::Functions* functions() {
  static const cudnn_rnn::Functions* const all = find_all();
  return all;
}

}  // namespace

void register_networks() { cudnn_rnn::use_cudnn(&functions); }

}  // namespace tapegrad::cuda
