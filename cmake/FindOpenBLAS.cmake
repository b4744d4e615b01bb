# OpenBLAS as the Python package scipy-openblas32 ships it: 32-bit integers, every symbol with the prefix "scipy_"
# (so that it never meets another BLAS in the same process). Gives OpenBLAS::OpenBLAS.
# TG_OPENBLAS_PACKAGE is the package's lib folder, asked from the interpreter by TapegradDependencies.cmake.

find_package(OpenBLAS ${OpenBLAS_FIND_VERSION} CONFIG QUIET
  PATHS "${TG_OPENBLAS_PACKAGE}/cmake/openblas" NO_DEFAULT_PATH)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OpenBLAS REQUIRED_VARS OpenBLAS_LIBRARIES OpenBLAS_INCLUDE_DIRS
  VERSION_VAR OpenBLAS_VERSION
  REASON_FAILURE_MESSAGE "install it into the interpreter ${Python_EXECUTABLE}: pip install 'scipy-openblas32==0.3.34.*'")
