// Collectives of device tensors give what the same calls give on the host, and wait for streams as they should.
#include "cuda/nccl/groups.h"
#include "tapegrad/aten/functions.h"
#include "tapegrad/cuda/runtime/event.h"

using namespace nccl_test;

// Before the first question to the driver, by whichever test.
static const int more_devices = setenv("TAPEGRAD_CUDA_SIMULATE", "4", 0);

namespace {

// `fill(call, place)` gives a call its tensors, at one place or the other.
using Fill = std::function<void(Call& call, const std::function<Tensor(const Tensor&)>& place)>;

void compare(const Rank& r, const std::string& what, const Call& call, const Fill& fill) {
  Call on_cpu = call, on_gpu = call;
  fill(on_cpu, [](const Tensor& t) { return t; });
  fill(on_gpu, [&](const Tensor& t) { return to(r.device(), t); });
  const std::vector<Tensor> expected = on_cpu.outputs, got = on_gpu.outputs;
  r.group.run(std::move(on_cpu), true);
  const uint64_t before = cuda::simulated::nccl_counts().queued;
  r.group.run(std::move(on_gpu), true);
  for (size_t i = 0; i < expected.size(); ++i) must(same(expected[i], got[i]), what + ", output " + std::to_string(i));
  int64_t bytes = 0;
  for (const Tensor& t : got) bytes += t.nbytes();
  must(bytes == 0 || cuda::simulated::nccl_counts().queued > before || got.empty(), what + " goes through NCCL");
}

Call reduction(Kind kind, Reduce reduce, bool mean = false) {
  Call call;
  call.kind = kind;
  call.reduce = reduce;
  call.mean = mean;
  return call;
}

void compare_reductions(const Rank& r, DType dtype, Reduce reduce, bool mean) {
  const int64_t n = 5;
  const std::string what = fmt::format("{} {}{}", dtype, static_cast<int>(reduce), mean ? " mean" : "");
  compare(r, "all_reduce " + what, reduction(Kind::AllReduce, reduce, mean),
          [&](Call& call, const auto& place) { call.outputs = {place(numbers({n, 3}, dtype, r.rank))}; });
  compare(r, "all_reduce of two " + what, reduction(Kind::AllReduce, reduce, mean), [&](Call& call, const auto& place) {
    call.outputs = {place(numbers({n}, dtype, r.rank)), place(numbers({2, 2}, dtype, r.rank + 1))};
  });
  compare(r, "reduce " + what, reduction(Kind::Reduce, reduce, mean), [&](Call& call, const auto& place) {
    call.root = 1;
    call.outputs = {place(numbers({n}, dtype, r.rank))};
  });
  compare(r, "reduce_scatter of parts " + what, reduction(Kind::ReduceScatter, reduce, mean),
          [&](Call& call, const auto& place) {
            for (int i = 0; i < r.size; ++i) call.inputs.push_back(place(numbers({n}, dtype, r.rank + i)));
            call.outputs = {place(numbers({n}, dtype, 0))};
          });
  compare(r, "reduce_scatter of one " + what, reduction(Kind::ReduceScatter, reduce, mean),
          [&](Call& call, const auto& place) {
            call.inputs = {place(numbers({n * r.size}, dtype, r.rank))};
            call.outputs = {place(numbers({n}, dtype, 0))};
          });
}

void compare_moves(const Rank& r, DType dtype, int64_t n) {
  const std::string what = fmt::format("{} [{}]", dtype, n);
  const auto call_of = [](Kind kind, int root) {
    Call call;
    call.kind = kind;
    call.root = root;
    return call;
  };
  compare(r, "broadcast " + what, call_of(Kind::Broadcast, 2),
          [&](Call& call, const auto& place) { call.outputs = {place(numbers({n}, dtype, r.rank))}; });
  compare(r, "all_gather " + what, call_of(Kind::AllGather, 0), [&](Call& call, const auto& place) {
    call.inputs = {place(numbers({n}, dtype, r.rank))};
    for (int i = 0; i < r.size; ++i) call.outputs.push_back(place(numbers({n}, dtype, 9)));
  });
  compare(r, "all_gather into one " + what, call_of(Kind::AllGather, 0), [&](Call& call, const auto& place) {
    call.inputs = {place(numbers({n}, dtype, r.rank))};
    call.outputs = {place(numbers({n * r.size}, dtype, 9))};
  });
  compare(r, "all_gather of several sizes " + what, call_of(Kind::AllGather, 0), [&](Call& call, const auto& place) {
    call.sizes_may_differ = true;
    call.inputs = {place(numbers({n + r.rank}, dtype, r.rank))};
    for (int i = 0; i < r.size; ++i) call.outputs.push_back(place(numbers({n + i}, dtype, 9)));
  });
  compare(r, "gather " + what, call_of(Kind::Gather, 1), [&](Call& call, const auto& place) {
    call.inputs = {place(numbers({n}, dtype, r.rank))};
    for (int i = 0; i < r.size && r.rank == 1; ++i) call.outputs.push_back(place(numbers({n}, dtype, 9)));
  });
  compare(r, "scatter " + what, call_of(Kind::Scatter, 1), [&](Call& call, const auto& place) {
    for (int i = 0; i < r.size && r.rank == 1; ++i) call.inputs.push_back(place(numbers({n}, dtype, i)));
    call.outputs = {place(numbers({n}, dtype, 9))};
  });
  compare(r, "all_to_all " + what, call_of(Kind::AllToAll, 0), [&](Call& call, const auto& place) {
    for (int i = 0; i < r.size; ++i) {
      const int64_t rows = (r.rank + i) % 3 == 0 ? 0 : n + r.rank + i;  // some pairs have nothing
      call.inputs.push_back(place(numbers({rows}, dtype, 3 * r.rank + i)));
      call.outputs.push_back(place(numbers({rows}, dtype, 9)));
    }
  });
}

Call message(Kind kind, const Tensor& t, int peer, uint64_t tag = 0) {
  Call call;
  call.kind = kind;
  call.root = peer;
  call.tag = tag;
  (kind == Kind::Send ? call.inputs : call.outputs) = {t};
  return call;
}

}  // namespace

