// Radices and twiddle factors of transforms, and the choice of the kernels' variant for this processor.

#include "plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "dispatch.h"

namespace simulator {
namespace {

// Falling radices from `largest` on with the product n: as few as possible, and of these those with the smallest sum;
// none if there are no such radices.
std::vector<index> fewest(index n, index largest) {
  std::vector<index> best;
  const auto worth = [](const std::vector<index> &radices) {
    return std::pair{radices.size(), std::accumulate(radices.begin(), radices.end(), index(0))};
  };
  for (index radix : {16, 12, 10, 9, 8, 7, 6, 5, 4, 3, 2}) {
    if (radix > largest || n % radix) continue;
    std::vector<index> found{radix};
    if (n > radix) {
      const std::vector<index> others = fewest(n / radix, radix);
      if (others.empty()) continue;
      found.insert(found.end(), others.begin(), others.end());
    }
    if (best.empty() || worth(found) < worth(best)) best = found;
  }
  return best;
}

// Radices with the product n; primes above 7 are radices, too.
std::vector<index> factors(index n, index largest) {
  index small = 1;
  for (index p : {2, 3, 5, 7})
    for (; n % p == 0; n /= p) small *= p;
  std::vector<index> found;
  for (index p = 11; p * p <= n; p += 2)
    for (; n % p == 0; n /= p) found.push_back(p);
  if (n > 1) found.push_back(n);
  const std::vector<index> others = fewest(small, largest);
  found.insert(found.end(), others.begin(), others.end());
  return found;
}

// exp(-2 pi i k / n), computed from the octant of k / n, so that the values 0 and 1 are exact.
void root(index k, index n, long double *cosine, long double *sine) {
  const long double pi = 3.14159265358979323846264338327950288L;
  k %= n;
  index octant = 8 * k / n;
  // The distance to the nearest multiple of a quarter turn, in units of 1 / 8n.
  index quarter = (octant + 1) / 2;
  long double angle = 2 * pi * static_cast<long double>(4 * k - quarter * n) / static_cast<long double>(4 * n);
  long double c = std::cos(angle), s = std::sin(angle);
  long double re[] = {c, -s, -c, s}, im[] = {s, c, -s, -c};
  *cosine = re[quarter % 4];
  *sine = -im[quarter % 4];
}

template <class T> struct Held {
  Fourier<T> fourier;
  std::vector<std::vector<T>> tables;
};

template <class T> std::unique_ptr<Held<T>> made(index n, index largest) {
  auto held = std::make_unique<Held<T>>();
  auto table = [&](index count, auto place) {
    std::vector<T> values(2 * count);
    for (index i = 0; i < count; ++i) {
      auto [k, of] = place(i);
      long double c, s;
      root(k, of, &c, &s);
      values[2 * i] = T(c), values[2 * i + 1] = T(s);
    }
    held->tables.push_back(std::move(values));
    return held->tables.back().data();
  };
  held->fourier.n = n;
  held->fourier.count = 0;
  index rest = n, done = 1;
  for (index radix : factors(n, largest)) {
    const index m = rest / radix, length = rest;
    Pass<T> &pass = held->fourier.passes[held->fourier.count++];
    pass = {radix, m, done, nullptr, nullptr};
    pass.twiddles = table(m * (radix - 1), [&](index i) {
      return std::pair{(i / (radix - 1)) * (i % (radix - 1) + 1), length};
    });
    pass.roots = table(radix, [&](index i) { return std::pair{i, radix}; });
    rest = m;
    done *= radix;
  }
  return held;
}

}  // namespace

// Bytes of the tiles of a plane between its two transforms.
template <class T> static index plane_bytes(const Geometry &g) {
  const index rows = g.to_points ? g.first_points : g.first_modes, lanes = CELL_BYTES / index(sizeof(T));
  return g.axes == 2 ? (rows + lanes - 1) / lanes * g.second_points * 2 * CELL_BYTES : 0;
}

template <class T> index scratch_bytes(const Geometry &g) {
  const index longest = g.first_points > g.second_points ? g.first_points : g.second_points;
  return 4 * longest * 2 * CELL_BYTES + 4 * longest * index(sizeof(index)) + plane_bytes<T>(g) + 5 * WAY + 6 * SHIFT;
}
template index scratch_bytes<double>(const Geometry &);
template index scratch_bytes<float>(const Geometry &);

template <class T> index scratch_bytes(const Evaluation &of) {
  const Geometry &in = of.to_points.geometry, &out = of.to_modes.geometry;
  const index tile = std::max(in.first_points, in.second_points) * 2 * CELL_BYTES;
  const index arrays = of.inputs + of.products + 4;
  return scratch_bytes<T>(in) + scratch_bytes<T>(out) + of.inputs * (tile + plane_bytes<T>(in)) +
         of.products * (tile + plane_bytes<T>(out)) + (of.temporaries + of.reductions) * CHUNK_BYTES +
         arrays * (WAY + 3 * SHIFT);
}
template index scratch_bytes<double>(const Evaluation &);
template index scratch_bytes<float>(const Evaluation &);

namespace {

struct Variant {
  const char *name;
  Run run_double, run_single;
  RunEvaluation evaluate_double, evaluate_single;
  RunGather gather_double, gather_single;
  RunDeposit deposit_whole, deposit_double, deposit_single;
  RunWeave weave_double, weave_single;
  RunKick kick_double, kick_single;
  RunDrift drift_double, drift_single;
  RunAdvance advance_double, advance_single;
  bool usable;
  index largest;  // radix: 16 points fill the 32 registers of AVX-512, 8 points other registers
};

#define SIMULATOR_FUNCTIONS(NAME, USABLE, LARGEST)                                                    \
  Variant {                                                                                           \
    #NAME, NAME::run_double, NAME::run_single, NAME::evaluate_double, NAME::evaluate_single,          \
        NAME::gather_double, NAME::gather_single,                                                     \
        NAME::deposit_whole, NAME::deposit_double, NAME::deposit_single, NAME::weave_double,          \
        NAME::weave_single, NAME::kick_double, NAME::kick_single, NAME::drift_double,                 \
        NAME::drift_single, NAME::advance_double, NAME::advance_single, USABLE, LARGEST               \
  }

std::vector<Variant> variants() {
  std::vector<Variant> found;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  found.push_back(SIMULATOR_FUNCTIONS(avx512, avx512, 16));
  found.push_back(SIMULATOR_FUNCTIONS(avx2, avx2, 8));
#endif
  found.push_back(SIMULATOR_FUNCTIONS(baseline, true, 8));
  return found;
}

const Variant *best() {
  static const std::vector<Variant> known = variants();
  for (const Variant &variant : known)
    if (variant.usable) return &variant;
  return &known.back();
}

const Variant *chosen = best();

}  // namespace

template <class T> const Fourier<T> &fourier(index n) {
  static std::mutex mutex;
  static std::map<std::pair<index, index>, std::unique_ptr<Held<T>>> known;
  std::lock_guard lock(mutex);
  auto &held = known[{n, chosen->largest}];
  if (!held) held = made<T>(n, chosen->largest);
  return held->fourier;
}
template const Fourier<double> &fourier(index);
template const Fourier<float> &fourier(index);

template <> Run runner<double>() { return chosen->run_double; }
template <> Run runner<float>() { return chosen->run_single; }
template <> RunEvaluation evaluator<double>() { return chosen->evaluate_double; }
template <> RunEvaluation evaluator<float>() { return chosen->evaluate_single; }
template <> RunGather gatherer<double>() { return chosen->gather_double; }
template <> RunGather gatherer<float>() { return chosen->gather_single; }
template <> RunDeposit depositor<int64_t>() { return chosen->deposit_whole; }
template <> RunDeposit depositor<double>() { return chosen->deposit_double; }
template <> RunDeposit depositor<float>() { return chosen->deposit_single; }
template <> RunWeave weaver<double>() { return chosen->weave_double; }
template <> RunWeave weaver<float>() { return chosen->weave_single; }
template <> RunKick kicker<double>() { return chosen->kick_double; }
template <> RunKick kicker<float>() { return chosen->kick_single; }
template <> RunDrift drifter<double>() { return chosen->drift_double; }
template <> RunDrift drifter<float>() { return chosen->drift_single; }
template <> RunAdvance advancer<double>() { return chosen->advance_double; }
template <> RunAdvance advancer<float>() { return chosen->advance_single; }

const char *variant_name() { return chosen->name; }

bool choose_variant(const std::string &name) {
  static const std::vector<Variant> known = variants();
  for (const Variant &variant : known)
    if (variant.usable && name == variant.name) {
      chosen = &variant;
      return true;
    }
  return false;
}

}  // namespace simulator
