// Kernels for particles on random blocks against their definition, in every variant that this processor runs.
//
// Arrays lie in heap memory of exactly their size, so that an address sanitiser sees whatever is read or written beside
// them. Arguments: how many blocks, a seed.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <random>

#include "dispatch.h"
#include "order.h"

using simulator::Gather;
using simulator::index;
using simulator::Weave;

static std::mt19937_64 generator;

static index any(index low, index high) { return std::uniform_int_distribution<index>(low, high)(generator); }

// Two ranges, as two threads have them, one after the other.
static void in_two(index units, const std::function<void(index, index)> &work) {
  const index middle = any(0, units);
  work(0, middle);
  work(middle, units);
}

static double number() { return std::uniform_real_distribution<double>(0, 1)(generator); }

// The B-spline of a degree at a distance from its centre.
static double spline(index degree, double x) {
  x = std::abs(x);
  if (degree == 1) return std::max(0.0, 1 - x);
  if (degree == 2) return x < 0.5 ? 0.75 - x * x : x < 1.5 ? (1.5 - x) * (1.5 - x) / 2 : 0;
  return x < 1 ? (4 - 6 * x * x + 3 * x * x * x) / 6 : x < 2 ? (2 - x) * (2 - x) * (2 - x) / 6 : 0;
}

// Its derivative. That of degree 1 jumps at the points, where it is taken from the right.
static double slope(index degree, double x) {
  const double sign = x < 0 ? -1 : 1, far = std::abs(x);
  if (degree == 1) return x >= -1 && x < 1 ? -sign : 0;
  if (degree == 2) return far < 0.5 ? -2 * x : far < 1.5 ? -sign * (1.5 - far) : 0;
  return far < 1 ? x * (1.5 * far - 2) : far < 2 ? -sign * (2 - far) * (2 - far) / 2 : 0;
}

