# libtapegrad.so: everything below Python. Kernel files (*_cpu.cpp) are compiled once per instruction set, with
# TG_ISA naming the namespace they land in; which one runs is decided at start-up.

if(TG_X86)
  set(TG_ISAS "avx2;avx512" CACHE STRING "Instruction sets to compile kernels for")
else()
  set(TG_ISAS "generic" CACHE STRING "Instruction sets to compile kernels for")
endif()
set(TG_ISA_FLAGS_avx2 -march=x86-64-v3)
set(TG_ISA_FLAGS_avx512 -march=x86-64-v4 -mprefer-vector-width=512)
set(TG_ISA_FLAGS_generic "")

if(NOT TG_SOURCES)
  message(FATAL_ERROR "no sources found under ${PROJECT_SOURCE_DIR}")
endif()

# What every translation unit of ours is compiled with.
add_library(tapegrad_private INTERFACE)
target_include_directories(tapegrad_private INTERFACE ${TG_INCLUDE_DIRS})
target_include_directories(tapegrad_private SYSTEM INTERFACE ${TG_openblas_HEADERS} ${TG_dnnl_HEADERS})
target_link_libraries(tapegrad_private INTERFACE tapegrad_flags fmt::fmt nlohmann_json::nlohmann_json Threads::Threads)
target_compile_definitions(tapegrad_private INTERFACE TG_VERSION="${PROJECT_VERSION}")
foreach(isa ${TG_ISAS})
  string(TOUPPER "TG_HAVE_ISA_${isa}" define)
  target_compile_definitions(tapegrad_private INTERFACE ${define}=1)
endforeach()

# Order matters: the first copy of an inline function that the linker meets is kept for everybody, so the baseline
# objects come first and the widest instruction set last.
# What is called rarely, or does much beneath one call, is compiled for size (-Os: 0.67 MB less of libtapegrad, measured 2026-11-27): layers,
# groups of processes, formulas of gradients, programs, the dispatch of operators that do much. Not linear algebra, where small matrices took a
# fifth longer, nor rules of batches (3 %), losses, softmax, attention and steps of optimizers (5 to 14 % of small calls), unique (2 to 3 times),
# nor what records, compares and plans small steps (a sixth).
# With what is for size in the bindings, fewer versions and copies of loops below, and norms of complex64 by those of complex128: 1.2 MB less, 1.00 of the
# time of 20 small calls and 0.97 to 1.04 of 90 others, by families (zen5-avx512, 2026-11-27; the slowest are logcumsumexp, 1.1, and norms of complex64 by a power, 1.2).
set(small ${TG_SOURCES})
list(FILTER small INCLUDE REGEX "/autograd/(formulas/|gradcheck|profiler/)|/aten/(calculus|fft|pool|random|sparse|upsample)/|/aten/quantized/scaled|/aten/record/(again|order|program|tracer|chain/fuse|chain/loop|device/)|/distributed/|/multiprocessing/|/nn/([^/]*\\.cpp$|data/|files/|layers/|utils/|optim/(schedules|cycles|optimizers))|/src/nn_|/src/ops_(calculus|conv|decompose|fft|fold|index|norm|pool|quantized|random|rnn|scan|solve|sort|special|upsample)_")
set(baseline ${TG_SOURCES})
list(REMOVE_ITEM baseline ${small})
set(objects "")
foreach(part baseline small)
  add_library(tapegrad_${part} OBJECT ${${part}})
  # A section for each function, so that the linker finds those of one code (--icf below).
  target_compile_options(tapegrad_${part} PRIVATE ${TG_BASELINE_FLAGS} -ffunction-sections)
  target_link_libraries(tapegrad_${part} PRIVATE tapegrad_private)
  tg_precompile(tapegrad_${part} tapegrad/aten/batch/rule.h tapegrad/aten/dispatch/call.h tapegrad/aten/iterate/outputs.h tapegrad/aten/iterate/pointwise.h
    tapegrad/aten/iterate/reduce.h tapegrad/aten/sparse/operators.h tapegrad/autograd/formulas/all.h
    tapegrad/autograd/generated_support.h)
  list(APPEND objects $<TARGET_OBJECTS:tapegrad_${part}>)
endforeach()
if(NOT TG_SANITIZE)
  target_compile_options(tapegrad_small PRIVATE -Os)
