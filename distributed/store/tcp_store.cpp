// The client of a TCP store. A call takes a connection from those that are idle, or opens one, and gives it back when
// the answer is complete: threads never wait for each other's calls. A connection on which a call ended half way (its
// deadline, Ctrl-C, close()) is closed. Values that were set are there when the call returns (tcp_wire.h), so calls on
// different connections are seen in their order.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>

#include "tapegrad/c10/threads/parallel.h"
#include "tapegrad/distributed/store/store_base.h"
#include "tapegrad/distributed/store/tcp_server.h"
#include "tapegrad/distributed/store/tcp_wire.h"

namespace tapegrad::distributed {

using wire::Command;

namespace {

constexpr size_t kMostIdle = 8;
constexpr uint64_t kMostReceived = uint64_t{1} << 30;
constexpr Milliseconds kLongestPause{1000};
constexpr int kMostRefusals = 3;  // greetings that ended early: servers that end or begin do that now and then
// PyTorch's key for those that have come; it has no "/" before it.
constexpr std::string_view kInitKey = "init/";

std::shared_ptr<TcpServer> find_or_start_server(const TcpStoreOptions& options, const std::string& host) {
  static std::mutex mutex;
  static auto& servers = *new std::map<uint16_t, std::weak_ptr<TcpServer>>;
  const std::lock_guard lock(mutex);
  if (options.multi_tenant && options.port != 0) {
    const auto server = servers[options.port].lock();
    if (server != nullptr && server->in_its_process()) {
      TG_CHECK(server->token() == options.token, Runtime,
               "TCPStore: the server at port {} of this process has another token", options.port);
      return server;
    }
  }
  uint16_t port = options.port;
  OwnDescriptor listener = options.listen_fd >= 0 ? take_listener(options.listen_fd, port) : listen_at(host, port);
  auto server = std::make_shared<TcpServer>(std::move(listener), port, options.token);
  if (options.multi_tenant) servers[port] = server;
  return server;
}

class TcpStoreClient final : public StoreBase<TcpStore> {
 public:
  TcpStoreClient(std::string host, uint16_t port, std::shared_ptr<TcpServer> server, std::string token,
                 Milliseconds limit)
      : StoreBase("TCPStore", limit),
        host_(std::move(host)),
        port_(port),
        token_(std::move(token)),
        server_(std::move(server)) {}
  const std::string& host() const override { return host_; }
  uint16_t port() const override { return port_; }

