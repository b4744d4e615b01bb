// RelaxedCapture: while it lives, this thread may make calls that put nothing into a graph (allocations, handles of
// libraries, queries of events) though some stream is being captured, which would otherwise spoil the capture. Host
// code of the real device only.
#pragma once

#include <cuda_runtime_api.h>

namespace tapegrad::cuda {

class RelaxedCapture {
 public:
  RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace tapegrad::cuda
