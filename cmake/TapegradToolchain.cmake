# Flags that every target gets, the compiler cache and the linker.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# -O2 everywhere; only the kernels get -O3 (TapegradLibrary.cmake).
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG" CACHE STRING "Flags of Release builds" FORCE)

find_program(CCACHE_PROGRAM ccache)
mark_as_advanced(CCACHE_PROGRAM)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths relative to the sources, so that every checkout and work tree of one machine shares the cache; and what ccache's
  # manual asks for with precompiled headers. Whether a warning is an error is not part of the key: pip installs without.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_IGNOREOPTIONS=-Werror
      CCACHE_SLOPPINESS=pch_defines,time_macros ${PROJECT_SOURCE_DIR}/cmake/ccache.sh ${CCACHE_PROGRAM})
  # nvcc preprocesses twice, for the host and for the device, and its output holds one of the two: files are compared instead.
  set(CMAKE_CUDA_COMPILER_LAUNCHER env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1 ${CCACHE_PROGRAM})
endif()

add_library(tapegrad_flags INTERFACE)
target_compile_options(tapegrad_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra $<$<BOOL:${TG_WARNINGS_AS_ERRORS}>:-Werror>
  -fno-plt -fno-semantic-interposition>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 sees impossible bounds in inlined memcpy of small vectors.
  target_compile_options(tapegrad_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread>)
else()
  # clang has no simd attribute: the loops stay correct and call the scalar functions.
  # Loops that are to become vector code use & and | on conditions.
  target_compile_options(tapegrad_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-unknown-attributes -Wno-unknown-pragmas -Wno-bitwise-conditional-parentheses
    -Wno-bitwise-instead-of-logical -Wno-unknown-warning-option -Wno-braced-scalar-init -Wno-ambiguous-reversed-operator>)
endif()
target_link_options(tapegrad_flags INTERFACE -Wl,-z,now)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(TG_X86 ON)
  set(TG_BASELINE_FLAGS $<$<COMPILE_LANGUAGE:CXX>:-march=x86-64-v2>)  # what everything but the kernels may use
else()
  set(TG_X86 OFF)
  set(TG_BASELINE_FLAGS "")
endif()

find_program(MOLD_PROGRAM mold)
mark_as_advanced(MOLD_PROGRAM)
if(MOLD_PROGRAM AND NOT TG_SANITIZE)
  target_link_options(tapegrad_flags INTERFACE -fuse-ld=mold)
endif()

set(TG_KERNEL_LEVEL -O3)
if(TG_SANITIZE)
  # Optimised kernels take the compiler four times as long under a sanitizer, and the tests are small.
  set(TG_KERNEL_LEVEL -O0)
  # One report is one failure; -O1 and frame pointers keep the stacks readable and the build short.
  set(CMAKE_CXX_FLAGS_RELEASE "-O1 -g1" CACHE STRING "Flags of Release builds" FORCE)
  target_compile_options(tapegrad_flags INTERFACE
    -fsanitize=${TG_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
    # empty(dtype=bool), and bytes viewed as bool, are neither 0 nor 1: conversions read them as true.
    -fno-sanitize=bool)
  target_compile_definitions(tapegrad_flags INTERFACE TG_SANITIZED=1)
  target_link_options(tapegrad_flags INTERFACE -fsanitize=${TG_SANITIZE})
endif()

# Most of what the compiler does for a file is reading headers: those that most files of a target include are read once.
# tg_precompile(TARGET HEADER...)
option(TG_PRECOMPILE "Precompile headers (g++); without it, files are checked for what they include" ON)
function(tg_precompile target)
  if(NOT TG_PRECOMPILE OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  list(TRANSFORM ARGN REPLACE "(.+)" "<\\1>")  # by name, not by path: the same in every checkout
  target_precompile_headers(${target} PRIVATE ${ARGN})
  target_compile_options(${target} PRIVATE -fpch-preprocess)
endfunction()
