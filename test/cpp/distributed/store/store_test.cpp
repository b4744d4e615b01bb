// Every kind of store: what its calls give, from one thread and from many.
#include "tapegrad/distributed/store/store.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tapegrad/distributed/store/sha256.h"

using namespace tapegrad;
using namespace tapegrad::distributed;
using Clock = std::chrono::steady_clock;

namespace {

struct Place {
  std::filesystem::path folder;
  Place() {
    std::string name = std::filesystem::temp_directory_path() / "stores-XXXXXX";
    folder = mkdtemp(name.data());
  }
  ~Place() { std::filesystem::remove_all(folder); }
};

std::shared_ptr<TcpStore> served(const std::string& token = "") {
  TcpStoreOptions options;
  options.host = "127.0.0.1";
  options.is_server = true;
  options.token = token;
  return make_tcp_store(options);
}

std::shared_ptr<TcpStore> client_of(const TcpStore& server, const std::string& token = "",
                                    Milliseconds timeout = Milliseconds(5000)) {
  TcpStoreOptions options;
  options.host = server.host();
  options.port = server.port();
  options.token = token;
  options.timeout = timeout;
  return make_tcp_store(options);
}

std::string hex(const Digest& digest) {
  std::string text;
  for (uint8_t byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

DistError::Part part_of(const std::function<void()>& f, std::string* text = nullptr) {
  try {
    f();
  } catch (const DistError& error) {
    if (text != nullptr) *text = error.what();
    return error.part();
  }
  return DistError::Part::General;
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

TEST_CASE("SHA-256 and HMAC give the values of FIPS 180-4 and RFC 4231", "[distributed]") {
  CHECK(hex(sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hex(sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")) ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(hex(sha256(std::string(1'000'000, 'a'))) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  CHECK(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hex(hmac_sha256("Jefe", "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hex(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("all stores give the same", "[distributed]") {
  const Place place;
  std::shared_ptr<TcpStore> server;
  std::shared_ptr<Store> s;
  const std::string kind = GENERATE("hash", "prefix", "file", "tcp", "tcp with a token", "prefix of tcp");
  const std::string token = kind == "tcp with a token" ? "secret" : "";
  if (kind == "hash") s = make_hash_store();
  if (kind == "prefix") s = make_prefix_store("job", make_hash_store());
  if (kind == "file") s = make_file_store(place.folder / "keys", -1);
  if (kind.find("tcp") != std::string::npos) {
    server = served(token);
    s = client_of(*server, token);
  }
  if (kind == "prefix of tcp") s = make_prefix_store("a/b", s);
  INFO(kind);

  const std::string bytes("\0\xff value\n", 9), empty;
  s->set("a", bytes);
  CHECK(s->get("a") == bytes);
  s->set("a", empty);
  CHECK(s->get("a").empty());
  s->set("", "nameless");
  CHECK(s->get("") == "nameless");
  CHECK(s->add("n", 5) == 5);
  CHECK(s->add("n", -7) == -2);
  CHECK(s->get("n") == "-2");
  CHECK(s->compare_set("c", "other", "x") == "other");
  CHECK_FALSE(s->check({"c"}));
  CHECK(s->compare_set("c", "", "x") == "x");
  CHECK(s->compare_set("c", "other", "y") == "x");
  CHECK(s->compare_set("c", "x", "y") == "y");
  s->append("c", "z");
  s->append("fresh", "1");
  CHECK(s->get("c") == "yz");
  CHECK(s->get("fresh") == "1");
  CHECK(s->delete_key("fresh"));
  CHECK_FALSE(s->delete_key("fresh"));
  CHECK(s->check({}));
  CHECK(s->check({"a", "n"}));
  CHECK_FALSE(s->check({"a", "fresh"}));
  s->wait({});
  s->wait({"a", "n", "a"});
  s->multi_set({"m1", "m2"}, {"1", "2"});
  CHECK(s->multi_get({"m2", "m1"}) == std::vector<std::string>{"2", "1"});
  CHECK(s->multi_get({}).empty());
  CHECK(s->num_keys() == 6);
  auto keys = s->list_keys();
  std::sort(keys.begin(), keys.end());
  CHECK(keys == std::vector<std::string>{"", "a", "c", "m1", "m2", "n"});
  s->barrier("all", 1);
  CHECK_THROWS_WITH(s->multi_set({"m1"}, {}), Catch::Contains("one value per key: got 1 keys and 0 values"));

  const std::string large(3'000'000, 'L');
  s->set("large", large);
  CHECK(s->get("large") == large);

  std::string text;
  CHECK(part_of([&] { s->wait({"a", "none", "n"}, Milliseconds(30)); }, &text) == DistError::Part::Store);
  CHECK(text.starts_with("wait: timed out after 30 ms: no value for "));
  CHECK(text.find("none") != std::string::npos);
  CHECK(text.find(',') == std::string::npos);  // only that one
  CHECK(part_of([&] { s->get("none", Milliseconds(0)); }, &text) == DistError::Part::Store);
  CHECK_THROWS_WITH(s->get("none", Milliseconds(-1)), Catch::Contains("must not be negative"));
  CHECK(s->get("a").empty());  // a wait that ended leaves the store as it was
  CHECK(part_of([&] { s->barrier("two", 2, Milliseconds(30)); }, &text) == DistError::Part::Store);
  CHECK(s->get("a").empty());

  s->set_timeout(Milliseconds(40));
  CHECK(s->timeout() == Milliseconds(40));
  CHECK(part_of([&] { s->get("none"); }, &text) == DistError::Part::Store);
  CHECK_THROWS(s->set_timeout(Milliseconds(-1)));

  std::shared_ptr<Store> other = s->clone();
  other->set("from the clone", "1");
  CHECK(s->get("from the clone") == "1");
  s->close("it is over");
  for (const auto& call : std::vector<std::function<void()>>{[&] { s->get("a"); }, [&] { s->set("a", ""); },
                                                             [&] { s->wait({"none"}); }, [&] { s->check({"a"}); }}) {
    CHECK(part_of(call, &text) == DistError::Part::Store);
    CHECK_THAT(text, Catch::Contains("it is over"));
  }
  CHECK(other->get("a").empty());
}

TEST_CASE("a counter that is none, or leaves 64 bits", "[distributed]") {
  const Place place;
  auto server = served();
  for (const std::shared_ptr<Store>& s :
       {make_hash_store(), make_file_store(place.folder / "keys", -1), std::shared_ptr<Store>(server)}) {
    s->set("text", "12 apples");
    s->set("most", "9223372036854775807");
    CHECK_THROWS_AS(s->add("text", 1), DistError);
    CHECK_THROWS_AS(s->add("most", 1), DistError);
    CHECK(s->get("text") == "12 apples");
    CHECK(s->get("most") == "9223372036854775807");
    CHECK(s->add("most", -1) == 9223372036854775806);
  }
}

TEST_CASE("threads wait for each other's keys while others work", "[distributed]") {
  const Place place;
  const std::string kind = GENERATE("hash", "file", "tcp", "tcp with a token");
  const std::string token = kind == "tcp with a token" ? "secret" : "";
  std::shared_ptr<Store> s = kind == "hash"   ? make_hash_store()
                             : kind == "file" ? make_file_store(place.folder / "keys", -1)
                                              : std::shared_ptr<Store>(served(token));
  constexpr int kThreads = 8, kRounds = 20;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      try {
        for (int i = 0; i < kRounds; ++i) {
          s->set(fmt::format("{}/{}", i, t), std::to_string(t * i));
          s->add("sum", 1);
          const int next = (t + 1) % kThreads;
          if (s->get(fmt::format("{}/{}", i, next)) != std::to_string(next * i)) ++wrong;
          s->barrier(fmt::format("round {}", i), kThreads);
        }
      } catch (const std::exception& e) {
        UNSCOPED_INFO(e.what());
        ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(s->add("sum", 0) == kThreads * kRounds);
}

TEST_CASE("what was set is seen by the next call on any connection", "[distributed]") {
  auto server = served();
  auto s = client_of(*server);
  std::atomic<bool> ends{false};
  std::vector<std::thread> waiting;  // they hold connections, so that calls take others
  for (int t = 0; t < 4; ++t)
    waiting.emplace_back([&] {
      while (!ends) part_of([&] { s->get("never", Milliseconds(1)); });
    });
  int missed = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::string key = std::to_string(i);
    s->set(key, "1");
    missed += !s->check({key});
  }
  ends = true;
  for (std::thread& thread : waiting) thread.join();
  CHECK(missed == 0);
}

TEST_CASE("closing a store wakes those who wait in it at once", "[distributed]") {
  const Place place;
  auto server = served();
  for (const std::shared_ptr<Store>& s :
       {make_hash_store(), make_file_store(place.folder / "keys", -1), std::shared_ptr<Store>(client_of(*server)),
        make_prefix_store("p", client_of(*server))}) {
    std::atomic<int> left{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&] {
        std::string text;
        if (part_of([&] { s->get("never", Milliseconds(60'000)); }, &text) == DistError::Part::Store &&
            text == "get: the store is closed: the group has failed")
          ++left;
      });
    std::this_thread::sleep_for(Milliseconds(100));
    const auto start = Clock::now();
    s->close("the group has failed");
    for (std::thread& thread : threads) thread.join();
    CHECK(seconds_since(start) < 0.5);
    CHECK(left == 3);
  }
  server->set("still", "there");
}

TEST_CASE("queues give values in their order, each once", "[distributed]") {
  auto server = served();
  for (const std::shared_ptr<Store>& s : {make_hash_store(), std::shared_ptr<Store>(client_of(*server))}) {
    CHECK_FALSE(s->queue_pop("q", false).has_value());
    s->queue_push("q", "1");
    s->queue_push("q", "");
    CHECK(s->queue_len("q") == 2);
    CHECK(s->queue_pop("q", true) == "1");
    CHECK(s->queue_pop("q", false) == "");
    CHECK(s->queue_len("q") == 0);
    std::atomic<int> sum{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 25; ++i) sum += std::stoi(*s->queue_pop("work", true));
      });
    for (int i = 1; i <= 100; ++i) s->queue_push("work", std::to_string(i));
    for (std::thread& thread : threads) thread.join();
    CHECK(sum == 5050);
    s->set_timeout(Milliseconds(30));
    CHECK(part_of([&] { s->queue_pop("q", true); }) == DistError::Part::Store);
  }
  const Place place;
  CHECK_THROWS_WITH(make_file_store(place.folder / "keys", 1)->queue_len("q"), Catch::Contains("not implemented"));
}

TEST_CASE("a file store ends behind a damaged record and goes on", "[distributed]") {
  const Place place;
  const std::string path = place.folder / "keys";
  auto a = make_file_store(path, -1);
  a->set("first", "1");
  for (const std::string& junk :
       {std::string("\x05"), std::string("\x05\0\0\0/ab", 7), std::string("\xff\xff\xff\xff/k", 6)}) {
    std::ofstream(path, std::ios::app | std::ios::binary) << junk;
    auto b = make_file_store(path, -1);
    CHECK(b->get("first") == "1");
    b->set("second", "2");
    CHECK(a->get("second", Milliseconds(1000)) == "2");
    CHECK(a->delete_key("second"));
    CHECK_FALSE(b->check({"second"}));
  }
  std::filesystem::remove(path);  // another run begins
  a->set("again", "1");
  CHECK_FALSE(a->check({"first"}));
}

TEST_CASE("the last one of a file store removes the file", "[distributed]") {
  const Place place;
  const std::string path = place.folder / "keys";
  auto a = make_file_store(path, 2), b = make_file_store(path, 2);
  b->set("k", "v");
  a.reset();
  CHECK(std::filesystem::exists(path));
  b.reset();
  CHECK_FALSE(std::filesystem::exists(path));
  CHECK_THROWS_AS(make_file_store("/nowhere/at all", 1), DistError);
  CHECK_THROWS_AS(make_file_store("", 1), Error);
}

TEST_CASE("a forked child is told to make a store of its own, and ends without harm", "[distributed]") {
  const Place place;
  auto server = served();
  auto client = client_of(*server);
  client->set("k", "v");
  auto file = make_file_store(place.folder / "keys", 1);
  const pid_t child = fork();
  if (child == 0) {
    int told = 0;
    for (const std::shared_ptr<Store>& s : {std::shared_ptr<Store>(server), std::shared_ptr<Store>(client), file}) {
      std::string text;
      told += part_of([&] { s->get("k", Milliseconds(100)); }, &text) == DistError::Part::Store &&
              text.find("forked child") != std::string::npos;
      s->close("child");
    }
    auto fresh = client_of(*server);
    told += fresh->get("k") == "v";
    client.reset();
    server.reset();
    file.reset();
    _exit(told == 4 ? 0 : 1);
  }
  int status = 1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(client->get("k") == "v");
  CHECK(std::filesystem::exists(place.folder / "keys"));
}
