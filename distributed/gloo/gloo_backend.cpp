// The engine over gloo: TCP connections between all ranks, on any machines. A library of its own (libtapegrad_gloo),
// opened when the first group needs it, so that tapegrad does not depend on libgloo (backend.cpp).
//
// gloo connects the ranks and moves bytes in order; collectives are made of its sends and receives
// (pairwise_backend.h). Waiting is cut into slices by a thread that interrupts it (gloo's own time-out would end all
// connections), so that deadlines, failures of other ranks and Ctrl-C are seen.
#include <arpa/inet.h>
#include <gloo/context.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "tapegrad/distributed/pairwise_backend.h"

namespace tapegrad::distributed {

namespace {

using gloo::transport::UnboundBuffer;
using Buffers = std::vector<std::unique_ptr<UnboundBuffer>>;

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

// Interrupts waits that take longer than a slice. The thread sleeps while nobody waits.
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

// The address of this machine on the way to the store's server: what others can reach, and nothing else is listened on.
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
    guarded(wait, peer, [&] {
      auto buffer = context_->createUnboundBuffer(const_cast<void*>(data.data), data.nbytes);
      buffer->send(peer, kMessages | tag);
      finish(*buffer, true, wait, {peer});
    });
  }

  void recv(Bytes data, int peer, uint64_t tag, const Wait& wait) override {
    guarded(wait, peer, [&] {
      auto buffer = context_->createUnboundBuffer(data.data, data.nbytes);
      buffer->recv(peer, kMessages | tag);
      finish(*buffer, false, wait, {peer});
    });
  }

  int recv_any(Bytes data, uint64_t tag, const Wait& wait) override {
    int source = -1;
    guarded(wait, -1, [&] {
      std::vector<int> others;
      for (int r = 0; r < size(); ++r)
        if (r != rank()) others.push_back(r);
      auto buffer = context_->createUnboundBuffer(data.data, data.nbytes);
      buffer->recv(others, kMessages | tag);
      finish(*buffer, false, wait, others, &source);
    });
    return source;
  }

  void abort(const std::string& why) noexcept override { failure_->set(why); }

 private:
  void swap(std::span<const ConstBytes> in, std::span<const Bytes> out, const Wait& wait) override {
    const auto me = static_cast<size_t>(rank());
    const uint64_t slot = ++calls_;
    int peer = -1;
    guarded(wait, peer, [&] {
      Buffers sends(ranks()), recvs(ranks());
      for (size_t i = 1; i < ranks(); ++i) {
        const size_t to = (me + i) % ranks(), from = (me + ranks() - i) % ranks();
        if (out[from].nbytes != 0) {
          recvs[from] = context_->createUnboundBuffer(out[from].data, out[from].nbytes);
          recvs[from]->recv(static_cast<int>(from), slot);
        }
        if (in[to].nbytes != 0) {
          sends[to] = context_->createUnboundBuffer(const_cast<void*>(in[to].data), in[to].nbytes);
          sends[to]->send(static_cast<int>(to), slot);
        }
      }
      const auto since = Clock::now();
      for (Buffers* buffers : {&recvs, &sends}) {
        const bool sending = buffers == &sends;
        for (size_t r = 0; r < ranks(); ++r) {
          if (!(*buffers)[r]) continue;
          peer = static_cast<int>(r);
          while (!pulse_.wait(*(*buffers)[r], sending)) {
            wait.poll(since, [&] {
              std::vector<int> missing{static_cast<int>(r)};
              for (size_t later = r + 1; later < ranks(); ++later) {
                UnboundBuffer* other = (*buffers)[later].get();
                if (other == nullptr) continue;
                if (pulse_.wait(*other, sending))  // whoever has come need not be asked again
                  (*buffers)[later].reset();
                else
                  missing.push_back(static_cast<int>(later));
              }
              return missing;
            });
          }
        }
      }
    });
  }

  static constexpr uint64_t kMessages = uint64_t{1} << 63;

  template <class F>
  void guarded(const Wait& wait, const int& peer, F&& f) {
    try {
      f();
    } catch (const gloo::Exception& e) {
      if (failure_->is_set()) fail(DistError::Part::Backend, "{}: {}", wait.what, failure_->why());
      fail(DistError::Part::Backend, "{}: the connection to {} broke: {}", wait.what,
           peer < 0 ? "another rank" : rank_list({peer}), e.what());
    }
  }

  void finish(UnboundBuffer& buffer, bool sends, const Wait& wait, const std::vector<int>& missing,
              int* source = nullptr) {
    const auto since = Clock::now();
    while (!pulse_.wait(buffer, sends, source)) wait.poll(since, [&] { return missing; });
  }

  // Connects all ranks. gloo takes any connection that comes to its port for the peer's: afterwards the ranks exchange
  // a secret of the store, and where that fails on any of them, all try again under another prefix.
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
