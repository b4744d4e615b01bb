// What goes wrong over NCCL is told on all ranks, in time; no communicator is left and none is used after its end.
#include "cuda/nccl/groups.h"
#include "tapegrad/aten/functions.h"
#include "tapegrad/c10/error.h"

using namespace nccl_test;
namespace sim = cuda::simulated;
using cuda::nccl_api::Result;

namespace {

Call sum_of(const Tensor& t) {
  Call call;
  call.kind = Kind::AllReduce;
  call.outputs = {t};
  return call;
}
Tensor tensor_of(const Rank& r, int64_t n = 8) { return to(r.device(), numbers({n}, DType::float32, r.rank)); }
bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }
void check_nothing_left() {
  CHECK(sim::nccl_counts().live == 0);
  CHECK(sim::nccl_counts().misused == 0);
}

}  // namespace

TEST_CASE("NCCL: a rank that never comes is named at the deadline", "[cuda][nccl]") {
  const auto texts = run_ranks(
      2,
      [](Rank r) {
        if (r.rank == 0) r.group.run(sum_of(tensor_of(r)), true);
        std::this_thread::sleep_for(Milliseconds(1000));
      },
      400);
  CHECK(has(texts[0], "timed out after 0.4 s of waiting for rank 1"));
  check_nothing_left();
}

TEST_CASE("NCCL: ranks that do not agree raise before data moves, and the group goes on", "[cuda][nccl]") {
  check_all_well(run_ranks(2, [](Rank r) {
    const auto text = text_of([&] { r.group.run(sum_of(tensor_of(r, 8 + r.rank)), true); });
    must(has(text, "the ranks do not agree") && has(text, "[9] on a GPU"), text);
    const Tensor host = numbers({8}, DType::float32, 0);
    const auto other = text_of([&] { r.group.run(sum_of(r.rank == 0 ? host : tensor_of(r)), true); });
    must(has(other, "the ranks do not agree"), other);
    r.group.run(sum_of(tensor_of(r)), true);
  }));
}

TEST_CASE("NCCL: an error of any function reaches all ranks", "[cuda][nccl]") {
  for (const std::string name : {"ncclGetUniqueId", "ncclCommInitRankConfig", "ncclCommGetAsyncError", "ncclAllReduce",
                                 "ncclSend", "ncclRecv", "ncclGroupStart", "ncclGroupEnd"}) {
    INFO(name);
    sim::nccl_fail_at(name, 1, Result::kSystemError);
    const auto texts = run_ranks(3, [](Rank r) {
      Call call;
      call.kind = Kind::AllToAll;
      for (int i = 0; i < r.size; ++i) {
        call.inputs.push_back(tensor_of(r));
        call.outputs.push_back(tensor_of(r));
      }
      r.group.run(std::move(call), true);
      r.group.run(sum_of(tensor_of(r)), true);
      r.group.run(Call{}, true);
    });
    size_t told = 0;
    for (const std::string& text : texts) told += has(text, "unhandled system error");
    CHECK(told == texts.size());
    check_nothing_left();
    try {  // what was lost is told to whoever waits
      cuda::driver().set_device(0);
      cuda::wait_for_value(cuda::default_stream(0), "test");
    } catch (const Error&) {
    }
  }
}

TEST_CASE("NCCL: an error that comes later, and work that is never done, end the group", "[cuda][nccl]") {
  for (const bool slow : {false, true}) {
    if (slow)
      sim::nccl_slow(1500);
    else
      sim::nccl_fail_later(Result::kRemoteError);
    const auto texts = run_ranks(
        2,
        [slow](Rank r) {
          const Tensor t = tensor_of(r);
          r.group.run(sum_of(t), false);
          for (int i = 0; i < 100; ++i) {
            std::this_thread::sleep_for(Milliseconds(50));
            r.group.run(Call{}, true);
          }
        },
        slow ? 500 : 20'000);
    for (const std::string& text : texts)
      CHECK(has(text, slow ? "the device has not done it within 0.5 s" : "a link has broken"));
    check_nothing_left();
    if (slow) CHECK_THROWS_WITH(cuda::wait_for_value(cuda::default_stream(0), "test"), Catch::Contains("were lost"));
  }
}

TEST_CASE("NCCL: abort ends the waiting of all ranks", "[cuda][nccl]") {
  sim::nccl_hang(true);
  const auto texts = run_ranks(2, [](Rank r) {
    std::thread other([&r] {
      std::this_thread::sleep_for(Milliseconds(100));
      if (r.rank == 1) r.group.abort("enough");
    });
    const auto text = text_of([&] { r.group.run(sum_of(tensor_of(r)), true); });
    other.join();
    throw std::runtime_error(text);
  });
  sim::nccl_hang(false);
  for (const std::string& text : texts) CHECK(has(text, "enough"));
  check_nothing_left();
}

TEST_CASE("NCCL: what it has not is told at once", "[cuda][nccl]") {
  check_all_well(run_ranks(2, [](Rank r) {
    const auto text = [&](DType dtype, Reduce reduce) {
      Call call = sum_of(to(r.device(), numbers({2}, dtype, 0)));
      call.reduce = reduce;
      return text_of([&] { r.group.run(std::move(call), true); });
    };
    must(has(text(DType::int32, Reduce::BitXor), "Cannot use ReduceOp.BXOR with NCCL"), "bits");
    must(has(text(DType::int16, Reduce::Sum), "not supported for NCCL process group: int16"), "int16");
    r.group.run(sum_of(tensor_of(r)), true);
  }));
}

TEST_CASE("NCCL: a missing library is one sentence", "[cuda][nccl]") {
  devices();  // which would register the double again later
  cuda::nccl_api::use_nccl([](std::string& why) -> const cuda::nccl_api::Functions* {
    why = "NCCL cannot be loaded: no such file";
    return nullptr;
  });
  const auto texts = run_ranks(2, [](Rank r) { r.group.run(sum_of(tensor_of(r)), true); });
  for (const std::string& text : texts) {
    INFO(text);
    CHECK(has(text, "NCCL cannot be used: NCCL cannot be loaded: no such file"));
  }
  cuda::nccl_api::use_nccl(&sim::simulated_nccl);
}
