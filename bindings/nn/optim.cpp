// The optimizers' fused steps as Python calls them: `_optimizer_step(rule, param_groups, state)` walks the groups and
// the state dictionaries natively, so that a step costs no Python code per parameter. The dictionaries are the only
// place of the state; recorded steps keep what they have read while no dictionary changes.
#include <algorithm>
#include <array>

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/record/recording.h"
#include "tapegrad/aten/sparse/sparse_tensor.h"
#include "tapegrad/autograd/engine/node.h"
#include "tapegrad/autograd/meta.h"
#include "tapegrad/bindings/arguments/method.h"
#include "tapegrad/bindings/autograd/autograd_types.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/bindings/interpreter/dict_version.h"
#include "tapegrad/bindings/nn/optimizer_groups.h"
#include "tapegrad/bindings/record/tree.h"
#include "tapegrad/c10/device/device_interface.h"
#include "tapegrad/nn/optim/fused.h"

namespace tapegrad::python {

using namespace optimizer_groups;

namespace {

// The state dictionary of a parameter; made, and entered, when there is none.
PyRef state_of(PyObject* state, PyObject* param) {
  if (PyObject* found = find(state, param)) {
    require(PyDict_Check(found), "optimizer", "a dictionary as state of a parameter", found);
    return PyRef::borrow(found);
  }
  PyRef made = own(PyDict_New());
  check_status(PyDict_SetItem(state, param, made.get()));
  return made;
}

// A graph recreates its tensors in each replay, so state must exist before the capture.
void refuse_while_recording(const Tensor& param, const char* what) {
  if (!param.is_cuda()) return;
  DeviceInterface& cuda = need_device(DeviceType::CUDA, "optimizer");
  const int device = param.device().index;
  TG_CHECK(!cuda.is_capturing(device, cuda.current_stream(device)), Runtime,
           "optimizer: {} would be made in each replay of the CUDA graph\ntake a step before the capture", what);
}

const Tensor& state_tensor(PyObject* state, PyObject* key, const nn::rules::StateTensor& what, const Tensor& like,
                           bool* made_now) {
  PyObject* value = find(state, key);
  if (value == Py_None || value == nullptr) {
    refuse_while_recording(like, what.name);
    PyRef made = own(wrap(nn::first_state(like, what.first)));
    check_status(PyDict_SetItem(state, key, made.get()));
    value = made.get();  // the dictionary owns it
    *made_now = true;
  }
  require(is_tensor(value), "optimizer", "a tensor as state", value);
  TG_CHECK(!unwrap(value).is_sparse(), Runtime,
           "optimizer: a dense gradient does not go with the sparse {} that sparse gradients left", what.name);
  return unwrap(value);
}

DType scalar_dtype() { return default_dtype() == DType::float64 ? DType::float64 : DType::float32; }

// The state of one parameter: its dictionary, and the numbers in it.
struct State {
  PyRef dict;  // null where the rule keeps none
  Tensor kept[nn::kMaxScalars];
  float* numbers[nn::kMaxScalars] = {};  // where those that are plain tensors lie, as PyTorch keeps them
};

// Numbers that are no tensors come from older files.
void read_scalars(State& state, const BoundRule& bound, nn::rules::Scalars<double>& scalars) {
  for (size_t i = 0; i < bound.scalars.size(); ++i) {
    PyObject* value = find(state.dict.get(), bound.scalars[i]);
    if (value == nullptr) {
      scalars.first = true;
      PyRef made = own(wrap(empty_tensor({}, scalar_dtype())));
      value = made.get();  // the dictionary owns it
      unwrap(value).zero_();
      check_status(PyDict_SetItem(state.dict.get(), bound.scalars[i], value));
    }
    if (is_tensor(value)) {
      const Tensor& t = unwrap(value);
      state.kept[i] = t;
      state.numbers[i] = plain_number(t);
      scalars.values[i] = state.numbers[i] != nullptr ? *state.numbers[i] : t.item<double>();
      scalars.single = t.dtype() != DType::float64;
    } else {
      scalars.values[i] = to_double(value, {"optimizer", "the number of steps"});
      scalars.single = false;
    }
  }
}

void write_scalars(const State& state, const BoundRule& bound, const nn::rules::Scalars<double>& scalars) {
  for (size_t i = 0; i < bound.scalars.size(); ++i) {
    if (state.numbers[i] != nullptr) {
      *state.numbers[i] = static_cast<float>(scalars.values[i]);
      continue;
    }
    PyObject* value = find(state.dict.get(), bound.scalars[i]);
    if (value != nullptr && is_tensor(value)) {
      raw::fill_(unwrap(value), scalars.values[i]);
    } else {
      const PyRef made = own(PyFloat_FromDouble(scalars.values[i]));
      check_status(PyDict_SetItem(state.dict.get(), bound.scalars[i], made.get()));
    }
  }
}

// The same if the parameter's device counts the steps: the scalars are on the device and are not read by the host.
void place_scalars(const State& state, const BoundRule& bound, nn::StepEntry& entry) {
  for (size_t i = 0; i < bound.scalars.size(); ++i) {
    PyObject* value = find(state.dict.get(), bound.scalars[i]);
    const bool there = value != nullptr && is_tensor(value) && unwrap(value).device() == entry.param.device();
    if (there && (unwrap(value).dtype() == DType::float32 || unwrap(value).dtype() == DType::float64)) {
      entry.counts[i] = unwrap(value);
      continue;
    }
    refuse_while_recording(entry.param, bound.rule->scalars[i]);
    const bool number = value != nullptr && !is_tensor(value);
    entry.scalars.first |= value == nullptr;
    const Tensor made = empty_tensor({}, scalar_dtype(), entry.param.device());
    if (value != nullptr && !number)
      made.copy_(unwrap(value));
    else
      made.fill_(number ? to_double(value, {"optimizer", "the number of steps"}) : 0.0);
    entry.counts[i] = made;
    const PyRef object = own(wrap(made));
    check_status(PyDict_SetItem(state.dict.get(), bound.scalars[i], object.get()));
  }
}

using nn::rules::Sgd;

// The tensor in a state dictionary, or null.
const Tensor* kept_tensor(PyObject* states, PyObject* param, PyObject* key) {
  PyObject* dict = find(states, param);
  PyObject* value = dict && PyDict_Check(dict) ? find(dict, key) : nullptr;
  return value && is_tensor(value) ? &unwrap(value) : nullptr;
}

// What SGD cannot do with a sparse gradient, said before anything is written.
void check_sparse_sgd(const Options& options, PyObject* group, const Tensor* buffer) {
  const auto& o = options.numbers;
  TG_CHECK(o[Sgd::kWeightDecay] == 0, Runtime, "SGD: weight_decay does not go with sparse gradients: got {}",
           o[Sgd::kWeightDecay]);
  TG_CHECK(!flag(group, key<"fused">()), Runtime,
           "SGD: `_fused_sgd` does not support sparse gradients: got fused=True");
  TG_CHECK(!flag(group, key<"differentiable">()), Runtime,
           "SGD: a differentiable step does not go with sparse gradients: got differentiable=True");
  TG_CHECK(o[Sgd::kNesterov] == 0 || !buffer || buffer->is_sparse(), Runtime,
           "SGD: a sparse gradient with nesterov needs a sparse momentum_buffer: got a dense one");
}

Tensor scaled(const Tensor& t, double by) { return sparse::with_values(t, raw::mul(sparse::values(t), Scalar(by))); }

// SGD with a sparse gradient touches the rows that were used. The momentum of a parameter whose first gradient was
// sparse is sparse, too, and coalesced: it has every row that was ever used. (PyTorch's has every entry ever seen.)
void sparse_sgd(const Options& options, PyObject* object, const Tensor& grad, PyObject* states, PyObject* key) {
  const auto& o = options.numbers;
  const Tensor& param = unwrap(object);
  const double rate = o[Sgd::kMaximize] != 0 ? o[Sgd::kLr] : -o[Sgd::kLr], sign = o[Sgd::kMaximize] != 0 ? -1 : 1;
  const double momentum = o[Sgd::kMomentum], fresh = sign * (1 - o[Sgd::kDampening]);
  if (momentum == 0) {
    sparse::add_to_(param, grad, rate);
    return;
  }
  const PyRef dict = state_of(states, object);
  const Tensor* known = kept_tensor(states, object, key);
  if (known && !known->is_sparse()) {
    raw::mul_(*known, Scalar(momentum));
    sparse::add_to_(*known, grad, fresh);
    raw::add_(param, *known, -o[Sgd::kLr]);
    return;
  }
  const Tensor part = sparse::coalesce(grad);
  const Tensor buffer =
      known ? sparse::coalesce(sparse::sum_of(scaled(*known, momentum), scaled(part, fresh))) : scaled(part, sign);
  const PyRef entry = own(wrap(buffer));
  check_status(PyDict_SetItem(dict.get(), key, entry.get()));
  if (o[Sgd::kNesterov] == 0) {
    sparse::add_to_(param, buffer, -o[Sgd::kLr]);
  } else {
    sparse::add_to_(param, part, rate);
    sparse::add_to_(param, buffer, -o[Sgd::kLr] * momentum);
  }
}

// How a rule handles a sparse gradient: SGD has its own implementation, others call `fallback` (or have refused).
void sparse_step(const BoundRule& bound, const Options& options, PyObject* object, const Tensor& grad, PyObject* group,
                 PyObject* states, PyObject* fallback) {
  if (fallback != nullptr) {
    const PyRef gradient = own(wrap(grad));
    own(check(PyObject_CallFunctionObjArgs(fallback, object, gradient.get(), group, nullptr)));
    return;
  }
  sparse_sgd(options, object, grad, states, bound.tensor_key("momentum_buffer"));
  autograd::bump_version(unwrap(object), bound.rule->name);
}

void group_step(const BoundRule& bound, PyObject* group, PyObject* params, PyObject* states, PyObject* fallback,
                std::span<const Tensor> found_inf) {
  const nn::Rule& rule = *bound.rule;
  const bool differentiable = flag(group, key<"differentiable">());
  TG_CHECK(!differentiable || found_inf.empty(), Runtime, "{}: found_inf does not go with differentiable=True",
           rule.name);
  // Whether devices work out the constants of their parameters' steps, and read options that are tensors there.
  bool planned = !differentiable && (flag(group, key<"capturable">()) || flag(group, key<"fused">()));
  const bool unread = planned || rule.scalars.empty();
  Options options(group, bound, differentiable ? Options::kBoth : unread ? Options::kOfDevices : Options::kNumbers);
  if (!differentiable && rule.scalars.empty()) planned = options.has_tensors();
  bool read = false;
  const auto n = static_cast<size_t>(PyList_GET_SIZE(params));
  std::vector<PyObject*> objects;  // the parameters that have a gradient, and all gradients
  std::vector<std::pair<PyObject*, Tensor>> sparse;
  objects.reserve(n);
  for (size_t i = 0; i < n; ++i) {
    PyObject* object = PyList_GET_ITEM(params, static_cast<Py_ssize_t>(i));
    require(is_tensor(object), rule.name, "a tensor as parameter", object);
    const Tensor* grad = gradient_of(unwrap(object));
    if (grad == nullptr) continue;
    if (planned && !read && (!unwrap(object).is_cuda() || grad->is_sparse() || find(states, object) == nullptr)) {
      refuse_while_recording(unwrap(object), "the state");
      options.read(rule);
      read = true;
    }
    if (grad->is_sparse()) {
      TG_CHECK(found_inf.empty(), Runtime, "{}: found_inf does not go with sparse gradients", rule.name);
      TG_CHECK(fallback != nullptr || rule.scalars.empty(), Runtime, "{} does not support sparse gradients{}",
               rule.name, rule.name == std::string_view("Adam") ? ", please consider SparseAdam instead" : "");
      if (fallback == nullptr)
        check_sparse_sgd(options, group, kept_tensor(states, object, bound.tensor_key("momentum_buffer")));
      sparse.emplace_back(object, *grad);
    } else {
      objects.push_back(object);
    }
  }
  const nn::rules::StateTensors kept = rule.states(options.numbers.data());
  const bool stateful = kept.n > 0 || !rule.scalars.empty();
  PyObject* keys[nn::kMaxStates] = {};
  for (int k = 0; k < kept.n; ++k) keys[k] = bound.tensor_key(kept.tensors[k].name);
  std::vector<nn::StepEntry> entries(objects.size());
  std::vector<State> owners(stateful ? objects.size() : 0);
  for (size_t i = 0; i < entries.size(); ++i) {
    nn::StepEntry& entry = entries[i];
    entry.param = unwrap(objects[i]);
    entry.grad = *gradient_of(entry.param);
    entry.planned = planned && entry.param.is_cuda();
    if (!stateful) continue;
    owners[i].dict = state_of(states, objects[i]);
    if (entry.planned)
      place_scalars(owners[i], bound, entry);
    else
      read_scalars(owners[i], bound, entry.scalars);
    if (differentiable) std::ranges::copy(owners[i].kept, entry.counts);
    bool made = false;
    for (int k = 0; k < kept.n; ++k)
      entry.states[k] = state_tensor(owners[i].dict.get(), keys[k], kept.tensors[k], entry.param, &made);
    if (rule.scalars.empty()) entry.scalars.first = made;
  }
  const std::span<const double> numbers(options.numbers.data(), rule.options.size());
  if (differentiable) {
    const EnableGradGuard grad_mode;
    nn::recorded_step(rule, numbers, {options.tensors.data(), rule.options.size()}, entries);
  } else {
    nn::fused_step(rule, numbers, {options.tensors.data(), rule.options.size()}, entries, found_inf);
  }
  for (size_t i = 0; i < owners.size(); ++i)
    if (!entries[i].planned) write_scalars(owners[i], bound, entries[i].scalars);
  for (const auto& [object, grad] : sparse) sparse_step(bound, options, object, grad, group, states, fallback);
}

// An optimizer's groups and states as numbers and tensors: what a recorded step takes its steps by, and takes them
// apart by where weights are updated early. Of parameters on the CPU alone. It is read anew where a dictionary or a
// list has changed since; a step itself needs no Python then. Used under the GIL, but for take_apart().
class GroupsRead {
 public:
  GroupsRead(const BoundRule& bound, SharedObjectPtr groups, SharedObjectPtr states)
      : bound_(bound), groups_(std::move(groups)), states_(std::move(states)) {}

