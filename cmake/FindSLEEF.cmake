# SLEEF's libsleefgnuabi: the vector forms of expf, tanhf, ... under the names that gcc calls when it vectorises a
# plain loop (_ZGVeN16v_expf). Gives SLEEF::gnuabi, and SLEEF_VERSION from sleef.h.

find_path(SLEEF_INCLUDE_DIR sleef.h)
find_library(SLEEF_GNUABI_LIBRARY sleefgnuabi)
mark_as_advanced(SLEEF_INCLUDE_DIR SLEEF_GNUABI_LIBRARY)

if(SLEEF_INCLUDE_DIR)
  foreach(part MAJOR MINOR PATCHLEVEL)
    file(STRINGS "${SLEEF_INCLUDE_DIR}/sleef.h" line REGEX "#define SLEEF_VERSION_${part} ")
    string(REGEX REPLACE ".* ([0-9]+).*" "\\1" SLEEF_VERSION_${part} "${line}")
  endforeach()
  set(SLEEF_VERSION "${SLEEF_VERSION_MAJOR}.${SLEEF_VERSION_MINOR}.${SLEEF_VERSION_PATCHLEVEL}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(SLEEF
  REQUIRED_VARS SLEEF_GNUABI_LIBRARY SLEEF_INCLUDE_DIR VERSION_VAR SLEEF_VERSION)

if(SLEEF_FOUND AND NOT TARGET SLEEF::gnuabi)
  add_library(SLEEF::gnuabi SHARED IMPORTED)
  set_target_properties(SLEEF::gnuabi PROPERTIES
    IMPORTED_LOCATION "${SLEEF_GNUABI_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${SLEEF_INCLUDE_DIR}")
endif()