template <class T> static bool right() {
  const index points = any(2, 4), below = points == 2 ? 0 : 1, components = any(0, 1) ? 3 : 1, count = any(0, 70);
  const index entries = count + any(0, 9);
  Weave w{};
  Gather g{};
  w.components = g.components = components, g.points = points, g.count = count, g.entries = entries, g.sloped = any(-1, 2);
  index all = 1, room = 1, axes[] = {0, 1, 2};
  std::shuffle(axes, axes + 3, generator);
  for (int a = 0; a < 3; ++a) {
    const bool whole = any(0, 1);
    w.extents[a] = any(1, 7);
    w.below[a] = a == 2 && whole ? below : 0;
    w.room[a] = w.extents[a] + (a == 2 && whole ? points - 1 : 0);
    if (a == 2) w.around = whole;
    g.axes[a] = axes[a], g.spacing[axes[a]] = 0.25 + number();
    g.periods[a] = whole ? w.extents[a] : 0, g.extents[a] = w.room[a], g.starts[a] = whole ? -w.below[a] : any(-2, 2);
    all *= w.extents[a], room *= w.room[a];
  }
  std::unique_ptr<T[]> block(new T[components * all]), woven(new T[components * room]), values(new T[components * entries]);
  for (index i = 0; i < components * all; ++i) block[i] = T(2 * number() - 1);
  std::unique_ptr<double[]> position(new double[3 * entries]), at(new double[3 * entries]);
  std::unique_ptr<T[]> rate(new T[3 * entries]);
  const bool moving = any(0, 1);
  g.factors[0] = moving ? 2 : 1, g.factors[1] = 0.25;  // products without rounding
  for (int a = 0; a < 3; ++a)
    for (index i = 0; i < count; ++i) {
      const index entry = axes[a] * entries + i;
      const double scaled = any(0, 4) ? 12 * number() - 3 : double(any(-3, 9));
      rate[entry] = moving ? T(number()) : T(0);
      position[entry] = scaled * g.spacing[axes[a]] / g.factors[0];
      if (!any(0, 200)) position[entry] = std::numeric_limits<double>::quiet_NaN();
      at[entry] = g.factors[0] * position[entry] + g.factors[1] * double(rate[entry]);
    }
  w.block = block.get(), w.woven = woven.get();
  w.begin = 0, w.end = w.extents[0] * w.extents[1];
  g.begin = 0, g.end = entries;
  simulator::weaver<T>()(w);
  g.block = woven.get(), g.position = position.get(), g.values = values.get(), g.rate = moving ? rate.get() : nullptr;
  simulator::gatherer<T>()(g);
  for (index c = 0; c < components; ++c)
    for (index i = count; i < entries; ++i)
      if (values[c * entries + i] != 0) return false;
  for (index i = 0; i < count; ++i) {
    bool inside = true;
    double sums[3] = {};
    index first[3];
    double scaled[3];
    for (int a = 0; a < 3; ++a) {
      scaled[a] = at[axes[a] * entries + i] / g.spacing[axes[a]];
      if (std::isnan(scaled[a])) {
        inside = false;
        continue;
      }
      first[a] = index(std::floor(points == 3 ? scaled[a] + 0.5 : scaled[a])) - below;
      const index start = g.periods[a] ? 0 : g.starts[a];
      if (!g.periods[a]) inside = inside && first[a] >= start && first[a] + points <= start + w.extents[a];
    }
    if (inside)
      for (index p = 0; p < points * points * points; ++p) {
        const index k[] = {p / points / points, p / points % points, p % points};
        index place = 0;
        double weight = 1;
        for (int a = 0; a < 3; ++a) {
          const index plane = first[a] + k[a], n = w.extents[a];
          const double distance = scaled[a] - double(plane);
          weight *= axes[a] == g.sloped ? slope(points - 1, distance) / g.spacing[axes[a]] : spline(points - 1, distance);
          place = place * n + (g.periods[a] ? (plane % n + n) % n : plane - g.starts[a]);
        }
        for (index c = 0; c < components; ++c) sums[c] += weight * block[c * all + place];
      }
    for (index c = 0; c < components; ++c) {
      const double found = values[c * entries + i];
      // Round-off of 64 terms, with weights of sum 1; those of a slope add up to at most 2 / 0.25.
      if (inside ? !(std::abs(found - sums[c]) <= (g.sloped < 0 ? 1 : 8) * 64 * std::numeric_limits<T>::epsilon()) : !std::isnan(found)) {
        std::printf("%s: %lld points, component %lld: %g instead of %g\n", simulator::variant_name(), points, c, found,
                    inside ? sums[c] : NAN);
        return false;
      }
    }
  }
  return true;
}

static bool in_order() {
  const index entries = any(1, 300), count = any(0, entries), axes[] = {1, 2, 0};
  const index cells[] = {any(1, 3000), any(1, 3000), any(1, 3000)};
  const double spacing[] = {0.5, 1, 2};
  std::unique_ptr<double[]> position(new double[3 * entries]);
  for (int a = 0; a < 3; ++a)
    for (index i = 0; i < entries; ++i) position[a * entries + i] = number() * spacing[a] * double(cells[a]);
  std::unique_ptr<int32_t[]> places(new int32_t[count]);
  std::unique_ptr<uint64_t[]> ids(new uint64_t[entries]);
  for (index i = 0; i < entries; ++i) ids[i] = uint64_t(i);
  simulator::order(position.get(), count, entries, axes, cells, spacing, places.get(), in_two);
  simulator::permute_rows(ids.get(), 1, count, entries, places.get(), in_two);
  constexpr index TILE = simulator::TILE;
  auto cell = [&](uint64_t i) {
    index at[3];
    for (int a = 0; a < 3; ++a) at[a] = index(position[axes[a] * entries + index(i)] / spacing[axes[a]]);
    const index column = at[0] / TILE * ((cells[axes[1]] + TILE - 1) / TILE) + at[1] / TILE;
    return ((column * TILE + at[0] % TILE) * TILE + at[1] % TILE) * cells[axes[2]] + at[2];
  };
  double all = double(cells[axes[2]]);
  for (int a = 0; a < 2; ++a) all *= TILE * std::ceil(double(cells[axes[a]]) / TILE);
  int merged = 0;  // as many cells as 32 bits can count
  while (all / double(1LL << merged) >= 4294967295.0) ++merged;
  for (index i = 1; i < count; ++i)
    if (cell(ids[i - 1]) >> merged > cell(ids[i]) >> merged) return false;
  for (index i = count; i < entries; ++i)
    if (ids[i] != uint64_t(i)) return false;
  std::sort(ids.get(), ids.get() + count);
  for (index i = 0; i < count; ++i)
    if (ids[i] != uint64_t(i)) return false;
  return true;
}

