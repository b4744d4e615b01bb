# The C++ tests: every test/cpp/**/*.cpp in one program (Catch2 2; its main is test/cpp/main.cpp).

file(GLOB_RECURSE test_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/test/cpp/*.cpp")
if(test_sources)
  find_package(Catch2 2.13 REQUIRED)
  include(Catch)
  add_executable(tapegrad_tests ${test_sources})
  target_include_directories(tapegrad_tests PRIVATE "${PROJECT_SOURCE_DIR}/test/cpp")
  target_link_libraries(tapegrad_tests PRIVATE tapegrad_private tapegrad Catch2::Catch2)
  catch_discover_tests(tapegrad_tests PROPERTIES TIMEOUT 300)
endif()
