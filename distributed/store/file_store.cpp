// Keys in a file: a log of records that all processes append to under flock(), in PyTorch's layout (lengths of 32 bits,
// keys behind "/", deleted ones behind "-/"), so that programs of both may share one. A record that its writer did not
// finish (it was killed, the disk was full) ends the log and is overwritten by the next one. The file is opened for
// each call: so a descriptor shared by fork() is never locked, and a file that was removed and recreated is noticed.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tapegrad/c10/threads/parallel.h"
#include "tapegrad/distributed/store/key_table.h"
#include "tapegrad/distributed/store/store_base.h"
#include "tapegrad/distributed/store/tcp_socket.h"
#include "tapegrad/multiprocessing/shared_file.h"

namespace tapegrad::distributed {

namespace {

constexpr uint32_t kMostRecord = uint32_t{1} << 30;
constexpr Milliseconds kLook{10};

class FileStore final : public StoreBase<Store> {
  // The open and locked file.
  struct Log {
    shared::Descriptor file;
    off_t end = 0;  // of the complete records

    void write(const std::string& key, const std::string& value) {
      TG_CHECK(key.size() + value.size() < kMostRecord, Value, "FileStore: a key and its value have less than {} bytes",
               kMostRecord);
      std::string record;
      for (const std::string* part : {&key, &value}) {
        const auto size = static_cast<uint32_t>(part->size());
        record.append(reinterpret_cast<const char*>(&size), sizeof(size)).append(*part);
      }
      struct stat now{};
      if (fstat(file.get(), &now) == 0 && now.st_size > end && ftruncate(file.get(), end) != 0) broken("write");
      for (size_t at = 0; at < record.size();) {
        const ssize_t n = pwrite(file.get(), record.data() + at, record.size() - at, end + static_cast<off_t>(at));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
          const int error = errno;
          [[maybe_unused]] const int shorter = ftruncate(file.get(), end);
          errno = error;
          broken("write");
        }
        at += static_cast<size_t>(n);
      }
      end += static_cast<off_t>(record.size());
    }
    [[noreturn]] static void broken(const char* what) {
      fail(DistError::Part::Store, "FileStore: cannot {} the file: {}", what, std::strerror(errno));
    }
  };

 public:
  FileStore(std::string path, int64_t world_size, Milliseconds limit)
      : StoreBase("FileStore", limit), path_(std::move(path)), world_size_(world_size) {
    TG_CHECK(!path_.empty(), Value, "FileStore: the file must be named: got an empty name");
    count("FileStore", "refcount/", 1);
  }
  // The last one removes the file, where it is known how many there are.
  ~FileStore() override {
    if (!in_its_process() || access(path_.c_str(), F_OK) != 0) return;
    try {
      set_limit(Milliseconds(2000));
      const int64_t finished = count(nullptr, "cleanup/", 1);
      if (count(nullptr, "refcount/", -1) <= 0 && world_size_ > 0 && finished >= world_size_) unlink(path_.c_str());
    } catch (const std::exception&) {
    }
  }

  void set(const std::string& key, const std::string& value) override {
    change("set", [&](Log& log) { log.write("/" + key, value); });
  }
  int64_t add(const std::string& key, int64_t amount) override { return count("add", "/" + key, amount); }
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) override {
    return change("compare_set", [&](Log& log) {
      const std::string* old = keys_.find("/" + key);
      if (old != nullptr ? *old != expected : !expected.empty()) return old == nullptr ? expected : *old;
      log.write("/" + key, desired);
      return desired;
    });
  }
  void append(const std::string& key, const std::string& value) override {
    change("append", [&](Log& log) {
      const std::string* old = keys_.find("/" + key);
      log.write("/" + key, old == nullptr ? value : *old + value);
    });
  }
  bool delete_key(const std::string& key) override {
    return change("delete_key", [&](Log& log) {
      const bool there = keys_.find("/" + key) != nullptr;
      if (there) log.write("-/" + key, "");
      return there;
    });
  }
  bool check(const std::vector<std::string>& keys) override {
    return look("check", [&] { return has_all(keys); });
  }
  int64_t num_keys() override { return static_cast<int64_t>(list_keys().size()); }
  std::vector<std::string> list_keys() override {
    return look("list_keys", [&] {
      std::vector<std::string> mine;
      for (const std::string& key : keys_.keys())
        if (key.starts_with('/')) mine.push_back(key.substr(1));  // the others are the store's own
      return mine;
    });
  }
  std::string get(const std::string& key, std::optional<Milliseconds> limit) override {
    wait_for_keys("get", {key}, limit);
    return look("get", [&] {
      const std::string* value = keys_.find("/" + key);
      return value == nullptr ? std::string() : *value;  // deleted in between
    });
  }
  void wait(const std::vector<std::string>& keys, std::optional<Milliseconds> limit) override {
    wait_for_keys("wait", keys, limit);
  }
  std::shared_ptr<Store> clone() override {
    check_usable("clone");
    return std::make_shared<FileStore>(path_, world_size_, timeout());
  }

 private:
  void wake() noexcept override { wakeup_.wake(); }

  // Sleeps for a moment. `op` is null during destruction: nothing is checked then.
  void pause(const char* op, Clock::time_point until) {
    if (op == nullptr)
      usleep(1000);
    else if (wait_for(-1, 0, {until, &wakeup_}) == Ready::Woken)
      fail_closed(op);
  }

