# libtapegrad_gloo.so: process groups over gloo. Built where gloo is found; libtapegrad opens it when the first group needs it.

find_package(Gloo QUIET CONFIG)
if(Gloo_FOUND AND NOT TG_SANITIZE)
  add_library(tapegrad_gloo SHARED "${PROJECT_SOURCE_DIR}/distributed/gloo/gloo_backend.cpp")
  target_compile_options(tapegrad_gloo PRIVATE ${TG_BASELINE_FLAGS})
  # gloo's headers want their own include folder only; warnings in them are not ours.
  get_target_property(gloo_include gloo INTERFACE_INCLUDE_DIRECTORIES)
  target_include_directories(tapegrad_gloo SYSTEM PRIVATE ${gloo_include})
  target_link_libraries(tapegrad_gloo PRIVATE tapegrad_private tapegrad gloo)
  set_target_properties(tapegrad_gloo PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib"
    BUILD_RPATH "$ORIGIN" INSTALL_RPATH "$ORIGIN")
  if(TARGET _C)
    add_dependencies(_C tapegrad_gloo)
  endif()
  install(TARGETS tapegrad_gloo LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
else()
  message(STATUS "tapegrad: without gloo, so process groups stay on one machine (Debian: libgloo-dev)")
endif()
