#include "tapegrad/nn/files/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "tapegrad/aten/functions_index.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad::nn {
namespace {

static_assert(std::endian::native == std::endian::little, "files hold little-endian numbers");

struct Code {
  DType dtype;
  const char* text;
};
constexpr Code kCodes[] = {{DType::bool_, "BOOL"},
                           {DType::uint8, "U8"},
                           {DType::int8, "I8"},
                           {DType::int16, "I16"},
                           {DType::int32, "I32"},
                           {DType::int64, "I64"},
                           {DType::float16, "F16"},
                           {DType::bfloat16, "BF16"},
                           {DType::float32, "F32"},
                           {DType::float64, "F64"},
                           {DType::complex64, "C64"},
                           {DType::uint16, "U16"},
                           {DType::uint32, "U32"},
                           {DType::uint64, "U64"},
                           {DType::float8_e4m3fn, "F8_E4M3"},
                           {DType::float8_e5m2, "F8_E5M2"},
                           {DType::float8_e4m3fnuz, "F8_E4M3FNUZ"},
                           {DType::float8_e5m2fnuz, "F8_E5M2FNUZ"},
                           {DType::float8_e8m0fnu, "F8_E8M0"}};

constexpr uint64_t kLongestHeader = 100'000'000;

// A file descriptor that closes itself.
class File {
 public:
  File(const std::string& path, int flags, const char* what) : path_(path), fd_(::open(path.c_str(), flags, 0666)) {
    TG_CHECK(fd_ >= 0, Runtime, "{}: cannot open {}: {}", what, path, std::strerror(errno));
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }

  void write(const void* data, size_t n) {
    const char* at = static_cast<const char*>(data);
    while (n > 0) {
      const ssize_t done = ::write(fd_, at, n);
      if (done < 0 && errno == EINTR) continue;
      TG_CHECK(done > 0, Runtime, "save: cannot write {}: {}", path_, std::strerror(errno));
      at += done;
      n -= static_cast<size_t>(done);
    }
  }
  void finish() {
    TG_CHECK(::fsync(fd_) == 0, Runtime, "save: cannot write {}: {}", path_, std::strerror(errno));
    const int closed = ::close(fd_);
    fd_ = -1;
    TG_CHECK(closed == 0, Runtime, "save: cannot write {}: {}", path_, std::strerror(errno));
  }

  uint64_t size() const {
    struct stat s{};
    TG_CHECK(::fstat(fd_, &s) == 0 && S_ISREG(s.st_mode), Runtime, "load: {} is not a file", path_);
    return static_cast<uint64_t>(s.st_size);
  }
  void read_at(uint64_t offset, void* data, size_t n) const {
    char* at = static_cast<char*>(data);
    while (n > 0) {
      const ssize_t done = ::pread(fd_, at, n, static_cast<off_t>(offset));
      if (done < 0 && errno == EINTR) continue;
      TG_CHECK(done > 0, Runtime, "load: {} ends too early", path_);
      at += done;
      offset += static_cast<uint64_t>(done);
      n -= static_cast<size_t>(done);
    }
  }

