#include "tapegrad/aten/record/program.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/record/control.h"

namespace tapegrad::record {

namespace {

std::string list_text(std::span<const double> list) {
  std::string out = "[";
  for (double x : list) out += (out.size() > 1 ? ", " : "") + to_string(Scalar(x));
  return out + "]";
}

template <class T>
std::string text_of(const T& x) {
  if constexpr (std::is_same_v<T, Operand>) {
    return x.tensor().defined() ? to_string(x.tensor().item()) : "None";
  } else if constexpr (std::is_same_v<T, IntsValue>) {
    return format_ints(x.values);
  } else if constexpr (std::is_same_v<T, FloatsValue>) {
    return list_text(x.values);
  } else if constexpr (std::is_same_v<T, std::vector<double>>) {
    return list_text(x);
  } else if constexpr (std::is_same_v<T, TextValue>) {
    return "'" + x.values + "'";
  } else if constexpr (std::is_same_v<T, bool>) {
    return x ? "True" : "False";
  } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, Scalar>) {
    return to_string(Scalar(x));
  } else if constexpr (std::is_same_v<T, DType>) {
    return std::string(dtype_name(x));
  } else if constexpr (std::is_same_v<T, MemoryFormat>) {
    constexpr const char* kNames[] = {"contiguous_format", "preserve_format", "channels_last"};
    return kNames[static_cast<int>(x)];
  } else if constexpr (std::is_same_v<T, Device>) {
    return fmt::format("'{}'", x);
  } else if constexpr (requires { x.has_value(); }) {
    return x ? text_of(*x) : "None";
  } else {
    return "None";
  }
}

// Whether two arguments are equal but for integers that may depend on sizes.
bool equal_but_integers(const Value& x, const Value& y) {
  if (x.index() != y.index()) return false;
  return std::visit(
      [&]<class T>(const T& p) {
        const T& q = std::get<T>(y);
        auto same = [](const Tensor& a, const Tensor& b) {
          return a.defined() == b.defined() && (!a.defined() || same_number(a.item(), b.item()));
        };
        if constexpr (std::is_same_v<T, Operand>) {
          const Operand *a = number_operand(x), *b = number_operand(y);
          if (a == nullptr || b == nullptr) return a == b;
          const Scalar s = a->tensor().item(), t = b->tensor().item();
          return s.kind() == t.kind() && (s.kind() == Scalar::Kind::Int || same_number(s, t));
        } else if constexpr (std::is_same_v<T, Tensor>) {
          return same(p, q);
        } else if constexpr (std::is_same_v<T, ListValue>) {
          return std::equal(p.tensors.begin(), p.tensors.end(), q.tensors.begin(), q.tensors.end(), same);
        } else if constexpr (std::is_same_v<T, IntsValue>) {
          return p.values.size() == q.values.size();
        } else if constexpr (std::is_same_v<T, Scalar>) {
          return p.kind() == q.kind() && (p.kind() == Scalar::Kind::Int || same_number(p, q));
        } else if constexpr (std::is_same_v<T, double>) {
          return same_number(Scalar(p), Scalar(q));
        } else if constexpr (std::is_same_v<T, std::optional<int64_t>>) {
          return p.has_value() == q.has_value();
        } else if constexpr (requires { p.values; }) {
          return p.values == q.values;
        } else if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, std::monostate> ||
                             std::is_same_v<T, PhiloxState>) {
          return true;
        } else {
          return p == q;
        }
      },
      x);
}

// Whether constants have the same bytes.
bool same_bytes(const Tensor& a, const Tensor& b) {
  const Storage &x = a.impl()->storage(), &y = b.impl()->storage();
  return a.sizes() == b.sizes() && a.strides() == b.strides() && a.dtype() == b.dtype() && x->nbytes() == y->nbytes() &&
         (x == y || std::memcmp(x->data(), y->data(), x->nbytes()) == 0);
}

bool writes(const Program::Operation& o, const Program::Place& place) {
  if (o.function == nullptr) return false;  // bodies write to nothing that they are given
  const dispatch::Form form = o.function->function->form;
  return form == dispatch::Form::InPlace ? place.argument == 0 : form == dispatch::Form::Out;
}

}  // namespace

std::string_view Program::Operation::id() const noexcept {
  return function != nullptr ? function->id : control == Control::Cond ? "cond" : "while_loop";
}

int Program::value(std::string_view name) const {
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i].name == name) return static_cast<int>(i);
  TG_THROW(Key, "program: it has no value that is named '{}'", name);
}

