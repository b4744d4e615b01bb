# examples/cpp/NAME.cpp becomes the program <build>/examples/NAME.

file(GLOB examples CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/cpp/*.cpp")
foreach(source ${examples})
  get_filename_component(name "${source}" NAME_WE)
  add_executable(example_${name} "${source}")
  target_link_libraries(example_${name} PRIVATE tapegrad_flags tapegrad)
  target_compile_definitions(example_${name} PRIVATE DIGITS="${PROJECT_SOURCE_DIR}/bindings/tapegrad/datasets/data/mnist")
  set_target_properties(example_${name} PROPERTIES
    OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/examples")
endforeach()
