# `cmake --install` gives a tree that find_package(tapegrad) works from. `pip install` lays the same tree into the
# package's own folder (site-packages/tapegrad/{lib,include}), beside the Python files.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
if(SKBUILD)
  set(CMAKE_INSTALL_LIBDIR lib)
endif()
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/tapegrad")

if(SKBUILD)
  # site-packages/tapegrad/lib: OpenBLAS is a package beside tapegrad; oneDNN travels with it, because its own
  # package unpacks three copies of the same 54 MB.
  set_target_properties(tapegrad PROPERTIES INSTALL_RPATH "$ORIGIN;$ORIGIN/../../scipy_openblas32/lib")
  if(TAPEGRAD_ONEDNN)
    install(FILES "${TG_DNNL_LIBRARY}" DESTINATION lib RENAME "${TG_DNNL_SONAME}"
      PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
    if(CMAKE_STRIP)  # a fifth of it are symbols that nothing asks for at run time
      install(CODE "execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-unneeded
        \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/${TG_DNNL_SONAME}\" COMMAND_ERROR_IS_FATAL ANY)")
    endif()
    install(DIRECTORY "${TG_DNNL_LIBRARY_DIR}/../share/doc/onednn" DESTINATION lib OPTIONAL)  # its licence
  endif()
else()
  set_target_properties(tapegrad PROPERTIES INSTALL_RPATH "${TG_OPENBLAS_LIBRARY_DIR};${TG_DNNL_LIBRARY_DIR}")
endif()

# The digits that come with tapegrad: the Python package has them where it looks for them, C++ programs in share/.
set(data_dir "${CMAKE_INSTALL_DATADIR}/tapegrad")
if(SKBUILD)
  set(data_dir datasets/data)
else()
  install(DIRECTORY bindings/tapegrad/datasets/data/ DESTINATION "${data_dir}")
endif()

install(TARGETS tapegrad EXPORT tapegradTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(EXPORT tapegradTargets NAMESPACE tapegrad:: DESTINATION "${package_dir}")
configure_package_config_file(cmake/tapegradConfig.cmake.in "${PROJECT_BINARY_DIR}/tapegradConfig.cmake"
  INSTALL_DESTINATION "${package_dir}" PATH_VARS data_dir)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/tapegradConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/tapegradConfig.cmake" "${PROJECT_BINARY_DIR}/tapegradConfigVersion.cmake"
  DESTINATION "${package_dir}")

if(TARGET tapegrad_cuda AND NOT CUDA STREQUAL "CHECK")
  install(TARGETS tapegrad_cuda LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
get_target_property(fmt_headers fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
list(REMOVE_ITEM fmt_headers ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
install(CODE "set(TG_COMPILER \"${CMAKE_CXX_COMPILER}\")
  set(TG_ROOTS \"${TG_INCLUDE_DIRS}\")
  set(TG_SYSTEM_ROOTS \"${fmt_headers}\")
  set(TG_DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}\")")
install(SCRIPT cmake/InstallHeaders.cmake)

if(TARGET _C AND SKBUILD)
  install(TARGETS _C LIBRARY DESTINATION .)
  install(DIRECTORY bindings/tapegrad/ DESTINATION .
    PATTERN "__pycache__" EXCLUDE)
  install(DIRECTORY "${TG_GEN_DIR}/python/tapegrad/" DESTINATION . OPTIONAL
    PATTERN "__pycache__" EXCLUDE)
endif()
