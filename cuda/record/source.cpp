#include "tapegrad/cuda/record/source.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "tapegrad/cuda/pointwise/plan.h"

namespace tapegrad::cuda {

namespace {

using pointwise::Iterator;
using record::Call;
using record::OperandLayout;

constexpr const char* kStandard = "#include \"tapegrad/cuda/record/device/standard.h\"\n";
const SourceFile texts[] = {
    {"cmath", kStandard},
    {"complex", kStandard},
    {"cstdint", kStandard},
    {"limits", kStandard},
    {"type_traits", kStandard},
    {"bit", kStandard},
    {"tapegrad/c10/tensor/dtype.h", kStandard},
#include "tapegrad/device_texts.inc"
};

// A pointwise operator: its row, functor, the types of the functor's fields ("T double"), its inputs.
struct DeviceFormula {
  const char *row, *functor, *fields;
  int inputs;
  std::string header;  // that it is in; empty: in none that kernels include
};

// The header that defines a functor, found as the generator finds it.
std::string header_of(const std::string& functor) {
  for (const SourceFile& file : texts) {
    if (!file.name.starts_with("tapegrad/aten/functors/")) continue;
    for (const std::string& begin : {"\nstruct " + functor + " ", "(" + functor + ", "}) {
      const size_t at = file.text.find(begin);
      if (at == file.text.npos) continue;
      const size_t line = file.text.rfind('\n', at) + 1;
      if (begin[0] == '\n' || file.text.substr(line, 3) == "TG_") return std::string(file.name);
    }
  }
  return "";
}

const std::vector<DeviceFormula>& formulas() {
  static const auto& all = *new std::vector<DeviceFormula>([] {
    std::vector<DeviceFormula> made{
#define TG_FORMULA(row, functor, fields, inputs) {row, functor, fields, inputs, ""},
#include "tapegrad/cuda/formula_list.inc"
#undef TG_FORMULA
    };
    for (DeviceFormula& f : made) f.header = header_of(f.functor);
    return made;
  }());
  return all;
}

const DeviceFormula* formula_of(const Call& call) {
  static const auto& by_row = *new std::map<std::string_view, const DeviceFormula*>([] {
    std::map<std::string_view, const DeviceFormula*> made;
    for (const DeviceFormula& f : formulas())
      if (!f.header.empty()) made[f.row] = &f;
    return made;
  }());
  const auto at = by_row.find(call.entry->name);
  return at == by_row.end() ? nullptr : at->second;
}

// A number of the call's own, not one of the step's memory.
bool is_own_number(const Call& call, int k) { return call.uses[static_cast<size_t>(k)].slot < 0; }

// As the kernels convert it (pointwise/plan.cpp).
bool read_number(const char* from, DType dtype, float& to) {
  const auto read = [&]<class T>(T value) {
    std::memcpy(&value, from, sizeof value);
    to = static_cast<float>(value);
    return true;
  };
  switch (dtype) {
    case DType::float32:
      return read(float{});
    case DType::float64:
      return read(double{});
    case DType::int64:
      return read(int64_t{});
    case DType::int32:
      return read(int32_t{});
    case DType::bool_:
      to = *from != 0 ? 1.0F : 0.0F;
      return true;
    default:
      return false;
  }
}

const char* stored_type(DType dtype) {
  return dtype == DType::float16    ? "Half"
         : dtype == DType::bfloat16 ? "BFloat16"
         : dtype == DType::bool_    ? "Flag"
                                    : "float";
}

uint64_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
uint64_t bits_of(double x) { return std::bit_cast<uint64_t>(x); }

class Writer {
 public:
  Writer(std::span<const Call> calls, const std::function<bool(int)>& in_memory)
      : calls_(calls), in_memory_(in_memory) {}

  ChainSource write() {
    for (size_t i = 0; i < calls_.size(); ++i) add(i);
    std::string& text = made_.text;
    for (const std::string& header : headers_) text += fmt::format("#include \"{}\"\n", header);
    text += fmt::format(
        "#include \"tapegrad/cuda/record/device/chain.h\"\n"
        "using namespace tapegrad;\nusing namespace tapegrad::chain;\n"
        "struct Place {{ char* at; int64_t per_row; }};\n"
        "struct Arguments {{ int64_t n, columns, aligned; uint64_t zero; Place place[{}]; uint64_t number[{}]; }};\n"
        "extern \"C\" __global__ void __launch_bounds__({}) {}(const Arguments a) {{\n"
        "  constexpr int V = {};\n"
        "  const uint32_t zero = static_cast<uint32_t>(a.zero);\n"
        "  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x * V;\n"
        "  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * V; i < a.n; i += step) {{\n"
        "    const Elements<V> e(i, a.n, a.columns, a.aligned != 0);\n",
        made_.places.size(), std::max<size_t>(made_.numbers.size(), 1), kBlock, kChainKernel, kChainPack);
    text += loads_ + steps_ + stores_ + "  }\n}\n";
    return std::move(made_);
  }

