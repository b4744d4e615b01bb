# libtapegrad_cuda.so from cuda/**/*.{cpp,cu}, and libtapegrad_cuda_sim.so from the same files with the C++ compiler alone
# (docs/cuda.md). What CUDA says is in the first lines of CMakeLists.txt. Headers are looked for first, because trying a
# compiler takes seconds.

set(TG_CUDA_ARCHITECTURES "90-real;80-virtual" CACHE STRING
    "One architecture, and PTX that newer and older devices compile when they load it")
set(TG_CUDA_FOUND OFF)

if(NOT CUDA STREQUAL "OFF")
  set(why "")
  find_package(TapegradCudaLibraries QUIET)
  if(NOT TapegradCudaLibraries_FOUND)
    set(why "no cublasLt.h of CUDA 13 was found (PyPI: nvidia-cublas)")
  else()
    find_program(TG_NVCC nvcc HINTS "$ENV{CUDA_HOME}/bin" /usr/local/cuda/bin "${TG_CUDA_PYPI}/cu13/bin")
    mark_as_advanced(TG_NVCC)
    if(NOT TG_NVCC)
      set(why "no nvcc was found (PyPI: the extra \"nvcc\" of pyproject.toml)")
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

file(GLOB_RECURSE cuda_host_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/cuda/*.cpp")
file(GLOB_RECURSE cuda_kernel_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/cuda/*.cu")
foreach(file ${TG_GENERATED})
  if(file MATCHES "\\.cu$")
    list(APPEND cuda_kernel_sources "${TG_GEN_DIR}/${file}")
  endif()
endforeach()

# The texts that kernels made at run time include (cuda/record/).
set(device_texts "")
file(GLOB texts RELATIVE "${PROJECT_SOURCE_DIR}" CONFIGURE_DEPENDS cuda/record/device/*.h aten/functors/*.h c10/macros.h c10/tensor/half.h)
list(REMOVE_ITEM texts aten/functors/reduce.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${texts})
foreach(text ${texts})
  file(READ "${text}" content)
  string(APPEND device_texts "{\"tapegrad/${text}\", R\"TG(${content})TG\"},\n")
endforeach()
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/include/tapegrad/device_texts.inc" CONTENT "@device_texts@" @ONLY)

# tg_cuda_code(SHARED OWN ARCHITECTURES): nvcc's options for a list as in CMAKE_CUDA_ARCHITECTURES. OWN compiles for each of
# them. SHARED compiles PTX once for all from 80 to 90 and assembles machine code from that, in three quarters of the time. nvcc
# 13.0 gives the same PTX for each of these but for its .target line, and so the same machine code (compared for scan, conv,
# norm, attention, optim, index, softmax and pointwise); for 100 and newer it has another compiler. Not for files that ask which
# architecture it is, as CUB does.
function(tg_cuda_code shared own architectures)
  set(least 90)
  set(codes "")
  set(each "")
  set(others "")
  foreach(entry ${architectures})
    if(NOT entry MATCHES "^([0-9]+[af]?)(-real|-virtual)?$")
      message(FATAL_ERROR "TG_CUDA_ARCHITECTURES: expected numbers, as in 90-real;80-virtual: got ${entry}")
    endif()
    set(number "${CMAKE_MATCH_1}")
    set(code "")
    if(NOT CMAKE_MATCH_2 STREQUAL "-virtual")
      list(APPEND code sm_${number})
    endif()
    if(NOT CMAKE_MATCH_2 STREQUAL "-real")
      list(APPEND code compute_${number})
    endif()
    list(JOIN code "," joined)
    list(APPEND each "--generate-code=arch=compute_${number},code=[${joined}]")
    if(number MATCHES "^(8.|90)$")
      list(APPEND codes ${code})
      if(number LESS least)
        set(least ${number})
      endif()
    else()
      list(APPEND others "--generate-code=arch=compute_${number},code=[${joined}]")
    endif()
  endforeach()
  if(codes)
    if(codes MATCHES "compute_")  # the PTX of all virtual ones is one
      list(FILTER codes EXCLUDE REGEX "compute_")
      list(APPEND codes compute_${least})
    endif()
    list(JOIN codes "," joined)
    list(APPEND others "--generate-code=arch=compute_${least},code=[${joined}]")
  endif()
  set(${shared} "${others}" PARENT_SCOPE)
  set(${own} "${each}" PARENT_SCOPE)
endfunction()

if(TG_CUDA_FOUND)
  # A check is for the compilers and the linker: machine code of one architecture, not optimised.
  set(architectures "${TG_CUDA_ARCHITECTURES}")
  set(level -O2)
  set(check_flags "")
  set(check OFF)
  if(CUDA STREQUAL "CHECK")
    set(check ON)
    list(GET TG_CUDA_ARCHITECTURES 0 architectures)
    set(level -O0)
    set(check_flags -Xcicc=-O0 -Xptxas=-O0)
  endif()

  get_filename_component(toolkit "${TG_NVCC}" REALPATH)
  get_filename_component(toolkit "${toolkit}/../.." ABSOLUTE)
  if(NOT EXISTS "${toolkit}/lib64" AND EXISTS "${toolkit}/lib")  # PyPI's nvcc looks for a folder that its wheels lack
    file(CREATE_LINK lib "${toolkit}/lib64" RESULT ignored SYMBOLIC)
  endif()
  set(CMAKE_CUDA_COMPILER "${TG_NVCC}" CACHE FILEPATH "")
  set(CMAKE_CUDA_ARCHITECTURES OFF)  # said by tg_cuda_code()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
  set(CMAKE_CUDA_FLAGS_RELEASE "${level} -DNDEBUG" CACHE STRING "" FORCE)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  enable_language(CUDA)

  set(cuda_sources ${cuda_host_sources} ${cuda_kernel_sources})
  list(FILTER cuda_sources EXCLUDE REGEX "/cuda/simulated/")
  set(include_dirs "${TG_CUBLAS_INCLUDE_DIR}")
  if(TG_CUSOLVER_INCLUDE_DIR)  # where it is there, our declarations are checked
    list(APPEND include_dirs "${TG_CUSOLVER_INCLUDE_DIR}")
  endif()
  if(TG_CUFFT_INCLUDE_DIR)  # without its header our own kernels are used
    list(APPEND include_dirs "${TG_CUFFT_INCLUDE_DIR}")
  else()
    list(FILTER cuda_sources EXCLUDE REGEX "/cuda/libraries/fft_plans\\.cpp$")
    message(STATUS "tapegrad: building without cuFFT, whose header was not found (PyPI: the extra \"cuda-build\")")
  endif()
  list(REMOVE_DUPLICATES include_dirs)
  add_library(tapegrad_cuda SHARED ${cuda_sources})
  set_target_properties(tapegrad_cuda PROPERTIES EXCLUDE_FROM_ALL ${check})
  tg_cuda_code(shared_code own_code "${architectures}")
  foreach(file ${cuda_sources})
    if(file MATCHES "/cuda/(sort/device_sort|runtime/architecture)\\.cu$")
      set_source_files_properties("${file}" PROPERTIES COMPILE_OPTIONS "${own_code}")
    elseif(file MATCHES "\\.cu$")
      set_source_files_properties("${file}" PROPERTIES COMPILE_OPTIONS "${shared_code}")
    endif()
  endforeach()
  target_compile_options(tapegrad_cuda PRIVATE
    ${TG_BASELINE_FLAGS} "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-include=tapegrad/cuda/launch/nvcc.h;--compress-mode=size;${check_flags}>"
    "$<$<COMPILE_LANGUAGE:CUDA>:--diag-suppress=186>"  # templates compare unsigned numbers, too, with zero
    # The C++ that nvcc hands on spells types out, deprecated names of the standard library among them.
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wno-deprecated-declarations>"
    "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${TG_WARNINGS_AS_ERRORS}>>:-Xcompiler=-Werror;-Werror=all-warnings>")
  # nvcc's front end cannot evaluate fmt's checks of format strings; they are made when the message is.
  target_compile_definitions(tapegrad_cuda PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:FMT_CONSTEVAL=> $<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>)
  # Only headers: the libraries themselves are opened when they are first used (cuda/libraries/), so that the package
  # loads where some of them, or the driver, are missing. The run path is where they are looked for.
  target_include_directories(tapegrad_cuda SYSTEM PRIVATE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} ${include_dirs})
  target_link_libraries(tapegrad_cuda PUBLIC tapegrad PRIVATE $<BUILD_INTERFACE:tapegrad_private> ${CMAKE_DL_LIBS} rt)
  target_link_options(tapegrad_cuda PRIVATE -Wl,--no-undefined)
  if(TG_OLDER_SYSTEMS)
    target_sources(tapegrad_cuda PRIVATE "${PROJECT_SOURCE_DIR}/c10/older_systems.cpp")
    target_link_options(tapegrad_cuda PRIVATE "${TG_OLDER_SYSTEMS}")
  endif()
  set(places "$ORIGIN")
  if(SKBUILD)  # wheels beside this one
    foreach(folder cu13 cudnn nccl)
      list(APPEND places "$ORIGIN/../../nvidia/${folder}/lib")
    endforeach()
    list(FILTER TG_CUDA_LIBRARY_DIRS EXCLUDE REGEX "/nvidia/")  # those of the environment that builds
  endif()
  set_target_properties(tapegrad_cuda PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib"
    BUILD_RPATH "$ORIGIN;${TG_CUDA_LIBRARY_DIRS}"
    INSTALL_RPATH "${places};${TG_CUDA_LIBRARY_DIRS}")
  message(STATUS "tapegrad: building with CUDA ${CMAKE_CUDA_COMPILER_VERSION} for ${architectures}")
  if(TG_CUDA_LIBRARIES_MISSING)
    message(STATUS "tapegrad: not here, asked for when an operator needs one: ${TG_CUDA_LIBRARIES_MISSING}")
  endif()
endif()

# The simulated device: kernels are compiled as C++ through a file each that includes them, because a .cu file can have one
# language only in a build that also has nvcc.
option(TG_CUDA_SIMULATED "Build libtapegrad_cuda_sim, a CUDA device made of host memory for tests" ON)
if(TG_CUDA_SIMULATED)
  set(simulated_sources ${cuda_host_sources})
  list(FILTER simulated_sources EXCLUDE REGEX "/cuda/(libraries/|runtime/runtime_driver\\.cpp)")
  set(kernels ${cuda_kernel_sources})
  list(FILTER kernels EXCLUDE REGEX "/cuda/(libraries/|runtime/architecture\\.cu)")
  foreach(kernel ${kernels})
    string(REPLACE "${PROJECT_SOURCE_DIR}/" "tapegrad/" name "${kernel}")
    if(kernel MATCHES "^${TG_GEN_DIR}/")
      file(RELATIVE_PATH name "${TG_GEN_DIR}" "${kernel}")
    endif()
    set(wrapper "${PROJECT_BINARY_DIR}/simulated/${name}.cpp")
    file(CONFIGURE OUTPUT "${wrapper}" CONTENT "#include \"@name@\"\n" @ONLY)
    list(APPEND simulated_sources "${wrapper}")
  endforeach()
  # Not of a default build, of which it would be a sixth: what runs tests builds it (tools/ctest.sh).
  add_library(tapegrad_cuda_sim SHARED EXCLUDE_FROM_ALL ${simulated_sources})
  target_compile_definitions(tapegrad_cuda_sim PRIVATE TG_CUDA_SIMULATED=1)
  set(simulated_level -O1)  # long to optimise, short to run
  if(TG_SANITIZE)  # half the time of the compiler
    set(simulated_level -O0)
  endif()
  target_compile_options(tapegrad_cuda_sim PRIVATE ${TG_BASELINE_FLAGS} ${simulated_level})
  tg_precompile(tapegrad_cuda_sim tapegrad/cuda/kernels.h tapegrad/cuda/launch/loops.h tapegrad/cuda/pointwise/rows.h)
  # It defines what a header declares in another way.
  set_source_files_properties(cuda/pointwise/simulated_math.cpp PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  target_link_libraries(tapegrad_cuda_sim PUBLIC tapegrad PRIVATE $<BUILD_INTERFACE:tapegrad_private> ${CMAKE_DL_LIBS})
  if(NOT TG_SANITIZE)  # a kernel that is missing or misspelt is an error here, and not when the library is loaded
    target_link_options(tapegrad_cuda_sim PRIVATE -Wl,--no-undefined)
  endif()
  set_target_properties(tapegrad_cuda_sim PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib" BUILD_RPATH "$ORIGIN")
endif()
