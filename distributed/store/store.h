// Key-value store shared by all processes of a job, through which they find each other and report failures. Values are
// bytes, which the store never interprets; nothing in it is ever unpickled. All functions may be called from any thread
// at once, also while another thread waits in get() or wait(), in the process that made the object: a forked child gets
// DistError(Store). A limit of 0 tries once. Ctrl-C ends a waiting thread with Error(Interrupt). Errors:
// DistError(Store) if a key is not set in time, DistError(Network) if the connection to the server is lost.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tapegrad/distributed/errors.h"

namespace tapegrad::distributed {

using Milliseconds = std::chrono::milliseconds;

class TG_API Store {
 public:
  virtual ~Store() = default;

  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits for the key. `limit`: the store's own timeout when it is not given.
  virtual std::string get(const std::string& key, std::optional<Milliseconds> limit = {}) = 0;
  // Adds to a counter, initially 0 and stored as decimal text, and returns its new value. DistError(Store) if the value
  // is not a number.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
  // Writes `desired` where the value is `expected`, or where there is none and `expected` is empty. Returns the value
  // that the key has afterwards, or `expected` if it has none.
  virtual std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) = 0;
  virtual bool check(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys, std::optional<Milliseconds> limit = {}) = 0;
  virtual bool delete_key(const std::string& key) = 0;
  virtual int64_t num_keys() = 0;
  virtual void append(const std::string& key, const std::string& value) = 0;
  virtual std::vector<std::string> multi_get(const std::vector<std::string>& keys);
  virtual void multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values);
  virtual std::vector<std::string> list_keys() = 0;
  // Waits until it has been called `world_size` times with this key.
  virtual void barrier(const std::string& key, int64_t world_size, std::optional<Milliseconds> limit = {});
  // A queue of values by key, beside the values. Error(NotImplemented) where the store has none. pop: the first value;
  // nothing where there is none and `wait` is false.
  virtual void queue_push(const std::string& key, const std::string& value);
  virtual std::optional<std::string> queue_pop(const std::string& key, bool wait);
  virtual int64_t queue_len(const std::string& key);
  // tapegrad's TCP server appends the value to the key when the connection on which this was called ends, orderly or
  // not. For an object used by one thread, which has one connection. Other stores do nothing.
  virtual void set_at_end(const std::string& key, const std::string& value);
  // Threads that wait in this object, now and later, end with DistError(Store, why): used by a process that leaves, or
  // whose group has failed, to release its own threads. Other clients of the store are not affected.
  virtual void close(const std::string& why) noexcept = 0;
  // Another object on the same store with a connection of its own, so that a long wait in one does not delay the other.
  virtual std::shared_ptr<Store> clone() = 0;

  virtual Milliseconds timeout() const = 0;
  virtual void set_timeout(Milliseconds limit) = 0;
};

// Keys of one process, for threads as ranks and for tests.
TG_API std::shared_ptr<Store> make_hash_store();
// Keys of another store with the prefix "prefix/". Its close() closes that store, its clone() makes a clone of it.
// `check`, if given, is called four times a second while get() and wait() of this object wait; what it throws ends
// them.
TG_API std::shared_ptr<Store> make_prefix_store(std::string prefix, std::shared_ptr<Store> store,
                                                std::function<void()> check = {});
// A file that all processes can open (a local or a network file system with locks). `world_size` <= 0: not known.
TG_API std::shared_ptr<Store> make_file_store(std::string path, int64_t world_size);

struct TcpStoreOptions {
  std::string host;
  uint16_t port = 0;       // 0: the server takes a free one
  bool is_server = false;  // serves the keys on a thread of its own, bound to `host` only, and is a client, too
  int64_t world_size = 0;  // with wait_for_workers: how many clients the server waits for
  bool wait_for_workers = false;
  bool multi_tenant = false;  // reuse a server of this process at the same port
  Milliseconds timeout{300'000};
  int listen_fd = -1;  // a socket that is bound and listens already
  std::string token;   // what clients must show (see tcp_store.h); empty: PyTorch's wire format as it is
};
class TG_API TcpStore : public Store {
 public:
  virtual const std::string& host() const = 0;
  virtual uint16_t port() const = 0;
};
// The wire format is that of PyTorch 2's TCPStore, so that a process may be a client of torchrun's.
TG_API std::shared_ptr<TcpStore> make_tcp_store(const TcpStoreOptions& options);

}  // namespace tapegrad::distributed
