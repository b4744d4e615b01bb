#include "tapegrad/distributed/store/tcp_server.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <list>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "tapegrad/c10/threads/fork.h"
#include "tapegrad/distributed/store/key_table.h"
#include "tapegrad/distributed/store/tcp_commands.h"

namespace tapegrad::distributed {

using wire::Command;

namespace {

constexpr auto kGreetingTime = std::chrono::seconds(10);
constexpr size_t kMostGreeting = 128;              // bytes that a client may send before it has shown what it is
constexpr size_t kMostAnswer = size_t{256} << 20;  // bytes of one answer
constexpr size_t kKeptBuffer = size_t{64} << 10;
constexpr size_t kReadAtOnce = size_t{64} << 10;
constexpr int kTurns = 16;  // reads of one client before others have their turn

// Thrown to disconnect a client that violated the protocol or requested something impossible.
struct ProtocolError {};

struct Client {
  OwnDescriptor socket;
  enum class Stage : uint8_t { Hello, Proof, Validate, Known } stage = Stage::Validate;
  std::string in, out;
  size_t in_at = 0, out_at = 0;  // what has been dealt with
  bool full = false;             // answers are waiting to be sent: epoll watches for writing, not reading
  wire::CommandReader reader;
  std::unordered_set<std::string> awaited;  // keys that are not there yet; of a barrier: its name in State::barriers
  std::string nonces;                       // the client's, then ours
  std::list<Client*>::iterator greeting;    // in State::greeting unless Known
  Clock::time_point greeted_by;
  std::vector<std::pair<std::string, std::string>> at_end;  // appended when it has gone
};

}  // namespace

struct TcpServer::State {
  OwnDescriptor listener, epoll, spare;
  Wakeup stop;
  const std::string token;
  const uint32_t generation = fork_generation();
  std::thread thread;

  // Of the thread:
  KeyTable keys;
  std::unordered_map<Client*, std::unique_ptr<Client>> clients;
  std::list<Client*> greeting;  // by time
  using Waiters = std::unordered_map<std::string, std::unordered_set<Client*>>;
  Waiters waiters, barriers;
  std::vector<Client*> woken;  // answers for them are ready to be sent

  State(OwnDescriptor socket, std::string secret) : listener(std::move(socket)), token(std::move(secret)) {
    epoll = OwnDescriptor(epoll_create1(EPOLL_CLOEXEC));
    spare = OwnDescriptor(fcntl(stop.fd(), F_DUPFD_CLOEXEC, 0));
    if (!epoll || !spare || !watch(listener.get(), &listener, EPOLLIN, EPOLL_CTL_ADD) ||
        !watch(stop.fd(), &stop, EPOLLIN, EPOLL_CTL_ADD))
      fail(DistError::Part::Network, "TCPStore: no server can be made: {}", std::strerror(errno));
  }

  bool watch(int fd, void* what, uint32_t events, int operation) const noexcept {
    epoll_event event{};
    event.events = events;
    event.data.ptr = what;
    return epoll_ctl(epoll.get(), operation, fd, &event) == 0;
  }

  void run() noexcept {
    pthread_setname_np(pthread_self(), "tapegrad-store");
    epoll_event events[64];
    for (;;) {
      const int n = epoll_wait(epoll.get(), events, 64, greeting.empty() ? -1 : 250);
      if (n < 0 && errno != EINTR) return;
      for (int i = 0; i < n; ++i) {
        if (events[i].data.ptr == &stop) return;
        if (events[i].data.ptr == &listener)
          accept_some();
        else if (clients.contains(static_cast<Client*>(events[i].data.ptr)))  // else it was dropped in this round
          serve(*static_cast<Client*>(events[i].data.ptr), events[i].events);
      }
      while (!greeting.empty() && greeting.front()->greeted_by <= Clock::now()) drop(*greeting.front());
    }
  }