  // Whether it is what the dictionaries say, after reading them where need be. False where a step is more than numbers
  // and tensors say: where some have no state yet, or an option is a tensor. Raises what reading the options raises.
  bool refresh() {
    if (busy_) return false;
    if (!is_same()) read();
    return known_;
  }
  // One step, after refresh() was true. False, and nothing done, where gradients or numbers are of kinds that others
  // handle.
  bool step() {
    for (Group& group : read_)
      for (size_t i = 0; i < group.entries.size(); ++i) {
        const nn::StepEntry& e = group.entries[i];
        const Tensor* grad = gradient_of(e.param);
        group.numbers[i] = {};
        if (grad == nullptr) continue;
        if (grad->is_sparse() || !e.param.is_cpu() || !find_numbers(e, group.numbers[i])) return false;
      }
    const Flag taken(busy_);  // other threads may run while a long step does
    for (Group& group : read_) {
      const Gradients none_left{group.entries};
      for (size_t i = 0; i < group.entries.size(); ++i) begin(group.entries[i], group.numbers[i]);
      take(group, group.entries);
      for (size_t i = 0; i < group.entries.size(); ++i) end(group.entries[i], group.numbers[i]);
    }
    return true;
  }
  // That of the parameter `i`, as it was read last.
  void take_apart(size_t i) {
    auto group = read_.begin();
    for (; i >= group->entries.size(); ++group) i -= group->entries.size();
    const std::span<nn::StepEntry> one(&group->entries[i], 1);
    const Gradients none_left{one};
    Numbers& numbers = group->numbers[i];
    if (!find_numbers(one[0], numbers)) numbers = {};
    begin(one[0], numbers);
    if (!one[0].grad.defined()) return;
    const NoGradGuard no_grad;
    const autograd::SiteGuard no_site(0);  // which would be asked of Python
    take(*group, one);
    end(one[0], numbers);
  }
  template <class F>
  void for_entries(F&& f) const {
    for (const Group& group : read_)
      for (const nn::StepEntry& e : group.entries) f(e);
  }