  void set(const std::string& key, const std::string& value) override {
    std::string request = begin(Command::Set, "set", key);
    put_value(request, "set", value);
    acknowledged("set", std::move(request));
  }
  void set_at_end(const std::string& key, const std::string& value) override {
    set(key + std::string(wire::kAtEnd), value);
  }
  void append(const std::string& key, const std::string& value) override {
    std::string request = begin(Command::Append, "append", key);
    put_value(request, "append", value);
    acknowledged("append", std::move(request));
  }
  void multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) override {
    TG_CHECK(keys.size() == values.size(), Value,
             "multi_set: there must be one value per key: got {} keys and {} values", keys.size(), values.size());
    std::string request = begin_list(Command::MultiSet, "multi_set", keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      put_key(request, "multi_set", keys[i]);
      put_value(request, "multi_set", values[i]);
    }
    acknowledged("multi_set", std::move(request));
  }
  void queue_push(const std::string& key, const std::string& value) override {
    std::string request = begin(Command::QueuePush, "queue_push", key);
    put_value(request, "queue_push", value);
    acknowledged("queue_push", std::move(request));
  }
  int64_t add(const std::string& key, int64_t amount) override {
    std::string request = begin(Command::Add, "add", key);
    wire::put<int64_t>(request, amount);
    return call(
        "add", [&](Call& c) { return c.ask(request).number(); },
        "\nit also does so where the value is no number, or leaves 64 bits");
  }
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) override {
    std::string request = begin(Command::CompareSet, "compare_set", key);
    put_value(request, "compare_set", expected);
    put_value(request, "compare_set", desired);
    return call("compare_set", [&](Call& c) { return c.ask(request).bytes(); });
  }
  bool check(const std::vector<std::string>& keys) override {
    const std::string request = list(Command::Check, "check", keys);
    return call("check", [&](Call& c) { return c.ask(request).flag() == wire::kReady; });
  }
  bool delete_key(const std::string& key) override {
    const std::string request = begin(Command::DeleteKey, "delete_key", key);
    return call("delete_key", [&](Call& c) { return c.ask(request).number() != 0; });
  }
  int64_t num_keys() override {
    const std::string request = begin(Command::NumKeys);
    return call("num_keys", [&](Call& c) { return c.ask(request).number(); });
  }
  std::vector<std::string> list_keys() override {
    const std::string request = begin(Command::ListKeys);
    return call("list_keys", [&](Call& c) {
      std::vector<std::string> keys;
      c.ask(request);
      for (int64_t left = c.number(); left > 0; --left) {
        std::string key = c.bytes();
        if (key.starts_with('/')) keys.push_back(key.substr(1));  // others are the stores' own
      }
      return keys;
    });
  }
  int64_t queue_len(const std::string& key) override {
    const std::string request = begin(Command::QueueLen, "queue_len", key);
    return call("queue_len", [&](Call& c) { return c.ask(request).number(); });
  }
  std::optional<std::string> queue_pop(const std::string& key, bool wait) override {
    const std::string request = begin(Command::QueuePop, "queue_pop", key);
    const Milliseconds limit = timeout();
    const Clock::time_point deadline = deadline_in(limit);
    return call("queue_pop", [&](Call& c) {
      for (;;) {  // another one may be quicker between the wait and the pop
        if (wait) c.wait_for_keys({key}, deadline, limit);
        if (c.ask(request).number() != 0) return std::optional(c.bytes());
        if (!wait) return std::optional<std::string>();
      }
    });
  }
  void wait(const std::vector<std::string>& keys, std::optional<Milliseconds> given) override {
    const Milliseconds limit = checked("wait", given);
    call("wait", [&](Call& c) { c.wait_for_keys(keys, deadline_in(limit), limit); });
  }
  std::string get(const std::string& key, std::optional<Milliseconds> given) override {
    const Milliseconds limit = checked("get", given);
    const std::string request = begin(Command::Get, "get", key);
    return call("get", [&](Call& c) {
      c.wait_for_keys({key}, deadline_in(limit), limit);
      return c.ask(request).bytes();
    });
  }
  std::vector<std::string> multi_get(const std::vector<std::string>& keys) override {
    const Milliseconds limit = timeout();
    const std::string request = list(Command::MultiGet, "multi_get", keys);
    return call("multi_get", [&](Call& c) {
      c.wait_for_keys(keys, deadline_in(limit), limit);
      std::vector<std::string> values;
      if (!keys.empty()) c.ask(request);
      for (size_t i = 0; i < keys.size(); ++i) values.push_back(c.bytes());
      return values;
    });
  }
  void barrier(const std::string& key, int64_t world_size, std::optional<Milliseconds> given) override {
    const Milliseconds limit = checked("barrier", given);
    std::string request = begin(Command::Barrier, "barrier", key);
    wire::put<int64_t>(request, world_size);
    call("barrier", [&](Call& c) {
      if (!c.wait_for_answer(request, deadline_in(limit)))
        fail(DistError::Part::Store, "barrier: timed out after {}: not all of {} have come to {}", text_of(limit),
             world_size, key);
    });
  }

  void connect(Milliseconds limit) {  // the first time, when the server may not be there yet
    keep(open("TCPStore", deadline_in(limit), limit, true));
  }
  // PyTorch's way to count those that have come.
  int64_t init_count(int64_t amount) {
    std::string request = begin(Command::Add);
    wire::put_bytes(request, kInitKey);
    wire::put<int64_t>(request, amount);
    return call("TCPStore", [&](Call& c) { return c.ask(request).number(); });
  }
  std::shared_ptr<Store> clone() override {
    check_usable("clone");
    return std::make_shared<TcpStoreClient>(host_, port_, server_, token_, timeout());
  }

