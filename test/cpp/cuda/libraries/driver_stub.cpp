// A libcuda.so.1 that says yes to everything, for machines without a driver: with it cuDNN loads, and compiles and
// "loads" kernels for a device that is described to it (library_test.cpp). Nothing can be run.

// Functions whose first argument is where a handle goes.
#define TG_HANDLE(name)                     \
  extern "C" int name(void** handle, ...) { \
    *handle = static_cast<void*>(handle);   \
    return 0;                               \
  }
#define TG_YES(name) \
  extern "C" int name(...) { return 0; }

extern "C" int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
extern "C" int cuGetErrorName(int, const char** text) {
  *text = "none";
  return 0;
}
extern "C" int cuGetErrorString(int, const char** text) {
  *text = "none";
  return 0;
}

TG_HANDLE(cuCtxGetCurrent)
TG_HANDLE(cuKernelGetFunction)
TG_HANDLE(cuLibraryGetKernel)
TG_HANDLE(cuLibraryLoadData)
TG_HANDLE(cuLibraryLoadFromFile)
TG_HANDLE(cuLinkCreate)
TG_HANDLE(cuModuleGetFunction)
TG_HANDLE(cuModuleLoadData)

TG_YES(cuCtxGetLimit)
TG_YES(cuCtxPopCurrent)
TG_YES(cuCtxPushCurrent)
TG_YES(cuDeviceGet)
TG_YES(cuDeviceGetCount)
TG_YES(cuKernelGetAttribute)
TG_YES(cuKernelSetAttribute)
TG_YES(cuLaunchCooperativeKernel)
TG_YES(cuLaunchKernel)
TG_YES(cuLaunchKernelEx)
TG_YES(cuLibraryUnload)
TG_YES(cuLinkAddData)
TG_YES(cuLinkComplete)
TG_YES(cuLinkDestroy)
TG_YES(cuModuleUnload)
TG_YES(cuOccupancyMaxPotentialClusterSize)
TG_YES(cuStreamGetCtx)
TG_YES(cuTensorMapEncodeIm2col)
TG_YES(cuTensorMapEncodeTiled)