 private:
  using Numbers = std::array<float*, nn::kMaxScalars>;
  struct Group {
    SharedObjectPtr dict;
    uint64_t version;
    PyObject* params;  // a list, the dictionary's
    std::array<double, nn::kMaxOptions> options;
    std::vector<nn::StepEntry> entries;  // with gradients while a step is taken; `counts` are the numbers of the state
    std::vector<Numbers> numbers;        // where they lie while a step is taken
  };
  struct Flag {
    bool& flag;
    explicit Flag(bool& f) : flag(f) { flag = true; }
    ~Flag() { flag = false; }
  };
  struct Gradients {
    std::span<nn::StepEntry> entries;
    ~Gradients() {
      for (nn::StepEntry& e : entries) e.grad.reset();
    }
  };

  // False where one is no plain number.
  bool find_numbers(const nn::StepEntry& e, Numbers& to) const {
    bool all = true;
    for (size_t k = 0; k < bound_.scalars.size(); ++k) all = (to[k] = plain_number(e.counts[k])) != nullptr && all;
    return all;
  }
  void begin(nn::StepEntry& e, const Numbers& numbers) const {
    const Tensor* grad = gradient_of(e.param);
    if (grad == nullptr) return;
    for (size_t k = 0; k < bound_.scalars.size(); ++k) {
      if (numbers[k] == nullptr) return;  // another thread has set the gradient since
      e.scalars.values[k] = *numbers[k];
    }
    e.grad = *grad;
  }
  void end(const nn::StepEntry& e, const Numbers& numbers) const {
    if (!e.grad.defined()) return;
    for (size_t k = 0; k < bound_.scalars.size(); ++k) *numbers[k] = static_cast<float>(e.scalars.values[k]);
  }
  void take(const Group& group, std::span<nn::StepEntry> entries) const {
    nn::fused_step(*bound_.rule, {group.options.data(), bound_.options.size()}, {}, entries);
  }