  void accept_some() noexcept {
    for (int i = 0; i < 64; ++i) {
      int fd = accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
        // Without a descriptor a connection could not even be rejected, and the listener would stay readable. Clients
        // that have not authenticated are closed first.
        if (!greeting.empty()) {
          drop(*greeting.front());
          continue;
        }
        spare.reset();
        fd = accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC);
        if (fd >= 0) ::close(fd);
        try {
          spare = OwnDescriptor(fcntl(stop.fd(), F_DUPFD_CLOEXEC, 0));
        } catch (const std::bad_alloc&) {
        }
        return;
      }
      if (fd < 0) return;
      try {
        auto client = std::make_unique<Client>();
        client->socket = OwnDescriptor(fd);
        set_up_connection(fd);
        if (!token.empty()) client->stage = Client::Stage::Hello;
        client->greeted_by = Clock::now() + kGreetingTime;
        Client* const c = client.get();
        greeting.push_back(c);
        c->greeting = std::prev(greeting.end());
        try {
          clients.emplace(c, std::move(client));
        } catch (...) {
          greeting.pop_back();
          throw;
        }
        if (!watch(fd, c, EPOLLIN, EPOLL_CTL_ADD)) drop(*c);
      } catch (const std::bad_alloc&) {  // the client sees a closed connection
      }
    }
  }

  void drop(Client& client) noexcept {
    forget_wait(client);
    if (client.stage != Client::Stage::Known) greeting.erase(client.greeting);
    const auto at_end = std::move(client.at_end);
    clients.erase(&client);
    try {
      for (const auto& [key, value] : at_end) append(key, value);
    } catch (...) {  // no memory, or more than a value may have
    }
  }

  void forget_wait(Client& client) noexcept {
    for (const std::string& key : client.awaited) {
      for (Waiters* table : {&waiters, &barriers}) {
        const auto at = table->find(key);
        if (at == table->end()) continue;
        at->second.erase(&client);
        if (at->second.empty()) table->erase(at);
      }
    }
    client.awaited.clear();
  }

  void serve(Client& client, uint32_t events) noexcept {
    bool stays = true;
    try {
      if (client.full) stays = (events & (EPOLLERR | EPOLLHUP)) == 0 && flush(client);
      if (stays && !client.full) stays = read_some(client);
    } catch (...) {  // nonsense, or no memory for it
      stays = false;
    }
    if (!stays) drop(client);
    // What this client has changed may have answered others.
    while (!woken.empty()) {
      Client* const other = woken.back();
      woken.pop_back();
      if (clients.contains(other) && !flush(*other)) drop(*other);
    }
  }

  // False when the client has gone.
  bool read_some(Client& client) {
    for (int turn = 0; turn < kTurns && !client.full; ++turn) {
      if (!answer_all(client)) return false;  // commands that had to wait until answers were sent
      if (client.full) break;
      const size_t had = client.in.size();
      client.in.resize(had + (client.stage == Client::Stage::Known ? kReadAtOnce : kMostGreeting));
      const ssize_t n = recv(client.socket.get(), client.in.data() + had, client.in.size() - had, MSG_DONTWAIT);
      const int error = errno;
      client.in.resize(had + static_cast<size_t>(std::max<ssize_t>(n, 0)));
      if (n == 0) return false;
      if (n < 0) return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
      if (!answer_all(client)) return false;
    }
    return true;
  }

  bool answer_all(Client& client) {
    while (!client.full && answer_one(client)) {
      if (client.out.size() > kReadAtOnce && !flush(client)) return false;
    }
    client.in.erase(0, client.in_at);
    client.in_at = 0;
    if (client.in.empty() && client.in.capacity() > kKeptBuffer) std::string().swap(client.in);
    return flush(client);
  }

  // False when there is no complete command.
  bool answer_one(Client& client) {
    const std::string_view bytes = std::string_view(client.in).substr(client.in_at);
    if (client.stage == Client::Stage::Hello) return greet(client, bytes);
    if (client.stage == Client::Stage::Proof) return check_proof(client, bytes);
    switch (client.reader.read(bytes)) {
      case wire::CommandReader::Result::Invalid:
        throw ProtocolError();
      case wire::CommandReader::Result::More:
        if (client.stage == Client::Stage::Validate && bytes.size() > kMostGreeting) throw ProtocolError();
        return false;
      case wire::CommandReader::Result::Complete:
        break;
    }
    execute(client, bytes);
    client.in_at += client.reader.size();
    client.reader.next();
    return true;
  }

  bool greet(Client& client, std::string_view bytes) {
    if (bytes.substr(0, wire::kHello.size()) != wire::kHello.substr(0, bytes.size())) throw ProtocolError();
    if (bytes.size() < wire::kHello.size() + wire::kNonce) return false;
    const std::string_view theirs = bytes.substr(wire::kHello.size(), wire::kNonce);
    const std::string mine = wire::random_bytes(wire::kNonce);
    const Digest shown = wire::proof(token, "server", theirs, mine);
    client.nonces = std::string(theirs) + mine;
    client.out.append(mine).append(reinterpret_cast<const char*>(shown.data()), shown.size());
    client.in_at += wire::kHello.size() + wire::kNonce;
    client.stage = Client::Stage::Proof;
    return true;
  }

  bool check_proof(Client& client, std::string_view bytes) {
    if (bytes.size() < sizeof(Digest)) return false;
    const std::string_view nonces = client.nonces;
    const Digest right = wire::proof(token, "client", nonces.substr(0, wire::kNonce), nonces.substr(wire::kNonce));
    if (!same_digest(right.data(), reinterpret_cast<const uint8_t*>(bytes.data()))) throw ProtocolError();
    client.in_at += sizeof(Digest);
    client.stage = Client::Stage::Validate;
    return true;
  }

  void execute(Client& client, std::string_view bytes) {
    const auto& fields = client.reader.fields();
    const auto text = [&](size_t i) { return std::string(bytes.substr(fields[i].begin, fields[i].size)); };
    const auto number = [&](size_t i) { return wire::take<int64_t>(bytes.data() + fields[i].begin); };
    std::string& out = client.out;
    const Command command = client.reader.command();
    if (client.stage == Client::Stage::Validate) {
      if (command != Command::Validate || wire::take<uint32_t>(bytes.data() + fields[0].begin) != wire::kMagic)
        throw ProtocolError();
      client.stage = Client::Stage::Known;
      greeting.erase(client.greeting);
      return;
    }
    switch (command) {
      case Command::Validate:
        throw ProtocolError();
      case Command::Ping:
        out.append(bytes.substr(fields[0].begin, fields[0].size));
        return;
      case Command::Set:
        if (std::string key = text(0); key.ends_with(wire::kAtEnd)) {
          if (client.at_end.size() == wire::kMostAtEnd) throw ProtocolError();
          key.resize(key.size() - wire::kAtEnd.size());
          client.at_end.emplace_back(std::move(key), text(1));
          return;
        }
        keys.set(text(0), text(1));
        return arrived(text(0));
      case Command::CompareSet:
        wire::put_bytes(out, keys.compare_set(text(0), text(1), text(2)));
        return arrived(text(0));
      case Command::Get: {
        const std::string* value = keys.find(text(0));
        return wire::put_bytes(out, value == nullptr ? std::string_view() : *value);
      }
      case Command::Add:
        wire::put<int64_t>(out, keys.add(text(0), number(1)));
        return arrived(text(0));
      case Command::Check:
        for (size_t i = 0; i < fields.size(); ++i)
          if (!keys.has(text(i))) return wire::put(out, wire::kNotReady);
        return wire::put(out, wire::kReady);
      case Command::Wait:
        if (!client.awaited.empty()) throw ProtocolError();  // one at a time
        for (size_t i = 0; i < fields.size(); ++i)
          if (std::string key = text(i); !keys.has(key)) await(client, waiters, std::move(key));
        if (client.awaited.empty()) wire::put(out, wire::kArrived);
        return;
      case Command::CancelWait:
        forget_wait(client);
        return wire::put(out, wire::kWaitCancelled);
      case Command::NumKeys:
        return wire::put<int64_t>(out, keys.size());
      case Command::DeleteKey:
        return wire::put<int64_t>(out, keys.erase(text(0)) ? 1 : 0);
      case Command::Append:
        return append(text(0), text(1));
      case Command::MultiGet:
        for (size_t i = 0; i < fields.size(); ++i) {
          const std::string* value = keys.find(text(i));
          wire::put_bytes(out, value == nullptr ? std::string_view() : *value);
          if (out.size() > kMostAnswer) throw ProtocolError();
        }
        return;
      case Command::MultiSet:
        for (size_t i = 0; i < fields.size(); i += 2) keys.set(text(i), text(i + 1));
        for (size_t i = 0; i < fields.size(); i += 2) arrived(text(i));
        return;
      case Command::QueuePush:
        keys.push(text(0), text(1));
        return arrived(text(0));
      case Command::QueuePop: {
        const std::optional<std::string> value = keys.pop(text(0));
        wire::put<uint64_t>(out, value ? 1 : 0);
        if (value) wire::put_bytes(out, *value);
        return;
      }
      case Command::QueueLen:
        return wire::put<int64_t>(out, keys.queue_len(text(0)));
      case Command::ListKeys: {
        const std::vector<std::string> all = keys.keys();
        wire::put<uint64_t>(out, all.size());
        for (const std::string& key : all) wire::put_bytes(out, key);
        return;
      }
      case Command::Barrier: {
        if (!client.awaited.empty()) throw ProtocolError();
        const std::string key = text(0);
        const bool complete = keys.add(key, 1) >= number(1);
        arrived(key);
        if (!complete) return await(client, barriers, key);
        if (const auto at = barriers.find(key); at != barriers.end()) release(barriers, at);
        return wire::put(out, wire::kArrived);
      }
    }
  }

  void append(const std::string& key, const std::string& value) {
    const std::string* old = keys.find(key);
    if (old != nullptr && old->size() + value.size() > wire::kMostValueBytes) throw ProtocolError();
    keys.append(key, value);
    arrived(key);
  }

  void await(Client& client, Waiters& table, std::string key) {
    client.awaited.insert(key);
    table[std::move(key)].insert(&client);
  }

  void release(Waiters& table, Waiters::iterator at) {
    const auto [key, who] = std::move(*at);
    woken.reserve(woken.size() + who.size());
    table.erase(at);
    for (Client* client : who) {
      client->awaited.erase(key);
      if (!client->awaited.empty()) continue;
      wire::put(client->out, wire::kArrived);
      woken.push_back(client);
    }
  }
  void arrived(const std::string& key) {
    if (const auto at = waiters.find(key); at != waiters.end()) release(waiters, at);
  }

  // Sends what there is; false when the client has gone.
  bool flush(Client& client) noexcept {
    std::string& out = client.out;
    while (client.out_at < out.size()) {
      const ssize_t n = send(client.socket.get(), out.data() + client.out_at, out.size() - client.out_at,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n >= 0) {
        client.out_at += static_cast<size_t>(n);
        continue;
      }
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return false;
      if (!client.full && !watch(client.socket.get(), &client, EPOLLOUT, EPOLL_CTL_MOD)) return false;
      client.full = true;
      return true;
    }
    out.clear();
    client.out_at = 0;
    if (out.capacity() > kKeptBuffer) std::string().swap(out);
    if (client.full && !watch(client.socket.get(), &client, EPOLLIN, EPOLL_CTL_MOD)) return false;
    client.full = false;
    return true;
  }
};

TcpServer::TcpServer(OwnDescriptor listener, uint16_t port, std::string token)
    : port_(port), token_(token), state_(nullptr) {
  auto state = std::make_unique<State>(std::move(listener), std::move(token));
  // Signals are the program's: this thread takes none.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    state->thread = std::thread([s = state.get()] { s->run(); });
  } catch (const std::exception&) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    fail(DistError::Part::Store, "TCPStore: no thread can be started for the server");
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  state_ = state.release();
}

bool TcpServer::in_its_process() const noexcept { return state_->generation == fork_generation(); }

TcpServer::~TcpServer() {
  if (!in_its_process()) return;  // the thread, and the order of its tables, stayed in the parent
  state_->stop.wake();
  state_->thread.join();
  delete state_;
}

}  // namespace tapegrad::distributed