endif()
# They define what a header declares in another way.
set_source_files_properties(aten/vector_math.cpp aten/vector_math_cpu.cpp aten/vector_math_arm.cpp aten/vector_math_x86.cpp
  PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
# Generated kernels apply functors, which declare mathematical functions as having vector forms (functors/math.h): hand-written ones
# do not see that unless they ask for it, so the two have their own precompiled headers. The functors themselves are in neither: each
# file includes those of its rows.
set(generated_kernels ${TG_KERNEL_SOURCES})
list(FILTER generated_kernels INCLUDE REGEX "^${TG_GEN_DIR}/")
set(kernels ${TG_KERNEL_SOURCES})
list(FILTER kernels EXCLUDE REGEX "^${TG_GEN_DIR}/")
# g++ would make several copies of the loops here, by conditions and strides that their callers have told apart by hand: up to half of the code, no
# faster (measured 2026-11-27; Fourier transforms, optimizers, indexing, linspace, products of integers of 8 bits and of few rows do get slower without).
set(few_versions ${TG_KERNEL_SOURCES})
list(FILTER few_versions INCLUDE REGEX "aten/(conv/conv|index/search|linalg/factor/small_spectral|norm/(batch|group)_norm|pool/avg_pool|reduce/extreme|rnn/(layer_grad|packed_product)|scan/scan)_cpu")
set_property(SOURCE ${few_versions} APPEND PROPERTY
  COMPILE_OPTIONS "$<$<CXX_COMPILER_ID:GNU>:-fno-unswitch-loops;-fno-split-loops;-fno-version-loops-for-strides>")
if(NOT TG_SANITIZE)
  # What is left when a loop's vectors are done is a loop of its own here, and not a copy of its body for each element: a twelfth of the code
  # (0.98 of the time in the geometric mean of 456 cases, measured 2026-11-27; distances do get slower).
  set(few_copies ${TG_KERNEL_SOURCES})
  list(FILTER few_copies INCLUDE REGEX "aten/(attention/attention|conv/conv|copy/convert_complex|create/create|linalg/product/gemm|loss/cross_entropy|norm/(batch|group)_norm|pool/avg_pool|quantized/(int8|weight_only)|random/(discrete|multinomial|random)|reduce/extreme|rnn/(layer|layer_grad|packed_product)|scan/scan|softmax/softmax)_cpu|src/reduce_")
  set_property(SOURCE ${few_copies} APPEND PROPERTY
    COMPILE_OPTIONS "$<$<CXX_COMPILER_ID:GNU>:--param=max-completely-peel-times=8;--param=max-completely-peeled-insns=100>")
endif()
if(TG_ISAS STREQUAL "avx2;avx512" AND NOT TG_SANITIZE)
  # Vectors of 256 bits cost nothing here in the geometric mean, which was measured for all families (zen5-avx512, 2026-11-27: max_pool2d takes
  # 0.5 to 1 of the time, max_pool1d 1.2, topk 0.75 of float32, 0.9 of bfloat16 and 1.5 to 1.9 of 64 bits, which is 0.4 to 0.65 of PyTorch's
  # still; sorts 1.0): compiled for AVX2 twice, which the linker makes one of (--icf below).
  set(narrow ${TG_KERNEL_SOURCES})
  list(FILTER narrow INCLUDE REGEX "aten/(conv/fold|index/bag|join/join|loss/(ctc|nll)|pad/pad|pool/(fractional|max_pool)|random/rejection|sort/(select|sort)|upsample/grid_sample)_cpu|src/pointwise_special_(i0|shifted)")
  set_source_files_properties(${narrow} PROPERTIES
    COMPILE_OPTIONS "${TG_ISA_FLAGS_avx2};-mprefer-vector-width=256" SKIP_PRECOMPILE_HEADERS ON)
endif()
foreach(isa ${TG_ISAS})
  foreach(part kernels generated_kernels)
    if(NOT ${part})
      continue()
    endif()
    set(target tapegrad_${isa}_${part})
    add_library(${target} OBJECT ${${part}})
    target_compile_definitions(${target} PRIVATE TG_ISA=${isa})
    target_compile_options(${target} PRIVATE ${TG_KERNEL_LEVEL} -ffunction-sections -fno-math-errno -fno-trapping-math -ffp-contract=fast
      ${TG_ISA_FLAGS_${isa}})
    target_link_libraries(${target} PRIVATE tapegrad_private)
    list(APPEND objects $<TARGET_OBJECTS:${target}>)
  endforeach()
  tg_precompile(tapegrad_${isa}_kernels tapegrad/aten/iterate/outputs.h tapegrad/aten/copy/strided_loop.h tapegrad/aten/typed.h
    tapegrad/aten/iterate/blocks/half_blocks.h tapegrad/c10/threads/parallel.h)
  tg_precompile(tapegrad_${isa}_generated_kernels tapegrad/aten/iterate/rows.h tapegrad/aten/iterate/reduce_rows.h
    tapegrad/aten/functors/math.h)
endforeach()

add_library(tapegrad SHARED ${objects})
add_library(tapegrad::tapegrad ALIAS tapegrad)
set_target_properties(tapegrad PROPERTIES
  LINKER_LANGUAGE CXX
  LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
if(NOT SKBUILD)  # a wheel cannot hold the links that versions bring
  set_target_properties(tapegrad PROPERTIES
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endif()
target_include_directories(tapegrad PUBLIC
  "$<BUILD_INTERFACE:${TG_INCLUDE_DIRS}>" "$<INSTALL_INTERFACE:include>")
target_compile_features(tapegrad PUBLIC cxx_std_20)
target_link_libraries(tapegrad PUBLIC fmt::fmt Threads::Threads)
# The paths of third parties, not their targets: programs that link an installed libtapegrad need none of them.
target_link_libraries(tapegrad PRIVATE $<BUILD_INTERFACE:tapegrad_flags>
  "${SLEEF_LIBRARY}" ${TG_DNNL_LIBRARY} ${TG_GOMP_LIBRARY} "${ZLIB_LIBRARIES}" ${CMAKE_DL_LIBS})
if(NOT TG_SANITIZE)
  # Calls within the library go straight to their functions, and not through a table that is filled when it is loaded.
  target_link_options(tapegrad PRIVATE -Wl,--no-undefined -Wl,-Bsymbolic-functions)
endif()
if(MOLD_PROGRAM AND NOT TG_SANITIZE)
  # Functions of one code are one: 0.27 MB less (measured 2026-11-26; dropping functions that nobody calls, --gc-sections, gives 2 kB).
  # Not for the bindings, where the address of a function says which one it is.
  target_link_options(tapegrad PRIVATE LINKER:--icf=all)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64|aarch64)$")
  set(TG_OLDER_SYSTEMS "LINKER:--wrap=hypot,--wrap=hypotf,--wrap=_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE")
  target_link_options(tapegrad PRIVATE "${TG_OLDER_SYSTEMS}")  # c10/older_systems.cpp
endif()

# Where the third-party libraries are, in the build tree and after installation.
set_target_properties(tapegrad PROPERTIES BUILD_RPATH "${TG_OPENBLAS_LIBRARY_DIR};${TG_DNNL_LIBRARY_DIR}")
