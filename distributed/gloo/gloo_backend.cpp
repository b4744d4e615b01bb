// The engine over gloo: TCP connections between all ranks, on any machines. A library of its own (libtapegrad_gloo),
// opened when the first group needs it, so that tapegrad does not depend on libgloo (backend.cpp).
//
// gloo connects the ranks and moves bytes in order, on its own thread; collectives are composed of its sends and
// receives (pairwise_backend.h). A thread interrupts waits in slices (gloo's own timeout would close all connections),
// so that deadlines, failures of other ranks and Ctrl-C are checked.
#include <arpa/inet.h>
#include <gloo/context.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <netdb.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "tapegrad/distributed/pairwise_backend.h"

namespace tapegrad::distributed {

namespace {

using gloo::transport::UnboundBuffer;

constexpr auto kSlice = Milliseconds(50);

// gloo's view of our store.
class StoreView : public gloo::rendezvous::Store {
 public:
  StoreView(std::shared_ptr<distributed::Store> store, Milliseconds limit) : store_(std::move(store)), limit_(limit) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    store_->set(key, std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = store_->get(key, limit_);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override { store_->wait(keys, limit_); }
  // gloo's limit is for connections; a rank may be slow to begin, and one that died ends the waiting (meeting.h).
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override { wait(keys); }

 private:
  std::shared_ptr<distributed::Store> store_;
  const Milliseconds limit_;
};

// Interrupts waits that take longer than a slice. The thread sleeps while no thread waits.
class Pulse {
 public:
  Pulse() : thread_([this] { run(); }) {}
  ~Pulse() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  // Waits a slice or, now and then, up to two; false when it was interrupted.
  bool wait(UnboundBuffer& buffer, bool sends, int* source = nullptr) {
    {
      const std::lock_guard lock(mutex_);
      waits_.push_back({&buffer, sends});
      if (sleeps_) changed_.notify_all();
    }
    struct Leave {
      Pulse& pulse;
      UnboundBuffer* buffer;
      ~Leave() {
        const std::lock_guard lock(pulse.mutex_);
        std::erase_if(pulse.waits_, [this](const Entry& e) { return e.buffer == buffer; });
      }
    } leave{*this, &buffer};
    const auto for_ever = std::chrono::hours(24 * 365);
    return sends ? buffer.waitSend(for_ever) : buffer.waitRecv(source, for_ever);
  }

 private:
  struct Entry {
    UnboundBuffer* buffer;
    bool sends;
  };
  void run() {
    std::unique_lock lock(mutex_);
    while (!ends_) {
      if (waits_.empty()) {
        sleeps_ = true;
        changed_.wait(lock, [this] { return ends_ || !waits_.empty(); });
        sleeps_ = false;
      }
      changed_.wait_for(lock, kSlice, [this] { return ends_; });
      for (const Entry& e : waits_) e.sends ? e.buffer->abortWaitSend() : e.buffer->abortWaitRecv();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Entry> waits_;
  bool ends_ = false, sleeps_ = false;
  std::thread thread_;
};

// Runs functions on gloo's own thread, so that only that thread sends and receives. gloo guards each connection by a
// lock for which its thread spins: if the holder shares a core with it, the holder does not run before the end of the
// scheduler's time slice, which makes a small all-reduce take 4 ms instead of 0.1.
class LoopThread final : public gloo::transport::tcp::Handler {
 public:
  struct Job {
    std::function<void()> function;
    std::exception_ptr failure;
    enum class State { New, Waits, Runs, Done } state = State::New;
  };

  explicit LoopThread(std::shared_ptr<gloo::transport::Device> device)
      : device_(std::dynamic_pointer_cast<gloo::transport::tcp::Device>(std::move(device))),
        fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (fd_ < 0) fail(DistError::Part::Backend, "gloo: eventfd: {}", std::strerror(errno));
    device_->registerDescriptor(fd_, EPOLLIN, this);
  }
  ~LoopThread() override {
    device_->unregisterDescriptor(fd_, this);  // afterwards it is not called any more
    close(fd_);
  }

  // The job must be left before it ends.
  void run(Job& job) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(&job);
      job.state = Job::State::Waits;
    }
    eventfd_write(fd_, 1);
  }
  // Afterwards the job is neither waiting nor running.
  void leave(Job& job) noexcept {
    std::unique_lock lock(mutex_);
    if (job.state == Job::State::Waits) std::erase(jobs_, &job);
    done_.wait(lock, [&] { return job.state != Job::State::Runs; });
  }
  void raise_if_failed(const Job& job) {
    const std::lock_guard lock(mutex_);
    if (job.failure) std::rethrow_exception(job.failure);
  }

