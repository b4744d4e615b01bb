// An engine moves bytes between the ranks of a group: through shared memory, gloo, MPI, or between threads of one
// process. (Device memory has an interface of its own, device_backend.h.) The group (group/) checks arguments, makes
// tensors contiguous and verifies that all ranks make the same call before it calls an engine, so that an engine only
// moves and reduces bytes.
//
// Thread rules: collectives (exchange() ... barrier()) are called by one thread at a time, in the same order and with
// matching sizes on all ranks. send() and recv() may be called beside them: sends from one thread at a time for each
// peer, receives for each (peer, tag). abort() may be called from any thread: calls in progress end with
// DistError(Backend). After an exception the engine must not be used again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tapegrad/c10/device/device.h"
#include "tapegrad/c10/tensor/dtype.h"
#include "tapegrad/distributed/store/store.h"
#include "tapegrad/distributed/wait.h"

namespace tapegrad::distributed {

struct Bytes {
  void* data = nullptr;
  size_t nbytes = 0;
};
struct ConstBytes {
  const void* data = nullptr;
  size_t nbytes = 0;
};

// Means are sums with a factor, computed by the group. Sums of 16-bit numbers are rounded once, from a float32 sum.
enum class Reduce : uint8_t { Sum, Product, Min, Max, BitAnd, BitOr, BitXor };

// Moves and reduces the data of collectives, after the group has verified that all ranks make the same call.
class TG_API Collectives {
 public:
  Collectives() = default;
  virtual ~Collectives();
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  // In place on every rank; the same bits on all of them, and for equal inputs in every run: ranks are combined in an
  // order that depends on sizes only.
  virtual void all_reduce(void* data, int64_t numel, DType dtype, Reduce op, const Wait& wait) = 0;
  virtual void broadcast(Bytes data, int root, const Wait& wait) = 0;
  // `data` of the root becomes the reduction; others keep theirs.
  virtual void reduce(void* data, int64_t numel, DType dtype, Reduce op, int root, const Wait& wait) = 0;
  // Sizes may differ by rank; each rank passes all of them: out[r].nbytes is rank r's size.
  virtual void all_gather(ConstBytes in, std::span<const Bytes> out, const Wait& wait) = 0;
  // `out` on the root only, with sizes on all ranks (data null elsewhere).
  virtual void gather(ConstBytes in, std::span<const Bytes> out, int root, const Wait& wait) = 0;
  virtual void scatter(std::span<const ConstBytes> in, Bytes out, int root, const Wait& wait) = 0;
  // in[r] is what rank r gets the reduction of. numel[r]: elements; out has numel[rank].
  virtual void reduce_scatter(std::span<const void* const> in, std::span<const int64_t> numel, void* out, DType dtype,
                              Reduce op, const Wait& wait) = 0;
  // in[r] goes to rank r, out[r] comes from it. Sizes of a pair agree on both sides.
  virtual void all_to_all(std::span<const ConstBytes> in, std::span<const Bytes> out, const Wait& wait) = 0;
};

// For a class that has them all.
#define TG_OVERRIDE_COLLECTIVES                                                                                \
  void all_reduce(void* data, int64_t numel, DType dtype, Reduce op, const Wait& wait) override;               \
  void broadcast(Bytes data, int root, const Wait& wait) override;                                             \
  void reduce(void* data, int64_t numel, DType dtype, Reduce op, int root, const Wait& wait) override;         \
  void all_gather(ConstBytes in, std::span<const Bytes> out, const Wait& wait) override;                       \
  void gather(ConstBytes in, std::span<const Bytes> out, int root, const Wait& wait) override;                 \
  void scatter(std::span<const ConstBytes> in, Bytes out, int root, const Wait& wait) override;                \
  void reduce_scatter(std::span<const void* const> in, std::span<const int64_t> numel, void* out, DType dtype, \
                      Reduce op, const Wait& wait) override;                                                   \
  void all_to_all(std::span<const ConstBytes> in, std::span<const Bytes> out, const Wait& wait) override

class TG_API Backend : public Collectives {
 public:
  Backend(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }

  virtual const char* name() const noexcept = 0;
  // Whether calls poll Wait::poll while they wait, so that they may run on the thread that called the collective.
  virtual bool polls() const noexcept = 0;

  // Each rank's `mine` to all: rank r's is all[r * n]. n is the same on all ranks and at most kMostExchanged. Every
  // collective begins with it; small ones are completed by it, and missing ranks are detected here.
  static constexpr size_t kMostExchanged = 8192;
  virtual void exchange(const void* mine, size_t n, void* all, const Wait& wait) = 0;
  virtual void barrier(const Wait& wait);  // exchange() of one byte

  // Messages of one (peer, direction, tag) arrive in order. The receiver names the size; DistError(Backend) on both
  // sides where it differs. recv_any: the rank that it came from.
  virtual void send(ConstBytes data, int peer, uint64_t tag, const Wait& wait) = 0;
  virtual void recv(Bytes data, int peer, uint64_t tag, const Wait& wait) = 0;
  virtual int recv_any(Bytes data, uint64_t tag, const Wait& wait) = 0;

  virtual void abort(const std::string& why) noexcept = 0;

 private:
  int rank_, size_;
};

// The arguments with which an engine is created. `store` belongs to the group: its prefix is unique.
struct BackendPlace {
  std::shared_ptr<Store> store;
  int rank = 0, size = 1;
  std::shared_ptr<Failure> failure;
  Milliseconds timeout{};
  std::function<void()> check;  // to be called while waiting for other ranks; throws if one of them has failed
};
// Ranks of one machine and user, through shared memory (backend_shared.cpp).
TG_API std::unique_ptr<Backend> make_shared_backend(const BackendPlace& place);
// Ranks that are threads of this process, for tests: the same algorithms over ordinary memory.
TG_API std::unique_ptr<Backend> make_thread_backend(const BackendPlace& place);
// Ranks on any machines, through libgloo; the library that wraps it (distributed/gloo/) is opened at run time. If it is
// missing, DistError(Backend) says what to install.
TG_API std::unique_ptr<Backend> make_gloo_backend(const BackendPlace& place);
// Ranks started by mpirun or srun, through their MPI; also opened at run time (distributed/mpi/).
TG_API std::unique_ptr<Backend> make_mpi_backend(const BackendPlace& place);
TG_API bool engine_is_available(const char* name) noexcept;  // "gloo", "mpi": whether its library can be opened

// out = in[0] op in[1] op ...; `out` may be one of them. 16-bit numbers are summed in float32 and rounded once. bool:
// Sum and Max are "or", Product and Min "and". Error(Value) for undefined combinations (bitwise operations on
// floating-point numbers, order of complex ones). reduce_cpu.cpp.
TG_API void reduce_bytes(void* out, std::span<const void* const> in, int64_t numel, DType dtype, Reduce op);
TG_API void check_reduce(const char* op_name, DType dtype, Reduce op);

}  // namespace tapegrad::distributed