 private:
  // One exchange on one connection.
  class Call {
   public:
    Call(TcpStoreClient& store, const char* op, int fd, const char* hint)
        : store_(store), op_(op), fd_(fd), hint_(hint), wait_(store.until(deadline_in(store.timeout()))) {}

    Call& ask(const std::string& request) {
      wait_.deadline = deadline_in(store_.timeout());
      check(send_all(fd_, request.data(), request.size(), wait_));
      return *this;
    }
    template <class T>
    T value() {
      T v;
      check(receive_all(fd_, &v, sizeof(T), wait_));
      return v;
    }
    int64_t number() { return value<int64_t>(); }
    uint8_t flag() { return value<uint8_t>(); }
    std::string bytes() {
      const auto size = value<uint64_t>();
      if (size > kMostReceived)
        fail(DistError::Part::Network, "{}: {} is not a store: it announces a value of {} bytes", op_, store_.place(),
             size);
      std::string all;
      while (all.size() < size) {  // no memory for bytes that do not come
        const size_t had = all.size();
        all.resize(std::min<uint64_t>(size, std::max<size_t>(2 * had, 1 << 16)));
        check(receive_all(fd_, all.data() + had, all.size() - had, wait_));
      }
      return all;
    }
    // Whether the answer came; else the question was taken back.
    bool wait_for_answer(const std::string& request, Clock::time_point deadline) {
      ask(request);
      SocketWait patient = wait_;
      patient.deadline = deadline;
      uint8_t answer = 0;
      const Transfer result = receive_all(fd_, &answer, 1, patient);
      if (result != Transfer::TimedOut) {
        check(result);
        return true;
      }
      ask(begin(Command::CancelWait));
      bool came = false;
      while (flag() == wire::kArrived) came = true;  // it came just then; the answer to the cancelling follows
      return came;
    }
    void wait_for_keys(const std::vector<std::string>& keys, Clock::time_point deadline, Milliseconds limit) {
      if (keys.empty() || wait_for_answer(list(Command::Wait, op_, keys), deadline)) return;
      std::vector<std::string> missing;
      for (const std::string& key : keys) {
        if (missing.size() == 16) break;
        if (keys.size() == 1 || ask(list(Command::Check, op_, {key})).flag() != wire::kReady) missing.push_back(key);
      }
      fail(DistError::Part::Store, "{}: timed out after {}: no value for {}", op_, text_of(limit), key_list(missing));
    }

   private:
    void check(Transfer result) const {
      switch (result) {
        case Transfer::Done:
          return;
        case Transfer::Woken:
          store_.fail_closed(op_);
        case Transfer::TimedOut:
          fail(DistError::Part::Network, "{}: the store at {} has not answered for {}", op_, store_.place(),
               text_of(store_.timeout()));
        case Transfer::Lost:
          fail(DistError::Part::Network, "{}: the store at {} has closed the connection{}: has its process ended?{}",
               op_, store_.place(), errno == 0 ? "" : fmt::format(" ({})", std::strerror(errno)), hint_);
      }
    }
    TcpStoreClient& store_;
    const char* op_;
    int fd_;
    const char* hint_;
    SocketWait wait_;
  };