 private:
  // The register that has the value of operand k, read where nothing of the chain has made it.
  std::string value(size_t i, int k) {
    const Call& call = calls_[i];
    const Iterator& it = *call.pointwise;
    if (is_own_number(call, k)) {
      float x = 0;
      read_number(it.data[k], it.dtype[k], x);
      return fmt::format("number<float>(a.number[{}])", number(bits_of(x)));
    }
    const record::Use& use = call.uses[static_cast<size_t>(k)];
    const OperandLayout layout = record::layout_of(it, k);
    if (const auto written = written_.find(use.slot); written != written_.end()) return written->second + "[j]";
    const auto [at, fresh] = read_.try_emplace({use.slot, use.offset, layout, it.dtype[k]}, "");
    if (!fresh) return at->second;
    const size_t p = place(i, k);
    const std::string name = fmt::format("x{}", p), type = stored_type(it.dtype[k]);
    if (layout == OperandLayout::Number) {
      loads_ +=
          fmt::format("    const float {} = widen(*reinterpret_cast<const {}*>(a.place[{}].at));\n", name, type, p);
      return at->second = name;
    }
    const char* way = layout == OperandLayout::Dense       ? "dense"
                      : layout == OperandLayout::PerColumn ? "per_column"
                                                           : "per_row";
    const std::string stride = layout == OperandLayout::PerRow ? fmt::format(", a.place[{}].per_row", p) : "";
    loads_ += fmt::format("    float {0}[V];\n    e.{1}<{2}>({0}, a.place[{3}].at{4});\n", name, way, type, p, stride);
    return at->second = name + "[j]";
  }

  void add(size_t i) {
    const Call& call = calls_[i];
    const Iterator& it = *call.pointwise;
    const DeviceFormula& f = *formula_of(call);
    headers_.insert(f.header);
    std::string inputs, fields;
    for (int k = 1; k <= it.num_inputs; ++k) inputs += (k > 1 ? ", " : "") + value(i, k);
    int p = 0;
    for (std::string_view rest = f.fields; !rest.empty(); ++p) {
      const size_t space = rest.find(' ');
      const std::string_view type = rest.substr(0, space);
      rest = space == rest.npos ? "" : rest.substr(space + 1);
      const Scalar& param = it.params[p];
      const uint64_t bits = type == "double"    ? bits_of(param.to<double>())
                            : type == "int64_t" ? std::bit_cast<uint64_t>(param.to<int64_t>())
                            : type == "bool"    ? uint64_t{param.to<bool>()}
                                                : bits_of(param.to<float>());
      fields +=
          fmt::format("{}number<{}>(a.number[{}])", p > 0 ? ", " : "", type == "T" ? "float" : type, number(bits));
    }
    const std::string y = fmt::format("y{}", i), type = stored_type(it.dtype[0]);
    steps_ += fmt::format(
        "    float {0}[V];\n    for (int j = 0; j < V; ++j)\n"
        "      {0}[j] = handed_on<{1}>(fn::{2}<float>{{{3}}}({4}), zero);\n",
        y, type, f.functor, fields, inputs);
    const int slot = call.uses[0].slot;
    written_[slot] = y;
    if (!in_memory_(slot)) return;
    // Only what the slot has at the end.
    bool again = false;
    for (size_t later = i + 1; later < calls_.size(); ++later) again |= calls_[later].uses[0].slot == slot;
    if (!again) stores_ += fmt::format("    e.store<{}>({}, a.place[{}].at);\n", type, y, place(i, 0));
  }

  size_t place(size_t i, int k) {
    const Iterator& it = *calls_[i].pointwise;
    made_.places.push_back({i, k, record::layout_of(it, k), element_size(it.dtype[k])});
    return made_.places.size() - 1;
  }
  size_t number(uint64_t bits) {
    made_.numbers.push_back(bits);
    return made_.numbers.size() - 1;
  }

  std::span<const Call> calls_;
  const std::function<bool(int)>& in_memory_;
  ChainSource made_;
  std::set<std::string> headers_;
  std::string loads_, steps_, stores_;
  std::map<std::tuple<int, ptrdiff_t, OperandLayout, DType>, std::string> read_;
  std::map<int, std::string> written_;  // by slot
};

}  // namespace

std::span<const SourceFile> device_texts() { return texts; }

bool knows_call(const Call& call) {
  const Iterator& it = *call.pointwise;
  const DeviceFormula* f = formula_of(call);
  if (f == nullptr || f->inputs != it.num_inputs || it.compute != DType::float32) return false;
  if (it.result == DType::bool_ ? it.dtype[0] != DType::bool_
                                : it.result != DType::float32 || !rows::storable(it.dtype[0], it.result))
    return false;
  for (int k = 1; k <= it.num_inputs; ++k) {
    float ignored;
    if (is_own_number(call, k) ? !read_number(it.data[k], it.dtype[k], ignored)
                               : !rows::loadable(it.dtype[k], it.compute))
      return false;
  }
  return call.uses[0].slot >= 0;
}

ChainSource write_chain(std::span<const Call> calls, const std::function<bool(int)>& in_memory) {
  return Writer(calls, in_memory).write();
}

}  // namespace tapegrad::cuda
