// Three functions whose symbols got a new version after glibc 2.34 and g++ 11: programs that ask for the old one run on
// older systems, too, and a wheel is tagged manylinux_2_34 instead of 2_35 (tools/wheel.py). The linker sends every
// call of libtapegrad and libtapegrad_cuda here (--wrap in cmake/TapegradLibrary.cmake). hypot computes the same: the
// new version only leaves out the old way of reporting errors.

#if defined(__x86_64__) || defined(__aarch64__)

#include <condition_variable>
#include <mutex>

extern "C" {

double tg_old_hypot(double, double);
float tg_old_hypotf(float, float);
void tg_old_wait(std::condition_variable*, std::unique_lock<std::mutex>&);
#if defined(__x86_64__)
#define TG_FIRST "GLIBC_2.2.5"
#else
#define TG_FIRST "GLIBC_2.17"
#endif
__asm__(".symver tg_old_hypot, hypot@" TG_FIRST);
__asm__(".symver tg_old_hypotf, hypotf@" TG_FIRST);
__asm__(".symver tg_old_wait, _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");

double __wrap_hypot(double x, double y) { return tg_old_hypot(x, y); }
float __wrap_hypotf(float x, float y) { return tg_old_hypotf(x, y); }
void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(std::condition_variable* self,
                                                                      std::unique_lock<std::mutex>& lock) {
  tg_old_wait(self, lock);
}

}  // extern "C"

#endif