  // By versions of dictionaries and what lists have: values that are kept cannot change themselves.
  bool is_same() const {
    if (!lasting_ || static_cast<size_t>(PyList_GET_SIZE(groups_->get())) != read_.size()) return false;
    for (size_t g = 0; g < read_.size(); ++g) {
      const Group& group = read_[g];
      if (PyList_GET_ITEM(groups_->get(), static_cast<Py_ssize_t>(g)) != group.dict->get()) return false;
      if (dict_version(group.dict->get()) != group.version) return false;
      if (static_cast<size_t>(PyList_GET_SIZE(group.params)) != group.entries.size()) return false;
      for (size_t i = 0; i < group.entries.size(); ++i) {
        PyObject* object = PyList_GET_ITEM(group.params, static_cast<Py_ssize_t>(i));
        if (!is_tensor(object) || !unwrap(object).is_same(group.entries[i].param)) return false;
      }
    }
    for (const auto& [dict, version] : versions_)
      if (dict_version(dict) != version) return false;
    for (const auto& [object, impl] : tensors_)
      if (unwrap(object).impl() != impl) return false;
    return true;
  }
  void read() {
    known_ = lasting_ = false;
    read_.clear();
    versions_.clear();
    tensors_.clear();
    bool lasts = note(states_->get());
    bool known = true;
    for_groups({groups_->get(), states_->get()}, "optimizer step",
               [&](PyObject* group, PyObject* params) { known = known && read_group(group, params, lasts); });
    known_ = known;
    lasting_ = known && lasts;
  }
  // Notes the version of a dictionary that lives as long as those noted before it are not changed; false: it has none.
  bool note(PyObject* dict) { return versions_.emplace_back(dict, dict_version(dict)).second != 0; }