 private:
  void handleEvents(int) override {
    eventfd_t n = 0;
    eventfd_read(fd_, &n);
    std::unique_lock lock(mutex_);
    while (!jobs_.empty()) {
      Job* const job = jobs_.front();
      jobs_.pop_front();
      job->state = Job::State::Runs;
      lock.unlock();
      std::exception_ptr failure;
      try {
        job->function();
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      job->failure = failure;
      job->state = Job::State::Done;
      done_.notify_all();
    }
  }

  const std::shared_ptr<gloo::transport::tcp::Device> device_;
  const int fd_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::deque<Job*> jobs_;
};

// The address of this machine on the route to the store's server: others can reach it, and no other address is listened
// on.
std::string own_address() {
  const char* master = std::getenv("MASTER_ADDR");
  if (master == nullptr || *master == '\0') return "127.0.0.1";
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (getaddrinfo(master, "9", &hints, &found) != 0) return "127.0.0.1";
  std::string address = "127.0.0.1";
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    const int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage own{};
    socklen_t n = sizeof(own);
    char text[INET6_ADDRSTRLEN] = {};
    const bool known =
        connect(fd, a->ai_addr, a->ai_addrlen) == 0 && getsockname(fd, reinterpret_cast<sockaddr*>(&own), &n) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&own), n, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0;
    close(fd);
    if (known) {
      address = text;
      break;
    }
  }
  freeaddrinfo(found);
  return address;
}

class GlooBackend final : public PairwiseBackend {
 public:
  explicit GlooBackend(const BackendPlace& place) : PairwiseBackend(place.rank, place.size), failure_(place.failure) {
    connect(place);
  }

  const char* name() const noexcept override { return "gloo"; }
  bool polls() const noexcept override { return true; }

  void send(ConstBytes data, int peer, uint64_t tag, const Wait& wait) override {
    Transfers one(*this, wait);
    one.send(data, peer, kMessages | tag);
    one.start();
    one.finish();
  }

  void recv(Bytes data, int peer, uint64_t tag, const Wait& wait) override {
    Transfers one(*this, wait);
    one.recv(data, {peer}, kMessages | tag);
    one.start();
    one.finish();
  }

  int recv_any(Bytes data, uint64_t tag, const Wait& wait) override {
    std::vector<int> others;
    for (int r = 0; r < size(); ++r)
      if (r != rank()) others.push_back(r);
    Transfers one(*this, wait);
    one.recv(data, others, kMessages | tag);
    one.start();
    one.finish();
    return one.source();
  }

  void abort(const std::string& why) noexcept override { failure_->set(why); }

 private:
  static constexpr uint64_t kMessages = uint64_t{1} << 63;

  // Sends and receives in progress. Those that are incomplete at its destruction are abandoned; gloo does not access
  // their memory after that.
  class Transfers final : public Swap {
   public:
    Transfers(GlooBackend& backend, const Wait& wait) : backend_(backend), wait_(wait) {}
    ~Transfers() override { backend_.loop_->leave(job_); }

    void recv(Bytes data, std::vector<int> peers, uint64_t slot) {
      open_.push_back({backend_.context_->createUnboundBuffer(data.data, data.nbytes), false, std::move(peers), slot});
    }
    void send(ConstBytes data, int peer, uint64_t slot) {
      open_.push_back(
          {backend_.context_->createUnboundBuffer(const_cast<void*>(data.data), data.nbytes), true, {peer}, slot});
    }
    void start() {
      job_.function = [this] {
        for (const Open& o : open_) {
          if (o.sends)
            o.buffer->send(o.peers[0], o.slot);
          else if (o.peers.size() == 1)
            o.buffer->recv(o.peers[0], o.slot);
          else
            o.buffer->recv(o.peers, o.slot);
        }
      };
      backend_.loop_->run(job_);
    }
    void finish() override {
      const auto since = Clock::now();
      size_t at = 0;
      std::vector<bool> come(open_.size());
      try {
        for (; at < open_.size(); ++at)
          while (!come[at] && !wait_a_slice(at)) {
            backend_.loop_->raise_if_failed(job_);
            wait_.poll(since, [&] {
              std::vector<int> missing = open_[at].peers;
              for (size_t later = at + 1; later < open_.size(); ++later) {
                if (come[later] || open_[later].sends != open_[at].sends) continue;
                come[later] = wait_a_slice(later);  // those that have arrived are not polled again
                if (!come[later]) missing.insert(missing.end(), open_[later].peers.begin(), open_[later].peers.end());
              }
              return missing;
            });
          }
      } catch (const gloo::Exception& e) {
        if (backend_.failure_->is_set()) fail(DistError::Part::Backend, "{}: {}", wait_.what, backend_.failure_->why());
        const std::vector<int>& peers = open_[at].peers;
        fail(DistError::Part::Backend, "{}: the connection to {} broke: {}", wait_.what,
             peers.size() == 1 ? rank_list(peers) : "another rank", e.what());
      }
    }
    int source() const noexcept { return source_; }

   private:
    struct Open {
      std::unique_ptr<UnboundBuffer> buffer;
      bool sends;
      std::vector<int> peers;  // more than one: of any of them
      uint64_t slot;
    };
    bool wait_a_slice(size_t i) { return backend_.pulse_.wait(*open_[i].buffer, open_[i].sends, &source_); }

