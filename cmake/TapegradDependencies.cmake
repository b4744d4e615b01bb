# Everything that is not ours, through find_package with a minimum version.
# docs/dependencies.md says why each is here and what it costs.

# The interpreter: the one named on the command line, else the active virtual environment, else .venv beside
# this project, else what find_package finds. NumPy, OpenBLAS and oneDNN are taken from it.
if(NOT Python_EXECUTABLE)
  set(Python_FIND_VIRTUALENV FIRST)
  if(NOT DEFINED ENV{VIRTUAL_ENV} AND EXISTS "${PROJECT_SOURCE_DIR}/.venv/bin/python")
    set(Python_EXECUTABLE "${PROJECT_SOURCE_DIR}/.venv/bin/python")
  endif()
endif()
if(TG_BUILD_PYTHON)
  find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module NumPy)
  if(NOT Python_SOABI)  # which CMake does not ask where it compiles for another processor
    execute_process(COMMAND "${Python_EXECUTABLE}" -c "import sysconfig; print(sysconfig.get_config_var('SOABI'))"
      OUTPUT_VARIABLE Python_SOABI OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
else()
  find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)
endif()

# The interpreter that has OpenBLAS and oneDNN: one for all when libtapegrad is built once for several (tools/wheel.sh).
set(TG_LIBRARIES_PYTHON "" CACHE FILEPATH "Interpreter whose OpenBLAS and oneDNN are used (default: the one the package is for)")
set(libraries_python "${TG_LIBRARIES_PYTHON}")
if(NOT libraries_python)
  set(libraries_python "${Python_EXECUTABLE}")
endif()

# tg_ask_python(VAR IMPORTS EXPRESSION): what that interpreter says, cached per interpreter; empty when it fails, and then
# asked again the next time.
function(tg_ask_python var imports expression)
  if("$CACHE{${var}}" STREQUAL "" OR NOT "${TG_ASKED_PYTHON}" STREQUAL "${libraries_python}")
    execute_process(COMMAND "${libraries_python}" -c "import ${imports}; print(${expression})"
      OUTPUT_VARIABLE answer ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    set(${var} "${answer}" CACHE INTERNAL "answer of ${libraries_python}")
  endif()
endfunction()

tg_ask_python(TG_OPENBLAS_PACKAGE scipy_openblas32 "scipy_openblas32.get_lib_dir()")
tg_ask_python(TG_ONEDNN_PACKAGE importlib.metadata,pathlib
  "next(str(pathlib.Path(f.locate()).resolve().parent) for f in importlib.metadata.files('onednn-devel-cpu-gomp') if f.name == 'dnnl-config.cmake')")
set(TG_ASKED_PYTHON "${libraries_python}" CACHE INTERNAL "interpreter of the answers above")

find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(nlohmann_json 3.9 REQUIRED)
find_package(ZLIB 1.2 REQUIRED)
if(TG_X86)
  find_path(TG_XBYAK_HEADERS xbyak/xbyak.h)
  if(NOT TG_XBYAK_HEADERS)
    message(FATAL_ERROR "xbyak was not found (Debian: libxbyak-dev)")
  endif()
endif()
find_package(SLEEF 3.5 REQUIRED)
find_package(OpenBLAS 0.3.34 REQUIRED MODULE)

# What the rest of the build asks is TAPEGRAD_ONEDNN and, empty without it, TG_DNNL_LIBRARY, TG_DNNL_LIBRARY_DIR, TG_DNNL_SONAME,
# TG_GOMP_LIBRARY and TG_dnnl_HEADERS.
option(TAPEGRAD_ONEDNN "Convolutions of floats by oneDNN; without it as products with the matrix of patches" ${TG_X86})
set(TG_DNNL_LIBRARY_DIR "")
if(TAPEGRAD_ONEDNN)
  set(dnnl_ROOT "${TG_ONEDNN_PACKAGE}")
  find_package(dnnl 3.2 REQUIRED CONFIG PATHS "${TG_ONEDNN_PACKAGE}")
  get_target_property(TG_DNNL_LIBRARY DNNL::dnnl IMPORTED_LOCATION_RELEASE)
  get_target_property(TG_DNNL_SONAME DNNL::dnnl IMPORTED_SONAME_RELEASE)
  get_filename_component(TG_DNNL_LIBRARY_DIR "${TG_DNNL_LIBRARY}" DIRECTORY)
  # The runtime that oneDNN is linked to, whatever compiler is used; nothing of tapegrad is compiled with -fopenmp.
  find_package(OpenMP QUIET COMPONENTS CXX)
  find_library(TG_GOMP_LIBRARY NAMES libgomp.so.1)
  if(OpenMP_gomp_LIBRARY)
    set(TG_GOMP_LIBRARY "${OpenMP_gomp_LIBRARY}")
  elseif(NOT TG_GOMP_LIBRARY)
    message(FATAL_ERROR "oneDNN's OpenMP runtime, libgomp, was not found (Debian: libgomp1)")
  endif()
else()
  message(STATUS "tapegrad: without oneDNN: convolutions are products with the matrix of patches")
  unset(TG_GOMP_LIBRARY CACHE)
endif()

# tg_headers(FOLDER NAME RESULT): a link to a folder of headers from the build tree. The compiler cache keeps paths relative to the
# sources: pip builds in an environment whose path is another one each time, and a virtual environment may be anywhere.
function(tg_headers folder name result)
  file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/headers")
  file(CREATE_LINK "${folder}" "${PROJECT_BINARY_DIR}/headers/${name}" SYMBOLIC)
  set(${result} "${PROJECT_BINARY_DIR}/headers/${name}" PARENT_SCOPE)
endfunction()

set(targets OpenBLAS::OpenBLAS)
if(TAPEGRAD_ONEDNN)
  list(APPEND targets DNNL::dnnl)
endif()
foreach(target ${targets})
  get_target_property(folder ${target} INTERFACE_INCLUDE_DIRECTORIES)
  string(TOLOWER "${target}" name)
  string(REGEX REPLACE ".*::" "" name "${name}")
  tg_headers("${folder}" ${name} TG_${name}_HEADERS)
endforeach()
if(TG_BUILD_PYTHON)
  tg_headers("${Python_NumPy_INCLUDE_DIRS}" numpy TG_numpy_HEADERS)
endif()

get_target_property(TG_OPENBLAS_LIBRARY OpenBLAS::OpenBLAS IMPORTED_LOCATION)
get_filename_component(TG_OPENBLAS_LIBRARY_DIR "${TG_OPENBLAS_LIBRARY}" DIRECTORY)