  bool read_group(PyObject* dict, PyObject* params, bool& lasts) {
    if (flag(dict, key<"differentiable">())) return false;
    if (PyObject* value = find(dict, key<"differentiable">())) lasts = lasts && is_by_value(value);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(params); ++i) {
      PyObject* object = PyList_GET_ITEM(params, i);
      if (!is_tensor(object) || !unwrap(object).is_cpu()) return false;
      if (const Tensor& t = unwrap(object); !t.is_floating_point() && !t.is_complex()) return false;
    }
    for (PyObject* name : bound_.options) {
      PyObject* value = find(dict, name);
      if (value == nullptr) continue;
      const bool pair = PyTuple_CheckExact(value);
      for (Py_ssize_t i = 0; i < (pair ? PyTuple_GET_SIZE(value) : 1); ++i) {
        PyObject* item = pair ? PyTuple_GET_ITEM(value, i) : value;
        if (is_tensor(item)) return false;
        lasts = lasts && is_by_value(item);
      }
    }
    const Options options(dict, bound_, Options::kBoth);
    if (options.has_tensors()) return false;
    const nn::rules::StateTensors kept = bound_.rule->states(options.numbers.data());
    Group& group = read_.emplace_back(Group{share(dict), dict_version(dict), params, options.numbers, {}, {}});
    group.numbers.resize(static_cast<size_t>(PyList_GET_SIZE(params)));
    lasts = lasts && group.version != 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(params); ++i) {
      PyObject* object = PyList_GET_ITEM(params, i);
      nn::StepEntry& entry = group.entries.emplace_back();
      entry.param = unwrap(object);
      if (kept.n == 0 && bound_.scalars.empty()) continue;
      PyObject* state = find(states_->get(), object);
      if (state == nullptr || !PyDict_Check(state)) return false;
      lasts = note(state) && lasts;
      for (size_t k = 0; k < bound_.scalars.size(); ++k)
        if (!read_tensor(state, bound_.scalars[k], entry.counts[k]) || plain_number(entry.counts[k]) == nullptr)
          return false;
      for (int k = 0; k < kept.n; ++k) {
        Tensor& t = entry.states[k];
        if (!read_tensor(state, bound_.tensor_key(kept.tensors[k].name), t)) return false;
        if (t.dtype() != entry.param.dtype() || t.sizes() != entry.param.sizes()) return false;
      }
    }
    return true;
  }
  bool read_tensor(PyObject* state, PyObject* name, Tensor& to) {
    PyObject* value = find(state, name);
    if (value == nullptr || !is_tensor(value)) return false;
    to = unwrap(value);
    tensors_.emplace_back(value, to.impl());
    return to.is_cpu() && !to.is_sparse();
  }

