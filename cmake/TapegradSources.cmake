# Which files are compiled: hand-written ones by glob, generated ones as the generator lists them.
# Sets TG_SOURCES (compiled once), TG_KERNEL_SOURCES (*_cpu.cpp, compiled once per ISA), TG_BINDING_SOURCES,
# TG_GENERATED_PYTHON (relative to TG_GEN_DIR/python) and the include path TG_INCLUDE_DIRS.

set(TG_GEN_DIR "${PROJECT_BINARY_DIR}/gen")
set(TG_LAYERS c10 aten autograd nn multiprocessing distributed)  # compiled into libtapegrad

# Includes are written "tapegrad/c10/tensor/dtype.h": a link per layer makes that true of the source tree.
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/include/tapegrad")
foreach(layer ${TG_LAYERS} cuda bindings)
  file(CREATE_LINK "${PROJECT_SOURCE_DIR}/${layer}" "${PROJECT_BINARY_DIR}/include/tapegrad/${layer}" SYMBOLIC)
endforeach()
set(TG_INCLUDE_DIRS "${PROJECT_BINARY_DIR}/include" "${TG_GEN_DIR}" "${PROJECT_SOURCE_DIR}/include")

# The generator runs while configuring and writes only what changed, so that its output is known here and a change of
# one row recompiles little. A change of a table, of the generator or of a functor (files include the headers that their rows need)
# makes the build configure again.
file(GLOB_RECURSE tables CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/aten/*.toml" "${PROJECT_SOURCE_DIR}/nn/*.toml")
file(GLOB_RECURSE generator CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/aten/gen/*.py")
file(GLOB functors CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/aten/functors/*.h")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${tables} ${generator} ${functors})

function(tg_generate result)
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -E env PYTHONDONTWRITEBYTECODE=1
            "${Python_EXECUTABLE}" -m aten.gen --ops aten/ops --nn nn --out "${TG_GEN_DIR}" ${ARGN}
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    OUTPUT_VARIABLE output ERROR_VARIABLE error RESULT_VARIABLE status OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "the generator failed:\n${output}\n${error}")
  endif()
  set(${result} "${output}" PARENT_SCOPE)
endfunction()

set(TG_GENERATED "")
if(EXISTS "${PROJECT_SOURCE_DIR}/aten/gen/__main__.py")
  tg_generate(ignored)
  tg_generate(TG_GENERATED --list)
  string(REPLACE "\n" ";" TG_GENERATED "${TG_GENERATED}")
endif()

# What an earlier table gave and this one does not must not be found by an include or an import.
file(GLOB_RECURSE on_disk RELATIVE "${TG_GEN_DIR}" "${TG_GEN_DIR}/*")
foreach(file ${on_disk})
  if(NOT file IN_LIST TG_GENERATED AND file MATCHES "\\.(h|inc|cpp|cu|py|pyi)$")
    file(REMOVE "${TG_GEN_DIR}/${file}")
  endif()
endforeach()

set(TG_SOURCES "")
foreach(layer ${TG_LAYERS})
  file(GLOB_RECURSE found CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${layer}/*.cpp")
  list(APPEND TG_SOURCES ${found})
endforeach()
list(FILTER TG_SOURCES EXCLUDE REGEX "/distributed/(gloo|mpi)/")  # libraries of their own: TapegradEngines.cmake
if(TAPEGRAD_ONEDNN)
  list(FILTER TG_SOURCES EXCLUDE REGEX "/aten/without_onednn\\.cpp$")
else()
  list(FILTER TG_SOURCES EXCLUDE REGEX "/aten/(onednn/|[^/]+/onednn[^/]*\\.cpp$)")
endif()
file(GLOB_RECURSE TG_BINDING_SOURCES CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bindings/*.cpp")

set(TG_GENERATED_PYTHON "")
foreach(file ${TG_GENERATED})
  if(file MATCHES "^python/tapegrad/(.*\\.pyi?)$")
    list(APPEND TG_GENERATED_PYTHON "${CMAKE_MATCH_1}")
  elseif(file MATCHES "^bindings/.*\\.cpp$")
    list(APPEND TG_BINDING_SOURCES "${TG_GEN_DIR}/${file}")
  elseif(file MATCHES "\\.cpp$")
    list(APPEND TG_SOURCES "${TG_GEN_DIR}/${file}")
  endif()
endforeach()

set(TG_KERNEL_SOURCES ${TG_SOURCES})
list(FILTER TG_KERNEL_SOURCES INCLUDE REGEX "_cpu\\.cpp$")
list(FILTER TG_SOURCES EXCLUDE REGEX "_cpu\\.cpp$")
