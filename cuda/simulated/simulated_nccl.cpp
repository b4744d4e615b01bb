#include "tapegrad/cuda/simulated/simulated_nccl.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/runtime/stream.h"
#include "tapegrad/cuda/simulated/simulated_driver.h"
#include "tapegrad/distributed/backend.h"

namespace tapegrad::cuda::simulated {

using namespace nccl_api;

enum class NcclCall : uint8_t { AllReduce, Broadcast, Reduce, AllGather, ReduceScatter, Send, Recv };

struct NcclOperation {
  NcclCall what = NcclCall::AllReduce;
  const void* in = nullptr;
  void* out = nullptr;
  size_t n = 0;
  DataType type = kUint8;
  Operator op = kSum;
  int root = 0;  // or the peer
  Stream stream;
};

struct NcclClique;

}  // namespace tapegrad::cuda::simulated

struct ncclComm {
  std::shared_ptr<tapegrad::cuda::simulated::NcclClique> clique;
  int rank = 0, device = 0;
  bool gone = false;
  tapegrad::cuda::nccl_api::Result error = tapegrad::cuda::nccl_api::kSuccess;
  std::string words;
  std::deque<tapegrad::cuda::simulated::NcclOperation> collectives;                     // that wait for the others
  std::map<int, std::deque<tapegrad::cuda::simulated::NcclOperation>> sends, receives;  // by peer
  bool waits() const {
    const auto any = [](const auto& of) {
      return std::ranges::any_of(of, [](const auto& entry) { return !entry.second.empty(); });
    };
    return !collectives.empty() || any(sends) || any(receives);
  }
};

