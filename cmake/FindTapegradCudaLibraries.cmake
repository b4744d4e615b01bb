# The libraries of CUDA 13 beside its runtime, from the toolkit or from PyPI (the extra "cuda" of pyproject.toml). Only
# headers are compiled against; the libraries are opened when first used (cuda/libraries/). cuBLASLt's must be there. Gives
# TG_CUBLAS_INCLUDE_DIR, TG_CUFFT_INCLUDE_DIR, TG_CUSOLVER_INCLUDE_DIR, TG_CUDA_LIBRARY_DIRS (for run paths),
# TG_CUDA_PYPI (where wheels lie) and TG_CUDA_LIBRARIES_MISSING.

tg_ask_python(TG_CUDA_PYPI importlib.util "list(importlib.util.find_spec('nvidia').submodule_search_locations)[0]")

set(TG_CUDA_LIBRARY_DIRS "")
set(TG_CUDA_LIBRARIES_MISSING "")
set(folders "$ENV{CUDA_HOME}" "${CUDA_HOME}" /usr/local/cuda)
if(TG_CUDA_PYPI)
  list(PREPEND folders "${TG_CUDA_PYPI}/cu13" "${TG_CUDA_PYPI}/cudnn" "${TG_CUDA_PYPI}/nccl")
endif()
foreach(file libcublasLt.so.13 libcudnn.so.9 libnvrtc.so.13 libcusolver.so.12 libcufft.so.12 libnccl.so.2)
  string(REGEX REPLACE "^lib(.*)\\.so.*" "TG_\\1_LIBRARY" variable "${file}")
  find_library(${variable} NAMES ${file} HINTS ${folders} PATH_SUFFIXES lib lib64)
  mark_as_advanced(${variable})
  if(${variable})
    get_filename_component(dir "${${variable}}" DIRECTORY)
    list(APPEND TG_CUDA_LIBRARY_DIRS "${dir}")
  else()
    list(APPEND TG_CUDA_LIBRARIES_MISSING "${file}")
  endif()
endforeach()
list(REMOVE_DUPLICATES TG_CUDA_LIBRARY_DIRS)

find_path(TG_CUBLAS_INCLUDE_DIR cublasLt.h HINTS ${folders} PATH_SUFFIXES include)
find_path(TG_CUFFT_INCLUDE_DIR cufft.h HINTS ${folders} PATH_SUFFIXES include)
find_path(TG_CUSOLVER_INCLUDE_DIR cusolverDn.h HINTS ${folders} PATH_SUFFIXES include)
mark_as_advanced(TG_CUBLAS_INCLUDE_DIR TG_CUFFT_INCLUDE_DIR TG_CUSOLVER_INCLUDE_DIR)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TapegradCudaLibraries REQUIRED_VARS TG_CUBLAS_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "pip install 'nvidia-cublas>=13.0,<13.1'")