  const BoundRule& bound_;
  const SharedObjectPtr groups_, states_;
  std::vector<Group> read_;
  std::vector<std::pair<PyObject*, uint64_t>> versions_;          // of the dictionaries of states
  std::vector<std::pair<PyObject*, const TensorImpl*>> tensors_;  // of the states, as their dictionaries have them
  bool known_ = false;                                            // a step is that of the entries
  bool lasting_ = false;                                          // as long as nothing changes that can be seen
  bool busy_ = false;
};

// The lists of parameters in an optimizer's groups, which are looked for anew where one of the dictionaries has changed
// since. Needs the GIL.
class ParameterLists {
 public:
  explicit ParameterLists(SharedObjectPtr groups) : groups_(std::move(groups)) {}
  // f(list).
  template <class F>
  void each(const char* op, F&& f) {
    if (!is_same()) {
      known_.clear();
      for_groups({groups_->get(), nullptr}, op, [&](PyObject* group, PyObject* params) {
        known_.push_back({group, dict_version(group), params});
      });
    }
    for (size_t g = 0; g < known_.size(); ++g) f(PyRef::borrow(known_[g].params).get());
  }

 private:
  // All borrowed: a dictionary of this version is this one, and has the list.
  struct Known {
    PyObject* dict;
    uint64_t version;
    PyObject* params;
  };
  bool is_same() const {
    PyObject* groups = groups_->get();
    if (known_.empty() || static_cast<size_t>(PyList_GET_SIZE(groups)) != known_.size()) return false;
    for (size_t g = 0; g < known_.size(); ++g)
      if (const Known& k = known_[g]; PyList_GET_ITEM(groups, static_cast<Py_ssize_t>(g)) != k.dict || k.version == 0 ||
                                      dict_version(k.dict) != k.version)
        return false;
    return true;
  }
  SharedObjectPtr groups_;
  std::vector<Known> known_;
};

