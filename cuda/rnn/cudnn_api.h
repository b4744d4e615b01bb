// The part of cuDNN 9 used by recurrent networks: functions of its cudnn_adv library and the constants of their
// options. Where NVIDIA's header is available, libraries/cudnn_networks.cpp checks them.
#pragma once

#include <cstdint>

#include "tapegrad/cuda/cudnn/calls.h"

namespace tapegrad::cuda::cudnn_rnn {

using namespace cudnn_calls;

enum Algorithm : int { kStandard = 0, kPersistStatic = 1 };
enum CellMode : int { kReluCell = 0, kTanhCell = 1, kLstmCell = 2, kGruCell = 3 };
enum BiasMode : int { kNoBias = 0, kDoubleBias = 2 };
enum DirectionMode : int { kOneDirection = 0, kBothDirections = 1 };
inline constexpr int kLinearInput = 0;
// Default: TF32 may be used for float32. Fma: it may not.
enum MathType : int { kDefaultMath = 0, kTensorOpMath = 1, kFmaMath = 3 };
inline constexpr int kPackedLayout = 1;  // step after step, as many rows as there are sequences that long
inline constexpr unsigned kUnpadded = 0;
enum ForwardMode : int { kInference = 0, kTraining = 1 };
inline constexpr int kAddGradients = 0;  // the only mode that there is

// The functions, looked up when the library is opened; tests supply their own. The int results are statuses.
struct Functions : Calls {
  LibraryFunction<int(void** dropout)> create_dropout;
  LibraryFunction<int(void* dropout)> destroy_dropout;
  LibraryFunction<int(void* dropout, void* handle, float rate, void* states, size_t bytes, unsigned long long seed)>
      set_dropout;
  LibraryFunction<int(void** tensor)> create_tensor;
  LibraryFunction<int(void* tensor)> destroy_tensor;
  LibraryFunction<int(void* tensor, int dtype, int dims, const int* sizes, const int* strides)> set_tensor;
  LibraryFunction<int(void* tensor, int most, int* dtype, int* dims, int* sizes, int* strides)> get_tensor;
  LibraryFunction<int(void** data)> create_data;
  LibraryFunction<int(void* data)> destroy_data;
  LibraryFunction<int(void* data, int dtype, int layout, int steps, int sequences, int width, const int* lengths,
                      void* padding)>
      set_data;
  LibraryFunction<int(void** network)> create_network;
  LibraryFunction<int(void* network)> destroy_network;
  LibraryFunction<int(void* network, int algorithm, int cell, int bias, int direction, int input, int dtype,
                      int precision, int math, int32_t input_size, int32_t hidden_size, int32_t projected_size,
                      int32_t layers, void* dropout, uint32_t flags)>
      set_network;
  LibraryFunction<int(void* handle, void* network, size_t* bytes)> weight_bytes;
  LibraryFunction<int(void* handle, void* network, int32_t at, size_t bytes, const void* weights, int32_t which,
                      void* matrix, void** matrix_address, void* bias, void** bias_address)>
      find_weight;
  LibraryFunction<int(void* handle, void* network, int mode, void* x, size_t* workspace, size_t* reserve)>
      temporary_bytes;
  LibraryFunction<int(void* handle, void* network, int mode, const int32_t* lengths, void* x_data, const void* x,
                      void* y_data, void* y, void* h, const void* hx, void* hy, void* c, const void* cx, void* cy,
                      size_t weight_bytes, const void* weights, size_t workspace_bytes, void* workspace,
                      size_t reserve_bytes, void* reserve)>
      forward;
  LibraryFunction<int(void* handle, void* network, const int32_t* lengths, void* y_data, const void* y, const void* dy,
                      void* x_data, void* dx, void* h, const void* hx, const void* dhy, void* dhx, void* c,
                      const void* cx, const void* dcy, void* dcx, size_t weight_bytes, const void* weights,
                      size_t workspace_bytes, void* workspace, size_t reserve_bytes, void* reserve)>
      backward_data;
  LibraryFunction<int(void* handle, void* network, int mode, const int32_t* lengths, void* x_data, const void* x,
                      void* h, const void* hx, void* y_data, const void* y, size_t weight_bytes, void* dweights,
                      size_t workspace_bytes, void* workspace, size_t reserve_bytes, void* reserve)>
      backward_weights;
};

// Registers cuDNN as the library of recurrent networks. `functions` is called by the first network: null if cuDNN is
// not available.
TG_API void use_cudnn(const Functions* (*functions)());

}  // namespace tapegrad::cuda::cudnn_rnn