  static std::string begin(Command command) { return std::string(1, static_cast<char>(command)); }
  static void put_key(std::string& request, const char* op, const std::string& key) {
    TG_CHECK(key.size() < wire::kMostKeyBytes, Value, "{}: a key has at most {} bytes: got {}", op,
             wire::kMostKeyBytes - 1, key.size());
    wire::put_key(request, key);
  }
  static void put_value(std::string& request, const char* op, const std::string& value) {
    TG_CHECK(value.size() <= wire::kMostValueBytes, Value, "{}: a value has at most {} bytes: got {}", op,
             wire::kMostValueBytes, value.size());
    wire::put_bytes(request, value);
  }
  static std::string begin(Command command, const char* op, const std::string& key) {
    std::string request = begin(command);
    put_key(request, op, key);
    return request;
  }
  static std::string begin_list(Command command, const char* op, size_t n) {
    TG_CHECK(n <= wire::kMostKeys, Value, "{}: there are at most {} keys in a call: got {}", op, wire::kMostKeys, n);
    std::string request = begin(command);
    wire::put<uint64_t>(request, n);
    return request;
  }
  static std::string list(Command command, const char* op, const std::vector<std::string>& keys) {
    std::string request = begin_list(command, op, keys.size());
    for (const std::string& key : keys) put_key(request, op, key);
    return request;
  }

  std::string place() const { return fmt::format("{}:{}", host_, port_); }
  SocketWait until(Clock::time_point deadline) const noexcept { return {deadline, &wakeup_}; }
  void wake() noexcept override { wakeup_.wake(); }

  template <class F>
  auto call(const char* op, F&& f, const char* hint = "") -> decltype(f(std::declval<Call&>())) {
    check_usable(op);
    const BlockingRegion region;
    OwnDescriptor connection = take(op);
    Call c(*this, op, connection.get(), hint);
    try {
      if constexpr (std::is_void_v<decltype(f(c))>) {
        f(c);
        keep(std::move(connection));
      } else {
        auto result = f(c);
        keep(std::move(connection));
        return result;
      }
    } catch (const DistError& error) {
      // A key that did not come leaves the connection as it was.
      if (error.part() == DistError::Part::Store && !is_closed()) keep(std::move(connection));
      throw;
    }
  }
  void acknowledged(const char* op, std::string request) {
    const auto nonce = static_cast<uint32_t>(request.size());
    request.push_back(static_cast<char>(Command::Ping));
    wire::put(request, nonce);
    call(op, [&](Call& c) { expect_echo(op, c.ask(request).value<uint32_t>(), nonce); });
  }
  void expect_echo(const char* op, uint32_t got, uint32_t sent) const {
    if (got != sent) fail(DistError::Part::Network, "{}: {} is not a store: it answers something else", op, place());
  }

