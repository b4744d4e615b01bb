#include "tapegrad/distributed/group/messages.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/record/recording.h"
#include "tapegrad/autograd/engine/node.h"
#include "tapegrad/c10/dispatch/modes.h"
#include "tapegrad/c10/threads/parallel.h"
#include "tapegrad/distributed/group/call.h"

namespace tapegrad::distributed {

namespace {

// Ahead of a message from one rank to another.
struct MessageHeader {
  static constexpr size_t kInline = 768;
  uint32_t magic = Header::kMagic;
  DType dtype = DType::uint8;
  uint8_t on_device = 0;  // the message itself goes by the devices' engine
  uint8_t pad[2] = {};
  int64_t numel = 0;
  char line[112] = {};
  char payload[kInline];  // the whole message where it fits
};

// A communicator for each way between two ranks and each tag: what is sent arrives in order, and two ranks may both
// send first. A send waits on the group's thread for its receive, so that messages are to be received in the order in
// which they were sent, whatever their tags.
DeviceJob job_of_message(const Tensor& t, int from, int to, uint64_t tag, bool sends,
                         const std::shared_ptr<DeviceMark>& after) {
  DeviceJob job;
  job.device = t.device();
  job.members = fmt::format("{} to {}, {}", from, to, tag);
  job.rank = sends ? 0 : 1;
  job.size = 2;
  job.others = {sends ? to : from};
  job.after = after;
  job.storages = {t.impl()->storage()};
  return job;
}

}  // namespace

void Messages::send(const Call& call, const Tensor& t, Work& work, const std::shared_ptr<DeviceMark>& after,
                    const Wait& wait) {
  MessageHeader m;
  m.on_device = after != nullptr;
  m.dtype = t.dtype();
  m.numel = t.numel();
  std::memcpy(m.line, call.line.data(), std::min(call.line.size(), sizeof(m.line) - 1));
  const auto n = static_cast<size_t>(t.nbytes());
  if (n <= MessageHeader::kInline && n != 0 && !after) std::memcpy(m.payload, t.data_ptr(), n);
  core_.backend->send({&m, sizeof(m)}, call.root, 2 * call.tag, wait);
  if (after) {
    if (n == 0) return;
    DeviceJob job = job_of_message(t, core_.place.rank, call.root, call.tag, true, after);
    job.share = [&](void* id, size_t size) { core_.backend->send({id, size}, call.root, 2 * call.tag + 1, wait); };
    work.set_end(
        core_.device_or_null()->run(job, wait, [&](DeviceQueue& queue) { queue.send({t.data_ptr(), n}, 1, wait); }));
    return;
  }
  if (n > MessageHeader::kInline) core_.backend->send({t.data_ptr(), n}, call.root, 2 * call.tag + 1, wait);
}

int Messages::recv(const Call& call, const Tensor& t, const Tensor& target, Work& work,
                   const std::shared_ptr<DeviceMark>& after, Wait& wait) {
  const auto take = [&] {
    if (t.is_same(target))
      autograd::bump_version(target, "recv");
    else
      copy_(target, t);
  };
  MessageHeader m;
  int source = call.root;
  if (source < 0)
    source = core_.backend->recv_any({&m, sizeof(m)}, 2 * call.tag, wait);
  else
    core_.backend->recv({&m, sizeof(m)}, source, 2 * call.tag, wait);
  wait.ask = nullptr;  // it is being sent
  TG_CHECK(m.magic == Header::kMagic && m.dtype == t.dtype() && m.numel == t.numel(), Runtime,
           "{}: rank {} sends {} elements of {}{}, the tensor here has {} of {}", wait.what, source, m.numel,
           m.magic == Header::kMagic ? dtype_name(m.dtype) : "an unknown dtype",
           m.line[0] ? fmt::format(" at {}", std::string_view(m.line, strnlen(m.line, sizeof(m.line)))) : "", t.numel(),
           t.dtype());
  TG_CHECK(m.on_device == (after != nullptr), Runtime,
           "{}: rank {} sends from {}, the tensor here is on {}\nboth sides of a message must go the same way",
           wait.what, source, m.on_device ? "a GPU" : "the host", target.device());
  const auto n = static_cast<size_t>(t.nbytes());
  if (after && n != 0) {
    DeviceJob job = job_of_message(t, source, core_.place.rank, call.tag, false, after);
    job.storages.push_back(target.impl()->storage());
    job.share = [&](void* id, size_t size) { core_.backend->recv({id, size}, source, 2 * call.tag + 1, wait); };
    work.set_end(core_.device_or_null()->run(job, wait, [&](DeviceQueue& queue) {
      queue.recv({t.data_ptr(), n}, 0, wait);
      take();
    }));
    return source;
  }
  if (n > MessageHeader::kInline)
    core_.backend->recv({t.data_ptr(), n}, source, 2 * call.tag + 1, wait);
  else if (n != 0)
    std::memcpy(t.data_ptr(), m.payload, n);
  take();
  return source;
}

std::shared_ptr<Work> Messages::start(Call call, bool here) {
  record::refuse("it sends or receives a tensor");
  const bool sends = call.kind == Kind::Send;
  const char* op = name_of(call.kind);
  std::vector<Tensor>& tensors = sends ? call.inputs : call.outputs;
  TG_CHECK(tensors.size() == 1 && tensors[0].defined(), Type, "{}: one tensor is sent at a time", op);
  TG_CHECK(call.root < core_.place.size && call.root >= (sends ? 0 : -1) && call.root != core_.place.rank, Value,
           "{}: rank {} cannot be the other side for rank {} of {}", op, call.root, core_.place.rank, core_.place.size);
  TG_CHECK(tensors[0].is_cpu() || tensors[0].is_cuda(), Runtime,
           "{}: only dense tensors on the CPU and CUDA devices can be sent: got one on {}", op, tensors[0].device());
  if (!sends) autograd::check_inplace(tensors[0], op, false);
  const Device at = core_.place_of(call);
  Lane* lane;
  {
    const std::lock_guard lock(mutex_);
    lane = &lanes_[{call.root, sends, sends ? 0 : call.tag % kMostLanes}];
  }
  const Tensor target = tensors[0];
  const auto n = static_cast<size_t>(target.nbytes());
  // The caller goes on where the copy of what it sends can wait for the receiver: two ranks may both send first.
  const bool leaves = sends && n <= Lane::kMostOfOne && lane->kept.load() + n <= Lane::kMostKept;
  Tensor piece = target;
  if (leaves || target.device() != at || !target.is_contiguous()) {
    const NoGradGuard no_grad;
    piece = empty_tensor(target.sizes(), target.dtype(), at);
    if (sends) copy_(piece, target);
  }
  const std::shared_ptr<DeviceMark> after = at.is_cuda() ? core_.device_or_null()->mark(op, at) : nullptr;
  auto work = std::make_shared<Work>(std::vector<Tensor>{target});
  std::shared_ptr<Work> rest = work;
  if (leaves) {
    if (core_.place.failure->is_set()) {
      core_.carry_out(*work, [] { return -1; });  // raises why
      return work;
    }
    rest = std::make_shared<Work>(std::vector<Tensor>{});
    lane->kept += n;
  }
  const uint64_t ticket = sends ? 0 : receives_.enter(call.root, call.tag);
  lane->run(
      [this, rest, call = std::move(call), piece, target, after, sends, leaves, lane, n, ticket](bool own_thread) {
        core_.carry_out(*rest, [&] {
          struct End {
            const std::function<void()> f;
            ~End() { f(); }
          } end{[&] {
            if (leaves) lane->kept -= n;
            if (!sends) receives_.leave(ticket);
          }};
          const ModeGuard plain(kModeNoGrad, ~static_cast<uint32_t>(kModeNoGrad));
          const std::string text = fmt::format("{} {} rank {}", name_of(call.kind), sends ? "to" : "from", call.root);
          Wait w = core_.wait_of(call, core_.title(call.root < 0 ? "recv" : text.c_str(), 0, call.line), !own_thread);
          if (leaves) w.patience = {};  // no rank waits
          if (sends) {
            send(call, piece, *rest, after, w);
            return -1;
          }
          receives_.await_turn(ticket, w);
          w.ask = [this, any = call.root < 0](const Wait& waits, const std::vector<int>& missing) {
            core_.check_ended_ranks(waits, missing, kEndGracePeriod, any);
          };
          return recv(call, piece, target, *rest, after, w);
        });
      },
      here && !leaves);
  if (leaves) work->finish(nullptr);
  return work;
}

// Waits until all sent data has been received. A peer that also flushes receives nothing more: messages that are still
// here for it are then reported and dropped.
void Messages::flush(Milliseconds limit) {
  std::vector<std::pair<int, Lane*>> left;
  bool used;
  {
    const std::lock_guard lock(mutex_);
    used = !lanes_.empty();
    for (auto& [where, lane] : lanes_)
      if (where.sends) left.emplace_back(where.peer, &lane);
  }
  const auto since = Clock::now();
  constexpr auto kGrace = Milliseconds(500);  // between a receive and its sender's hearing of it
  std::map<int, Clock::time_point> ending;
  const auto drop_idle = [&] { std::erase_if(left, [](auto& l) { return l.second->idle(); }); };
  drop_idle();
  const bool late = core_.place.failure->is_set();
  const auto tell = [&](const std::vector<int>& ranks, const std::string& why) {
    std::fputs(fmt::format("tapegrad: messages to {} were sent and not received{}\n", rank_list(ranks), why).c_str(),
               stderr);
  };
  std::vector<int> ranks;
  try {
    if (used && !late) core_.tell_of_own_end();
    double told = 0;
    while (!left.empty()) {
      if (ranks.empty())
        for (auto& [r, lane] : left) ranks.push_back(core_.world_rank(r));
      left[0].second->idle_within(Milliseconds(20));
      drop_idle();
      check_interrupt();
      bool nobody = !left.empty();
      for (auto& [r, lane] : left) {
        if (!ending.contains(r) && core_.is_ending(r)) ending.emplace(r, Clock::now());
        nobody = nobody && ending.contains(r) && Clock::now() - ending[r] > kGrace;
      }
      if (core_.place.failure->is_set() && !late) return tell(ranks, ": " + core_.place.failure->why());
      ranks.clear();
      for (auto& [r, lane] : left) ranks.push_back(core_.world_rank(r));
      const double seconds = std::chrono::duration<double>(Clock::now() - since).count();
      if (nobody || (!left.empty() && Clock::now() - since >= limit)) {
        tell(ranks, "");
        core_.place.failure->set(fmt::format("messages to {} were not received", rank_list(ranks)));
        return;
      }
      if (const double patient = std::chrono::duration<double>(core_.options.patience).count();
          patient > 0 && !left.empty() && seconds >= told + patient) {
        told = seconds;
        std::fputs(fmt::format("tapegrad: the end of the group has waited {:.0f} s for {} to receive what was sent\n",
                               seconds, rank_list(ranks))
                       .c_str(),
                   stderr);
      }
    }
  } catch (const DistError&) {  // the store has gone: so has the job
    core_.place.failure->set("the store of the job has gone");
  }
}

void Messages::await_receives() {
  for (auto& [where, lane] : lanes_)
    if (!where.sends)
      for (; !lane.idle_within(Milliseconds(20)); check_interrupt()) continue;
}

void Messages::drain() {
  for (auto& [where, lane] : lanes_) lane.drain();
}

bool Messages::idle() {
  return std::ranges::all_of(lanes_, [](auto& entry) { return entry.second.idle(); });
}

bool Messages::on_own_thread() const {
  return std::ranges::any_of(lanes_, [](const auto& entry) { return entry.second.on_own_thread(); });
}

}  // namespace tapegrad::distributed
