# The Python package in the build tree: <build>/python/tapegrad holds _C, links to bindings/tapegrad and links to the
# generated files, so that PYTHONPATH=<build>/python imports it and an edit of a .py needs no build.

set(TG_PACKAGE_DIR "${PROJECT_BINARY_DIR}/python/tapegrad")
set(source_package "${PROJECT_SOURCE_DIR}/bindings/tapegrad")

# tg_link(FROM RELATIVE): link FROM/RELATIVE into the package, unless it is there already.
function(tg_link from relative)
  get_filename_component(folder "${TG_PACKAGE_DIR}/${relative}" DIRECTORY)
  file(MAKE_DIRECTORY "${folder}")
  file(CREATE_LINK "${from}/${relative}" "${TG_PACKAGE_DIR}/${relative}" SYMBOLIC)
endfunction()

file(GLOB_RECURSE package_files CONFIGURE_DEPENDS RELATIVE "${source_package}" "${source_package}/*")
list(FILTER package_files EXCLUDE REGEX "(__pycache__/|\\.pyc$)")

file(GLOB_RECURSE linked RELATIVE "${TG_PACKAGE_DIR}" "${TG_PACKAGE_DIR}/*.py" "${TG_PACKAGE_DIR}/*.pyi")
foreach(file ${linked})  # sources that have gone since the last time
  if(NOT file IN_LIST package_files AND NOT file IN_LIST TG_GENERATED_PYTHON)
    file(REMOVE "${TG_PACKAGE_DIR}/${file}")
  endif()
endforeach()
file(GLOB_RECURSE folders LIST_DIRECTORIES true "${TG_PACKAGE_DIR}/*")
foreach(folder ${folders})  # a folder without files is a package to Python, and would hide a module of compat/names.py
  if(IS_DIRECTORY "${folder}")
    file(GLOB_RECURSE rest "${folder}/*")
    list(FILTER rest EXCLUDE REGEX "\\.pyc$")
    if(NOT rest AND NOT folder MATCHES "/__pycache__$")
      file(REMOVE_RECURSE "${folder}")
    endif()
  endif()
endforeach()
foreach(file ${package_files})
  tg_link("${source_package}" "${file}")
endforeach()
foreach(file ${TG_GENERATED_PYTHON})
  tg_link("${TG_GEN_DIR}/python/tapegrad" "${file}")
endforeach()

if(TG_BINDING_SOURCES)
  Python_add_library(_C MODULE WITH_SOABI ${TG_BINDING_SOURCES})
  target_compile_options(_C PRIVATE ${TG_BASELINE_FLAGS})
  if(NOT TG_SANITIZE)  # what does much beneath one call, as in TapegradLibrary.cmake
    set(small ${TG_BINDING_SOURCES})
    list(FILTER small INCLUDE REGEX "/bindings/((distributed|exchange|runtime)/|record/program)|/py_(calculus|conv|decompose|fft|index|matrix|norm|pool|quantized|random|rnn|scan|solve|sort|special|upsample)\\.cpp$")
    set_source_files_properties(${small} PROPERTIES COMPILE_OPTIONS -Os SKIP_PRECOMPILE_HEADERS ON)
  endif()
  tg_precompile(_C tapegrad/bindings/tensor/tensor_object.h tapegrad/bindings/arguments/args.h tapegrad/bindings/interpreter/errors.h
    tapegrad/bindings/arguments/override.h tapegrad/bindings/registry.h)
  target_include_directories(_C SYSTEM PRIVATE "${TG_numpy_HEADERS}")
  target_link_libraries(_C PRIVATE tapegrad_private tapegrad)
  target_link_options(_C PRIVATE "LINKER:--wrap=__gxx_personality_v0")  # bindings/interpreter/gil.cpp
  set_target_properties(_C PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${TG_PACKAGE_DIR}"
    BUILD_RPATH "$ORIGIN/../../lib"
    INSTALL_RPATH "$ORIGIN/lib")
endif()
if(TARGET _C AND TARGET tapegrad_cuda AND NOT CUDA STREQUAL "CHECK")
  add_dependencies(_C tapegrad_cuda)  # not linked: the package opens it when a device is first used
endif()
