# SLEEF, the vector forms of exp, tanh, ... Gives SLEEF::sleef (its own names, Sleef_expf16_u10avx512f) and SLEEF_VERSION.

find_path(SLEEF_INCLUDE_DIR sleef.h)
find_library(SLEEF_LIBRARY sleef)
mark_as_advanced(SLEEF_INCLUDE_DIR SLEEF_LIBRARY)

if(SLEEF_INCLUDE_DIR)
  foreach(part MAJOR MINOR PATCHLEVEL)
    file(STRINGS "${SLEEF_INCLUDE_DIR}/sleef.h" line REGEX "#define SLEEF_VERSION_${part} ")
    string(REGEX REPLACE ".* ([0-9]+).*" "\\1" SLEEF_VERSION_${part} "${line}")
  endforeach()
  set(SLEEF_VERSION "${SLEEF_VERSION_MAJOR}.${SLEEF_VERSION_MINOR}.${SLEEF_VERSION_PATCHLEVEL}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(SLEEF REQUIRED_VARS SLEEF_LIBRARY SLEEF_INCLUDE_DIR VERSION_VAR SLEEF_VERSION)

if(SLEEF_FOUND AND NOT TARGET SLEEF::sleef)
  add_library(SLEEF::sleef SHARED IMPORTED)
  set_target_properties(SLEEF::sleef PROPERTIES
    IMPORTED_LOCATION "${SLEEF_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${SLEEF_INCLUDE_DIR}")
endif()
