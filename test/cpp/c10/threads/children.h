// Forked children of a test.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

// How many of `count` forked children, one after the other, fail: `work` gives false, ends the process, or takes 20 s.
template <class F>
int failures_of_children(int count, F&& work) {
  int failures = 0;
  for (int i = 0; i < count; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(20);
      _exit(work() ? 0 : 1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    failures += status != 0;
  }
  return failures;
}
