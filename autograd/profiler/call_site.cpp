#include "tapegrad/autograd/profiler/call_site.h"

namespace tapegrad::autograd {

uint32_t (*capture_site)() noexcept = nullptr;
std::string (*describe_site_hook)(uint32_t site) = nullptr;
uint32_t (*capture_stack)() noexcept = nullptr;

namespace detail {
constinit thread_local FixedSite fixed_site __attribute__((tls_model("initial-exec"))) = {0, false};
}

std::string describe_site(uint32_t site) {
  return site != 0 && describe_site_hook ? describe_site_hook(site) : std::string();
}

std::string at_site(uint32_t site) {
  std::string text = describe_site(site);
  return text.empty() ? text : " at " + text;
}

}  // namespace tapegrad::autograd
