// Ranks that are processes of one machine: they share memory through the arenas of multiprocessing/.
#include <cstring>

#include "tapegrad/distributed/local/local_backend.h"
#include "tapegrad/multiprocessing/exchange.h"

namespace tapegrad::distributed {

namespace local {

namespace {

class ArenaMemory final : public CommonMemory {
 public:
  Piece allocate(size_t nbytes) override { return piece_of(shared::exchange().allocate(nbytes)); }
  Pass give(const Piece& piece) override {
    const shared::Handle handle = shared::exchange().give(*static_cast<const Storage*>(piece.holds.get()));
    Pass pass;
    static_assert(sizeof(pass) == shared::Handle::kArenaBytes);
    std::memcpy(pass.data(), &handle, sizeof(pass));
    return pass;
  }
  Piece receive(const Pass& pass) override {
    const shared::Handle handle = handle_of(pass);
    TG_CHECK(handle.kind == shared::HandleKind::Arena, Runtime, "not a handle of CPU memory");
    return piece_of(shared::exchange().receive(handle));
  }
  void take_back(const Pass& pass) noexcept override { shared::exchange().take_back(handle_of(pass)); }

 private:
  static Piece piece_of(Storage storage) {
    auto* data = static_cast<char*>(storage->data());
    const size_t nbytes = storage->nbytes();
    TG_CHECK(reinterpret_cast<uintptr_t>(data) % kLine == 0 && !storage->read_only(), Runtime,
             "shared memory that begins within a cache line or cannot be written");
    return {data, nbytes, std::make_shared<Storage>(std::move(storage))};
  }
  static shared::Handle handle_of(const Pass& pass) noexcept {
    shared::Handle handle;
    std::memcpy(static_cast<void*>(&handle), pass.data(), sizeof(pass));
    return handle;
  }
};

}  // namespace

CommonMemory& memory_of_processes() {
  static auto& memory = *new ArenaMemory;
  return memory;
}

}  // namespace local

std::unique_ptr<Backend> make_shared_backend(const BackendPlace& place) {
  return std::make_unique<local::LocalBackend>("shared", local::memory_of_processes(), place);
}

}  // namespace tapegrad::distributed
