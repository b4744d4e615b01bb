# Engines of process groups that need a library which a machine may not have: each is a library of its own, libtapegrad_<name>.so, built
# where that one is found and opened by libtapegrad when the first group needs it.

# tg_engine(NAME TARGET): the engine of distributed/NAME/, linked to TARGET, whose headers' warnings are not ours.
function(tg_engine name target)
  add_library(tapegrad_${name} SHARED "${PROJECT_SOURCE_DIR}/distributed/${name}/${name}_backend.cpp")
  target_compile_options(tapegrad_${name} PRIVATE ${TG_BASELINE_FLAGS})
  get_target_property(include ${target} INTERFACE_INCLUDE_DIRECTORIES)
  target_include_directories(tapegrad_${name} SYSTEM PRIVATE ${include})
  target_link_libraries(tapegrad_${name} PRIVATE tapegrad_private tapegrad ${target})
  set_target_properties(tapegrad_${name} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib"
    BUILD_RPATH "$ORIGIN" INSTALL_RPATH "$ORIGIN")
  if(TARGET _C)
    add_dependencies(_C tapegrad_${name})
  endif()
  install(TARGETS tapegrad_${name} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endfunction()

if(NOT TG_SANITIZE)
  find_package(Gloo QUIET CONFIG)
  if(Gloo_FOUND)
    tg_engine(gloo gloo)
  else()
    message(STATUS "tapegrad: without gloo, so process groups stay on one machine (Debian: libgloo-dev)")
  endif()
  set(MPI_CXX_SKIP_MPICXX ON)  # the C interface only
  find_package(MPI QUIET COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    tg_engine(mpi MPI::MPI_CXX)
  endif()
endif()
