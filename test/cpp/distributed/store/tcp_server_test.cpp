// The server of a TCP store against clients that are strange, slow, many, or gone.
#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <random>
#include <thread>

#include "tapegrad/distributed/store/store.h"
#include "tapegrad/distributed/store/tcp_wire.h"

using namespace tapegrad;
using namespace tapegrad::distributed;
using Clock = std::chrono::steady_clock;

namespace {

TcpStoreOptions options_of(bool is_server, uint16_t port, const std::string& token = "") {
  TcpStoreOptions options;
  options.host = "127.0.0.1";
  options.port = port;
  options.is_server = is_server;
  options.timeout = Milliseconds(5000);
  options.token = token;
  return options;
}

// A stranger's connection.
class Raw {
 public:
  explicit Raw(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      ::close(fd_);
      fd_ = -1;
    }
  }
  ~Raw() {
    if (fd_ >= 0) ::close(fd_);
  }
  Raw(const Raw&) = delete;
  bool connected() const { return fd_ >= 0; }
  void send(std::string_view bytes) { [[maybe_unused]] auto n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  // What comes within the time; ends early when `n` bytes are there. "closed" is set when the other side closes.
  std::string receive(size_t n, int ms = 2000) {
    std::string all;
    pollfd set{fd_, POLLIN, 0};
    while (all.size() < n && poll(&set, 1, ms) > 0) {
      char buffer[4096];
      const ssize_t got = recv(fd_, buffer, std::min(sizeof(buffer), n - all.size()), 0);
      if (got <= 0) {
        closed = true;
        break;
      }
      all.append(buffer, static_cast<size_t>(got));
    }
    return all;
  }
  bool is_closed(int ms = 2000) {
    receive(1 << 20, ms);
    return closed;
  }
  void introduce() {
    std::string hello(1, '\0');
    wire::put(hello, wire::kMagic);
    send(hello);
  }
  bool closed = false;
  int fd() const { return fd_; }

 private:
  int fd_;
};

std::string command(wire::Command c) { return std::string(1, static_cast<char>(c)); }

size_t resident() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0, pages = 0;
  file >> total >> pages;
  return pages * 4096;
}

}  // namespace

TEST_CASE("a stranger loses its own connection and nothing else", "[distributed]") {
  auto server = make_tcp_store(options_of(true, 0));
  server->set("k", "v");
  std::vector<std::string> strange{"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                                   std::string("\x16\x03\x01\x02\x00", 5),
                                   "\x13",
                                   std::string(500, '\0'),
                                   std::string("\0\1\2\3\4", 5),
                                   "\x01",
                                   "\xff"};
  for (uint8_t code = 1; code < wire::kCommands; ++code) strange.push_back(std::string(9, static_cast<char>(code)));
  for (const std::string& bytes : strange) {
    Raw raw(server->port());
    REQUIRE(raw.connected());
    raw.send(bytes);
    if (bytes.size() > 1 || static_cast<uint8_t>(bytes[0]) >= wire::kCommands) CHECK(raw.is_closed());
    CHECK(server->get("k") == "v");
  }
}

TEST_CASE("claimed lengths cost nothing until the bytes are there", "[distributed]") {
  auto server = make_tcp_store(options_of(true, 0));
  const size_t before = resident();
  std::vector<std::unique_ptr<Raw>> raws;
  for (const uint64_t claimed : {wire::kMostValueBytes, wire::kMostValueBytes + 1, ~uint64_t{0}, uint64_t{1} << 63}) {
    for (int i = 0; i < 50; ++i) {
      raws.push_back(std::make_unique<Raw>(server->port()));
      raws.back()->introduce();
      std::string bytes = command(wire::Command::Set);
      wire::put_key(bytes, "k");
      wire::put<uint64_t>(bytes, claimed);
      raws.back()->send(bytes + "some");
      if (claimed > wire::kMostValueBytes) CHECK(raws.back()->is_closed());
    }
  }
  for (const uint64_t claimed : {wire::kMostKeys, wire::kMostKeys + 1, ~uint64_t{0}}) {
    raws.push_back(std::make_unique<Raw>(server->port()));
    raws.back()->introduce();
    std::string bytes = command(wire::Command::Wait);
    wire::put<uint64_t>(bytes, claimed);
    raws.back()->send(bytes);
    if (claimed > wire::kMostKeys) CHECK(raws.back()->is_closed());
  }
  CHECK(resident() - before < (size_t{64} << 20));
  CHECK_FALSE(server->check({"k"}));
}

