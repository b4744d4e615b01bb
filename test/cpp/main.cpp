// The entry point of the C++ tests; a file of its own because compiling it takes long.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