std::vector<int64_t> Program::sizes_of(TensorSpan given) const {
  std::vector<int64_t> sizes;
  for (const Symbol& s : symbols)
    sizes.push_back(
        given[static_cast<size_t>(s.places[0].first)].impl()->sizes()[static_cast<size_t>(s.places[0].second)]);
  return sizes;
}

void Program::check(TensorSpan given) const {
  TG_CHECK(given.size() == inputs.size(), Type, "program: expected {} tensors: got {}", inputs.size(), given.size());
  for (size_t i = 0; i < given.size(); ++i) {
    const ValueInfo& info = values[static_cast<size_t>(inputs[i])];
    const Tensor& t = given[i];
    TG_CHECK(t.defined() && t.is_cpu(), Value, "program: {} is no tensor on the CPU", info.name);
    TG_CHECK(t.dtype() == info.dtype, Type, "program: expected {} of dtype {}: got {}", info.name, info.dtype,
             t.dtype());
    bool same = t.sizes().size() == info.sizes.size();
    for (size_t d = 0; same && d < info.sizes.size(); ++d) {
      auto changes = [&](const Symbol& s) {
        return std::find(s.places.begin(), s.places.end(), std::pair(static_cast<int>(i), static_cast<int>(d))) !=
               s.places.end();
      };
      same = t.sizes()[d] == info.sizes[d] || std::any_of(symbols.begin(), symbols.end(), changes);
    }
    TG_CHECK(same, Value, "program: expected {} of size {}{}: got {}", info.name, format_ints(info.sizes),
             symbols.empty() ? "" : ", but for the sizes that may change", format_ints(t.sizes()));
  }
  const std::vector<int64_t> sizes = sizes_of(given);
  for (size_t k = 0; k < symbols.size(); ++k)
    for (const auto& [input, dim] : symbols[k].places) {
      const Tensor& t = given[static_cast<size_t>(input)];
      TG_CHECK(t.sizes()[static_cast<size_t>(dim)] == sizes[k], Value,
               "program: {} is {} in one input and {} in dimension {} of {}", symbols[k].name, sizes[k],
               t.sizes()[static_cast<size_t>(dim)], dim,
               values[static_cast<size_t>(inputs[static_cast<size_t>(input)])].name);
    }
}

std::vector<Tensor> Program::run(TensorSpan given) const {
  check(given);
  return run(given, sizes_of(given));
}

std::vector<Tensor> Program::run(TensorSpan given, const std::vector<int64_t>& sizes) const {
  std::vector<Tensor> now(values.size());
  for (size_t i = 0; i < given.size(); ++i) {
    const auto v = static_cast<size_t>(inputs[i]);
    now[v] = values[v].written ? tapegrad::clone(given[i]) : given[i];
  }
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i].constant.defined())
      now[i] = values[i].written ? tapegrad::clone(values[i].constant) : values[i].constant;
  std::vector<size_t> last_use(values.size(), 0);
  for (size_t i = 0; i < operations.size(); ++i) {
    for (const Place& p : operations[i].tensors) last_use[static_cast<size_t>(p.value)] = i;
    for (int r : operations[i].results)
      if (r >= 0) last_use[static_cast<size_t>(r)] = i;
  }
  for (int v : outputs) last_use[static_cast<size_t>(v)] = operations.size();
  for (size_t i = 0; i < operations.size(); ++i) {
    const Operation& o = operations[i];
    std::vector<Value> arguments = o.arguments;
    for (const Fit& fit : o.fits) {
      int64_t to = fit.recorded;
      for (const auto& [set, factor] : fit.terms) {
        bool fits = true;
        int64_t product = factor;
        for (size_t k = 0; k < symbols.size(); ++k)
          if (set >> k & 1) fits &= !__builtin_mul_overflow(product, sizes[k] - symbols[k].recorded, &product);
        fits &= !__builtin_add_overflow(to, product, &to);
        TG_CHECK(fits, Value, "program: {}: sizes are too large", o.id());
      }
      set_integer(arguments[static_cast<size_t>(fit.argument)], fit.item, to);
    }
    for (const Place& p : o.tensors) {
      const Tensor& t = now[static_cast<size_t>(p.value)];
      TG_CHECK(t.defined(), Runtime, "program: {} is used before it is computed",
               values[static_cast<size_t>(p.value)].name);
      set_tensor(arguments[static_cast<size_t>(p.argument)], p.item, t);
    }
    std::vector<Tensor> results;
    if (o.function == nullptr) {
      std::vector<ListValue> lists;
      for (Value& v : arguments) lists.push_back(std::move(std::get<ListValue>(v)));
      results = run_control(o, lists, sizes);
    } else {
      const dispatch::Function& f = *o.function->function;
      std::vector<dispatch::Argument> references;
      for (size_t k = 0; k < arguments.size(); ++k) references.push_back(refer_to(arguments[k], f.types[k]));
      dispatch::Results made;
      f.invoke(f.whole, references.data(), made);
      if (f.form == dispatch::Form::Value) results.assign(made.tensors.begin(), made.tensors.end());
    }
    TG_CHECK(results.size() == o.results.size(), Runtime, "program: {} returned {} tensors instead of {}", o.id(),
             results.size(), o.results.size());
    for (size_t k = 0; k < o.results.size(); ++k)
      if (o.results[k] >= 0) now[static_cast<size_t>(o.results[k])] = std::move(results[k]);
    auto release = [&](int v) {
      if (v >= 0 && last_use[static_cast<size_t>(v)] == i) now[static_cast<size_t>(v)].reset();
    };
    for (const Place& p : o.tensors) release(p.value);
    for (int r : o.results) release(r);
  }
  std::vector<Tensor> made;
  for (int v : outputs) {
    TG_CHECK(now[static_cast<size_t>(v)].defined(), Runtime, "program: {} is not computed",
             values[static_cast<size_t>(v)].name);
    made.push_back(now[static_cast<size_t>(v)]);
  }
  return made;
}