  Log open_log(const char* op, int how) {
    const Clock::time_point deadline = deadline_in(timeout());
    Log log;
    log.file = shared::Descriptor(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!log.file) fail(DistError::Part::Store, "FileStore: cannot open {}: {}", path_, std::strerror(errno));
    for (Milliseconds step{1}; flock(log.file.get(), how | LOCK_NB) != 0; step = std::min(step * 2, kLook)) {
      if (errno == EINTR) continue;
      if (errno != EWOULDBLOCK)
        fail(DistError::Part::Store, "FileStore: {} cannot be locked: {}", path_, std::strerror(errno));
      if (Clock::now() >= deadline)
        fail(DistError::Part::Store, "FileStore: {} stays locked by another process: waited for {}", path_,
             text_of(timeout()));
      pause(op, Clock::now() + step);
    }
    refresh(log);
    return log;
  }

  // Reads what has been added.
  void refresh(Log& log) {
    struct stat now{};
    if (fstat(log.file.get(), &now) != 0) Log::broken("read");
    if (now.st_ino != inode_ || now.st_dev != device_ || now.st_size < read_) {  // another file by now
      keys_ = KeyTable();
      read_ = 0;
      inode_ = now.st_ino;
      device_ = now.st_dev;
    }
    std::string bytes(static_cast<size_t>(now.st_size - read_), '\0');
    size_t had = 0;
    while (had < bytes.size()) {
      const ssize_t n = pread(log.file.get(), bytes.data() + had, bytes.size() - had, read_ + static_cast<off_t>(had));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) Log::broken("read");
      if (n == 0) break;
      had += static_cast<size_t>(n);
    }
    bytes.resize(had);
    size_t at = 0;
    const auto part = [&](size_t& from, std::string& text) {
      uint32_t size = 0;
      if (bytes.size() - from < sizeof(size)) return false;
      std::memcpy(&size, bytes.data() + from, sizeof(size));
      if (bytes.size() - from - sizeof(size) < size) return false;
      text = bytes.substr(from + sizeof(size), size);
      from += sizeof(size) + size;
      return true;
    };
    std::string key, value;
    for (size_t next = at; part(next, key) && part(next, value); at = next) {
      if (key.starts_with('-'))
        keys_.erase(key.substr(1));
      else
        keys_.set(key, value);
    }
    read_ += static_cast<off_t>(at);
    log.end = read_;
  }

  template <class F>
  std::invoke_result_t<F, Log&> change(const char* op, F&& f) {
    if (op != nullptr) check_usable(op);
    const BlockingRegion region;
    const std::unique_lock lock = own(op);
    Log log = open_log(op, LOCK_EX);
    return f(log);
  }
  template <class F>
  std::invoke_result_t<F> look(const char* op, F&& f) {
    check_usable(op);
    const BlockingRegion region;
    const std::unique_lock lock = own(op);
    const Log log = open_log(op, LOCK_SH);
    return f();
  }
  // Other threads of this process: their owner checks for Ctrl-C while it waits for the file.
  std::unique_lock<std::mutex> own(const char* op) {
    std::unique_lock lock(mutex_, std::defer_lock);
    while (!lock.try_lock()) pause(op, Clock::now() + Milliseconds(1));
    return lock;
  }
  int64_t count(const char* op, const std::string& key, int64_t amount) {
    return change(op, [&](Log& log) {
      const std::string* old = keys_.find(key);
      const int64_t sum = old == nullptr ? amount : sum_of_counter(key.substr(key.starts_with('/')), *old, amount);
      log.write(key, std::to_string(sum));
      return sum;
    });
  }
  bool has_all(const std::vector<std::string>& keys) const {
    return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) { return keys_.find("/" + key); });
  }
  // Changes are detected by the file's size, since network file systems send no notifications.
  void wait_for_keys(const char* op, const std::vector<std::string>& keys, std::optional<Milliseconds> given) {
    const Milliseconds limit = checked(op, given);
    const Clock::time_point deadline = deadline_in(limit);
    const BlockingRegion region;
    struct stat seen{};
    while (!look(op, [&] { return has_all(keys); })) {
      struct stat now{};
      do {
        if (Clock::now() >= deadline) {
          std::vector<std::string> missing;
          std::copy_if(keys.begin(), keys.end(), std::back_inserter(missing),
                       [&](const std::string& key) { return !check({key}); });
          fail(DistError::Part::Store, "{}: timed out after {}: no value for {} in {}", op, text_of(limit),
               key_list(missing), path_);
        }
        pause(op, std::min(deadline, Clock::now() + kLook));
      } while (stat(path_.c_str(), &now) == 0 && now.st_size == seen.st_size && now.st_ino == seen.st_ino &&
               now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec && now.st_mtim.tv_sec == seen.st_mtim.tv_sec);
      seen = now;
    }
  }

  const std::string path_;
  const int64_t world_size_;
  Wakeup wakeup_;
  std::mutex mutex_;  // guards what follows
  KeyTable keys_;
  off_t read_ = 0;
  ino_t inode_ = 0;
  dev_t device_ = 0;
};

}  // namespace

std::shared_ptr<Store> make_file_store(std::string path, int64_t world_size) {
  return std::make_shared<FileStore>(std::move(path), world_size, TcpStoreOptions().timeout);
}

}  // namespace tapegrad::distributed
