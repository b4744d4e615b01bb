// Ranks that are processes of one machine: they share memory through the arenas of multiprocessing/. And the question
// whether all ranks of a group are such.
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "tapegrad/c10/proc_file.h"
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

// What processes that share memory have in common: the machine and its start, the user, and the name spaces in which
// processes, abstract sockets and users are named. Empty where memory cannot be shared.
std::string machine() {
  const char* wish = std::getenv("TAPEGRAD_SHARED_MEMORY");
  if (wish != nullptr && std::strcmp(wish, "0") == 0) return {};
  const detail::ProcFile boot("/proc/sys/kernel/random/boot_id");
  utsname names{};
  if (!boot.ok() || uname(&names) != 0) return {};
  std::string text = fmt::format("{}|{}|{}", boot.text(), names.nodename, geteuid());
  for (const char* space : {"net", "pid", "user"}) {
    char link[64];
    const ssize_t n = readlink(fmt::format("/proc/self/ns/{}", space).c_str(), link, sizeof(link));
    if (n <= 0) return {};
    text.append("|").append(link, static_cast<size_t>(n));
  }
  try {
    (void)shared::exchange().allocate(1);
  } catch (const std::exception&) {  // no memory files or no sockets in this container
    return {};
  }
  return text;
}

}  // namespace

CommonMemory& memory_of_processes() {
  static auto& memory = *new ArenaMemory;
  return memory;
}

}  // namespace local

bool all_on_this_machine(const BackendPlace& place) {
  std::vector<std::string> keys;
  for (int r = 0; r < place.size; ++r) keys.push_back(fmt::format("machine/{}", r));
  place.store->set(keys[static_cast<size_t>(place.rank)], local::machine());
  try {
    place.store->wait(keys, place.timeout);
  } catch (const DistError& e) {
    if (e.part() != DistError::Part::Store) throw;
    std::vector<int> missing;
    for (int r = 0; r < place.size; ++r)
      if (!place.store->check({keys[static_cast<size_t>(r)]})) missing.push_back(r);
    if (missing.empty()) throw;
    fail(DistError::Part::Store, "process group: {} of {} ranks did not come within {:.3g} s: {}", missing.size(),
         place.size, static_cast<double>(place.timeout.count()) / 1000, rank_list(missing));
  }
  const std::vector<std::string> all = place.store->multi_get(keys);
  for (const std::string& one : all)
    if (one.empty() || one != all.front()) return false;
  return place.size <= local::kMostRanks;
}

std::unique_ptr<Backend> make_shared_backend(const BackendPlace& place) {
  return std::make_unique<local::LocalBackend>("shared", local::memory_of_processes(), place);
}

}  // namespace tapegrad::distributed