std::unique_ptr<Program> Program::part(std::span<const int> feeds, std::span<const int> fetches) const {
  auto made = std::make_unique<Program>();
  made->values = values;
  made->inputs.assign(feeds.begin(), feeds.end());
  made->outputs.assign(fetches.begin(), fetches.end());
  std::set<int> needed(fetches.begin(), fetches.end()), memory;
  const std::set<int> fed(feeds.begin(), feeds.end());
  auto need = [&](int v) {
    needed.insert(v);
    memory.insert(values[static_cast<size_t>(v)].memory);
  };
  for (int v : fetches) need(v);
  for (size_t i = operations.size(); i-- > 0;) {
    const Operation& o = operations[i];
    const bool wanted = std::any_of(o.results.begin(), o.results.end(),
                                    [&](int r) { return needed.contains(r) && !fed.contains(r); }) ||
                        std::any_of(o.tensors.begin(), o.tensors.end(), [&](const Place& p) {
                          return writes(o, p) && memory.contains(values[static_cast<size_t>(p.value)].memory);
                        });
    if (!wanted) continue;
    for (const Place& p : o.tensors) need(p.value);
    made->operations.push_back(o);
  }
  std::reverse(made->operations.begin(), made->operations.end());
  for (int v : inputs)
    TG_CHECK(!needed.contains(v) || fed.contains(v), Value, "program: these results need {}, which is not given",
             values[static_cast<size_t>(v)].name);
  for (int v : feeds) made->values[static_cast<size_t>(v)].constant.reset();
  // Sizes that may change are known from inputs that are still there.
  for (const Symbol& s : symbols) {
    Symbol kept{s.name, s.recorded, {}};
    for (const auto& [input, dim] : s.places) {
      const auto at = std::find(feeds.begin(), feeds.end(), inputs[static_cast<size_t>(input)]);
      if (at != feeds.end()) kept.places.emplace_back(static_cast<int>(at - feeds.begin()), dim);
    }
    TG_CHECK(!kept.places.empty(), Value, "program: {} may change, and no input says how large it is", s.name);
    made->symbols.push_back(std::move(kept));
  }
  return made;
}

