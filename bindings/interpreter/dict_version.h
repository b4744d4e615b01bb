// The version of a dictionary.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>

namespace tapegrad::python {

// A number that is another one after each change of the dictionary, and that no other one has had; 0 where CPython has
// none: then entries are compared.
inline uint64_t dict_version([[maybe_unused]] PyObject* dict) noexcept {
#if PY_VERSION_HEX < 0x030C0000
  return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
#else
  return 0;  // deprecated from 3.12 on
#endif
}

}  // namespace tapegrad::python