TEST_CASE("random bytes after a right beginning", "[distributed]") {
  auto server = make_tcp_store(options_of(true, 0));
  server->set("k", "v");
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    Raw raw(server->port());
    raw.introduce();
    std::string bytes;
    const int commands = static_cast<int>(random() % 4);
    for (int c = 0; c <= commands; ++c) {
      bytes += static_cast<char>(random() % 20);
      if (random() % 2) wire::put<uint64_t>(bytes, random() % 6);
      for (int n = static_cast<int>(random() % 30); n > 0; --n)
        bytes += static_cast<char>(random() % 4 ? random() % 4 : random());
    }
    for (size_t at = 0; at < bytes.size();) {  // in pieces
      const size_t n = 1 + random() % bytes.size();
      raw.send(bytes.substr(at, n));
      at += n;
    }
    if (i % 3 == 0) raw.receive(64, 1);
  }
  server->set("after", "1");
  CHECK(server->get("after") == "1");
}

TEST_CASE("a command may come byte by byte, and several in one piece", "[distributed]") {
  auto server = make_tcp_store(options_of(true, 0));
  Raw raw(server->port());
  raw.introduce();
  std::string bytes = command(wire::Command::Set);
  wire::put_key(bytes, "slow");
  wire::put_bytes(bytes, "value");
  bytes += command(wire::Command::Get);
  wire::put_key(bytes, "slow");
  for (char byte : bytes) raw.send({&byte, 1});
  CHECK(raw.receive(13) == std::string("\5\0\0\0\0\0\0\0value", 13));
  std::string many;
  for (int i = 0; i < 1000; ++i) {
    many += command(wire::Command::Add);
    wire::put_key(many, "n");
    wire::put<int64_t>(many, 1);
  }
  raw.send(many);
  const std::string answers = raw.receive(8000);
  REQUIRE(answers.size() == 8000);
  CHECK(wire::take<int64_t>(answers.data() + 7992) == 1000);
}