// The parameters of an optimizer as they were.
class ParametersSeen {
 public:
  // Gives what is done to each, with no parts of it.
  ParametersSeen(const SharedObjectPtr& groups, record::HostParts& parts) : lists_(groups) {
    lists_.each("optimizer", [&](PyObject* params) {
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(params); ++i)
        if (PyObject* object = PyList_GET_ITEM(params, i); is_tensor(object)) {
          parts.parts.push_back({unwrap(object), {}, {}});
          seen_.push_back(unwrap(object));
        }
    });
  }
  // Whether they are these, in this order, whatever their groups. Needs the GIL.
  bool hold() {
    size_t at = 0;
    bool same = true;
    lists_.each("optimizer", [&](PyObject* params) {
      for (Py_ssize_t i = 0; same && i < PyList_GET_SIZE(params); ++i) {
        PyObject* object = PyList_GET_ITEM(params, i);
        same = at < seen_.size() && is_tensor(object) && unwrap(object).is_same(seen_[at++]);
      }
    });
    return same && at == seen_.size();
  }

 private:
  ParameterLists lists_;
  std::vector<Tensor> seen_;
};

// f() with the GIL, where it raises false: an eager call raises then.
template <class F>
bool holds(F&& f) {
  const GilGuard gil;
  try {
    return f();
  } catch (...) {
    PyErr_Clear();
    return false;
  }
}

// What a step does to each parameter. All may be taken apart, or none.
record::HostParts step_parts(const BoundRule& bound, const SharedObjectPtr& groups, const SharedObjectPtr& states) {
  const GilGuard gil;
  record::HostParts made;
  ParametersSeen seen(groups, made);
  const auto read = std::make_shared<GroupsRead>(bound, groups, states);
  if (!read->refresh()) return made;
  size_t i = 0;
  read->for_entries([&](const nn::StepEntry& e) {
    for (const auto& tensors : {std::span<const Tensor>(e.states), std::span<const Tensor>(e.counts)})
      for (const Tensor& t : tensors)
        if (t.defined()) made.parts[i].written.push_back(t);
    made.parts[i].run = [read, i] { read->take_apart(i); };
    ++i;
  });
  made.hold = [read, seen]() mutable { return holds([&] { return seen.hold() && read->refresh(); }); };
  return made;
}

// _optimizer_step(rule, param_groups, state, sparse_update=None, found_inf=None): one step of all parameters that have
// a gradient. sparse_update(param, grad, group) is called for sparse gradients; found_inf are tensors, one of each
// device, where the step is not taken unless they are 0.
PyObject* optimizer_step(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  constexpr const char* kOp = "optimizer step";
  TG_CHECK(nargs >= 3 && nargs <= 5, Type,
           "{}: expected the rule, the parameter groups and the state: got {} arguments", kOp, nargs);
  const BoundRule& bound = bound_rule(args[0]);
  require(PyList_Check(args[1]), kOp, "a list of parameter groups", args[1]);
  require(PyDict_Check(args[2]), kOp, "a dictionary of states", args[2]);
  PyObject* fallback = nargs >= 4 && args[3] != Py_None ? args[3] : nullptr;
  std::vector<Tensor> found_inf;
  if (nargs == 5 && args[4] != Py_None) found_inf = tensors_in(args[4], kOp);
  const NoGradGuard no_grad;
  autograd::profiler::Scope scope;
  if (TG_UNLIKELY(modes() & kModeProfile)) {
    const std::string name(bound.rule->name);
    scope.open(autograd::profiler::Kind::Annotation, "Optimizer.step#" + name + ".step");
  }
  const auto step = [&bound](PyObject* groups, PyObject* states, PyObject* sparse, std::span<const Tensor> found) {
    for_groups({groups, states}, kOp,
               [&](PyObject* group, PyObject* params) { group_step(bound, group, params, states, sparse, found); });
  };
  if (TG_LIKELY(!record::active())) {
    step(args[1], args[2], fallback, found_inf);
    Py_RETURN_NONE;
  }
  if (!found_inf.empty()) record::refuse("a step that depends on found_inf");
  const bool bound_method = fallback != nullptr && PyMethod_Check(fallback);  // another object in each call
  const auto groups = share(args[1]), states = share(args[2]);
  record::host_call(
      kOp, {&bound, args[1], args[2], bound_method ? PyMethod_GET_FUNCTION(fallback) : fallback},
      [step, groups, states, sparse = fallback ? share(fallback) : nullptr,
       read = std::make_shared<GroupsRead>(bound, groups, states)] {
        const GilGuard gil;
        const NoGradGuard no_grad;
        if (!read->refresh() || !read->step()) step(groups->get(), states->get(), sparse ? sparse->get() : nullptr, {});
      },
      /*repeatable=*/false, [&bound, groups, states] { return step_parts(bound, groups, states); });
  Py_RETURN_NONE;
}

