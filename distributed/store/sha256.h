// SHA-256 (FIPS 180-4) and HMAC with it (RFC 2104), for the token of a job: a few hundred bytes per connection.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "tapegrad/c10/macros.h"

namespace tapegrad::distributed {

using Digest = std::array<uint8_t, 32>;

TG_API Digest sha256(std::string_view data);
TG_API Digest hmac_sha256(std::string_view key, std::string_view data);
// Compares in constant time, independent of where the arguments differ.
bool same_digest(const uint8_t* a, const uint8_t* b) noexcept;

}  // namespace tapegrad::distributed