static bool selected() {
  const index count = any(0, 100), most = any(1, 30), extent = any(1, 5), planes = any(1, 20), none = count + 3;
  const index owners = (planes + extent - 1) / extent;
  const simulator::Ring ring{0.1 + number(), planes, extent, any(0, owners - 1)};
  std::unique_ptr<double[]> x(new double[count]);
  // Mostly planes of this device; edges of planes and their neighbours, the box's end, and no number.
  for (index i = 0; i < count; ++i) {
    const index plane = any(0, 9) ? std::min(ring.here * extent + any(0, extent - 1), planes - 1) : any(0, planes);
    x[i] = (double(plane) + (any(0, 1) ? number() : 0)) * ring.spacing;
    if (!any(0, 5)) x[i] = std::nextafter(x[i], any(0, 1) ? 0 : 1e9);
    if (!any(0, 99)) x[i] = std::numeric_limits<double>::quiet_NaN();
  }
  std::unique_ptr<int32_t[]> found[2], both(new int32_t[2 * most]);
  for (auto &places : found) places.reset(new int32_t[most]);
  const index away = simulator::leaving(x.get(), count, ring, most, none, found[0].get(), found[1].get(), both.get(), in_two);
  index next[] = {0, 0}, expected = 0;
  for (index i = 0; i < count; ++i) {
    const double scaled = std::floor(x[i] / ring.spacing);
    const index plane = std::isnan(scaled) ? 0 : std::clamp<index>(index(scaled), 0, planes - 1);
    const index hops = (plane / extent - ring.here + owners) % owners;
    if (!hops) continue;
    ++expected;
    const int which = 2 * hops <= owners ? 0 : 1;
    if (next[which] == most) continue;
    if (both[next[0] + next[1]] != i || found[which][next[which]++] != i) return false;
  }
  for (index i = next[0] + next[1]; i < 2 * most; ++i)
    if (both[i] != none) return false;
  for (int which = 0; which < 2; ++which)
    for (index i = next[which]; i < most; ++i)
      if (found[which][i] != none) return false;
  return away == expected;
}

// A kick, and two kicks with a drift, against their definition; round-off of numbers of order 10.
template <class T> static bool moved() {
  const index entries = any(0, 70), count = any(0, entries), size = 3 * entries;
  typedef std::unique_ptr<double[]> Numbers;
  std::unique_ptr<T[]> pull(new T[size]);
  Numbers v(new double[size]), x(new double[size]), before(new double[size]);
  Numbers kicked(new double[size]), flown(new double[size]), slower(new double[size]), saved(new double[size]);
  for (index i = 0; i < size; ++i) pull[i] = T(number() - 0.5), v[i] = 4 * number() - 2, before[i] = x[i] = 9 * number() - 3;
  const bool lost = count && !any(0, 9), pulled = any(0, 2), saves = any(0, 1);
  if (lost) v[any(0, count - 1)] = std::numeric_limits<double>::quiet_NaN();
  double fastest = -1, most = 0;
  simulator::Kick k{0, entries, count, entries, pull.get(), v.get(), number(), {0.5, 1, 2}, kicked.get(), &fastest};
  simulator::kicker<T>()(k);
  const double first = any(0, 4) ? number() : 0, second = any(0, 4) ? number() : 0;
  const double length = any(0, 4) ? 2 * number() - 1 : 0;
  simulator::Drift d{0, entries, count, entries, pulled ? pull.get() : nullptr, v.get(), x.get(), {first, second}, length,
                     {1, 2, 3}, flown.get(), saves && pulled ? slower.get() : nullptr, saves ? saved.get() : nullptr};
  simulator::drifter<T>()(d);
  for (index i = 0; i < entries; ++i) {
    double rate = 0;
    for (int a = 0; a < 3; ++a) {
      const index at = a * entries + i;
      if (i >= count) {
        if (kicked[at] != 0 || x[at] != 0 || (pulled && flown[at] != 0) || (saves && saved[at] != 0)) return false;
        if (d.slower && slower[at] != 0) return false;
        continue;
      }
      const double later = v[at] + k.length * double(pull[at]);
      const double between = pulled ? v[at] + first * double(pull[at]) : v[at];
      const double rides = pulled ? between + second * double(pull[at]) : v[at];
      rate += std::abs(later) / k.spacing[a];
      if (saves && saved[at] != before[at]) return false;
      if (d.length == 0 && x[at] != before[at]) return false;
      if (std::isnan(v[at])) {
        if (!std::isnan(kicked[at]) || (pulled && !std::isnan(flown[at])) || (d.length != 0 && !std::isnan(x[at]))) return false;
        continue;
      }
      if (!(std::abs(kicked[at] - later) < 1e-14) || (pulled && !(std::abs(flown[at] - rides) < 1e-14))) return false;
      if (d.slower && !(std::abs(slower[at] - between) < 1e-14)) return false;
      if (d.length == 0) continue;
      const double turns = (before[at] + d.length * rides - x[at]) / d.box[a];
      if (!(x[at] >= 0 && x[at] < d.box[a] && std::abs(turns - std::round(turns)) < 1e-13)) return false;
    }
    if (i < count) most = std::max(most, rate);
  }
  return lost ? std::isnan(fastest) : std::abs(fastest - most) <= 1e-13 * most;
}

