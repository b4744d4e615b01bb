#include "tapegrad/nn/files/program_file.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_view.h"

namespace tapegrad::nn {
namespace {

using Json = nlohmann::json;
using dispatch::ArgumentType;
using record::Program, record::Value;

constexpr const char* kKey = "tapegrad.program";
constexpr int kVersion = 1;

// Raised while a program is read.
struct Damaged {
  std::string what;
};

// --- values of arguments ---

Json to_json(double v) {
  if (std::isfinite(v)) return v;
  return std::isnan(v) ? "nan" : v < 0 ? "-inf" : "inf";
}
Json to_json(const Scalar& s) {
  switch (s.kind()) {
    case Scalar::Kind::Bool:
      return s.to<bool>();
    case Scalar::Kind::Int:
      return s.to<int64_t>();
    case Scalar::Kind::UInt:
      return s.to<uint64_t>();
    case Scalar::Kind::Float:
      return to_json(s.to<double>());
    default: {
      const auto z = s.to<complex128_t>();
      return Json::array({to_json(z.real()), to_json(z.imag())});
    }
  }
}
Json to_json(bool v) { return v; }
Json to_json(int64_t v) { return v; }
Json to_json(DType v) { return std::string(dtype_name(v)); }
Json to_json(Device v) { return fmt::format("{}", v); }
Json to_json(MemoryFormat v) { return static_cast<int>(v); }
Json to_json(const std::vector<double>& v) {
  Json list = Json::array();
  for (double x : v) list.push_back(to_json(x));
  return list;
}
template <class T>
Json to_json(const std::optional<T>& v) {
  return v ? to_json(*v) : Json();
}
Json to_json(const std::monostate&) { return {}; }
// Numbers stand in the places of tensors; what is a value has its number elsewhere.
Json to_json(const Tensor& t) { return t.defined() ? to_json(t.item()) : Json(); }
Json to_json(const GeneratorPtr&) { return {}; }
Json to_json(const PhiloxState&) { return {}; }
Json to_json(const Operand& v) { return to_json(v.tensor()); }
Json to_json(const record::ListValue& v) {
  Json list = Json::array();
  for (const Tensor& t : v.tensors) list.push_back(to_json(t));
  return list;
}
Json to_json(const record::IntsValue& v) { return std::vector<int64_t>(v.values.begin(), v.values.end()); }
Json to_json(const record::FloatsValue& v) { return to_json(v.values); }
Json to_json(const record::TextValue& v) { return v.values; }

int64_t integer(const Json& j) {
  if (!j.is_number_integer() || (j.is_number_unsigned() && j.get<uint64_t>() > std::numeric_limits<int64_t>::max()))
    throw Damaged{"an integer was expected"};
  return j.get<int64_t>();
}
double floating(const Json& j) {
  if (j.is_number()) return j.get<double>();
  if (j == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (j == "inf" || j == "-inf") return (j == "inf" ? 1 : -1) * std::numeric_limits<double>::infinity();
  throw Damaged{"a number was expected"};
}
const std::string& text(const Json& j) {
  if (!j.is_string()) throw Damaged{"a text was expected"};
  return j.get_ref<const std::string&>();
}
const Json& list(const Json& j) {
  if (!j.is_array()) throw Damaged{"a list was expected"};
  return j;
}
const Json& field(const Json& j, const char* name) {
  const auto found = j.find(name);
  if (!j.is_object() || found == j.end()) throw Damaged{fmt::format("{} is missing", name)};
  return *found;
}
bool boolean(const Json& j) {
  if (!j.is_boolean()) throw Damaged{"true or false was expected"};
  return j.get<bool>();
}
DType dtype(const Json& j) {
  for (DType t : kAllDTypes)
    if (text(j) == dtype_name(t)) return t;
  throw Damaged{fmt::format("the dtype {} is not known", text(j))};
}
Scalar scalar(const Json& j) {
  if (j.is_boolean()) return j.get<bool>();
  if (j.is_number_unsigned()) return j.get<uint64_t>();
  if (j.is_number_integer()) return j.get<int64_t>();
  if (!j.is_array()) return floating(j);
  if (j.size() != 2) throw Damaged{"a complex number has two parts"};
  return complex128_t(floating(j[0]), floating(j[1]));
}
std::vector<double> floats(const Json& j) {
  std::vector<double> all;
  for (const Json& x : list(j)) all.push_back(floating(x));
  return all;
}
DimVector ints(const Json& j) {
  DimVector all;
  for (const Json& x : list(j)) all.push_back(integer(x));
  return all;
}

Tensor number(const Json& j) { return j.is_null() ? Tensor() : Operand(scalar(j)).tensor(); }

MemoryFormat memory_format(const Json& j) {
  const int64_t format = integer(j);
  if (format < 0 || format > static_cast<int64_t>(MemoryFormat::ChannelsLast))
    throw Damaged{"a memory format is not known"};
  return static_cast<MemoryFormat>(format);
}
Device device(const Json& j) {
  if (text(j) != "cpu") throw Damaged{"programs run on the CPU"};
  return Device();
}

template <class T>
T read(const Json& j) {
  if constexpr (std::is_same_v<T, Tensor>)
    return number(j);
  else if constexpr (std::is_same_v<T, Operand>)
    return Operand(number(j));
  else if constexpr (std::is_same_v<T, Scalar>)
    return scalar(j);
  else if constexpr (std::is_same_v<T, int64_t>)
    return integer(j);
  else if constexpr (std::is_same_v<T, double>)
    return floating(j);
  else if constexpr (std::is_same_v<T, bool>)
    return boolean(j);
  else if constexpr (std::is_same_v<T, std::vector<double>>)
    return floats(j);
  else if constexpr (std::is_same_v<T, DType>)
    return dtype(j);
  else if constexpr (std::is_same_v<T, Device>)
    return device(j);
  else if constexpr (std::is_same_v<T, MemoryFormat>)
    return memory_format(j);
  else if constexpr (std::is_same_v<T, GeneratorPtr>)
    return {};
  else
    return j.is_null() ? T() : T(read<typename T::value_type>(j));  // an optional one
}

Value value(const Json& j, ArgumentType type) {
  return record::with_argument_type(type, [&]<class T>(std::type_identity<T>) -> Value {
    if constexpr (std::is_same_v<T, PhiloxState>) {
      throw Damaged{"an argument of a type that no function takes"};
    } else if constexpr (std::is_same_v<T, TensorSpan>) {
      record::ListValue v;
      for (const Json& item : list(j)) v.tensors.push_back(number(item));
      return v;
    } else if constexpr (std::is_same_v<T, IntSpan>) {
      return record::IntsValue{ints(j), {}, {}};
    } else if constexpr (std::is_same_v<T, OptionalInts>) {
      return j.is_null() ? Value() : Value(record::IntsValue{ints(j), {}, {}});
    } else if constexpr (std::is_same_v<T, std::span<const double>>) {
      return record::FloatsValue{floats(j), {}};
    } else if constexpr (std::is_same_v<T, std::string_view>) {
      return record::TextValue{text(j), {}, {}};
    } else if constexpr (std::is_same_v<T, std::optional<std::string_view>>) {
      return j.is_null() ? Value() : Value(record::TextValue{text(j), {}, {}});
    } else {
      return read<T>(j);
    }
  });
}

// --- programs ---

// What becomes tensors of the file: constants by name, those of bodies behind a prefix.
struct Constants {
  NamedTensors tensors;
  std::string prefix;
};
Json program_to_json(const Program& program, Constants& constants);

Json operation_to_json(const Program::Operation& o, Constants& constants) {
  Json arguments = Json::array(), tensors = Json::array(), fits = Json::array();
  for (const Value& v : o.arguments) arguments.push_back(std::visit([](const auto& x) { return to_json(x); }, v));
  for (const Program::Place& p : o.tensors) tensors.push_back({p.argument, p.item, p.value});
  for (const Program::Fit& f : o.fits) fits.push_back({f.argument, f.item, f.recorded, f.terms});
  if (o.function == nullptr) {
    Json bodies = Json::array(), counts = Json::array();
    for (const Value& v : o.arguments) counts.push_back(std::get<record::ListValue>(v).tensors.size());
    const std::string prefix = constants.prefix;
    for (const auto& body : o.bodies) {
      constants.prefix = fmt::format("{}{}.{}/", prefix, constants.tensors.size(), bodies.size());
      Json b = program_to_json(*body, constants);
      b["prefix"] = constants.prefix;
      bodies.push_back(std::move(b));
    }
    constants.prefix = prefix;
    return {{"control", std::string(o.id())},
            {"counts", counts},
            {"tensors", tensors},
            {"results", o.results},
            {"bodies", bodies}};
  }
  Json made{{"function", o.function->id}, {"arguments", arguments}, {"tensors", tensors}, {"results", o.results}};
  if (!fits.empty()) made["fits"] = fits;
  return made;
}

Json program_to_json(const Program& program, Constants& constants) {
  Json values = Json::array(), symbols = Json::array(), calls = Json::array();
  for (const Program::ValueInfo& info : program.values) {
    Json v{{"name", info.name},
           {"dtype", std::string(dtype_name(info.dtype))},
           {"sizes", std::vector<int64_t>(info.sizes.begin(), info.sizes.end())},
           {"memory", info.memory}};
    if (info.constant.defined()) {
      v["constant"] = info.written;
      const IntSpan strides = info.constant.strides();
      TG_CHECK(info.constant.numel() < 2 || std::find(strides.begin(), strides.end(), 0) == strides.end(), Value,
               "save: {} shows elements twice (expand): call contiguous() on it before it is used", info.name);
      if (!info.constant.is_contiguous()) v["strides"] = std::vector<int64_t>(strides.begin(), strides.end());
      constants.tensors.emplace_back(constants.prefix + info.name, info.constant);
    }
    values.push_back(std::move(v));
  }
  for (const Program::Symbol& s : program.symbols)
    symbols.push_back({{"name", s.name}, {"size", s.recorded}, {"places", s.places}});
  for (const Program::Operation& o : program.operations) calls.push_back(operation_to_json(o, constants));
  return {{"version", kVersion},        {"values", values},   {"inputs", program.inputs},
          {"outputs", program.outputs}, {"symbols", symbols}, {"calls", calls}};
}

// What a program refers to by number.
struct Limits {
  size_t values, inputs, symbols;
};
// What bodies of a program are read with.
struct Source {
  const std::unordered_map<std::string, Tensor>& constants;
  std::string prefix;
  int depth;
};
std::unique_ptr<Program> program_from(const Json& j, const Source& source, const std::vector<Program::Symbol>* outer);
int index(const Json& j, size_t end, int first = 0) {
  const int64_t i = integer(j);
  if (i < first || i >= static_cast<int64_t>(end)) throw Damaged{"a number of something that is not there"};
  return static_cast<int>(i);
}

// Functions take tensors for granted that their rows say are there.
void check_tensors(const Program::Operation& o) {
  const dispatch::Function& f = *o.function->function;
  for (size_t i = 0; i < f.types.size(); ++i) {
    if (f.absent >> i & 1) continue;
    auto need = [&](int item) {
      const bool given = std::any_of(o.tensors.begin(), o.tensors.end(), [&](const Program::Place& p) {
        return p.argument == static_cast<int>(i) && p.item == item;
      });
      if (!given) throw Damaged{fmt::format("argument {} of {} is missing", i, o.function->id)};
    };
    if (const auto* v = std::get_if<Tensor>(&o.arguments[i]); v != nullptr && !v->defined()) need(-1);
    if (const auto* v = std::get_if<Operand>(&o.arguments[i]); v != nullptr && !v->tensor().defined()) need(-1);
    if (const auto* v = std::get_if<record::ListValue>(&o.arguments[i]))
      for (size_t item = 0; item < v->tensors.size(); ++item)
        if (!v->tensors[item].defined()) need(static_cast<int>(item));
  }
}

constexpr int kDeepest = 16;  // bodies within bodies

Program::Operation control_from(const Json& j, const Limits& limits, const Source& source,
                                const std::vector<Program::Symbol>& symbols) {
  Program::Operation o;
  const std::string& name = text(j["control"]);
  if (name != "cond" && name != "while_loop")
    throw Damaged{fmt::format("it has {}, which this version does not have", name)};
  if (source.depth == kDeepest) throw Damaged{"control flow within control flow, too deep"};
  const bool loop = name == "while_loop";
  o.control = loop ? Program::Control::While : Program::Control::Cond;
  const Json &counts = list(field(j, "counts")), &bodies = list(field(j, "bodies"));
  if (counts.size() != 3 || bodies.size() != 2) throw Damaged{fmt::format("{} has other parts", name)};
  for (const Json& body : bodies) {
    const Source inner{source.constants, text(field(body, "prefix")), source.depth + 1};
    o.bodies.push_back(program_from(body, inner, &symbols));
  }
  size_t count[3];
  for (size_t k = 0; k < 3; ++k) {
    count[k] = static_cast<size_t>(index(counts[k], limits.values + 1));
    o.arguments.emplace_back(record::ListValue());
    std::get<record::ListValue>(o.arguments[k]).tensors.resize(count[k]);
  }
  std::vector<bool> given[3] = {std::vector<bool>(count[0]), std::vector<bool>(count[1]), std::vector<bool>(count[2])};
  for (const Json& place : list(field(j, "tensors"))) {
    if (list(place).size() != 3) throw Damaged{"a place has three numbers"};
    const int argument = index(place[0], 3);
    const int item = index(place[1], count[argument]);
    o.tensors.push_back({argument, item, index(place[2], limits.values)});
    given[argument][static_cast<size_t>(item)] = true;
  }
  for (const auto& list : given)
    if (std::find(list.begin(), list.end(), false) != list.end())
      throw Damaged{fmt::format("a tensor of {} is missing", name)};
  for (const Json& r : list(field(j, "results"))) o.results.push_back(index(r, limits.values, -1));
  const size_t n = o.results.size(), carried = loop ? count[0] : 0;
  const Program &first = *o.bodies[0], &second = *o.bodies[1];
  if ((loop ? carried != n : count[0] != 1) || first.inputs.size() != carried + count[1] ||
      second.inputs.size() != carried + count[2] || first.outputs.size() != (loop ? 1 : n) ||
      second.outputs.size() != n)
    throw Damaged{fmt::format("the bodies of {} take or give other numbers of tensors", name)};
  return o;
}

Program::Operation operation_from(const Json& j, const Limits& limits, const Source& source,
                                  const std::vector<Program::Symbol>& symbols) {
  if (j.is_object() && j.contains("control")) return control_from(j, limits, source, symbols);
  Program::Operation o;
  o.function = dispatch::find_function(text(field(j, "function")));
  if (o.function == nullptr)
    throw Damaged{fmt::format("it calls {}, which this version does not have", text(field(j, "function")))};
  const auto types = o.function->function->types;
  const Json& arguments = list(field(j, "arguments"));
  if (arguments.size() != types.size())
    throw Damaged{
        fmt::format("{} takes {} arguments: the file has {}", o.function->id, types.size(), arguments.size())};
  for (size_t i = 0; i < types.size(); ++i) o.arguments.push_back(value(arguments[i], types[i]));
  for (const Json& place : list(field(j, "tensors"))) {
    if (list(place).size() != 3) throw Damaged{"a place has three numbers"};
    const int argument = index(place[0], types.size());
    const ArgumentType type = types[static_cast<size_t>(argument)];
    int item = -1;
    if (const auto* v = std::get_if<record::ListValue>(&o.arguments[static_cast<size_t>(argument)]))
      item = index(place[1], v->tensors.size());
    else if (type != ArgumentType::Tensor && type != ArgumentType::Operand)
      throw Damaged{fmt::format("argument {} of {} is no tensor", argument, o.function->id)};
    o.tensors.push_back({argument, item, index(place[2], limits.values)});
  }
  check_tensors(o);
  for (const Json& r : list(field(j, "results"))) o.results.push_back(index(r, limits.values, -1));
  if (!j.contains("fits")) return o;
  for (const Json& f : list(j["fits"])) {
    if (list(f).size() != 4) throw Damaged{"a size has four parts"};
    Program::Fit fit{index(f[0], types.size()), -1, integer(f[2]), {}};
    const Value& v = o.arguments[static_cast<size_t>(fit.argument)];
    const auto* ints = std::get_if<record::IntsValue>(&v);
    if (ints != nullptr) fit.item = index(f[1], ints->values.size());
    if (ints == nullptr && !std::holds_alternative<int64_t>(v) && !std::holds_alternative<std::optional<int64_t>>(v) &&
        !std::holds_alternative<Scalar>(v) && !std::holds_alternative<Operand>(v))
      throw Damaged{fmt::format("argument {} of {} is no size", fit.argument, o.function->id)};
    for (const Json& term : list(f[3])) {
      if (list(term).size() != 2) throw Damaged{"a term has two numbers"};
      fit.terms.emplace_back(index(term[0], size_t{1} << limits.symbols, 1), integer(term[1]));
    }
    o.fits.push_back(std::move(fit));
  }
  return o;
}

// `outer`: the sizes that may change, of a body.
std::unique_ptr<Program> program_from(const Json& j, const Source& source, const std::vector<Program::Symbol>* outer) {
  if (integer(field(j, "version")) != kVersion) throw Damaged{"it was written by another version"};
  const auto& named = source.constants;
  auto made = std::make_unique<Program>();
  for (const Json& v : list(field(j, "values"))) {
    Program::ValueInfo& info = made->values.emplace_back();
    info.name = text(field(v, "name"));
    info.dtype = dtype(field(v, "dtype"));
    info.sizes = ints(field(v, "sizes"));
    info.memory = static_cast<int>(integer(field(v, "memory")) & 0x7fffffff);
    if (!v.contains("constant")) continue;
    const auto found = named.find(source.prefix + info.name);
    if (found == named.end() || found->second.dtype() != info.dtype || !(found->second.sizes() == IntSpan(info.sizes)))
      throw Damaged{fmt::format("the constant {} is not there, or has another size or dtype", info.name)};
    info.constant = found->second;
    info.written = boolean(v["constant"]);
    if (v.contains("strides")) {
      const DimVector strides = ints(v["strides"]);
      if (strides.size() != info.sizes.size()) throw Damaged{"strides are not one per dimension"};
      info.constant = empty_strided(info.sizes, strides, info.dtype);
      copy_(info.constant, found->second);
    }
  }
  Limits limits{made->values.size(), 0, 0};
  for (const Json& i : list(field(j, "inputs"))) made->inputs.push_back(index(i, limits.values));
  for (const Json& i : list(field(j, "outputs"))) made->outputs.push_back(index(i, limits.values));
  limits.inputs = made->inputs.size();
  if (outer != nullptr) {
    made->symbols = *outer;
    for (Program::Symbol& s : made->symbols) s.places.clear();
  }
  const Json none = Json::array();
  for (const Json& s : list(outer != nullptr ? none : field(j, "symbols"))) {
    Program::Symbol symbol{text(field(s, "name")), integer(field(s, "size")), {}};
    for (const Json& place : list(field(s, "places"))) {
      if (list(place).size() != 2) throw Damaged{"a place has two numbers"};
      const int input = index(place[0], limits.inputs);
      const auto& info = made->values[static_cast<size_t>(made->inputs[static_cast<size_t>(input)])];
      symbol.places.emplace_back(input, index(place[1], info.sizes.size()));
    }
    if (symbol.places.empty()) throw Damaged{"a size that may change is of no input"};
    made->symbols.push_back(std::move(symbol));
  }
  limits.symbols = made->symbols.size();
  if (limits.symbols > 8) throw Damaged{"too many sizes may change"};
  for (const Json& o : list(field(j, "calls")))
    made->operations.push_back(operation_from(o, limits, source, made->symbols));
  return made;
}

}  // namespace

void save_program(const Program& program, const std::string& path, const Metadata& more) {
  Constants constants;
  Metadata metadata = more;
  metadata[kKey] = program_to_json(program, constants).dump();
  save_tensors(constants.tensors, path, metadata);
}

ProgramFile load_program(const std::string& path) {
  TensorFile file = load_file(path);
  const auto found = file.metadata.find(kKey);
  TG_CHECK(found != file.metadata.end(), Runtime, "load: {} holds tensors and no program", path);
  ProgramFile loaded;
  try {
    const std::unordered_map<std::string, Tensor> constants(file.tensors.begin(), file.tensors.end());
    loaded.program = program_from(Json::parse(found->second), Source{constants, "", 0}, nullptr);
  } catch (const Damaged& damaged) {
    TG_THROW(Runtime, "load: {}: the program is damaged: {}", path, damaged.what);
  } catch (const Json::exception& error) {
    TG_THROW(Runtime, "load: {}: the program is damaged: {}", path, error.what());
  }
  file.metadata.erase(found);
  loaded.metadata = std::move(file.metadata);
  return loaded;
}

}  // namespace tapegrad::nn