    GlooBackend& backend_;
    const Wait& wait_;
    std::vector<Open> open_;
    LoopThread::Job job_;
    int source_ = -1;
  };

  std::unique_ptr<Swap> start(std::span<const ConstBytes> in, std::span<const Bytes> out, const Wait& wait) override {
    auto transfers = std::make_unique<Transfers>(*this, wait);
    const auto me = static_cast<size_t>(rank());
    const uint64_t slot = ++calls_;
    for (size_t i = 1; i < ranks(); ++i)
      if (const size_t from = (me + ranks() - i) % ranks(); out[from].nbytes != 0)
        transfers->recv(out[from], {static_cast<int>(from)}, slot);
    for (size_t i = 1; i < ranks(); ++i)
      if (const size_t to = (me + i) % ranks(); in[to].nbytes != 0) transfers->send(in[to], static_cast<int>(to), slot);
    transfers->start();
    return transfers;
  }

  // Connects all ranks. gloo accepts any connection to its port as the peer's: therefore the ranks exchange a secret
  // from the store afterwards, and if that fails on any of them, all try again under another prefix.
  void connect(const BackendPlace& place) {
    gloo::transport::tcp::attr attr;
    if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME"); interface != nullptr && *interface != '\0')
      attr.iface = interface;
    else
      attr.hostname = own_address();
    const auto begin = Clock::now();
    constexpr int kTries = 5;
    for (int attempt = 0; attempt < kTries; ++attempt) {
      const auto left = std::chrono::duration_cast<Milliseconds>(place.timeout - (Clock::now() - begin));
      const auto store = make_prefix_store(fmt::format("gloo/{}", attempt), place.store);
      const std::string mine = try_to_connect(place, store, attr, std::max(left, Milliseconds(1)));
      store->set(fmt::format("outcome/{}", rank()), mine.empty() ? "ok" : mine);
      std::string worst;
      for (int r = 0; r < size(); ++r) {
        const std::string outcome = store->get(fmt::format("outcome/{}", r), std::max(left, Milliseconds(1)));
        if (outcome != "ok" && worst.empty()) worst = fmt::format("rank {}: {}", r, outcome);
      }
      if (worst.empty()) return;
      loop_.reset();
      context_.reset();
      place.failure->raise_if_set();
      if (Clock::now() - begin >= place.timeout || attempt == kTries - 1)
        fail(DistError::Part::Backend, "gloo: the ranks could not be connected: {}", worst);
    }
  }

  // What went wrong, or nothing.
  std::string try_to_connect(const BackendPlace& place, const std::shared_ptr<distributed::Store>& store,
                             const gloo::transport::tcp::attr& attr, Milliseconds limit) {
    try {
      auto device = gloo::transport::tcp::CreateDevice(attr);
      auto context = std::make_shared<gloo::rendezvous::Context>(rank(), size());
      // All have come before the connections are made, so that these need little time, and a stray one costs no more.
      store->set(fmt::format("here/{}", rank()), "1");
      for (int r = 0; r < size(); ++r) store->get(fmt::format("here/{}", r), limit);
      context->setTimeout(std::min(limit, Milliseconds(2000 + 20 * size())));  // it waits five times as long to connect
      StoreView view(store, limit);
      context->connectFullMesh(view, device);
      context_ = std::move(context);
      loop_.emplace(device);
      if (rank() == 0) {
        std::random_device random;
        store->set("secret", fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random()));
      }
      // Rank 0 sets it once it has connected; where a stray connection kept it from that, all try again.
      const Milliseconds patience = std::min(limit, Milliseconds(5000 + 100 * size()));
      const std::string secret = store->get("secret", patience);
      Wait wait;
      wait.what = "gloo";
      wait.failure = place.failure.get();
      wait.deadline = Clock::now() + patience;
      wait.patience = Milliseconds(0);
      std::vector<char> all(secret.size() * ranks());
      exchange(secret.data(), secret.size(), all.data(), wait);
      for (size_t r = 0; r < ranks(); ++r)
        if (std::memcmp(all.data() + r * secret.size(), secret.data(), secret.size()) != 0)
          return fmt::format("what answered in place of rank {} is none of the job's processes", r);
      return "";
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::Interrupt) throw;
      return e.message();
    } catch (const std::exception& e) {
      return e.what();
    }
  }

  std::shared_ptr<Failure> failure_;
  std::shared_ptr<gloo::Context> context_;
  std::optional<LoopThread> loop_;
  uint64_t calls_ = 0;
  Pulse pulse_;
};

}  // namespace

}  // namespace tapegrad::distributed

// What libtapegrad looks up (distributed/backend.cpp).
extern "C" __attribute__((visibility("default"))) tapegrad::distributed::Backend* tapegrad_gloo_make(
    const tapegrad::distributed::BackendPlace& place) {
  return new tapegrad::distributed::GlooBackend(place);
}
