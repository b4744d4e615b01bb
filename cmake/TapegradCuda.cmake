# libtapegrad_cuda.so from cuda/**/*.{cpp,cu}. AUTO builds it when a CUDA 13 compiler and the libraries are found, else
# says in one line why not; ON stops there. The libraries are looked for first, because trying a compiler takes seconds.

set(TG_CUDA_ARCHITECTURES "90-real;80-virtual" CACHE STRING
    "One architecture, and PTX that newer and older devices compile when they load it")
set(TG_CUDA_FOUND OFF)

if(NOT CUDA STREQUAL "OFF")
  set(why "")
  find_package(TapegradCudaLibraries QUIET)
  if(NOT TapegradCudaLibraries_FOUND)
    set(why "cuBLAS, cuDNN and NCCL for CUDA 13 were not all found")
  else()
    find_program(TG_NVCC nvcc HINTS "$ENV{CUDA_HOME}/bin" /usr/local/cuda/bin "${TG_CUDA_PYPI}/cu13/bin")
    mark_as_advanced(TG_NVCC)
    if(NOT TG_NVCC)
      set(why "no nvcc was found")
    else()
      execute_process(COMMAND "${TG_NVCC}" --version OUTPUT_VARIABLE version ERROR_QUIET)
      string(REGEX MATCH "release ([0-9]+)\\." version "${version}")
      if(NOT CMAKE_MATCH_1 EQUAL 13)
        set(why "${TG_NVCC} is not of CUDA 13")
      endif()
    endif()
  endif()
  if(NOT why)
    set(TG_CUDA_FOUND ON)
  elseif(CUDA STREQUAL "ON")
    message(FATAL_ERROR "tapegrad: CUDA=ON, but ${why}")
  else()
    message(STATUS "tapegrad: building without CUDA: ${why}")
  endif()
endif()

if(TG_CUDA_FOUND)
  set(CMAKE_CUDA_COMPILER "${TG_NVCC}" CACHE FILEPATH "")
  set(CMAKE_CUDA_ARCHITECTURES "${TG_CUDA_ARCHITECTURES}")
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
  set(CMAKE_CUDA_FLAGS_RELEASE "-O2 -DNDEBUG" CACHE STRING "" FORCE)
  enable_language(CUDA)
  find_package(CUDAToolkit 13 REQUIRED)

  file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/cuda/*.cpp" "${PROJECT_SOURCE_DIR}/cuda/*.cu")
  add_library(tapegrad_cuda SHARED ${cuda_sources})
  target_compile_options(tapegrad_cuda PRIVATE
    ${TG_BASELINE_FLAGS} "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra$<$<BOOL:${TG_WARNINGS_AS_ERRORS}>:,-Werror>>")
  # nvcc's front end cannot evaluate fmt's checks of format strings; they are made when the message is.
  target_compile_definitions(tapegrad_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:FMT_CONSTEVAL=>)
  target_link_libraries(tapegrad_cuda PUBLIC tapegrad
    PRIVATE $<BUILD_INTERFACE:tapegrad_private> CUDA::cudart
            TapegradCuda::cublas TapegradCuda::cudnn TapegradCuda::nccl)
  get_target_property(cudart CUDA::cudart IMPORTED_LOCATION)
  get_filename_component(cudart_dir "${cudart}" DIRECTORY)
  list(APPEND TG_CUDA_LIBRARY_DIRS "${cudart_dir}")
  set_target_properties(tapegrad_cuda PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib"
    BUILD_RPATH "$ORIGIN;${TG_CUDA_LIBRARY_DIRS}"
    INSTALL_RPATH "$ORIGIN;${TG_CUDA_LIBRARY_DIRS}")
  message(STATUS "tapegrad: building with CUDA ${CUDAToolkit_VERSION} for ${TG_CUDA_ARCHITECTURES}")
endif()
