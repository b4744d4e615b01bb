// Collectives among devices of this process, for cuda.nccl: one thread makes each device's call, as one NCCL group, on
// the devices' current streams. Communicators are created once per list of devices and kept until the process ends.
#include <map>

#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/nccl/communicator.h"
#include "tapegrad/cuda/nccl/local.h"
#include "tapegrad/cuda/nccl/types.h"
#include "tapegrad/distributed/group/group.h"

namespace tapegrad::cuda::nccl_api {

namespace {

using distributed::Kind;
using Clique = std::vector<std::shared_ptr<Communicator>>;

distributed::Wait wait_of(const char* op) {
  distributed::Wait wait;
  wait.deadline = distributed::Clock::now() + std::chrono::minutes(5);
  wait.may_be_interrupted = true;
  wait.what = op;
  return wait;
}

void await_all(const Clique& clique, const char* name, const distributed::Wait& wait) {
  for (const auto& c : clique) c->await(name, wait, [&c] { return std::vector{c->rank()}; });
}

// One call at a time: communicators take calls in one order.
std::mutex& mutex() {
  static auto& it = *new std::mutex;
  return it;
}

const Clique& clique_of(const Functions& api, const std::vector<int>& devices, const distributed::Wait& wait) {
  static auto& cliques = *new std::map<std::vector<int>, Clique>;
  const auto known = cliques.find(devices);
  if (known != cliques.end()) return known->second;
  const UniqueId id = new_id(api);
  Clique made;
  const int n = static_cast<int>(devices.size());
  const Result result = grouped(api, [&] {
    for (int r = 0; r < n; ++r)
      made.push_back(std::make_shared<Communicator>(api, devices[static_cast<size_t>(r)], n, id, r));
    return kSuccess;
  });
  TG_CHECK(!is_failure(result), Runtime, "{}: NCCL cannot connect the devices: {}", wait.what,
           api.error_string(result));
  await_all(made, "ncclCommInitRankConfig", wait);
  return cliques.emplace(devices, std::move(made)).first->second;
}

}  // namespace

void among_devices(Kind kind, const std::vector<Tensor>& in, const std::vector<Tensor>& out, distributed::Reduce reduce,
                   int root) {
  const char* const op = name_of(kind);
  const Functions& api = functions(op);
  std::vector<int> devices;
  for (const Tensor& x : in) devices.push_back(x.device().index);
  const bool reduces = kind == Kind::AllReduce || kind == Kind::Reduce || kind == Kind::ReduceScatter;
  const Numbers numbers = reduces ? numbers_of(op, in[0].dtype(), reduce) : Numbers{};
  const auto count = static_cast<size_t>(in[0].numel()) * (reduces ? numbers.parts : element_size(in[0].dtype()));
  if (count == 0) return;

  const distributed::Wait wait = wait_of(op);
  const std::lock_guard lock(mutex());
  const Clique& clique = clique_of(api, devices, wait);
  const Result result = grouped(api, [&] {
    for (size_t i = 0; i < in.size(); ++i) {
      const DeviceGuard guard(devices[i]);
      const StreamHandle stream = current_stream(devices[i]).handle;
      const void* const from = in[i].data_ptr();
      void* const to = kind == Kind::Reduce ? out[0].data_ptr() : out.empty() ? in[i].data_ptr() : out[i].data_ptr();
      const Result given = clique[i]->give([&](Handle h) {
        switch (kind) {
          case Kind::AllReduce:
            return api.all_reduce(from, to, count, numbers.type, numbers.op, h, stream);
          case Kind::Reduce:
            return api.reduce(from, to, count, numbers.type, numbers.op, root, h, stream);
          case Kind::Broadcast:
            return api.broadcast(from, to, count, kUint8, root, h, stream);
          case Kind::AllGather:
            return api.all_gather(from, to, count, kUint8, h, stream);
          default:
            return api.reduce_scatter(from, to, count / in.size(), numbers.type, numbers.op, h, stream);
        }
      });
      if (is_failure(given)) return given;
    }
    return kSuccess;
  });
  TG_CHECK(!is_failure(result), Runtime, "{}: NCCL: {}", op, api.error_string(result));
  await_all(clique, op, wait);
}

}  // namespace tapegrad::cuda::nccl_api