TEST_CASE("NCCL: all_reduce of device tensors adds up", "[cuda][nccl]") {
  check_all_well(run_ranks(2, [](Rank r) {
    Call call = reduction(Kind::AllReduce, Reduce::Sum);
    const Tensor t = to(r.device(), numbers({1000}, DType::float32, r.rank));
    call.outputs = {t};
    r.group.run(std::move(call), true);
    const Tensor sum = numbers({1000}, DType::float32, 0);
    add_(sum, numbers({1000}, DType::float32, 1));
    must(same(t, sum), "the sum");
  }));
}

TEST_CASE("NCCL: reductions give what the host's engine gives", "[cuda][nccl]") {
  check_all_well(run_ranks(3, [](Rank r) {
    for (const DType dtype : {DType::uint8, DType::int8, DType::int32, DType::int64, DType::float16, DType::bfloat16,
                              DType::float32, DType::float64, DType::bool_})
      for (const Reduce reduce : {Reduce::Sum, Reduce::Product, Reduce::Min, Reduce::Max})
        compare_reductions(r, dtype, reduce, false);
    for (const DType dtype : {DType::complex64, DType::complex128}) compare_reductions(r, dtype, Reduce::Sum, false);
    for (const DType dtype : {DType::int64, DType::float16, DType::float32, DType::complex64})
      compare_reductions(r, dtype, Reduce::Sum, true);
    compare(r, "premultiplied sum", reduction(Kind::AllReduce, Reduce::Sum), [&](Call& call, const auto& place) {
      call.scaled = true;
      call.factor = r.rank + 1.0;
      call.outputs = {place(numbers({7}, DType::float32, r.rank))};
    });
  }));
}

TEST_CASE("NCCL: data moves as by the host's engine, of every dtype and length", "[cuda][nccl]") {
  check_all_well(run_ranks(3, [](Rank r) {
    for (const DType dtype :
         {DType::bool_, DType::int16, DType::uint16, DType::bfloat16, DType::float32, DType::complex128})
      compare_moves(r, dtype, 4);
    compare_moves(r, DType::float32, 0);
  }));
}

