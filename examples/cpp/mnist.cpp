// Trains a small convolutional network on handwritten digits: the network and the schedule of examples/mnist.py.
//
//   mnist [--epochs N] [--batch-size N] [--lr X] [--seed N] [FOLDER]
//
// FOLDER holds the idx files; without it, the images that come with tapegrad are taken.
#include <tapegrad/tapegrad.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tapegrad/aten/functions.h"

namespace tg = tapegrad;
namespace nn = tapegrad::nn;

namespace {

struct Options {
  int64_t epochs = 8;
  int64_t batch_size = 64;
  double lr = 4e-3;  // the highest of the schedule
  uint64_t seed = 1;
  std::string folder = DIGITS;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (!argument.starts_with("--")) {
      options.folder = argument;
      continue;
    }
    if (i + 1 == argc) {
      std::fprintf(stderr, "%s needs a value\n", argument.c_str());
      std::exit(2);
    }
    const char* value = argv[++i];
    if (argument == "--epochs") {
      options.epochs = std::atoll(value);
    } else if (argument == "--batch-size") {
      options.batch_size = std::atoll(value);
    } else if (argument == "--lr") {
      options.lr = std::atof(value);
    } else if (argument == "--seed") {
      options.seed = std::strtoull(value, nullptr, 10);
    } else {
      std::fprintf(stderr, "unknown option %s\n", argument.c_str());
      std::exit(2);
    }
  }
  return options;
}

// Two convolutions with pooling, two linear layers: 28 x 28 images to ten scores.
nn::Sequential build_network() {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 16, 3).padding(1)), nn::ReLU(), nn::MaxPool2d(2),
                        nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1)), nn::ReLU(), nn::MaxPool2d(2),
                        nn::Flatten(), nn::Linear(32 * 7 * 7, 64), nn::ReLU(), nn::Linear(64, 10));
}

// The one-cycle schedule (Smith and Topin, 2017): up from a 25th of the highest rate, then down to almost nothing.
double one_cycle(double highest, int64_t step, int64_t steps) {
  auto cosine = [](double from, double to, double part) { return to + (from - to) / 2 * (1 + std::cos(M_PI * part)); };
  const double rise = 0.3 * static_cast<double>(steps) - 1;
  const double at = static_cast<double>(step);
  if (at <= rise) return cosine(highest / 25, highest, at / rise);
  return cosine(highest, highest / 25 / 1e4, (at - rise) / (static_cast<double>(steps) - 1 - rise));
}

double accuracy(const nn::Sequential& model, const tg::Tensor& images, const tg::Tensor& labels) {
  const tg::NoGradGuard no_grad;
  model->eval();
  int64_t right = 0;
  for (int64_t from = 0; from < images.size(0); from += 500) {
    const int64_t count = std::min<int64_t>(500, images.size(0) - from);
    const tg::Tensor guesses = model(images.narrow(0, from, count)).argmax(1);
    right += (guesses == labels.narrow(0, from, count)).sum().item<int64_t>();
  }
  model->train();
  return static_cast<double>(right) / static_cast<double>(images.size(0));
}

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int run(const Options& options) {
  tg::default_generator().manual_seed(options.seed);
  const tg::datasets::MNIST train(options.folder, true), test(options.folder, false);
  const tg::Tensor images = train.normalized(), test_images = test.normalized();

  const nn::Sequential model = build_network();
  const int64_t batches = train.size() / options.batch_size;
  const int64_t steps = options.epochs * batches + 1;
  tg::optim::AdamW optimizer(model->parameters(), {.lr = options.lr, .weight_decay = 0.01});
  std::printf("%ld images to train, %ld held out\n", static_cast<long>(train.size()), static_cast<long>(test.size()));

  int64_t step = 0;
  const double begin = seconds();
  for (int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    const double start = seconds();
    const tg::Tensor order = tg::randperm(train.size());
    double total = 0;
    for (int64_t batch = 0; batch < batches; ++batch) {
      const tg::Tensor chosen = order.narrow(0, batch * options.batch_size, options.batch_size);
      optimizer.set_lr(one_cycle(options.lr, step++, steps));
      const tg::Tensor loss =
          tg::cross_entropy(model(images.index_select(0, chosen)), train.labels.index_select(0, chosen));
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      total += loss.item<double>();
    }
    std::printf("epoch %ld/%ld: loss %.4f, %.0f images/s\n", static_cast<long>(epoch + 1),
                static_cast<long>(options.epochs), total / static_cast<double>(batches),
                static_cast<double>(batches * options.batch_size) / (seconds() - start));
    std::fflush(stdout);
  }
  std::printf("trained in %.1f s\n", seconds() - begin);
  std::printf("held-out accuracy: %.4f\n", accuracy(model, test_images, test.labels));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const tg::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
