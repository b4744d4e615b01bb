// Collectives built from a single primitive of an engine: exchanging a piece with every other rank. Each rank sends and
// receives the minimum of data: an all-reduce is an exchange of pieces, a sum in the order of the ranks, and an
// exchange of results, so that all engines based on it give the same bits. For engines between machines (gloo/, mpi/).
#pragma once

#include <memory>
#include <vector>

#include "tapegrad/distributed/backend.h"

namespace tapegrad::distributed {

class TG_API PairwiseBackend : public Backend {
 public:
  using Backend::Backend;
  void exchange(const void* mine, size_t n, void* all, const Wait& wait) override;
  TG_OVERRIDE_COLLECTIVES;

 protected:
  // An exchange in progress. It is abandoned if destroyed before it has finished; all ranks must start exchanges in the
  // same order.
  class Swap {
   public:
    virtual ~Swap() = default;
    virtual void finish() = 0;
  };
  size_t ranks() const noexcept { return static_cast<size_t>(size()); }

 private:
  // in[r] to rank r and out[r] from it, for all other ranks at once; nothing where a size is 0. `wait` outlives it.
  virtual std::unique_ptr<Swap> start(std::span<const ConstBytes> in, std::span<const Bytes> out, const Wait& wait) = 0;
  // Also copies this rank's own piece, and waits for the end.
  void swap_all(std::span<const ConstBytes> in, std::span<const Bytes> out, const Wait& wait);
  // What this rank sums: in[rank], and of each other rank a piece that comes to `come`.
  struct Terms {
    std::vector<const void*> terms;  // by rank
    std::unique_ptr<Swap> swap;
  };
  Terms collect(std::span<const void* const> in, std::span<const int64_t> numel, char* come, DType dtype,
                const Wait& wait);
};

}  // namespace tapegrad::distributed
