// Call sites: which line of the user's program called an operator. Captured whenever a node is made, so the usual case
// must be cheap: the top frame's code object and instruction number are looked up in a small table; only a new pair
// costs more. Lines inside this package are skipped: the message should name the line that the user wrote.
#include "tapegrad/autograd/profiler/call_site.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tapegrad/bindings/functions.h"
#include "tapegrad/bindings/interpreter/python_frame.h"

namespace tapegrad::python {

namespace {

struct Site {
  PyCodeObject* code;  // owned, so that the address names one code object only
  int instruction;
  uint32_t id;  // of the text; 0 for a line inside the package
};

// Open addressing; everything under the GIL.
std::vector<Site> table(1024, Site{nullptr, 0, 0});
size_t used = 0;
std::vector<std::string>& texts() {
  static auto* all = new std::vector<std::string>{""};
  return *all;
}
// The function of each text's line.
std::vector<std::string>& functions() {
  static auto* all = new std::vector<std::string>{""};
  return *all;
}
std::string package_folder;

constexpr size_t kMostSites = 1 << 17;

size_t slot_of(const PyCodeObject* code, int instruction) {
  size_t h =
      (reinterpret_cast<size_t>(code) >> 4) * 0x9e3779b97f4a7c15ull + static_cast<size_t>(instruction) * 0x85ebca6bull;
  h ^= h >> 29;
  size_t i = h & (table.size() - 1);
  while (table[i].code && (table[i].code != code || table[i].instruction != instruction))
    i = (i + 1) & (table.size() - 1);
  return i;
}

void grow() {
  std::vector<Site> old(table.size() * 2, Site{nullptr, 0, 0});
  old.swap(table);
  for (const Site& s : old)
    if (s.code) table[slot_of(s.code, s.instruction)] = s;
}

// The entry of a frame's present line, made when it is new. Null when no more are kept.
const Site* site_of(const PythonFrame& frame) {
  PyCodeObject* code = frame.code();
  const int instruction = frame.instruction();
  size_t i = slot_of(code, instruction);
  if (TG_LIKELY(table[i].code != nullptr)) return &table[i];
  if (used >= kMostSites) return nullptr;
  if (2 * ++used > table.size()) {
    grow();
    i = slot_of(code, instruction);
  }
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  if (!file) {
    PyErr_Clear();
    file = "?";
  }
  uint32_t id = 0;
  if (std::strncmp(file, package_folder.c_str(), package_folder.size()) != 0) {
    id = static_cast<uint32_t>(texts().size());
    texts().push_back(std::string(file) + ":" + std::to_string(PyCode_Addr2Line(code, instruction)));
    const char* function = PyUnicode_AsUTF8(code->co_name);
    if (!function) PyErr_Clear();
    functions().emplace_back(function ? function : "?");
  }
  Py_INCREF(reinterpret_cast<PyObject*>(code));
  table[i] = {code, instruction, id};
  return &table[i];
}

uint32_t capture() noexcept {
  if (!holds_gil()) return 0;
  try {
    int depth = 0;
    for (PythonFrame frame = PythonFrame::current(); frame && depth < 64; frame = frame.outer(), ++depth) {
      const Site* site = site_of(frame);
      if (!site) return 0;
      if (TG_LIKELY(site->id != 0)) return site->id;
    }
  } catch (...) {
  }
  return 0;
}

// --- whole stacks, for the profiler ---

constexpr size_t kMostFrames = 64;

// Stacks by number, and a table of the numbers by the hash of the lines; open addressing, under the GIL.
struct Stacks {
  std::vector<std::vector<uint32_t>> lines{{}};  // 0: none
  std::vector<uint32_t> table = std::vector<uint32_t>(1024, 0);
};
Stacks& stacks() {
  static auto* all = new Stacks;
  return *all;
}

uint64_t hash_of(const uint32_t* lines, size_t n) {
  uint64_t h = n;
  for (size_t i = 0; i < n; ++i) h = (h ^ lines[i]) * 0x9e3779b97f4a7c15ull;
  return h ^ h >> 32;
}

// The number of a stack that is not empty, given when it is new.
uint32_t number_of(const uint32_t* lines, size_t n) {
  Stacks& all = stacks();
  size_t i = hash_of(lines, n) & (all.table.size() - 1);
  for (; all.table[i]; i = (i + 1) & (all.table.size() - 1)) {
    const auto& known = all.lines[all.table[i]];
    if (known.size() == n && std::equal(known.begin(), known.end(), lines)) return all.table[i];
  }
  const auto number = static_cast<uint32_t>(all.lines.size());
  all.lines.emplace_back(lines, lines + n);
  all.table[i] = number;
  if (2 * all.lines.size() <= all.table.size()) return number;
  std::vector<uint32_t> larger(2 * all.table.size(), 0);
  for (uint32_t k = 1; k < all.lines.size(); ++k) {
    size_t at = hash_of(all.lines[k].data(), all.lines[k].size()) & (larger.size() - 1);
    while (larger[at]) at = (at + 1) & (larger.size() - 1);
    larger[at] = k;
  }
  all.table = std::move(larger);
  return number;
}

uint32_t capture_whole_stack() noexcept {
  if (!holds_gil()) return 0;
  try {
    uint32_t lines[kMostFrames];
    size_t n = 0, depth = 0;
    for (PythonFrame frame = PythonFrame::current(); frame && depth < kMostFrames; frame = frame.outer(), ++depth) {
      const Site* site = site_of(frame);
      if (!site) break;
      if (site->id) lines[n++] = site->id;
    }
    return n ? number_of(lines, n) : 0;
  } catch (...) {
    return 0;
  }
}

std::string describe(uint32_t id) { return id < texts().size() ? texts()[id] : std::string(); }

}  // namespace

int frames_of_package() noexcept {
  int inside = 0;
  for (PythonFrame frame = PythonFrame::current(); frame; frame = frame.outer(), ++inside) {
    const char* file = PyUnicode_AsUTF8(frame.code()->co_filename);
    if (!file) PyErr_Clear();
    if (!file || std::strncmp(file, package_folder.c_str(), package_folder.size()) != 0) break;
  }
  return inside;
}

std::vector<uint32_t> sites_of_stack(uint32_t stack) {
  const Stacks& all = stacks();
  return stack < all.lines.size() ? all.lines[stack] : std::vector<uint32_t>();
}

std::string function_of_site(uint32_t site) { return site < functions().size() ? functions()[site] : std::string(); }

bool init_call_sites() {
  PyRef spec(PyImport_ImportModule("tapegrad"));
  PyRef path(spec ? PyObject_GetAttrString(spec.get(), "__path__") : nullptr);
  PyRef first(path ? PySequence_GetItem(path.get(), 0) : nullptr);
  const char* folder = first ? PyUnicode_AsUTF8(first.get()) : nullptr;
  if (!folder) return false;
  package_folder = std::string(folder) + "/";
  autograd::capture_site = capture;
  autograd::capture_stack = capture_whole_stack;
  autograd::describe_site_hook = describe;
  return true;
}

}  // namespace tapegrad::python