TEST_CASE("many keys that come in small pieces take little time", "[distributed]") {
  auto server = make_tcp_store(options_of(true, 0));
  Raw raw(server->port());
  raw.introduce();
  std::string bytes = command(wire::Command::Check);
  wire::put<uint64_t>(bytes, wire::kMostKeys);
  for (uint64_t i = 0; i < wire::kMostKeys; ++i) wire::put<uint64_t>(bytes, 0);
  const auto start = Clock::now();
  for (size_t at = 0; at < bytes.size(); at += 100) raw.send(std::string_view(bytes).substr(at, 100));
  CHECK(raw.receive(1, 20'000) == std::string(1, static_cast<char>(wire::kNotReady)));
  CHECK(std::chrono::duration<double>(Clock::now() - start).count() < 5);
}

TEST_CASE("a client that does not read its answers is not read from", "[distributed]") {
  auto server = make_tcp_store(options_of(true, 0));
  server->set("large", std::string(1 << 20, 'x'));
  const size_t before = resident();
  Raw raw(server->port());
  raw.introduce();
  timeval limit{0, 200'000};
  setsockopt(raw.fd(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  std::string ask = command(wire::Command::Get);
  wire::put_key(ask, "large");
  int asked = 0;
  for (; asked < 2000; ++asked)
    if (::send(raw.fd(), ask.data(), ask.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(ask.size())) break;
  CHECK(server->get("large").size() == 1 << 20);
  CHECK(resident() - before < (size_t{100} << 20));
  const size_t one = 8 + (1 << 20);
  CHECK(raw.receive(20 * one).size() == 20 * one);  // and is answered once it reads
}

TEST_CASE("a job's token keeps strangers and other jobs out", "[distributed]") {
  auto server = make_tcp_store(options_of(true, 0, "right"));
  server->set("k", "v");
  auto friendly = make_tcp_store(options_of(false, server->port(), "right"));
  CHECK(friendly->get("k") == "v");
  for (const std::string token : {"wrong", "", "righ", "right "}) {
    const auto start = Clock::now();
    try {
      make_tcp_store(options_of(false, server->port(), token));
      FAIL("it was let in");
    } catch (const DistError& error) {
      CHECK(error.part() == DistError::Part::Network);
      CHECK_THAT(error.what(), Catch::Contains("TAPEGRAD_JOB_TOKEN"));
    }
    CHECK(std::chrono::duration<double>(Clock::now() - start).count() < 3);
  }
  {  // a proof that was heard is of no use a second time
    Raw raw(server->port());
    raw.send(std::string(wire::kHello) + std::string(wire::kNonce, 'n'));
    const std::string first = raw.receive(wire::kNonce + 32);
    REQUIRE(first.size() == wire::kNonce + 32);
    Raw again(server->port());
    again.send(std::string(wire::kHello) + std::string(wire::kNonce, 'n'));
    const std::string second = again.receive(wire::kNonce + 32);
    CHECK(first != second);
    again.send(first.substr(wire::kNonce));  // the server's own proof, sent back
    CHECK(again.is_closed());
  }
  auto open = make_tcp_store(options_of(true, 0));  // a store without a token: our client does not go on
  CHECK_THROWS_WITH(make_tcp_store(options_of(false, open->port(), "right")), Catch::Contains("TAPEGRAD_JOB_TOKEN"));
}

TEST_CASE("a client that died while it waited is forgotten", "[distributed]") {
  auto server = make_tcp_store(options_of(true, 0));
  for (int i = 0; i < 200; ++i) {
    Raw raw(server->port());
    raw.introduce();
    std::string bytes = command(wire::Command::Wait);
    wire::put<uint64_t>(bytes, 2);
    wire::put_key(bytes, "a");
    wire::put_key(bytes, std::to_string(i));
    raw.send(bytes);
    if (i % 2) raw.send(command(wire::Command::CancelWait));
  }
  server->set("a", "1");
  for (int i = 0; i < 200; ++i) server->set(std::to_string(i), "1");
  CHECK(server->get("a") == "1");
}

TEST_CASE("a thousand clients wait at once", "[distributed]") {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 8192);
  setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < 2300) return;
  auto server = make_tcp_store(options_of(true, 0));
  std::vector<std::unique_ptr<Raw>> raws;
  std::string bytes = command(wire::Command::Wait);
  wire::put<uint64_t>(bytes, 1);
  wire::put_key(bytes, "go");
  for (int i = 0; i < 1000; ++i) {
    raws.push_back(std::make_unique<Raw>(server->port()));
    REQUIRE(raws.back()->connected());
    raws.back()->introduce();
    raws.back()->send(bytes);
  }
  CHECK(server->add("n", 1) == 1);
  rusage used_before{}, used_after{};
  getrusage(RUSAGE_SELF, &used_before);
  std::this_thread::sleep_for(Milliseconds(500));
  getrusage(RUSAGE_SELF, &used_after);
  const auto spent = [](const rusage& u) {
    return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
  };
  CHECK(spent(used_after) - spent(used_before) < 0.25);
  server->set("go", "1");
  int woken = 0;
  for (auto& raw : raws) woken += raw->receive(1) == std::string(1, '\0');
  CHECK(woken == 1000);
}

TEST_CASE("without descriptors the server turns newcomers away and goes on", "[distributed]") {
  const pid_t child = fork();  // the limit is the process's
  if (child == 0) {
    int right = 0;
    try {
      auto server = make_tcp_store(options_of(true, 0));
      server->set("k", "v");
      const rlimit few{64, 64};
      setrlimit(RLIMIT_NOFILE, &few);
      std::vector<std::unique_ptr<Raw>> raws;
      for (int i = 0; i < 100; ++i) raws.push_back(std::make_unique<Raw>(server->port()));
      right += server->get("k") == "v";
      raws.clear();
      std::this_thread::sleep_for(Milliseconds(100));
      right += make_tcp_store(options_of(false, server->port()))->get("k") == "v";
    } catch (const std::exception& e) {
      std::fputs(e.what(), stderr);
    }
    _exit(right == 2 ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("a server that is killed is noticed at once, also where it has forked a child", "[distributed]") {
  int pipes[2];
  REQUIRE(pipe(pipes) == 0);
  const pid_t child = fork();
  if (child == 0) {
    auto server = make_tcp_store(options_of(true, 0));
    if (fork() == 0) {
      ::close(pipes[1]);
      sleep(4);
      _exit(0);
    }
    const uint16_t port = server->port();
    [[maybe_unused]] auto n = write(pipes[1], &port, sizeof(port));
    pause();
    _exit(0);
  }
  uint16_t port = 0;
  REQUIRE(read(pipes[0], &port, sizeof(port)) == sizeof(port));
  auto client = make_tcp_store(options_of(false, port));
  std::thread killer([&] {
    std::this_thread::sleep_for(Milliseconds(100));
    kill(child, SIGKILL);
  });
  const auto start = Clock::now();
  try {
    client->get("never", Milliseconds(30'000));
    FAIL("there is no such key");
  } catch (const DistError& error) {
    CHECK(error.part() == DistError::Part::Network);
    CHECK_THAT(error.what(), Catch::Contains("has closed the connection"));
  }
  CHECK_THROWS_AS(client->set("k", "v"), DistError);  // and does not wait for it to come back
  CHECK(std::chrono::duration<double>(Clock::now() - start).count() < 2);
  killer.join();
  waitpid(child, nullptr, 0);
  ::close(pipes[0]);
  ::close(pipes[1]);
}

TEST_CASE("a client waits for a server that starts later, until its timeout", "[distributed]") {
  uint16_t port = 0;
  {
    port = make_tcp_store(options_of(true, 0))->port();
  }
  std::thread late([&] {
    std::this_thread::sleep_for(Milliseconds(300));
    auto server = make_tcp_store(options_of(true, port));
    server->set("k", "v");
    server->get("done");
  });
  auto client = make_tcp_store(options_of(false, port));
  CHECK(client->get("k") == "v");
  client->set("done", "");
  late.join();
  TcpStoreOptions options = options_of(false, port);
  options.timeout = Milliseconds(300);
  const auto start = Clock::now();
  CHECK_THROWS_WITH(make_tcp_store(options), Catch::Contains("within 300 ms: connection refused"));
  CHECK(std::chrono::duration<double>(Clock::now() - start).count() < 1.5);
  options.host = "no-such-host.invalid";
  CHECK_THROWS_WITH(make_tcp_store(options), Catch::Contains("no-such-host.invalid"));
}

TEST_CASE("where a server listens", "[distributed]") {
  auto server = make_tcp_store(options_of(true, 0));
  CHECK_THROWS_WITH(make_tcp_store(options_of(true, server->port())), Catch::Contains("choose another port"));
  TcpStoreOptions options = options_of(true, server->port());
  options.multi_tenant = true;
  CHECK_THROWS_AS(make_tcp_store(options), DistError);  // the first one did not agree
  options.port = 0;
  auto shared = make_tcp_store(options);
  options.port = shared->port();
  auto same = make_tcp_store(options);
  same->set("k", "v");
  CHECK(shared->get("k") == "v");
  options.token = "other";
  CHECK_THROWS_AS(make_tcp_store(options), Error);
  options = options_of(true, 0);
  options.host = "192.0.2.1";  // of nobody
  CHECK_THROWS_WITH(make_tcp_store(options), Catch::Contains("another machine"));
  options.host = "";
  CHECK_THROWS_AS(make_tcp_store(options), Error);
  CHECK_THROWS_AS(make_tcp_store(options_of(false, 0)), Error);

  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  options = options_of(true, 0);
  options.listen_fd = fd;
  CHECK_THROWS_WITH(make_tcp_store(options), Catch::Contains("not a socket that listens"));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  REQUIRE(listen(fd, 8) == 0);
  auto given = make_tcp_store(options);
  given->set("k", "v");
  CHECK(make_tcp_store(options_of(false, given->port()))->get("k") == "v");
}

TEST_CASE("a server waits for all its clients", "[distributed]") {
  TcpStoreOptions options = options_of(true, 0);
  options.wait_for_workers = true;
  options.world_size = 2;
  options.timeout = Milliseconds(200);
  CHECK_THROWS_WITH(make_tcp_store(options), Catch::Contains("waiting for clients: 1 of 2 have come"));
  uint16_t port = 0;
  {
    port = make_tcp_store(options_of(true, 0))->port();
  }
  options.port = port;
  options.timeout = Milliseconds(5000);
  std::thread other([&] {
    TcpStoreOptions mine = options;
    mine.is_server = false;
    make_tcp_store(mine);
  });
  auto server = make_tcp_store(options);
  CHECK(server->num_keys() == 1);
  CHECK(server->list_keys().empty());
  other.join();
}

TEST_CASE("what a client left for its end is appended when it has gone, in order or killed", "[distributed]") {
  auto server = make_tcp_store(options_of(true, 0));
  server->set_timeout(Milliseconds(3000));
  {
    auto client = make_tcp_store(options_of(false, server->port()));
    client->set_at_end("gone", "1 ");
    client->set("other", "here");
    REQUIRE(!server->check({"gone"}));
    std::thread waits([&] { REQUIRE(server->get("gone") == "1 "); });  // who waits for it hears of it
    std::this_thread::sleep_for(Milliseconds(50));
    client.reset();
    waits.join();
  }
  const pid_t child = fork();
  if (child == 0) {
    auto client = make_tcp_store(options_of(false, server->port()));
    make_prefix_store("world", client)->set_at_end("gone", "2 ");
    client->set("ready", "1");
    pause();
  }
  server->wait({"ready"});
  kill(child, SIGKILL);
  REQUIRE(server->get("world/gone") == "2 ");
  waitpid(child, nullptr, 0);
  auto client = make_tcp_store(options_of(false, server->port()));
  for (size_t i = 0; i < wire::kMostAtEnd; ++i) client->set_at_end("many", std::string(1000, 'x'));
  REQUIRE_THROWS_AS(client->set_at_end("many", "x"), DistError);  // one more costs the connection
  REQUIRE(server->get("many").size() == 1000 * wire::kMostAtEnd);
  server->set("full", std::string(wire::kMostValueBytes, 'y'));
  make_tcp_store(options_of(false, server->port()))->set_at_end("full", "z");  // full: nothing happens
  make_tcp_store(options_of(false, server->port()))->set_at_end("last", "z");
  REQUIRE(server->get("last") == "z");
  REQUIRE(server->get("full").size() == wire::kMostValueBytes);
}

TEST_CASE("what looks after a wait may end it", "[distributed]") {
  int asked = 0;
  const auto store = make_prefix_store("a", make_hash_store(), [&] {
    if (++asked == 2) throw Error(ErrorKind::Runtime, "enough");
  });
  store->set("there", "1");
  REQUIRE(store->get("there") == "1");
  REQUIRE(asked == 0);
  REQUIRE_THROWS_WITH(store->wait({"there", "missing"}, Milliseconds(20)),
                      Catch::Contains("after 20 ms: no value for a/missing"));
  REQUIRE(asked == 1);
  REQUIRE_THROWS_WITH(store->get("missing", Milliseconds(5000)), "enough");
}