// _zero_grad(param_groups, set_to_none)
PyObject* zero_grad(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  constexpr const char* kOp = "zero_grad";
  TG_CHECK(nargs == 2, Type, "{}: expected the parameter groups and set_to_none: got {} arguments", kOp, nargs);
  require(PyList_Check(args[0]), kOp, "a list of parameter groups", args[0]);
  const int set_to_none = PyObject_IsTrue(args[1]);
  check_status(set_to_none);
  const NoGradGuard no_grad;
  const auto clear = [set_to_none](PyObject* params) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(params); ++i) {
      PyObject* object = PyList_GET_ITEM(params, i);
      require(is_tensor(object), kOp, "a tensor as parameter", object);
      const Tensor& param = unwrap(object);
      const Tensor* grad = gradient_of(param);
      if (grad == nullptr) continue;
      if (set_to_none) {
        param.set_grad(Tensor());
      } else if (grad->is_sparse()) {
        const Tensor none = raw::narrow(sparse::indices(*grad), 1, 0, 0);
        param.set_grad(sparse::make(none, raw::narrow(sparse::values(*grad), 0, 0, 0), grad->sizes(), true));
      } else if (grad->requires_grad()) {
        const Tensor zeroed = grad->detach();
        zeroed.zero_();
        param.set_grad(zeroed);
      } else {
        grad->zero_();
      }
    }
  };
  if (TG_LIKELY(!record::active())) {
    for_groups({args[0], nullptr}, kOp, [&](PyObject*, PyObject* params) { clear(params); });
    Py_RETURN_NONE;
  }
  const auto groups = share(args[0]);
  const auto run = [clear, lists = std::make_shared<ParameterLists>(groups)] {
    const GilGuard gil;
    const NoGradGuard no_grad;
    lists->each(kOp, clear);
  };
  record::host_call(kOp, {args[0], set_to_none ? args[0] : nullptr}, run, /*repeatable=*/true, [groups, set_to_none] {
    const GilGuard gil;
    record::HostParts made;
    ParametersSeen seen(groups, made);
    for (record::HostPart& part : made.parts) part.clears = set_to_none != 0;
    made.hold = [seen]() mutable { return holds([&] { return seen.hold(); }); };
    return made;
  });
  Py_RETURN_NONE;
}

// _unscale(gradients, found_inf, scale)
PyObject* unscale(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  TG_CHECK(nargs == 3, Type, "unscale: expected gradients, found_inf and the scale: got {} arguments", nargs);
  const std::vector<Tensor> grads = tensors_in(args[0], "unscale");
  for (int i = 1; i < 3; ++i) require(is_tensor(args[i]), "unscale", "a tensor", args[i]);
  nn::fused_unscale(grads, unwrap(args[1]), unwrap(args[2]));
  Py_RETURN_NONE;
}

}  // namespace

PyMethodDef optim_functions[] = {
    {"_optimizer_step", as_c_function(guarded<optimizer_step>), METH_FASTCALL,
     "_optimizer_step(rule, param_groups, state, sparse_update=None, found_inf=None): one step by a rule of "
     "aten/optim/rules.h"},
    {"_unscale", as_c_function(guarded<unscale>), METH_FASTCALL,
     "_unscale(gradients, found_inf, scale): scales them, and notes infinities and NaN"},
    {"_zero_grad", as_c_function(guarded<zero_grad>), METH_FASTCALL, "_zero_grad(param_groups, set_to_none)"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace tapegrad::python