namespace tapegrad::cuda::simulated {

struct NcclClique {
  std::vector<Handle> ranks;  // null: has not come, or has gone
  int came = 0;
  bool connected() const { return came == static_cast<int>(ranks.size()); }
};

namespace {

// All is under one lock; nothing that a stream runs takes it.
struct State {
  std::recursive_mutex mutex;
  std::map<std::string, std::shared_ptr<NcclClique>> cliques;  // by unique id
  std::map<Handle, std::unique_ptr<ncclComm>> communicators;
  uint64_t ids = 0;
  NcclCounts counts;
  std::map<std::string, std::pair<uint64_t, Result>> failures;
  std::optional<Result> later;
  bool hangs = false;
  uint64_t slow = 0;
};
State& state() {
  static auto& it = *new State;
  return it;
}
using Lock = std::lock_guard<std::recursive_mutex>;

struct Pending {
  Handle comm;
  NcclOperation operation;
};
thread_local int depth = 0;
thread_local std::vector<Pending> pending;

// Whether this call shall fail.
std::optional<Result> told(const char* name) {
  State& s = state();
  const auto it = s.failures.find(name);
  if (it == s.failures.end() || --it->second.first > 0) return {};
  const Result result = it->second.second;
  s.failures.erase(it);
  return result;
}

std::optional<Result> refuse(const char* name, Handle comm) {
  if (const auto result = told(name)) return result;
  const auto it = state().communicators.find(comm);
  if (it == state().communicators.end() || it->second->gone) {
    ++state().counts.misused;
    return kInvalidArgument;
  }
  if (comm->error != kSuccess) return comm->error;
  return {};
}

size_t bytes_of(DataType t) {
  constexpr size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kBytes[t];
}
DType dtype_of(DataType t) {
  constexpr DType kTypes[] = {DType::int8,   DType::uint8,   DType::int32,   DType::uint32,  DType::int64,
                              DType::uint64, DType::float16, DType::float32, DType::float64, DType::bfloat16};
  return kTypes[t];
}
distributed::Reduce reduce_of(Operator op) {
  constexpr distributed::Reduce kReductions[] = {distributed::Reduce::Sum, distributed::Reduce::Product,
                                                 distributed::Reduce::Max, distributed::Reduce::Min};
  return kReductions[op];
}

// NcclCall the device does: on the streams' thread, with all parts there.
void compute(const std::vector<NcclOperation>& parts) {
  const NcclOperation& a = parts[0];
  const size_t nbytes = a.n * bytes_of(a.type);
  const auto reduced = [&](size_t offset, size_t n) {
    std::vector<const void*> in;
    for (const NcclOperation& o : parts) in.push_back(static_cast<const char*>(o.in) + offset);
    std::vector<std::max_align_t> out(n * bytes_of(a.type) / sizeof(std::max_align_t) + 1);
    distributed::reduce_bytes(out.data(), in, static_cast<int64_t>(n), dtype_of(a.type), reduce_of(a.op));
    return out;
  };
  switch (a.what) {
    case NcclCall::AllReduce: {
      const auto sum = reduced(0, a.n);
      for (const NcclOperation& o : parts) std::memcpy(o.out, sum.data(), nbytes);
      return;
    }
    case NcclCall::Reduce: {
      const auto sum = reduced(0, a.n);
      std::memcpy(parts[static_cast<size_t>(a.root)].out, sum.data(), nbytes);
      return;
    }
    case NcclCall::ReduceScatter: {
      std::vector<std::vector<std::max_align_t>> sums;
      for (size_t r = 0; r < parts.size(); ++r) sums.push_back(reduced(r * nbytes, a.n));
      for (size_t r = 0; r < parts.size(); ++r) std::memcpy(parts[r].out, sums[r].data(), nbytes);
      return;
    }
    case NcclCall::Broadcast:
      for (const NcclOperation& o : parts) std::memmove(o.out, parts[static_cast<size_t>(a.root)].in, nbytes);
      return;
    case NcclCall::AllGather:
      for (const NcclOperation& o : parts)
        for (size_t r = 0; r < parts.size(); ++r)
          std::memmove(static_cast<char*>(o.out) + r * nbytes, parts[r].in, nbytes);
      return;
    default:
      std::memmove(parts[1].out, a.in, nbytes);
  }
}

// On the first part's stream, when all streams have got there; then all go on.
void queue(const std::vector<NcclOperation>& parts) {
  Driver& d = driver();
  const auto follow = [&d](Stream waiter, Stream on) {
    if (waiter == on) return;
    EventHandle event;
    {
      const DeviceGuard guard(on.device);
      event = d.create_event(on.device, kEventPlain);
      d.record_event(event, on.handle);
    }
    const DeviceGuard guard(waiter.device);
    d.stream_wait_event(waiter.handle, event);
    d.destroy_event(event);
  };
  for (const NcclOperation& o : parts) follow(parts[0].stream, o.stream);
  {
    const DeviceGuard guard(parts[0].stream.device);
    d.host_function(parts[0].stream.handle, [parts] { compute(parts); });
  }
  for (const NcclOperation& o : parts) follow(o.stream, parts[0].stream);
  for (const NcclOperation& o : parts) {
    const DeviceGuard guard(o.stream.device);
    for (uint64_t i = 0; i < state().slow; ++i) d.host_function(o.stream.handle, [] {});
  }
  state().slow = 0;
  ++state().counts.queued;
}

void tell(const std::vector<Handle>& comms, Result error, const char* words) {
  for (const Handle h : comms)
    if (h != nullptr) {
      h->error = error;
      h->words = words;
    }
}

// Queues what is complete.
void match(NcclClique& clique) {
  State& s = state();
  if (s.hangs || !clique.connected()) return;
  std::vector<Handle>& ranks = clique.ranks;
  const auto done = [&](const std::vector<NcclOperation>& parts) {
    for (const NcclOperation& o : parts)
      if (o.n != parts[0].n || o.type != parts[0].type ||
          (o.what != parts[0].what && parts[0].what != NcclCall::Send)) {
        tell(ranks, kInvalidUsage, "the ranks ask for different things");
        return false;
      }
    queue(parts);
    if (s.later) tell(ranks, *std::exchange(s.later, {}), "a link has broken");
    return true;
  };
  while (std::ranges::all_of(ranks, [](Handle h) { return h != nullptr && !h->collectives.empty(); })) {
    std::vector<NcclOperation> parts;
    for (const Handle h : ranks) {
      parts.push_back(h->collectives.front());
      h->collectives.pop_front();
    }
    if (!done(parts)) return;
  }
  for (const Handle from : ranks) {
    if (from == nullptr) continue;
    for (auto& [to, sends] : from->sends) {
      const Handle other = ranks[static_cast<size_t>(to)];
      while (other != nullptr && !sends.empty() && !other->receives[from->rank].empty()) {
        std::deque<NcclOperation>& receives = other->receives[from->rank];
        const std::vector<NcclOperation> parts{sends.front(), receives.front()};
        sends.pop_front();
        receives.pop_front();
        if (!done(parts)) return;
      }
    }
  }
}

Result state_of(Handle comm) {
  if (comm->error != kSuccess) return comm->error;
  return !comm->clique->connected() || comm->waits() || state().hangs ? kInProgress : kSuccess;
}

void enter(const Pending& p) {
  if (p.operation.what == NcclCall::Send)
    p.comm->sends[p.operation.root].push_back(p.operation);
  else if (p.operation.what == NcclCall::Recv)
    p.comm->receives[p.operation.root].push_back(p.operation);
  else
    p.comm->collectives.push_back(p.operation);
}

Result ask(const char* name, Handle comm, const NcclOperation& operation) {
  const Lock lock(state().mutex);
  if (const auto no = refuse(name, comm)) return *no;
  if (state_of(comm) == kInProgress && depth == 0) return kInvalidUsage;  // not before the last call is done
  pending.push_back({comm, operation});
  if (depth > 0) return kSuccess;
  const Pending one = pending.back();
  pending.clear();
  enter(one);
  match(*comm->clique);
  return state_of(comm);
}

Stream on(Handle comm, StreamHandle stream) { return {stream, comm == nullptr ? 0 : comm->device}; }

// --- the functions ---

Result get_version(int* version) {
  *version = kStudied;
  return kSuccess;
}

Result get_unique_id(UniqueId* id) {
  const Lock lock(state().mutex);
  if (const auto no = told("ncclGetUniqueId")) return *no;
  const std::string text = fmt::format("simulated {} {}", getpid(), ++state().ids);
  std::memset(id->internal, 0, sizeof(id->internal));
  std::memcpy(id->internal, text.data(), text.size());
  return kSuccess;
}

Result init(Handle* comm, int size, UniqueId id, int rank, Config* config) {
  const Lock lock(state().mutex);
  *comm = nullptr;
  if (const auto no = told("ncclCommInitRankConfig")) return *no;
  const std::string key(id.internal, strnlen(id.internal, sizeof(id.internal)));
  if (config->magic != 0xcafebeef || config->size != sizeof(Config) || config->blocking != 0 || rank < 0 ||
      rank >= size || !key.starts_with(fmt::format("simulated {} ", getpid())))
    return kInvalidArgument;
  auto& clique = state().cliques[key];
  if (!clique) clique = std::make_shared<NcclClique>(NcclClique{std::vector<Handle>(static_cast<size_t>(size)), 0});
  if (clique->ranks.size() != static_cast<size_t>(size) || clique->ranks[static_cast<size_t>(rank)] != nullptr)
    return kInvalidUsage;
  auto made = std::make_unique<ncclComm>();
  made->clique = clique;
  made->rank = rank;
  made->device = driver().current_device();
  *comm = made.get();
  clique->ranks[static_cast<size_t>(rank)] = made.get();
  ++clique->came;
  ++state().counts.made;
  ++state().counts.live;
  for (const Handle h : clique->ranks)
    if (h != nullptr && h != made.get() && h->device == made->device)
      tell(clique->ranks, kInvalidUsage, "Duplicate GPU detected");
  state().communicators.emplace(made.get(), std::move(made));
  return state_of(*comm);
}

Result async_error(Handle comm, Result* error) {
  const Lock lock(state().mutex);
  if (const auto no = told("ncclCommGetAsyncError")) return *no;
  const auto it = state().communicators.find(comm);
  if (it == state().communicators.end() || it->second->gone) {
    ++state().counts.misused;
    return kInvalidArgument;
  }
  match(*comm->clique);
  *error = state_of(comm);
  return kSuccess;
}

Result abort(Handle comm) {
  const Lock lock(state().mutex);
  const auto it = state().communicators.find(comm);
  if (it == state().communicators.end() || it->second->gone) {
    ++state().counts.misused;
    return kInvalidArgument;
  }
  comm->gone = true;  // kept, so that a use of it is seen
  comm->clique->ranks[static_cast<size_t>(comm->rank)] = nullptr;
  comm->collectives.clear();
  comm->sends.clear();
  comm->receives.clear();
  ++state().counts.aborted;
  --state().counts.live;
  return kSuccess;
}

const char* error_string(Result result) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error",
                                    "unhandled system error",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "remote process exited or there was a network error",
                                    "in progress"};
  return kTexts[result];
}

