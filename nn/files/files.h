// Tensors in files, in the safetensors format, which Python's tapegrad.load and tapegrad.save_file share:
//
//   nn::save(*model, "model.safetensors");
//   nn::load(*other, "model.safetensors");
//   nn::save_tensors(optimizer.state_dict(), "optimizer.safetensors");
//
// A file is 8 bytes with the length of a header (little endian), the header (JSON: name -> dtype, shape, range of
// bytes) and the bytes. Reading does not trust the file: every length is checked before memory is allocated.
#pragma once

#include <map>
#include <string>

#include "tapegrad/nn/module.h"

namespace tapegrad::nn {

// Texts by name, beside the tensors of a file.
using Metadata = std::map<std::string, std::string>;
struct TensorFile {
  NamedTensors tensors;
  Metadata metadata;
};

// Writes a temporary file beside `path` and moves it there when it is complete and on the disk, so that a failure
// leaves the old file. Raises Value for two equal names and for dtypes that the format lacks (complex128), Runtime when
// it cannot write.
TG_API void save_tensors(const NamedTensors& tensors, const std::string& path, const Metadata& metadata = {});
// Raises Runtime if the file is not in this format or truncated.
TG_API TensorFile load_file(const std::string& path);
TG_API NamedTensors load_tensors(const std::string& path);

TG_API void save(const Module& module, const std::string& path);
// See Module::load_state_dict.
TG_API void load(Module& module, const std::string& path, bool strict = true);

}  // namespace tapegrad::nn