  OwnDescriptor take(const char* op) {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        OwnDescriptor connection = std::move(idle_.back());
        idle_.pop_back();
        return connection;
      }
    }
    const Milliseconds limit = timeout();
    return open(op, deadline_in(limit), limit, false);
  }
  void keep(OwnDescriptor connection) {
    const std::lock_guard lock(mutex_);
    if (idle_.size() < kMostIdle) idle_.push_back(std::move(connection));
  }

  // `patient`: until the deadline the server may still be started.
  OwnDescriptor open(const char* op, Clock::time_point deadline, Milliseconds limit, bool patient) {
    Milliseconds pause{20};
    std::string problem;
    for (int refusals = 0;;) {
      bool later = false;
      OwnDescriptor connection = connect_once(host_, port_, until(deadline), problem, later);
      if (connection) {
        if (greet(op, connection.get(), deadline, problem)) return connection;
        later = ++refusals < kMostRefusals;
      }
      if (is_closed()) fail_closed(op);
      if (!later || !patient || Clock::now() >= deadline) break;
      const Ready ready = wait_for(-1, 0, until(std::min(deadline, Clock::now() + pause)));
      if (ready == Ready::Woken) fail_closed(op);
      pause = std::min(pause * 3 / 2, kLongestPause);
    }
    const bool late = Clock::now() >= deadline;
    fail(DistError::Part::Network, "{}: cannot connect to the store at {}{}: {}", op, place(),
         late ? fmt::format(" within {}", text_of(limit)) : "", problem);
  }

  bool greet(const char* op, int fd, Clock::time_point deadline, std::string& problem) {
    const SocketWait wait = until(deadline);
    Transfer result = Transfer::Done;
    const auto send = [&](std::string_view bytes) {
      if (result == Transfer::Done) result = send_all(fd, bytes.data(), bytes.size(), wait);
    };
    const auto receive = [&](void* data, size_t n) {
      if (result == Transfer::Done) result = receive_all(fd, data, n, wait);
    };
    if (!token_.empty()) {
      const std::string mine = wire::random_bytes(wire::kNonce);
      send(std::string(wire::kHello) + mine);
      char answer[wire::kNonce + sizeof(Digest)];
      receive(answer, sizeof(answer));
      if (result == Transfer::Done) {
        const std::string_view theirs(answer, wire::kNonce);
        const Digest right = wire::proof(token_, "server", mine, theirs);
        if (!same_digest(right.data(), reinterpret_cast<const uint8_t*>(answer) + wire::kNonce)) {
          problem = "it does not know the token of this job (TAPEGRAD_JOB_TOKEN): is it another job's store?";
          return false;
        }
        const Digest shown = wire::proof(token_, "client", mine, theirs);
        send({reinterpret_cast<const char*>(shown.data()), shown.size()});
      }
    }
    const auto nonce = static_cast<uint32_t>(getpid());
    std::string request = begin(Command::Validate);
    wire::put(request, wire::kMagic);
    request.push_back(static_cast<char>(Command::Ping));
    wire::put(request, nonce);
    send(request);
    uint32_t echo = 0;
    receive(&echo, sizeof(echo));
    switch (result) {
      case Transfer::Done:
        expect_echo(op, echo, nonce);
        return true;
      case Transfer::Woken:
        fail_closed(op);
      case Transfer::TimedOut:
        problem = "it does not answer";
        return false;
      case Transfer::Lost:
        problem = fmt::format("it closed the connection at once: {}",
                              token_.empty() ? "it wants a token (TAPEGRAD_JOB_TOKEN), or is no store"
                                             : "it does not know the token of this job (TAPEGRAD_JOB_TOKEN), or wants "
                                               "none (PyTorch's stores), or is no store");
        return false;
    }
    return false;
  }

  const std::string host_;
  const uint16_t port_;
  const std::string token_;
  const std::shared_ptr<TcpServer> server_;  // where this process serves
  Wakeup wakeup_;
  std::mutex mutex_;  // guards what follows
  std::vector<OwnDescriptor> idle_;
};

}  // namespace

std::shared_ptr<TcpStore> make_tcp_store(const TcpStoreOptions& options) {
  TG_CHECK(!options.host.empty(), Value, "TCPStore: the host must be given: got an empty name");
  TG_CHECK(options.is_server || options.port != 0, Value, "TCPStore: a client needs the server's port: got 0");
  TG_CHECK(options.timeout.count() >= 0, Value, "TCPStore: the timeout must not be negative: got {} ms",
           options.timeout.count());
  std::shared_ptr<TcpServer> server;
  if (options.is_server) {
    const char* listen = std::getenv("TAPEGRAD_STORE_LISTEN");
    server = find_or_start_server(options, listen != nullptr && *listen != 0 ? listen : options.host);
  }
  const Clock::time_point deadline = deadline_in(options.timeout);
  const BlockingRegion region;
  auto store = std::make_shared<TcpStoreClient>(options.host, server == nullptr ? options.port : server->port(), server,
                                                options.token, options.timeout);
  store->connect(options.timeout);
  if (!options.wait_for_workers || options.world_size <= 0) return store;
  // The server must not go before the last one has come; the others need not wait.
  int64_t come = store->init_count(1);
  while (options.is_server && come < options.world_size) {
    if (Clock::now() >= deadline)
      fail(DistError::Part::Store, "TCPStore: timed out after {} waiting for clients: {} of {} have come",
           text_of(options.timeout), come, options.world_size);
    wait_for(-1, 0, {std::min(deadline, Clock::now() + Milliseconds(10)), nullptr});
    come = store->init_count(0);
  }
  return store;
}

}  // namespace tapegrad::distributed
