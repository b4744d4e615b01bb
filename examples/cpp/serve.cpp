// Serves a model that Python has exported, without Python: threads share one copy of the weights.
//
//   program = tapegrad.export.export(model.eval(), (x,)); tapegrad.export.save(program, "model.pt2")
//   serve model.pt2 4 1000        4 threads, 1,000 calls each; prints the rate, and what the first result sums to
//
// Inputs are ones of the sizes that the model was exported with.
#include <tapegrad/aten/functions_create.h>
#include <tapegrad/aten/functions_reduce.h>
#include <tapegrad/c10/threads/parallel.h>
#include <tapegrad/nn/record.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace tg = tapegrad;

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::fprintf(stderr, "usage: serve FILE [THREADS] [CALLS]\n");
    return 2;
  }
  const int threads = argc > 2 ? std::atoi(argv[2]) : 1, calls = argc > 3 ? std::atoi(argv[3]) : 100;
  const tg::Record record = tg::Record::load(argv[1]);
  std::vector<tg::Tensor> inputs;
  for (const tg::Record::Input& input : record.inputs()) inputs.push_back(tg::ones(input.sizes, input.dtype));
  tg::set_num_threads(1);  // of each call: the calls themselves run side by side
  const auto results = record.run(inputs);
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t)
    workers.emplace_back([&] {
      for (int i = 0; i < calls; ++i) record.run(inputs);
    });
  for (std::thread& worker : workers) worker.join();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%s: %.1f calls/s with %d threads; %s of the inputs sums to %.6g\n", argv[1], threads * calls / seconds,
              threads, record.outputs()[0].c_str(), tg::sum(results[0]).item<double>());
} catch (const std::exception& error) {
  std::fprintf(stderr, "serve: %s\n", error.what());
  return 1;
}
