// The used part of NCCL 2.28: functions, constants and one structure of its C interface, so that a build does not need
// its header. Where NVIDIA's header is available, libraries/nccl.cpp checks them. Tests supply functions of their own
// (simulated/simulated_nccl.h).
#pragma once

#include <climits>
#include <cstddef>
#include <string>

#include "tapegrad/cuda/libraries/constants.h"
#include "tapegrad/cuda/libraries/function.h"
#include "tapegrad/cuda/runtime/driver.h"

#define TG_NCCL_RESULTS(X)                      \
  X(kSuccess, 0, Success)                       \
  X(kUnhandledCudaError, 1, UnhandledCudaError) \
  X(kSystemError, 2, SystemError)               \
  X(kInternalError, 3, InternalError)           \
  X(kInvalidArgument, 4, InvalidArgument)       \
  X(kInvalidUsage, 5, InvalidUsage)             \
  X(kRemoteError, 6, RemoteError)               \
  X(kInProgress, 7, InProgress)
#define TG_NCCL_OPERATORS(X) \
  X(kSum, 0, Sum)            \
  X(kProd, 1, Prod)          \
  X(kMax, 2, Max)            \
  X(kMin, 3, Min)
#define TG_NCCL_DATA_TYPES(X) \
  X(kInt8, 0, Int8)           \
  X(kUint8, 1, Uint8)         \
  X(kInt32, 2, Int32)         \
  X(kUint32, 3, Uint32)       \
  X(kInt64, 4, Int64)         \
  X(kUint64, 5, Uint64)       \
  X(kFloat16, 6, Float16)     \
  X(kFloat32, 7, Float32)     \
  X(kFloat64, 8, Float64)     \
  X(kBfloat16, 9, Bfloat16)

struct ncclComm;

namespace tapegrad::cuda::nccl_api {

using Handle = ::ncclComm*;

struct UniqueId {
  char internal[128] = {};
};

enum Result : int { TG_NCCL_RESULTS(TG_CONSTANT) };
enum Operator : int { TG_NCCL_OPERATORS(TG_CONSTANT) };
enum DataType : int { TG_NCCL_DATA_TYPES(TG_CONSTANT) };

inline constexpr int kOldest = 22800, kStudied = 22809;  // 2.28.9 has the number 22809

// ncclConfig_t of 2.28; later versions read no more of it than `size` and `version` say.
struct Config {
  static constexpr int kUndefined = INT_MIN;
  size_t size = sizeof(Config);
  unsigned int magic = 0xcafebeef;
  unsigned int version = kStudied;
  int blocking = 0;  // calls return at once, with kInProgress
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
  int traffic_class = kUndefined;
  const char* comm_name = nullptr;
  int collnet_enable = kUndefined;
  int cta_policy = kUndefined;
  int shrink_share = kUndefined;
  int nvls_ctas = kUndefined;
  int channels_per_net_peer = kUndefined;
  int nvlink_centric_sched = kUndefined;
};

struct Functions {
  LibraryFunction<Result(int* version)> get_version;
  LibraryFunction<Result(UniqueId* id)> get_unique_id;
  LibraryFunction<Result(Handle* comm, int size, UniqueId id, int rank, Config* config)>
      init;  // ncclCommInitRankConfig
  LibraryFunction<Result(Handle comm, Result* error)> async_error;
  LibraryFunction<Result(Handle comm)> abort;
  LibraryFunction<const char*(Result result)> error_string;
  LibraryFunction<const char*(Handle comm)> last_error;
  LibraryFunction<Result()> group_start;
  LibraryFunction<Result()> group_end;
  LibraryFunction<Result(const void* in, void* out, size_t n, DataType, Operator, Handle, StreamHandle)> all_reduce;
  LibraryFunction<Result(const void* in, void* out, size_t n, DataType, int root, Handle, StreamHandle)> broadcast;
  LibraryFunction<Result(const void* in, void* out, size_t n, DataType, Operator, int root, Handle, StreamHandle)>
      reduce;
  LibraryFunction<Result(const void* in, void* out, size_t n, DataType, Handle, StreamHandle)> all_gather;
  LibraryFunction<Result(const void* in, void* out, size_t n, DataType, Operator, Handle, StreamHandle)> reduce_scatter;
  LibraryFunction<Result(const void* in, size_t n, DataType, int peer, Handle, StreamHandle)> send;
  LibraryFunction<Result(void* out, size_t n, DataType, int peer, Handle, StreamHandle)> recv;
};

// Finds NCCL: null, with one sentence in `why_not`, if it cannot be used. use_nccl registers the engine with
// distributed/device_backend.h; null removes it.
using Finder = const Functions* (*)(std::string& why_not);
TG_API void use_nccl(Finder finder);
// Error(Runtime) with that sentence.
TG_API const Functions& functions(const char* op);

}  // namespace tapegrad::cuda::nccl_api
