# Debian's cross compiler with the libraries of TG_SYSROOT, where tools/sysroot.sh has unpacked Debian's packages of aarch64. Its
# programs run under qemu.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TG_SYSROOT)

# Python's packages lie beside it. The compiler brings the C library and its headers itself.
get_filename_component(beside "${TG_SYSROOT}" DIRECTORY)
set(CMAKE_FIND_ROOT_PATH "${TG_SYSROOT}" "${beside}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L "${TG_SYSROOT}")
set(MOLD_PROGRAM "" CACHE FILEPATH "The compiler would look for aarch64-linux-gnu-ld.mold")