void Program::generalize(std::vector<Symbol> changing, std::span<const std::shared_ptr<Program>> others) {
  TG_ASSERT(others.size() == size_t{1} << changing.size());
  const size_t subsets = others.size() - 1;
  auto fail = [&](const Operation& o, std::string_view what) {
    TG_THROW(Value, "program: {}{} depends on {} in a way that no program can say: {}",
             o.function != nullptr ? o.function->function->name : o.id(), o.line,
             changing.size() == 1 ? changing[0].name : "sizes that may change", what);
  };
  for (const auto& other : others)
    for (size_t i = 0; i < std::max(operations.size(), other->operations.size()); ++i)
      if (i >= operations.size() || i >= other->operations.size() ||
          operations[i].function != other->operations[i].function ||
          operations[i].control != other->operations[i].control)
        fail(i < operations.size() ? operations[i] : other->operations[i], "other operators are called");
  for (size_t i = 0; i < operations.size(); ++i) {
    Operation& o = operations[i];
    for (const auto& other : others) {
      const Operation& p = other->operations[i];
      auto same = [](const Place& a, const Place& b) {
        return a.argument == b.argument && a.item == b.item && a.value == b.value;
      };
      if (!std::equal(o.tensors.begin(), o.tensors.end(), p.tensors.begin(), p.tensors.end(), same) ||
          o.results != p.results)
        fail(o, "it is called with other tensors");
    }
    for (size_t body = 0; body < o.bodies.size(); ++body) {
      std::vector<std::shared_ptr<Program>> same_body;
      for (const auto& other : others) same_body.push_back(other->operations[i].bodies[body]);
      std::vector<Symbol> without_places = changing;
      for (Symbol& s : without_places) s.places.clear();
      o.bodies[body]->generalize(std::move(without_places), same_body);
    }
    for (size_t a = 0; a < o.arguments.size(); ++a) {
      std::vector<std::pair<int, int64_t>> recorded;
      for_integers(o.arguments[a], [&](int item, int64_t value) { recorded.emplace_back(item, value); });
      std::vector<std::vector<int64_t>> seen(recorded.size());
      for (const auto& other : others) {
        const Value& v = other->operations[i].arguments[a];
        size_t n = 0;
        for_integers(v, [&](int, int64_t value) {
          if (n < seen.size()) seen[n].push_back(value);
          ++n;
        });
        if (n != recorded.size() || !equal_but_integers(o.arguments[a], v)) fail(o, "another value");
      }
      for (size_t k = 0; k < recorded.size(); ++k) {
        // Of what each subset adds to the value, what its own subsets add is taken away.
        std::vector<int64_t> change(subsets + 1, 0);
        Fit fit{static_cast<int>(a), recorded[k].first, recorded[k].second, {}};
        int64_t check = fit.recorded;
        for (uint32_t set = 1; set <= subsets; ++set) {
          change[set] = seen[k][set - 1] - fit.recorded;
          for (uint32_t part = (set - 1) & set; part != 0; part = (part - 1) & set) change[set] -= change[part];
          if (change[set] == 0) continue;
          fit.terms.emplace_back(set, change[set]);
          int64_t product = change[set];
          for (int bits = std::popcount(set); bits > 0; --bits) product *= 3;
          check += product;
        }
        if (check != seen[k].back()) fail(o, "it is no sum of products of sizes");
        if (!fit.terms.empty()) o.fits.push_back(std::move(fit));
      }
    }
  }
  for (const auto& other : others)
    for (size_t v = 0; v < values.size(); ++v) {
      const Tensor &a = values[v].constant, &b = other->values[v].constant;
      TG_CHECK(a.defined() == b.defined() && (!a.defined() || same_bytes(a, b)), Value,
               "program: {}, which the code made, depends on sizes that may change", values[v].name);
    }
  symbols = std::move(changing);
}

std::string Program::text() const {
  auto described = [&](int v) {
    const ValueInfo& info = values[static_cast<size_t>(v)];
    return fmt::format("{}: {}{}", info.name, info.dtype, format_ints(info.sizes));
  };
  std::string out;
  for (int v : inputs) out += fmt::format("input {}\n", described(v));
  for (const Operation& o : operations) {
    std::string results, arguments;
    for (int r : o.results) results += (results.empty() ? "" : ", ") + (r < 0 ? "_" : described(r));
    for (size_t a = 0; a < o.arguments.size(); ++a) {
      std::string argument;
      for (const Place& p : o.tensors)
        if (p.argument == static_cast<int>(a))
          argument += (argument.empty() ? "" : ", ") + values[static_cast<size_t>(p.value)].name;
      if (o.function == nullptr || o.function->function->types[a] == dispatch::ArgumentType::Tensors)
        argument = "[" + argument + "]";
      if (argument.empty()) argument = std::visit([](const auto& v) { return text_of(v); }, o.arguments[a]);
      arguments += (a == 0 ? "" : ", ") + argument;
    }
    out += fmt::format("{}{}{}({}){}{}\n", results, results.empty() ? "" : " = ", o.id(), arguments,
                       o.line.empty() ? "" : "  #", o.line);
    for (size_t body = 0; body < o.bodies.size(); ++body) {
      const bool loop = o.control == Control::While;
      out += body == 0 ? (loop ? "  while\n" : "  if true\n") : (loop ? "  do\n" : "  else\n");
      std::string lines = o.bodies[body]->text();
      for (size_t at = 0, end; at < lines.size(); at = end + 1) {
        end = lines.find('\n', at);
        out += "    " + lines.substr(at, end - at) + "\n";
      }
    }
  }
  for (int v : outputs) out += fmt::format("output {}\n", values[static_cast<size_t>(v)].name);
  return out;
}

}  // namespace tapegrad::record
