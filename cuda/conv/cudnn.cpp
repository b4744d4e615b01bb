// Convolutions by cuDNN: a graph of one operation. With backends.cudnn.benchmark algorithms are measured; otherwise
// algorithms whose order of summation varies between runs are excluded.
#include <algorithm>

#include "tapegrad/aten/cudnn_switches.h"
#include "tapegrad/cuda/conv/cudnn_layout.h"

namespace tapegrad::cuda {

namespace cudnn_graph {
namespace {

constexpr int64_t kIds[3] = {'x', 'w', 'y'};

Part tensor(Graph& graph, const Convolution& c, Wanted part, int64_t id, const void* data) {
  return graph.tensor(data_type(c.dtype), layout_of(c.sizes, part, c.channels_last), id, alignment(data));
}

// The parameters; sums are kept in float64 for float64 and in float32 otherwise. How many groups there are, cuDNN sees
// from the channels of input and weight.
Part parameters(Graph& graph, const Convolution& c) {
  const conv::Geometry& g = c.sizes;
  const int64_t dims = spatial_dims(g);
  int64_t dilation[3], stride[3], before[3], behind[3];
  for (int d = 0; d < dims; ++d) {
    const int at = geometry_dim(g, d);
    dilation[d] = g.dilation[at];
    stride[d] = g.stride[at];
    before[d] = g.pad[at];
    (void)padding_behind(g, at, behind[d]);  // accepts() has looked
  }
  Descriptor out(kConvolution);
  out.set(kConvolutionComputeType, kTypeDataType, c.dtype == DType::float64 ? kDouble : kFloat);
  out.set(kConvolutionMode, kTypeConvolutionMode, kCrossCorrelation);
  out.set(kConvolutionSpatialDims, kTypeInt64, dims);
  out.set(kConvolutionDilations, kTypeInt64, dims, dilation);
  out.set(kConvolutionStrides, kTypeInt64, dims, stride);
  out.set(kConvolutionPaddingBefore, kTypeInt64, dims, before);
  out.set(kConvolutionPaddingBehind, kTypeInt64, dims, behind);
  return graph.keep(std::move(out));
}

struct OperationAttributes {
  DescriptorType type;
  Attribute x, w, y, convolution, alpha, beta;
};
constexpr OperationAttributes kOperations[] = {
    {kOperationForward, kForwardX, kForwardW, kForwardY, kForwardConvolution, kForwardAlpha, kForwardBeta},
    {kOperationInputGrad, kInputGradX, kInputGradW, kInputGradY, kInputGradConvolution, kInputGradAlpha,
     kInputGradBeta},
    {kOperationWeightGrad, kWeightGradX, kWeightGradW, kWeightGradY, kWeightGradConvolution, kWeightGradAlpha,
     kWeightGradBeta}};

void describe(Graph& graph, const Convolution& c) {
  const OperationAttributes& at = kOperations[static_cast<int>(c.wanted)];
  Descriptor operation(at.type);
  operation.set(at.x, tensor(graph, c, Wanted::Input, kIds[0], c.x));
  operation.set(at.w, tensor(graph, c, Wanted::Weight, kIds[1], c.w));
  operation.set(at.y, tensor(graph, c, Wanted::Output, kIds[2], c.y));
  operation.set(at.convolution, parameters(graph, c));
  if (c.dtype == DType::float64) {
    operation.set(at.alpha, kTypeDouble, 1.0);
    operation.set(at.beta, kTypeDouble, 0.0);
  } else {
    operation.set(at.alpha, kTypeFloat, 1.0f);
    operation.set(at.beta, kTypeFloat, 0.0f);
  }
  graph.operation(std::move(operation));
}

}  // namespace
}  // namespace cudnn_graph

bool has_convolution_library() { return cudnn_graph::available(); }

bool library_convolution(const Stream& stream, const Convolution& c) {
  using namespace cudnn_graph;
  if (!available() || !accepts(c)) return false;
  const bool measured = switched_on(CudnnSwitch::Benchmark);
  Task task{.key = key_of(c),
            .dtype = c.dtype,
            .choice = {.measured = measured,
                       .deterministic = !measured || switched_on(CudnnSwitch::Deterministic) ||
                                        switched_on(CudnnSwitch::Reproducible),
                       .tf32 = c.dtype == DType::float32 && switched_on(CudnnSwitch::AllowTF32),
                       .limit = cudnn_switch(CudnnSwitch::BenchmarkLimit),
                       // A transform computes all places, of which a stride takes some.
                       .fft = std::all_of(c.sizes.stride, c.sizes.stride + 3, [](int64_t s) { return s == 1; })},
            .describe = [&c](Graph& graph) { cudnn_graph::describe(graph, c); }};
  task.bind(kIds[0], c.x);
  task.bind(kIds[1], c.w);
  task.bind(kIds[2], c.y);
  return run(stream, task);
}

}  // namespace tapegrad::cuda