 private:
  std::string path_;
  int fd_;
};

using Json = nlohmann::json;

[[noreturn]] void damaged(const std::string& path, std::string_view what) {
  TG_THROW(Runtime, "load: {}: the header is damaged: {}", path, what);
}

// An object without two equal keys, in which nothing lies deeper than in any header.
Json parsed(const std::string& text, const std::string& path) {
  std::vector<std::set<std::string>> keys;
  const auto event = [&](int depth, Json::parse_event_t kind, Json& value) {
    if (depth > 8) damaged(path, "it is nested too deeply");
    if (kind == Json::parse_event_t::object_start) keys.emplace_back();
    if (kind == Json::parse_event_t::object_end) keys.pop_back();
    if (kind == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
      damaged(path, "a name is there twice");
    return true;
  };
  Json header;
  try {
    header = Json::parse(text, event);
  } catch (const Json::exception& error) {
    damaged(path, error.what());
  }
  if (!header.is_object()) damaged(path, "it is no object");
  return header;
}

std::vector<uint64_t> numbers(const Json& list, const std::string& path) {
  if (!list.is_array()) damaged(path, "a list was expected");
  std::vector<uint64_t> all;
  for (const Json& n : list) {
    if (!n.is_number_unsigned() || n.get<uint64_t>() > std::numeric_limits<int64_t>::max())
      damaged(path, "a number is negative, broken or too large");
    all.push_back(n.get<uint64_t>());
  }
  return all;
}

const std::string& text_of(const Json& value, const std::string& path) {
  if (!value.is_string()) damaged(path, "a text was expected");
  return value.get_ref<const std::string&>();
}

struct Entry {
  std::string name;
  DType dtype = DType::float32;
  DimVector sizes;
  uint64_t first = 0, last = 0;
};

// One tensor's dtype, shape and place, checked against each other and against the size of the data.
Entry read_entry(const Json& fields, const std::string& name, uint64_t size, const std::string& path) {
  if (!fields.is_object()) damaged(path, "an object was expected");
  TG_CHECK(
      fields.size() == 3 && fields.contains("dtype") && fields.contains("shape") && fields.contains("data_offsets"),
      Runtime, "load: {}: '{}' lacks its dtype, shape or place, or has more", path, name);
  Entry entry;
  entry.name = name;
  const std::string& given = text_of(fields["dtype"], path);
  const auto* code = std::find_if(std::begin(kCodes), std::end(kCodes), [&](const Code& c) { return given == c.text; });
  TG_CHECK(code != std::end(kCodes), Runtime, "load: {}: the dtype of '{}' is not known: {}", path, name, given);
  entry.dtype = code->dtype;
  for (const uint64_t n : numbers(fields["shape"], path)) entry.sizes.push_back(static_cast<int64_t>(n));
  const std::vector<uint64_t> ends = numbers(fields["data_offsets"], path);
  if (ends.size() != 2) damaged(path, "data_offsets are two numbers");
  entry.first = ends[0], entry.last = ends[1];
  uint64_t bytes = element_size(entry.dtype);
  for (const int64_t n : entry.sizes)
    TG_CHECK(!__builtin_mul_overflow(bytes, static_cast<uint64_t>(n), &bytes), Runtime, "load: {}: '{}' is too large",
             path, name);
  TG_CHECK(entry.first <= entry.last && entry.last <= size && entry.last - entry.first == bytes, Runtime,
           "load: {}: '{}' of {} bytes lies at {} to {} of {}", path, name, bytes, entry.first, entry.last, size);
  return entry;
}

}  // namespace

void save_tensors(const NamedTensors& tensors, const std::string& path, const Metadata& metadata) {
  auto quoted = [](const std::string& text) {
    try {
      return Json(text).dump();
    } catch (const Json::exception&) {
      TG_THROW(Value, "save: a name is no text in UTF-8");
    }
  };
  std::string header = "{";
  if (!metadata.empty()) {
    header += "\"__metadata__\":";
    char separator = '{';
    for (const auto& [key, text] : metadata) {
      header += fmt::format("{}{}:{}", separator, quoted(key), quoted(text));
      separator = ',';
    }
    header += '}';
  }
  std::set<std::string_view> names;
  std::vector<Tensor> contents;
  uint64_t at = 0;
  for (const auto& [name, tensor] : tensors) {
    TG_CHECK(tensor.defined() && tensor.is_cpu(), Value, "save: '{}' is no tensor on the CPU", name);
    TG_CHECK(name != "__metadata__" && names.insert(name).second, Value, "save: a name that is taken: '{}'", name);
    const char* code = nullptr;
    for (const Code& known : kCodes)
      if (known.dtype == tensor.dtype()) code = known.text;
    TG_CHECK(code, Value, "save: the format has no dtype {}: '{}'", tensor.dtype(), name);
    const NoGradGuard no_grad;
    contents.push_back(tensor.contiguous());
    const auto n = static_cast<uint64_t>(tensor.nbytes());
    std::string shape;
    for (const int64_t size : tensor.sizes()) shape += (shape.empty() ? "" : ",") + std::to_string(size);
    header += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          header.size() == 1 ? "" : ",", quoted(name), code, shape, at, at + n);
    at += n;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');  // so that the data is aligned
  const std::string beside = fmt::format("{}.{}.part", path, ::getpid());
  try {
    File file(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, "save");
    const uint64_t length = header.size();
    file.write(&length, sizeof(length));
    file.write(header.data(), header.size());
    for (const Tensor& content : contents) file.write(content.data_ptr(), static_cast<size_t>(content.nbytes()));
    file.finish();
    TG_CHECK(std::rename(beside.c_str(), path.c_str()) == 0, Runtime, "save: cannot write {}: {}", path,
             std::strerror(errno));
  } catch (...) {
    ::unlink(beside.c_str());
    throw;
  }
}

TensorFile load_file(const std::string& path) {
  const File file(path, O_RDONLY | O_CLOEXEC, "load");
  const uint64_t size = file.size();
  uint64_t length = 0;
  TG_CHECK(size >= sizeof(length), Runtime, "load: {} is no safetensors file: it has {} bytes", path, size);
  file.read_at(0, &length, sizeof(length));
  TG_CHECK(length <= kLongestHeader && length <= size - sizeof(length), Runtime,
           "load: {} is no safetensors file: its header would have {} bytes", path, length);
  std::string text(length, '\0');
  file.read_at(sizeof(length), text.data(), length);
  const uint64_t start = sizeof(length) + length;
  std::vector<Entry> entries;
  TensorFile loaded;
  const Json header = parsed(text, path);
  for (const auto& [name, fields] : header.items()) {
    if (name != "__metadata__") {
      entries.push_back(read_entry(fields, name, size - start, path));
      continue;
    }
    if (!fields.is_object()) damaged(path, "an object was expected");
    for (const auto& [key, value] : fields.items()) loaded.metadata[key] = text_of(value, path);
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.first < b.first; });
  for (const Entry& entry : entries) {
    Tensor tensor = empty_tensor(entry.sizes, entry.dtype);
    file.read_at(start + entry.first, tensor.data_ptr(), entry.last - entry.first);
    loaded.tensors.emplace_back(entry.name, std::move(tensor));
  }
  return loaded;
}

NamedTensors load_tensors(const std::string& path) { return load_file(path).tensors; }

void save(const Module& module, const std::string& path) { save_tensors(module.state_dict(), path); }

void load(Module& module, const std::string& path, bool strict) { module.load_state_dict(load_tensors(path), strict); }

}  // namespace tapegrad::nn
