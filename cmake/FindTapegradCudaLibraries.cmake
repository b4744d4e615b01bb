# cuBLAS, cuDNN and NCCL for CUDA 13, from the toolkit or from PyPI (nvidia-cublas, nvidia-cudnn-cu13, nvidia-nccl-cu13).
# Gives TapegradCuda::{cublas,cudnn,nccl}, TG_CUDA_LIBRARY_DIRS (for run paths) and TG_CUDA_PYPI (where the wheels lie).

tg_ask_python(TG_CUDA_PYPI importlib.util "list(importlib.util.find_spec('nvidia').submodule_search_locations)[0]")

set(TG_CUDA_LIBRARY_DIRS "")
set(required "")
foreach(row "cublas|cublasLt.h|cublasLt|13|cu13" "cudnn|cudnn.h|cudnn|9|cudnn" "nccl|nccl.h|nccl|2|nccl")
  string(REPLACE "|" ";" row "${row}")
  list(GET row 0 name)
  list(GET row 1 header)
  list(GET row 2 library)
  list(GET row 3 version)
  list(GET row 4 folder)
  set(hints "$ENV{CUDA_HOME}" "${CUDA_HOME}" /usr/local/cuda)
  if(TG_CUDA_PYPI)
    list(PREPEND hints "${TG_CUDA_PYPI}/${folder}")
  endif()
  find_path(TG_${name}_INCLUDE_DIR ${header} HINTS ${hints} PATH_SUFFIXES include)
  find_library(TG_${name}_LIBRARY NAMES lib${library}.so.${version} ${library} HINTS ${hints} PATH_SUFFIXES lib lib64)
  mark_as_advanced(TG_${name}_INCLUDE_DIR TG_${name}_LIBRARY)
  list(APPEND required TG_${name}_LIBRARY TG_${name}_INCLUDE_DIR)
  if(TG_${name}_LIBRARY AND TG_${name}_INCLUDE_DIR AND NOT TARGET TapegradCuda::${name})
    add_library(TapegradCuda::${name} SHARED IMPORTED)
    set_target_properties(TapegradCuda::${name} PROPERTIES
      IMPORTED_LOCATION "${TG_${name}_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${TG_${name}_INCLUDE_DIR}")
    get_filename_component(dir "${TG_${name}_LIBRARY}" DIRECTORY)
    list(APPEND TG_CUDA_LIBRARY_DIRS "${dir}")
  endif()
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TapegradCudaLibraries REQUIRED_VARS ${required}
  REASON_FAILURE_MESSAGE "pip install 'nvidia-cublas>=13.0,<13.1' 'nvidia-cudnn-cu13>=9,<10' 'nvidia-nccl-cu13>=2.27,<3'")
