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
else()
  find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)
endif()

# tg_ask_python(VAR EXPRESSION IMPORTS): what the interpreter says, cached per interpreter; empty when it fails, and then
# asked again the next time.
function(tg_ask_python var imports expression)
  if("$CACHE{${var}}" STREQUAL "" OR NOT "${TG_ASKED_PYTHON}" STREQUAL "${Python_EXECUTABLE}")
    execute_process(COMMAND "${Python_EXECUTABLE}" -c "import ${imports}; print(${expression})"
      OUTPUT_VARIABLE answer ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    set(${var} "${answer}" CACHE INTERNAL "answer of ${Python_EXECUTABLE}")
  endif()
endfunction()

tg_ask_python(TG_OPENBLAS_PACKAGE scipy_openblas32 "scipy_openblas32.get_lib_dir()")
tg_ask_python(TG_ONEDNN_PACKAGE importlib.metadata,pathlib
  "next(str(pathlib.Path(f.locate()).resolve().parent) for f in importlib.metadata.files('onednn-devel-cpu-gomp') if f.name == 'dnnl-config.cmake')")
set(TG_ASKED_PYTHON "${Python_EXECUTABLE}" CACHE INTERNAL "interpreter of the answers above")

find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(ZLIB 1.2 REQUIRED)
find_package(SLEEF 3.5 REQUIRED)
find_package(OpenBLAS 0.3.34 REQUIRED MODULE)

set(dnnl_ROOT "${TG_ONEDNN_PACKAGE}")
find_package(dnnl 3.2 REQUIRED CONFIG PATHS "${TG_ONEDNN_PACKAGE}")
# The runtime that oneDNN is linked to, whatever compiler is used; nothing of tapegrad is compiled with -fopenmp.
find_package(OpenMP QUIET COMPONENTS CXX)
find_library(TG_GOMP_LIBRARY NAMES libgomp.so.1)
if(OpenMP_gomp_LIBRARY)
  set(TG_GOMP_LIBRARY "${OpenMP_gomp_LIBRARY}")
elseif(NOT TG_GOMP_LIBRARY)
  message(FATAL_ERROR "oneDNN's OpenMP runtime, libgomp, was not found (Debian: libgomp1)")
endif()

get_target_property(TG_DNNL_LIBRARY DNNL::dnnl IMPORTED_LOCATION_RELEASE)
get_target_property(TG_DNNL_SONAME DNNL::dnnl IMPORTED_SONAME_RELEASE)
get_filename_component(TG_DNNL_LIBRARY_DIR "${TG_DNNL_LIBRARY}" DIRECTORY)
get_target_property(TG_OPENBLAS_LIBRARY OpenBLAS::OpenBLAS IMPORTED_LOCATION)
get_filename_component(TG_OPENBLAS_LIBRARY_DIR "${TG_OPENBLAS_LIBRARY}" DIRECTORY)
