#include "tapegrad/nn/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
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

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      (out += '\\') += c;
    else if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      out += c;
  }
  return out += '"';
}

// As much of JSON as headers hold: objects, texts, lists of numbers that are not negative.
class Header {
 public:
  Header(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  [[noreturn]] void fail(const char* what) const {
    TG_THROW(Runtime, "load: {}: the header is damaged at byte {}: {}", path_, at_, what);
  }
  bool take(char c) {
    space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void need(char c) {
    if (!take(c)) fail("another character was expected");
  }
  void end() {
    space();
    if (at_ != text_.size()) fail("it goes on after its end");
  }
  std::string text() {
    need('"');
    std::string out;
    while (true) {
      const unsigned char c = static_cast<unsigned char>(next());
      if (c == '"') return out;
      if (c < 0x20) fail("a text with a control character");
      c == '\\' ? escape(out) : out.push_back(static_cast<char>(c));
    }
  }
  uint64_t number() {
    space();
    uint64_t value = 0;
    const size_t first = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      if (value > (std::numeric_limits<int64_t>::max() - 9) / 10) fail("a number is too large");
      value = value * 10 + static_cast<uint64_t>(text_[at_] - '0');
    }
    if (at_ == first) fail("a number was expected");
    return value;
  }
  std::vector<uint64_t> numbers() {
    std::vector<uint64_t> all;
    need('[');
    if (take(']')) return all;
    do all.push_back(number());
    while (take(','));
    need(']');
    return all;
  }
  template <class F>  // f(key), which reads the value
  void object(F&& f) {
    need('{');
    if (take('}')) return;
    do {
      const std::string key = text();
      need(':');
      f(key);
    } while (take(','));
    need('}');
  }

 private:
  void space() {
    while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) != nullptr && text_[at_] != '\0') ++at_;
  }
  char next() {
    if (at_ >= text_.size()) fail("it ends too early");
    return text_[at_++];
  }
  unsigned unit() {
    unsigned value = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = next();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) fail("a wrong escape");
      value = value * 16 + static_cast<unsigned>(digit);
    }
    return value;
  }
  void escape(std::string& out) {
    static constexpr std::string_view kNames = "\"\\/bfnrt", kValues = "\"\\/\b\f\n\r\t";
    const char c = next();
    if (c != 'u') {
      const size_t i = kNames.find(c);
      if (i == kNames.npos) fail("a wrong escape");
      out.push_back(kValues[i]);
      return;
    }
    uint32_t code = unit();
    if (code >= 0xD800 && code < 0xDC00) {  // the first half of a pair
      if (next() != '\\' || next() != 'u') fail("a wrong escape");
      const uint32_t low = unit();
      if (low < 0xDC00 || low > 0xDFFF) fail("a wrong escape");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code < 0xE000) {
      fail("a wrong escape");
    }
    const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
    if (code < 0x80) {
      put(code);
    } else if (code < 0x800) {
      put(0xC0 | code >> 6), put(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
      put(0xE0 | code >> 12), put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F));
    } else {
      put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 0x3F)), put(0x80 | (code >> 6 & 0x3F)),
          put(0x80 | (code & 0x3F));
    }
  }

  std::string_view text_;
  const std::string& path_;
  size_t at_ = 0;
};

struct Entry {
  std::string name;
  DType dtype = DType::float32;
  DimVector sizes;
  uint64_t first = 0, last = 0;
};

// One tensor's dtype, shape and place, checked against each other and against the room for data.
Entry read_entry(Header& header, const std::string& name, uint64_t room, const std::string& path) {
  Entry entry;
  entry.name = name;
  bool dtype = false, shape = false, place = false;
  header.object([&](const std::string& key) {
    if (key == "dtype") {
      const std::string given = header.text();
      for (const Code& code : kCodes)
        if (given == code.text) entry.dtype = code.dtype, dtype = true;
      TG_CHECK(dtype, Runtime, "load: {}: the dtype of '{}' is not known: {}", path, name, given);
    } else if (key == "shape") {
      for (const uint64_t n : header.numbers()) entry.sizes.push_back(static_cast<int64_t>(n));
      shape = true;
    } else if (key == "data_offsets") {
      const std::vector<uint64_t> ends = header.numbers();
      if (ends.size() != 2) header.fail("data_offsets are two numbers");
      entry.first = ends[0], entry.last = ends[1], place = true;
    } else {
      header.fail("an entry that is not known");
    }
  });
  TG_CHECK(dtype && shape && place, Runtime, "load: {}: '{}' lacks its dtype, shape or place", path, name);
  uint64_t bytes = element_size(entry.dtype);
  for (const int64_t n : entry.sizes)
    TG_CHECK(!__builtin_mul_overflow(bytes, static_cast<uint64_t>(n), &bytes), Runtime, "load: {}: '{}' is too large",
             path, name);
  TG_CHECK(entry.first <= entry.last && entry.last <= room && entry.last - entry.first == bytes, Runtime,
           "load: {}: '{}' of {} bytes lies at {} to {} of {}", path, name, bytes, entry.first, entry.last, room);
  return entry;
}

}  // namespace

void save_tensors(const NamedTensors& tensors, const std::string& path) {
  std::string header = "{";
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
                          names.size() == 1 ? "" : ",", quoted(name), code, shape, at, at + n);
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

NamedTensors load_tensors(const std::string& path) {
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
  std::set<std::string> names;
  Header header(text, path);
  header.object([&](const std::string& name) {
    if (!names.insert(name).second) header.fail("a name is there twice");
    if (name == "__metadata__")
      header.object([&](const std::string&) { header.text(); });
    else
      entries.push_back(read_entry(header, name, size - start, path));
  });
  header.end();
  NamedTensors tensors;
  for (const Entry& entry : entries) {
    Tensor tensor = empty_tensor(entry.sizes, entry.dtype);
    file.read_at(start + entry.first, tensor.data_ptr(), entry.last - entry.first);
    tensors.emplace_back(entry.name, std::move(tensor));
  }
  return tensors;
}

void save(const Module& module, const std::string& path) { save_tensors(module.state_dict(), path); }

void load(Module& module, const std::string& path, bool strict) { module.load_state_dict(load_tensors(path), strict); }

}  // namespace tapegrad::nn