const char* last_error(Handle comm) {
  const Lock lock(state().mutex);
  return comm == nullptr ? "" : comm->words.c_str();
}

Result group_start() {
  const Lock lock(state().mutex);
  if (const auto no = told("ncclGroupStart")) return *no;
  ++depth;
  return kSuccess;
}

Result group_end() {
  const Lock lock(state().mutex);
  if (depth == 0) return kInvalidUsage;
  if (--depth > 0) return kSuccess;
  const std::vector<Pending> mine = std::exchange(pending, {});
  if (const auto no = told("ncclGroupEnd")) return *no;
  Result result = kSuccess;
  for (const Pending& p : mine) enter(p);
  for (const Pending& p : mine) match(*p.comm->clique);
  for (const Pending& p : mine)
    if (const Result r = state_of(p.comm); r != kSuccess && (result == kSuccess || result == kInProgress)) result = r;
  return result;
}

Result all_reduce(const void* in, void* out, size_t n, DataType type, Operator op, Handle comm, StreamHandle stream) {
  return ask("ncclAllReduce", comm, {NcclCall::AllReduce, in, out, n, type, op, 0, on(comm, stream)});
}
Result broadcast(const void* in, void* out, size_t n, DataType type, int root, Handle comm, StreamHandle stream) {
  return ask("ncclBroadcast", comm, {NcclCall::Broadcast, in, out, n, type, kSum, root, on(comm, stream)});
}
Result reduce(const void* in, void* out, size_t n, DataType type, Operator op, int root, Handle comm,
              StreamHandle stream) {
  return ask("ncclReduce", comm, {NcclCall::Reduce, in, out, n, type, op, root, on(comm, stream)});
}
Result all_gather(const void* in, void* out, size_t n, DataType type, Handle comm, StreamHandle stream) {
  return ask("ncclAllGather", comm, {NcclCall::AllGather, in, out, n, type, kSum, 0, on(comm, stream)});
}
Result reduce_scatter(const void* in, void* out, size_t n, DataType type, Operator op, Handle comm,
                      StreamHandle stream) {
  return ask("ncclReduceScatter", comm, {NcclCall::ReduceScatter, in, out, n, type, op, 0, on(comm, stream)});
}
Result send(const void* in, size_t n, DataType type, int peer, Handle comm, StreamHandle stream) {
  return ask("ncclSend", comm, {NcclCall::Send, in, nullptr, n, type, kSum, peer, on(comm, stream)});
}
Result recv(void* out, size_t n, DataType type, int peer, Handle comm, StreamHandle stream) {
  return ask("ncclRecv", comm, {NcclCall::Recv, nullptr, out, n, type, kSum, peer, on(comm, stream)});
}

}  // namespace

const Functions* simulated_nccl(std::string&) {
  static constexpr Functions all{get_version, get_unique_id,  init,      async_error, abort,     error_string,
                                 last_error,  group_start,    group_end, all_reduce,  broadcast, reduce,
                                 all_gather,  reduce_scatter, send,      recv};
  return &all;
}

NcclCounts nccl_counts() {
  const Lock lock(state().mutex);
  return state().counts;
}

void nccl_fail_at(const std::string& name, uint64_t n, Result result) {
  const Lock lock(state().mutex);
  state().failures[name] = {n, result};
}

void nccl_fail_later(Result result) {
  const Lock lock(state().mutex);
  state().later = result;
}

void nccl_slow(uint64_t questions) {
  const Lock lock(state().mutex);
  state().slow = questions;
}

void nccl_hang(bool hangs) {
  const Lock lock(state().mutex);
  state().hangs = hangs;
}

}  // namespace tapegrad::cuda::simulated

namespace tapegrad::cuda {

TG_API void register_nccl() { nccl_api::use_nccl(&simulated::simulated_nccl); }

}  // namespace tapegrad::cuda
