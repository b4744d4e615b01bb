#include "tapegrad/c10/memory/proc_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace tapegrad::detail {

ProcFile::ProcFile(const char* path) noexcept {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  char buffer[16 << 10];
  size_t size = 0;
  while (size < sizeof(buffer)) {
    const ssize_t n = read(fd, buffer + size, sizeof(buffer) - size);
    if (n <= 0) break;
    size += static_cast<size_t>(n);
  }
  close(fd);
  try {
    text_.assign(buffer, size);
    ok_ = true;
  } catch (...) {
    // No memory for the text: as if the file were not there.
  }
}

static uint64_t parse(const char* p, uint64_t fallback) noexcept {
  while (*p == ' ' || *p == '\t') ++p;
  if (*p < '0' || *p > '9') return fallback;
  return std::strtoull(p, nullptr, 10);
}

uint64_t ProcFile::field(const char* name, uint64_t fallback) const noexcept {
  const size_t length = std::strlen(name);
  for (const char* line = text_.c_str(); *line != '\0';) {
    if (std::strncmp(line, name, length) == 0 && (line[length] == ' ' || line[length] == '\t'))
      return parse(line + length, fallback);
    const char* end = std::strchr(line, '\n');
    if (end == nullptr) break;
    line = end + 1;
  }
  return fallback;
}

uint64_t ProcFile::nth(size_t n, uint64_t fallback) const noexcept {
  const char* p = text_.c_str();
  p += std::strspn(p, " \t\n");
  for (; n > 0; --n) {
    p += std::strcspn(p, " \t\n");
    p += std::strspn(p, " \t\n");
  }
  return parse(p, fallback);
}

uint64_t CgroupDir::nth(const char* file, size_t n, uint64_t fallback) const {
  return ProcFile((path + "/" + file).c_str()).nth(n, fallback);
}

uint64_t CgroupDir::field(const char* file, const char* name, uint64_t fallback) const {
  return ProcFile((path + "/" + file).c_str()).field(name, fallback);
}

namespace {

bool is_directory(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool lists(const std::string& comma_separated, const std::string& word) {
  return ("," + comma_separated + ",").find("," + word + ",") != std::string::npos;
}

void visit_up(const std::string& mount, std::string group, bool v2,
              const std::function<void(const CgroupDir&)>& visit) {
  if (!is_directory(mount)) return;
  if (group == "/" || !is_directory(mount + group)) group.clear();
  for (;;) {
    visit(CgroupDir{mount + group, v2});
    if (group.empty()) return;
    group.resize(group.find_last_of('/'));
  }
}

}  // namespace

void for_each_cgroup(const char* controller, const std::function<void(const CgroupDir&)>& visit) noexcept try {
  // Lines are "id:controllers:path"; the unified hierarchy's is "0::path".
  const ProcFile file("/proc/self/cgroup");
  const std::string& text = file.text();
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    if (group.empty() || group[0] != '/') continue;
    if (controllers.empty()) {
      visit_up("/sys/fs/cgroup", group, true, visit);
      visit_up("/sys/fs/cgroup/unified", group, true, visit);
    } else if (lists(controllers, controller)) {
      visit_up(std::string("/sys/fs/cgroup/") + controller, group, false, visit);
    }
  }
} catch (...) {
  // Only memory for the strings can be missing; limits that cannot be read do not limit.
}

}  // namespace tapegrad::detail
