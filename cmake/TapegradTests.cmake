# The C++ tests: every test/cpp/**/*.cpp in one program, which tools/ctest.sh builds and a default build does not. They are written for Catch2 2 (<catch2/catch.hpp>, whose main is
# test/cpp/main.cpp); where the system has Catch2 3, a header of the old name stands in and the library brings the main.

file(GLOB_RECURSE test_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/test/cpp/*.cpp")
if(NOT TARGET tapegrad_cuda_sim)
  list(FILTER test_sources EXCLUDE REGEX "/test/cpp/cuda/")
endif()
list(FILTER test_sources EXCLUDE REGEX "/driver_stub\\.cpp$")
# Where there are headers of CUDA, what cuBLASLt is told is tested with a double of it. The tests have a library of objects of their own: a
# definition that is a property of a source file would reach tapegrad_cuda, too, whose function it renames.
set(lt_sources "${PROJECT_SOURCE_DIR}/cuda/libraries/lt_products.cpp" "${PROJECT_SOURCE_DIR}/test/cpp/cuda/libraries/lt_products_test.cpp")
list(REMOVE_ITEM test_sources ${lt_sources})
if(test_sources)
  find_package(Catch2 REQUIRED)
  if(Catch2_VERSION VERSION_LESS 2.13)
    message(FATAL_ERROR "Catch2 2.13 or newer is needed, found ${Catch2_VERSION}")
  endif()
  add_executable(tapegrad_tests EXCLUDE_FROM_ALL ${test_sources})
  target_include_directories(tapegrad_tests PRIVATE "${PROJECT_SOURCE_DIR}/test/cpp")
  target_link_libraries(tapegrad_tests PRIVATE tapegrad_private tapegrad)
  if(TARGET tapegrad_cuda_sim)
    target_link_libraries(tapegrad_tests PRIVATE tapegrad_cuda_sim)
    # For libraries of NVIDIA that are asked where there is no driver.
    add_library(driver_stub SHARED EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/test/cpp/cuda/libraries/driver_stub.cpp")
    set_target_properties(driver_stub PROPERTIES OUTPUT_NAME cuda SUFFIX ".so.1" NO_SONAME ON
      LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/stubs" CXX_VISIBILITY_PRESET default)
    target_link_options(driver_stub PRIVATE -Wl,-soname,libcuda.so.1)
    target_link_libraries(tapegrad_tests PRIVATE ${CMAKE_DL_LIBS})
    set_source_files_properties("${PROJECT_SOURCE_DIR}/test/cpp/cuda/libraries/cudnn_test.cpp" PROPERTIES
      COMPILE_DEFINITIONS "TG_DRIVER_STUB=\"${PROJECT_BINARY_DIR}/stubs/libcuda.so.1\"")
    add_dependencies(tapegrad_tests driver_stub)
  endif()
  tg_precompile(tapegrad_tests catch2/catch.hpp tapegrad/aten/tensor.h tapegrad/autograd/engine/engine.h)
  # Assertions are long to optimise and short to run.
  target_compile_options(tapegrad_tests PRIVATE -O1)
  set_source_files_properties("${PROJECT_SOURCE_DIR}/test/cpp/main.cpp" PROPERTIES COMPILE_OPTIONS "-O0" SKIP_PRECOMPILE_HEADERS ON)
  if(Catch2_VERSION VERSION_LESS 3)
    set(catch Catch2::Catch2)
  else()
    file(WRITE "${PROJECT_BINARY_DIR}/catch2-as-2/catch2/catch.hpp"
      "#pragma once\n#include <catch2/catch_all.hpp>\nusing Catch::Approx;\n")
    target_include_directories(tapegrad_tests PRIVATE "${PROJECT_BINARY_DIR}/catch2-as-2")
    set(catch Catch2::Catch2WithMain)
    list(APPEND CMAKE_MODULE_PATH "${Catch2_DIR}")
  endif()
  target_link_libraries(tapegrad_tests PRIVATE ${catch})
  if(TARGET tapegrad_cuda AND TARGET tapegrad_cuda_sim)
    add_library(lt_tests OBJECT EXCLUDE_FROM_ALL ${lt_sources})
    target_compile_definitions(lt_tests PRIVATE register_products=register_products_of_test)  # the library calls the other where it is
    target_include_directories(lt_tests PRIVATE $<TARGET_PROPERTY:tapegrad_tests,INCLUDE_DIRECTORIES>)
    target_include_directories(lt_tests SYSTEM PRIVATE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} ${TG_CUBLAS_INCLUDE_DIR})
    target_link_libraries(lt_tests PRIVATE tapegrad_private tapegrad tapegrad_cuda_sim ${catch})
    target_link_libraries(tapegrad_tests PRIVATE lt_tests)
  endif()
  include(Catch)
  catch_discover_tests(tapegrad_tests PROPERTIES TIMEOUT 300)
endif()

# The lowest layers and the engines of one machine, and their tests in a program of their own: what several threads and processes share is
# looked at by ThreadSanitizer (tools/sanitizers/tsan.sh), for which the whole library would take too long to compile.
file(GLOB_RECURSE shared_sources CONFIGURE_DEPENDS
  "${PROJECT_SOURCE_DIR}/c10/*.cpp" "${PROJECT_SOURCE_DIR}/multiprocessing/*.cpp"
  "${PROJECT_SOURCE_DIR}/test/cpp/c10/*.cpp" "${PROJECT_SOURCE_DIR}/test/cpp/multiprocessing/*.cpp"
  "${PROJECT_SOURCE_DIR}/cuda/memory/device_allocator*.cpp" "${PROJECT_SOURCE_DIR}/cuda/simulated/*.cpp"
  "${PROJECT_SOURCE_DIR}/cuda/runtime/devices.cpp" "${PROJECT_SOURCE_DIR}/test/cpp/cuda/memory/device_allocator_test.cpp"
  "${PROJECT_SOURCE_DIR}/test/cpp/cuda/simulated/*.cpp"
  "${PROJECT_SOURCE_DIR}/distributed/*.cpp" "${PROJECT_SOURCE_DIR}/test/cpp/distributed/local/*_test.cpp"
  "${PROJECT_SOURCE_DIR}/test/cpp/distributed/reduce_test.cpp")
list(FILTER shared_sources EXCLUDE REGEX "/distributed/(gloo|mpi)/|_cpu\\.cpp$")
# These lead to the operators.
list(FILTER shared_sources EXCLUDE REGEX "(kernel_table|tensor_impl_test|simulated_(nccl|solver)|distributed/(group/.*|reducer))\\.cpp$")
if(TARGET tapegrad_tests AND TG_SANITIZE MATCHES "thread")
  foreach(isa ${TG_ISAS})
    add_library(tapegrad_shared_${isa} OBJECT EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/distributed/reduce_cpu.cpp")
    target_compile_definitions(tapegrad_shared_${isa} PRIVATE TG_ISA=${isa})
    target_compile_options(tapegrad_shared_${isa} PRIVATE ${TG_KERNEL_LEVEL} ${TG_ISA_FLAGS_${isa}})
    target_link_libraries(tapegrad_shared_${isa} PRIVATE tapegrad_private)
    list(APPEND shared_sources $<TARGET_OBJECTS:tapegrad_shared_${isa}>)
  endforeach()
  add_executable(tapegrad_shared_tests EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/test/cpp/main.cpp" ${shared_sources})
  get_target_property(catch tapegrad_tests LINK_LIBRARIES)
  list(REMOVE_ITEM catch tapegrad tapegrad_cuda_sim)
  target_link_libraries(tapegrad_shared_tests PRIVATE ${catch} ${CMAKE_DL_LIBS})
  get_target_property(folders tapegrad_tests INCLUDE_DIRECTORIES)
  target_include_directories(tapegrad_shared_tests PRIVATE ${folders})
endif()
