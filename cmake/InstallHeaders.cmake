# Run by the installation: copies tapegrad.h and the headers that it needs, as the compiler lists them. The others are for our own
# files; with them the package would be 0.8 MB larger (measured 2026-11-26).
# Given: TG_COMPILER, TG_ROOTS (include path of our headers), TG_SYSTEM_ROOTS (fmt's, where it is not the compiler's own), TG_DESTINATION.

list(TRANSFORM TG_ROOTS PREPEND -I OUTPUT_VARIABLE include)
list(TRANSFORM TG_SYSTEM_ROOTS PREPEND -isystem OUTPUT_VARIABLE system)
list(GET TG_ROOTS -1 root)
execute_process(COMMAND "${TG_COMPILER}" -std=c++20 -x c++ -M ${include} ${system} "${root}/tapegrad/tapegrad.h"
  OUTPUT_VARIABLE rule COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE "[ \\\\\n]+" ";" files "${rule}")
foreach(file IN LISTS files)
  foreach(root IN LISTS TG_ROOTS)
    if(file MATCHES "^${root}/(.*)/[^/]*$")
      file(INSTALL DESTINATION "${TG_DESTINATION}/${CMAKE_MATCH_1}" TYPE FILE FILES "${file}")
      break()
    endif()
  endforeach()
endforeach()
