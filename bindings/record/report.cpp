// What plans tell of themselves, and of the device that they run on.
#include "tapegrad/bindings/arguments/method.h"
#include "tapegrad/bindings/record/plans.h"
#include "tapegrad/c10/device/device_interface.h"

namespace tapegrad::python {

bool is_captured() {
  if (!device_interface_loaded(DeviceType::CUDA)) return false;
  DeviceInterface& on = *device_interface(DeviceType::CUDA);
  if (!on.initialized()) return false;
  const int device = on.current();
  const int64_t stream = on.current_stream(device);
  return stream != 0 && on.is_capturing(device, stream);
}

void add_plan(Replays& replays, std::shared_ptr<Plan> plan) {
  const auto& device = plan->step.recording().device;
  size_t aside = device && !device->is_cpu() ? kMostAsideOnDevice : kMostAside;
  for (auto at = replays.plans.begin(); at != replays.plans.end();)
    at = (*at)->aside && (*at)->arguments == plan->arguments && aside-- == 0 ? replays.plans.erase(at) : std::next(at);
  replays.plans.push_front(std::move(plan));
  if (replays.plans.size() <= kMostPlans) return;
  if (replays.plans.back()->for_sizes && replays.plans.back()->replays < 2) ++replays.unused;
  replays.plans.pop_back();
}

bool put_aside(Plan& plan) {
  if (plan.aside) return true;
  if (!plan.watch->only_values_changed()) return false;
  plan.aside = true;
  if (plan.step.claim()) {
    plan.step.rest();
    plan.step.leave();
  }
  return true;
}

PyObject* memory_of(const Plan& plan) {
  const record::MemoryUse& use = plan.step.memory();
  const Step::GraphUse graphs = plan.step.graphs();
  const auto& device = plan.step.recording().device;
  return Py_BuildValue("{s:n,s:n,s:n,s:n,s:i,s:i,s:d,s:d,s:s,s:s,s:n,s:n,s:n,s:s,s:n,s:n,s:s,s:i,s:i,s:n,s:n}", "live",
                       static_cast<Py_ssize_t>(use.live), "unlimited", static_cast<Py_ssize_t>(use.unlimited),
                       "planned", static_cast<Py_ssize_t>(use.planned), "results", static_cast<Py_ssize_t>(use.results),
                       "updates", use.updates, "again", use.again, "seconds", use.seconds, "share", use.share, "lacks",
                       use.lacks.c_str(), "device", device ? fmt::format("{}", *device).c_str() : "", "graphs",
                       static_cast<Py_ssize_t>(graphs.graphs), "in_graphs", static_cast<Py_ssize_t>(graphs.calls),
                       "apart", static_cast<Py_ssize_t>(graphs.others), "no_graph", graphs.reason.c_str(), "chains",
                       static_cast<Py_ssize_t>(graphs.chains), "in_chains", static_cast<Py_ssize_t>(graphs.in_chains),
                       "no_chains", graphs.no_chains.c_str(), "same", use.same, "folded", use.folded, "constants",
                       static_cast<Py_ssize_t>(use.constants), "awaited", static_cast<Py_ssize_t>(graphs.awaited));
}

PyObject* plans_of(PyObject* self, PyObject*) {
  TG_PY_TRY
  const auto& plans = unbox<Replays>(self).plans;
  auto at = plans.begin();
  return new_list(plans.size(),
                  [&](size_t) {
                    const Plan& plan = **at++;
                    return Py_BuildValue("(nnL)", static_cast<Py_ssize_t>(plan.step.recording().calls.size()),
                                         static_cast<Py_ssize_t>(plan.step.planned_bytes()),
                                         static_cast<long long>(plan.replays));
                  })
      .release();
  TG_PY_CATCH
}

PyObject* memory_of_plans(PyObject* self, PyObject*) {
  TG_PY_TRY
  const auto& plans = unbox<Replays>(self).plans;
  auto at = plans.begin();
  return new_list(plans.size(), [&](size_t) { return memory_of(**at++); }).release();
  TG_PY_CATCH
}

}  // namespace tapegrad::python
