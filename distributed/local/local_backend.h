// The engine of ranks on one machine, for processes and for threads: collectives through the chunks of an Area,
// messages through channels. Thread rules: those of Backend; recv_any() is a receive from every peer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tapegrad/distributed/local/area.h"
#include "tapegrad/distributed/local/channel.h"

namespace tapegrad::distributed::local {

class LocalBackend final : public Backend {
 public:
  LocalBackend(const char* name, CommonMemory& memory, const BackendPlace& place);

  const char* name() const noexcept override { return name_; }
  bool polls() const noexcept override { return true; }
  void exchange(const void* mine, size_t n, void* all, const Wait& wait) override;
  TG_OVERRIDE_COLLECTIVES;
  void send(ConstBytes data, int peer, uint64_t tag, const Wait& wait) override;
  void recv(Bytes data, int peer, uint64_t tag, const Wait& wait) override;
  int recv_any(Bytes data, uint64_t tag, const Wait& wait) override;
  void abort(const std::string& why) noexcept override { area_.abort(why); }

 private:
  static constexpr int kAll = -1;

  // The stages of a call over the chunks. In step t a rank fills its chunk t, combines the chunks t-1 of all ranks if
  // the call has that stage, and drains completed chunks. Each function gets the index in the call and the step of the
  // chunk. `combine` is set on all ranks or on none.
  struct Flow {
    using Part = std::function<void(size_t index, uint64_t step)>;
    size_t chunks = 0;
    int source = kAll;  // the rank that fills
    Part fill, combine, take;
  };

  // An exception in a call fails the group on all ranks.
  template <class F>
  auto guarded(const Wait& wait, F&& f) {
    area_.enter(wait);
    try {
      return f();
    } catch (const std::exception& e) {
      area_.tell(e.what());
      throw;
    }
  }
  void exchange_bytes(const void* mine, size_t n, void* all, const Wait& wait);
  size_t most(size_t mine, const Wait& wait);
  void await_steps(int source, uint64_t steps, const Wait& wait);
  void stream(const Flow& flow, const Wait& wait);
  size_t chunk_for(size_t nbytes) const noexcept;
  size_t part_bytes() const noexcept;
  // `root` kAll: to all.
  void reduce_to(void* data, int64_t numel, DType dtype, Reduce op, int root, const Wait& wait);
  void gather_to(ConstBytes in, std::span<const Bytes> out, int root, const Wait& wait);
  void pairwise(std::span<const ConstBytes> in, std::span<const Bytes> out, int source, const Wait& wait);

  const char* const name_;
  Area area_;
  uint64_t exchanges_ = 0, steps_ = 0;
  std::vector<std::unique_ptr<Sender>> senders_;
  std::vector<std::unique_ptr<Receiver>> receivers_;
};

}  // namespace tapegrad::distributed::local