// Positions and displacements after a step against their definition; round-off of numbers of order 10.
template <class T> static bool advanced() {
  const index entries = any(0, 70), count = any(0, entries), size = 3 * entries, terms = any(1, 4);
  std::unique_ptr<double[]> x(new double[size]), way(new double[size]), factors(new double[1 + terms]), old(new double[size]);
  std::unique_ptr<T[]> rates[4];
  const void *given[4];
  for (index t = 0; t <= terms; ++t) factors[t] = 2 * number();
  for (index t = 0; t < terms; ++t) given[t] = (rates[t] = std::unique_ptr<T[]>(new T[size])).get();
  for (index i = 0; i < size; ++i) {
    old[i] = x[i] = number(), way[i] = 1;
    for (index t = 0; t < terms; ++t) rates[t][i] = T(number() - 0.5);
  }
  const bool lost = count && !any(0, 9);
  if (lost) rates[any(0, terms - 1)][any(0, 2) * entries + any(0, count - 1)] = std::numeric_limits<T>::infinity();
  simulator::Advance d{0, entries, count, entries, terms, factors.get(), given, x.get(), way.get(), {1, 2, 3}, false};
  simulator::advancer<T>()(d);
  for (index i = 0; i < size; ++i) {
    double later = factors[0] * old[i];
    for (index t = 0; t < terms; ++t) later += factors[1 + t] * double(rates[t][i]);
    if (i % entries >= count) {
      if (x[i] != 0 || way[i] != 0) return false;
    } else if (std::isfinite(later)) {
      const double box = d.box[i / entries], turns = (later - x[i]) / box;
      if (!(x[i] >= 0 && x[i] < box && std::abs(turns - std::round(turns)) < 1e-13)) return false;
      if (!(std::abs(way[i] - 1 - (later - old[i])) < 1e-13)) return false;
    } else if (std::isfinite(x[i])) {
      return false;
    }
  }
  return d.lost == lost;
}

int main(int argc, char **argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 1000;
  generator.seed(argc > 2 ? std::atoi(argv[2]) : 1);
  int wrong = 0;
  for (const char *variant : {"baseline", "avx2", "avx512"}) {
    if (!simulator::choose_variant(variant)) continue;
    for (int i = 0; i < count && wrong < 5; ++i) {
      wrong += !right<double>() + !right<float>() + !moved<double>() + !moved<float>();
      wrong += !advanced<double>() + !advanced<float>();
    }
  }
  int unordered = 0;
  for (int i = 0; i < count; ++i) unordered += !in_order() + !selected();
  std::printf("%d wrong blocks, %d wrong orders\n", wrong, unordered);
  return wrong + unordered != 0;
}
