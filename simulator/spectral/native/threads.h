// Shares the parts of a kernel's work out among the threads of XLA's pool.

#ifndef SIMULATOR_THREADS_H
#define SIMULATOR_THREADS_H

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "plan.h"
#include "xla/ffi/api/ffi.h"

namespace simulator {

// Parts for each thread: a thread that starts late, or whose core has other work, leaves its parts to the others.
constexpr index PARTS = 4;
// How often a thread that has no further part looks whether the others have finished, before it sleeps.
constexpr int LOOKS = 4000;

static inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The parts of one kernel's work. The threads of the pool may start after the kernel has returned; they then see that no
// part is left.
class Shared {
  const index parts;
  std::atomic<index> next{0}, finished{0};
  std::atomic<int> workers{0};
  std::mutex mutex;
  std::condition_variable all;

 public:
  explicit Shared(index number) : parts(number) {}

  // Calls work(part, worker) for parts that no thread has taken yet. `work` is used only while a part is left.
  template <class Work> void take(const Work &work) {
    index part = next++;
    if (part >= parts) return;
    const int worker = workers++;
    index done = 0;
    for (; part < parts; part = next++, ++done) work(part, worker);
    if (finished.fetch_add(done) + done < parts) return;
    std::lock_guard lock(mutex);
    all.notify_all();
  }

  // Waits for the parts that other threads have taken.
  void wait() {
    for (int i = 0; i < LOOKS; ++i) {
      if (finished == parts) return;
      pause_briefly();
    }
    std::unique_lock lock(mutex);
    all.wait(lock, [&] { return finished == parts; });
  }
};

// Calls work(begin, end, worker) for consecutive ranges of `units`, each range once, on at most `threads` threads: the
// caller and threads of the pool, numbered from 0. Each number's calls follow one another.
template <class Work> void share(xla::ffi::ThreadPool &pool, index threads, index units, const Work &work) {
  threads = std::min(threads, units);
  if (threads <= 1) return work(index(0), units, 0);
  const index parts = std::min(units, PARTS * threads);
  auto shared = std::make_shared<Shared>(parts);
  const auto range = [&work, units, parts](index part, int worker) {
    work(part * units / parts, (part + 1) * units / parts, worker);
  };
  for (index i = 1; i < threads; ++i) pool.Schedule([shared, &range] { shared->take(range); });
  shared->take(range);
  shared->wait();
}

}  // namespace simulator

#endif