TEST_CASE("NCCL: tensors of any strides", "[cuda][nccl]") {
  check_all_well(run_ranks(2, [](Rank r) {
    const auto every_other = [](const Tensor& t) { return alias_tensor(t, {3, 2}, {1, 6}, 1); };
    const Tensor cpu = numbers({12}, DType::float32, r.rank), gpu = to(r.device(), cpu);
    for (const Tensor& t : {cpu, gpu}) {
      Call call = reduction(Kind::AllReduce, Reduce::Sum);
      call.outputs = {every_other(t)};
      r.group.run(std::move(call), true);
      Call gather = reduction(Kind::AllGather, Reduce::Sum);
      gather.inputs = {every_other(t)};
      gather.outputs = {alias_tensor(t, {6}, {1}, 0), alias_tensor(t, {6}, {1}, 6)};
      gather.inputs[0] = alias_tensor(on_host(t), {3, 2}, {1, 3}, 0);
      if (t.is_cuda()) gather.inputs[0] = to(r.device(), gather.inputs[0]);
      r.group.run(std::move(gather), true);
    }
    must(same(cpu, gpu), "strided");
  }));
}

TEST_CASE("NCCL: messages arrive in order, for each tag, from any rank, both ways at once", "[cuda][nccl]") {
  check_all_well(run_ranks(3, [](Rank r) {
    const int next = (r.rank + 1) % r.size, before = (r.rank + r.size - 1) % r.size;
    for (const int64_t n : {0, 3, 100'000}) {  // the last does not wait in a copy
      std::vector<std::shared_ptr<distributed::Work>> sent;
      for (int i = 0; i < 3; ++i)
        sent.push_back(
            r.group.run(message(Kind::Send, to(r.device(), numbers({n}, DType::float32, r.rank + i)), next), false));
      for (int i = 0; i < 3; ++i) {
        const Tensor got = to(r.device(), numbers({n}, DType::float32, 8));
        const auto work = r.group.run(message(Kind::Recv, got, i == 1 ? -1 : before), true);
        must(work->source() == before, "source");
        must(same(got, numbers({n}, DType::float32, before + i)), fmt::format("message {} of {}", i, n));
      }
      for (const auto& work : sent) work->wait();
    }
    for (const uint64_t tag : {1, 2})
      r.group.run(message(Kind::Send, to(r.device(), numbers({5}, DType::int64, static_cast<int>(tag))), next, tag),
                  false);
    for (const uint64_t tag : {1, 2}) {
      const Tensor got = to(r.device(), numbers({5}, DType::int64, 8));
      r.group.run(message(Kind::Recv, got, before, tag), true);
      must(same(got, numbers({5}, DType::int64, static_cast<int>(tag))), "tag");
    }
  }));
}

TEST_CASE("NCCL: a collective follows the caller's stream, and the caller's stream follows it", "[cuda][nccl]") {
  check_all_well(run_ranks(2, [](Rank r) {
    const cuda::StreamGuard mine(cuda::stream_from_pool(r.rank));
    const Tensor t = to(r.device(), numbers({64}, DType::float32, 0));
    const Tensor other = to(r.device(), numbers({64}, DType::float32, 1));
    for (int i = 0; i < 3; ++i) {
      mul_(t, Scalar(2.0));  // late: nothing runs before somebody waits
      Call call = reduction(Kind::AllReduce, Reduce::Sum);
      call.outputs = {t};
      const auto work = r.group.run(std::move(call), false);
      mul_(other, Scalar(3.0));  // beside it
      work->wait();
      add_(t, other);  // behind it, on this stream only
    }
    const Tensor expected = numbers({64}, DType::float32, 0), beside = numbers({64}, DType::float32, 1);
    for (int i = 0; i < 3; ++i) {
      mul_(expected, Scalar(4.0));
      mul_(beside, Scalar(3.0));
      add_(expected, beside);
    }
    must(same(t, expected), "the order of streams");
  }));
}

TEST_CASE("NCCL: nobody on the host waits for data", "[cuda][nccl]") {
  check_all_well(run_ranks(2, [](Rank r) {
    const Tensor t = to(r.device(), numbers({64}, DType::float32, 0));
    cuda::driver().synchronize_device(r.rank);
    const uint64_t before = cuda::simulated::simulated_driver().calls("synchronize_stream");
    for (int i = 0; i < 4; ++i) {
      Call call = reduction(Kind::AllReduce, Reduce::Sum);
      call.outputs = {t};
      call.mean = true;
      r.group.run(std::move(call), true);
    }
    must(cuda::simulated::simulated_driver().calls("synchronize_stream") == before, "no wait for a stream");
    r.group.run(Call{}, true);  // a barrier, so that the other rank looks, too
    must(same(t, numbers({64}, DType::float32, 0)), "means");
  }));
}
