#include "tapegrad/distributed/group/group_core.h"

#include <new>

namespace tapegrad::distributed {

Wait GroupCore::wait_of(const Call& call, const std::string& what, bool interruptible) {
  Wait w;
  w.deadline = Clock::now() + call.timeout.value_or(options.timeout);
  w.failure = place.failure.get();
  w.may_be_interrupted = interruptible;
  w.patience = options.patience;
  w.what = what;
  w.describe = [this](const std::vector<int>& missing) {
    std::string text = rank_list(missing);
    if (options.watch && !missing.empty()) {
      const std::string line = options.watch->where(world_rank(missing[0]), Milliseconds(500));
      text += line.empty() ? fmt::format(" (rank {} does not say where it is)", missing[0])
                           : fmt::format(" (rank {} is at {})", missing[0], line);
    }
    return text;
  };
  return w;
}

std::string GroupCore::title(const char* op, uint64_t n, const std::string& line) const {
  return fmt::format("{}{}{}{}", op, n ? fmt::format(" #{}", n) : "", options.name.empty() ? "" : " of " + options.name,
                     line.empty() ? "" : " (" + line + ")");
}

Store& GroupCore::asking() {
  const std::lock_guard lock(mutex);
  if (!asking_) {
    asking_ = place.store->clone();
    asking_->set_timeout(Milliseconds(1000));
  }
  return *asking_;
}

void GroupCore::tell_of_own_end() { asking().set(end_key(place.rank), "1"); }
bool GroupCore::is_ending(int r) { return asking().check({end_key(r)}); }

void GroupCore::check_ended_ranks(const Wait& wait, const std::vector<int>& missing, Milliseconds grace, bool any) {
  for (const int r : missing) {
    bool over = false;
    try {
      const auto now = Clock::now();
      const bool ends = is_ending(r);
      const std::lock_guard lock(mutex);
      over = ends && now - ending_.try_emplace(r, now).first->second >= grace;
    } catch (const DistError&) {  // no answer: the watch reports to waiting calls if the store is gone
      return;
    }
    if (any && !over) return;
    if (over && (!any || r == missing.back()))
      fail(DistError::Part::Backend,
           "{}: rank {} has ended the group and waits for what it sent to be received: it takes part in nothing more",
           wait.what, r);
  }
}

void GroupCore::give_up(const std::string& why) noexcept {
  try {
    const std::string text = fmt::format("rank {} failed: {}", world_rank(place.rank), why);
    place.failure->set(text);
    backend->abort(text);
    if (DeviceBackend* const engine = device_or_null()) engine->abort(text);
    if (options.watch) options.watch->failed(text);
  } catch (const std::bad_alloc&) {
    place.failure->set("");
    backend->abort("");
    if (DeviceBackend* const engine = device_or_null()) engine->abort("");
  }
}

Device GroupCore::place_of(const Call& call) {
  const std::vector<Tensor>& any = call.outputs.empty() ? call.inputs : call.outputs;
  if (!options.device_engine || any.empty() || !any[0].defined() || !any[0].is_cuda()) return {};
  const Device where = any[0].device();
  for (const auto* tensors : {&call.inputs, &call.outputs})
    for (const Tensor& t : *tensors)
      TG_CHECK(t.defined() && t.device() == where, Value, "{}: all tensors must be on one GPU: got {} and {}",
               name_of(call.kind), where, t.defined() ? fmt::format("{}", t.device()) : "none");
  const std::lock_guard lock(mutex);
  if (!device) device = make_device_backend({place.failure, [this](const std::string& why) { give_up(why); }});
  return where;
}

}  // namespace tapegrad::distributed
