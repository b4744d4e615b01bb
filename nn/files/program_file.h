// Programs (aten/record/program.h) in files: a safetensors file with the constants as tensors, and the calls as JSON in
// its metadata. No code is in it: calls are names of operators' functions and values of their arguments, and reading
// one checks that each function is there and takes such arguments.
#pragma once

#include "tapegrad/aten/record/program.h"
#include "tapegrad/nn/files/files.h"

namespace tapegrad::nn {

// Writes as save_tensors does, and raises what that raises. `more`: further texts for the metadata.
TG_API void save_program(const record::Program& program, const std::string& path, const Metadata& more = {});

struct ProgramFile {
  std::unique_ptr<record::Program> program;
  Metadata metadata;
};
// Raises Runtime if the file is no such file, is damaged, or calls what this version does not have.
TG_API ProgramFile load_program(const std::string& path);

}  // namespace tapegrad::nn
