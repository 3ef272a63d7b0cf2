// Stages of random shapes against the definition of what they compute, in every variant that this processor runs.
//
// Arrays lie in heap memory of exactly their size, so that an address sanitiser sees whatever is read or written
// beside them; targets begin as NaN, so that what is not written is seen too. Arguments: how many stages, a seed.

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "dispatch.h"

using simulator::Geometry;
using simulator::index;
using simulator::NONE;
using simulator::Side;
typedef std::complex<long double> number;

static std::mt19937_64 generator;

static index any(index low, index high) { return std::uniform_int_distribution<index>(low, high)(generator); }

static index size_of(const Side &side) { return side.extents[0] * side.extents[1] * side.extents[2]; }

// The arrays of a side, and where an element of them is.
template <class T> struct Arrays {
  const Side &side;
  index components;
  std::vector<std::unique_ptr<T[]>> messages;
  std::vector<void *> pointers;

  Arrays(const Side &of, index count, bool random) : side(of), components(count) {
    std::uniform_real_distribution<double> values(-1, 1);
    const index numbers = components * size_of(side) * (1 + side.complex_values);
    for (index p = 0; p < side.messages; ++p) {
      messages.emplace_back(new T[numbers]);
      for (index i = 0; i < numbers; ++i)
        messages.back()[i] = random ? T(values(generator)) : std::numeric_limits<T>::quiet_NaN();
      pointers.push_back(messages.back().get());
    }
  }

  index local(index axis) const {
    for (int i = 0; i < 3; ++i)
      if (side.order[i] == axis) return side.extents[i];
    std::abort();
  }

  T *at(index c, const index *where) {
    index place = c, message = 0;
    for (int i = 0; i < 3; ++i) {
      const index axis = side.order[i];
      index coordinate = where[axis];
      if (axis == side.split) message = coordinate / side.extents[i], coordinate %= side.extents[i];
      place = place * side.extents[i] + coordinate;
    }
    return messages[message].get() + place * (1 + side.complex_values);
  }

  number get(index c, const index *where) {
    const T *found = at(c, where);
    return side.complex_values ? number(found[0], found[1]) : number(found[0], 0);
  }
};

static number turn(index k, index n, index sign) {
  const long double angle = sign * 2 * 3.14159265358979323846264338327950288L * (k % n) / n;
  return {std::cos(angle), std::sin(angle)};
}

// The signed wavenumber of an entry, for an exponent: modulo n.
static index wavenumber(index entry, index modes, index points) {
  return entry < (modes + 1) / 2 ? entry : points - modes + entry;
}

// One line by the definition.
static std::vector<number> line(const std::vector<number> &given, index points, index modes, const Geometry &g, bool real) {
  std::vector<number> found(g.to_points ? points : modes);
  for (index k = 0; k < modes; ++k) {
    const index wave = real ? k : wavenumber(k, modes, points);
    const long double weight = real && g.doubled && k && 2 * k != points ? 2 : 1;
    for (index n = 0; n < points; ++n) {
      const number factor = weight * turn(wave * n, points, g.sign);
      if (g.to_points && real)
        found[n] += (given[k] * factor).real();
      else if (g.to_points)
        found[n] += given[k] * factor;
      else
        found[k] += given[n] * factor;
    }
  }
  if (real && !g.to_points)
    for (index k = 0; k < modes; ++k)
      if (k == 0 || 2 * k == points) found[k] = found[k].real();
  return found;
}

static Geometry random_geometry() {
  static const index lengths[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 16, 18, 20, 21, 22, 24, 25, 26, 27, 32, 34, 36, 40, 44, 48, 49, 64};
  auto length = [&] { return lengths[any(0, sizeof(lengths) / sizeof(index) - 1)]; };
  Geometry g{};
  g.axes = any(1, 2);
  g.real = any(0, 1);
  g.to_points = any(0, 1);
  g.sign = any(0, 1) ? 1 : -1;
  g.doubled = g.real && any(0, 1);
  // Real transforms are along z, which is the first towards modes and the last towards points.
  index axes[] = {0, 1, 2};
  std::shuffle(axes, axes + 3, generator);
  if (g.real) {
    const int z = g.axes == 2 && g.to_points ? 1 : 0;
    for (index &axis : axes)
      if (axis == simulator::Z) std::swap(axis, axes[z]);
  }
  g.first = axes[0], g.second = axes[1], g.block = axes[2];
  g.first_points = length(), g.second_points = length();
  auto modes = [&](index axis, index points) {
    if (g.real && axis == simulator::Z) return any(1, points / 2 + 1);
    return any(1, points);
  };
  g.first_modes = modes(g.first, g.first_points);
  g.second_modes = g.axes == 2 ? modes(g.second, g.second_points) : g.second_points;
  g.planes = any(1, 3);
  g.start_in = any(0, 2);
  g.start_axis = g.axes == 1 && any(0, 1) ? g.second : g.block;
  auto side = [&](Side &side, bool points, bool offset) {
    const index lanes = g.axes == 2 ? (points ? g.second_points : g.second_modes) : g.second_points;
    const index more = offset ? any(0, 2) : 0;
    const index extents[] = {points ? g.first_points : g.first_modes, lanes + (g.start_axis == g.second ? more : 0),
                             g.planes + (g.start_axis == g.block ? more : 0)};
    index of_axis[3];
    of_axis[g.first] = extents[0], of_axis[g.second] = extents[1], of_axis[g.block] = extents[2];
    side.complex_values = !(g.real && points);
    // z is never contiguous where there are modes of a real transform: see `gather`.
    index order[] = {0, 1, 2};
    do std::shuffle(order, order + 3, generator);
    while ((order[2] == g.block && (extents[2] > 1 || (g.real && order[1] == simulator::Z))) ||
           (g.real && side.complex_values && g.axes == 1 && order[2] == simulator::Z));
    std::copy(order, order + 3, side.order);
    side.messages = side.complex_values ? any(1, 4) : 1;
    side.split = NONE;
    if (side.messages > 1) {
      side.split = any(0, 1) || (offset && g.start_axis == g.second) ? g.first : g.second;
      of_axis[side.split] = (of_axis[side.split] + side.messages - 1) / side.messages;
      // Lanes of a tile have to lie in one array.
      const int last = side.order[2] == g.block ? 1 : 2;
      if (side.order[last] == side.split && !(&side == &g.source ? side.split == g.first : side.split == (g.axes == 2 ? g.second : g.first)))
        std::swap(side.order[last], side.order[side.order[0] == g.block ? 1 : 0]);
    }
    for (int i = 0; i < 3; ++i) side.extents[i] = of_axis[side.order[i]];
  };
  side(g.source, !g.to_points, g.start_in == 1);
  side(g.target, g.to_points, g.start_in == 2);
  return g;
}

template <class T> static bool right(const Geometry &g) {
  const index components = any(1, 2);
  Arrays<T> source(g.source, components, true), target(g.target, components, false);
  simulator::Stage stage;
  stage.geometry = g;
  stage.scale = 0.5;
  stage.components = components;
  const Side &shifted = g.start_in == 1 ? g.source : g.target;
  const index part = g.start_axis == g.block ? g.planes : g.second_points;
  index whole = part;
  for (int i = 0; i < 3; ++i)
    if (g.start_in && shifted.order[i] == g.start_axis) whole = shifted.extents[i];
  stage.start = any(0, whole - part);
  stage.source = source.pointers.data();
  stage.target = target.pointers.data();
  std::unique_ptr<char[]> scratch(new char[simulator::scratch_bytes<T>(g)]);
  stage.scratch = scratch.get();
  stage.first = &simulator::fourier<T>(g.first_points);
  stage.second = g.axes == 2 ? &simulator::fourier<T>(g.second_points) : stage.first;
  // In parts, as the threads of a device share them.
  const index units = components * g.planes * simulator::pieces<T>(g), cut = any(0, units);
  stage.begin = 0, stage.end = cut, stage.follows = false;
  simulator::runner<T>()(stage);
  stage.begin = cut, stage.end = units, stage.follows = true;
  simulator::runner<T>()(stage);

  const index rows_in = g.to_points ? g.first_modes : g.first_points, rows_out = g.to_points ? g.first_points : g.first_modes;
  const index lanes_in = g.to_points ? g.second_modes : g.second_points, lanes_out = g.to_points ? g.second_points : g.second_modes;
  long double worst = 0, largest = 0;
  index written = 0, numbers = 0;
  for (index c = 0; c < components; ++c)
    for (index p = 0; p < g.planes; ++p) {
      index where[3];
      std::vector<std::vector<number>> rows(lanes_in);
      for (index l = 0; l < lanes_in; ++l) {
        std::vector<number> given(rows_in);
        for (index r = 0; r < rows_in; ++r) {
          where[g.first] = r, where[g.second] = l, where[g.block] = p;
          where[g.start_axis] += g.start_in == 1 ? stage.start : 0;
          given[r] = source.get(c, where);
        }
        rows[l] = line(given, g.first_points, g.first_modes, g, g.real && g.first == simulator::Z);
      }
      for (index r = 0; r < rows_out; ++r) {
        std::vector<number> found(lanes_in);
        for (index l = 0; l < lanes_in; ++l) found[l] = rows[l][r];
        if (g.axes == 2) found = line(found, g.second_points, g.second_modes, g, g.real && g.second == simulator::Z);
        for (index l = 0; l < lanes_out; ++l) {
          where[g.first] = r, where[g.second] = l, where[g.block] = p;
          where[g.start_axis] += g.start_in == 2 ? stage.start : 0;
          const number expected = found[l] * 0.5L, got = target.get(c, where);
          const long double error = std::abs(got - (g.target.complex_values ? expected : number(expected.real())));
          worst = std::isnan(error) ? error : std::isnan(worst) ? worst : std::max(worst, error);
          largest = std::max(largest, std::abs(expected));
        }
      }
      numbers += 1;
    }
  // What is written: all planes, or lines, of the stage with their padding, which is zero, and nothing else.
  for (auto &message : target.messages)
    for (index i = 0; i < components * size_of(g.target) * (1 + g.target.complex_values); ++i) written += !std::isnan(message[i]);
  index expected = components * size_of(g.target) * g.target.messages * (1 + g.target.complex_values);
  if (g.start_in == 2) expected = expected / target.local(g.start_axis) * part;
  // Round-off: eps times the passes, of which there are fewer than ten, or terms of a sum of up to 11, and two axes.
  const long double allowed = 40 * std::numeric_limits<T>::epsilon() * std::max(largest, 1.0L);
  if (worst <= allowed && written == expected) return true;
  std::printf("%s, %s: error %Lg of %Lg, %lld of %lld numbers written\n", simulator::variant_name(),
              sizeof(T) == 8 ? "double" : "single", worst, largest, written, expected);
  for (size_t i = 0; i < simulator::GEOMETRY_LENGTH; ++i) std::printf("%lld ", reinterpret_cast<const index *>(&g)[i]);
  std::printf("\n");
  return false;
}

// Products at points by one call, against stages to points and back with the products between them. The values of a
// plane lie in a tile with those of its partner, so that what is compared differs by round-off.
template <class T> static bool evaluated() {
  Geometry g;
  do g = random_geometry();
  while (!g.real || !g.to_points || g.start_in || !g.source.complex_values);
  Geometry back = g;
  back.to_points = 0, back.sign = -g.sign, back.doubled = 0;
  if (g.axes == 2) {
    std::swap(back.first, back.second), std::swap(back.first_points, back.second_points);
    std::swap(back.first_modes, back.second_modes);
  }
  std::swap(back.source, back.target);
  const index inputs = 2, products = 3;
  Arrays<T> source(g.source, inputs, true), values(g.target, inputs, false), made(g.target, products, false);
  Arrays<T> expected(back.target, products, false), target(back.target, products, false);
  auto stage_of = [](const Geometry &of, index components, Arrays<T> &from, Arrays<T> &to) {
    simulator::Stage stage{};
    stage.geometry = of, stage.scale = 0.5, stage.components = components;
    stage.source = from.pointers.data(), stage.target = to.pointers.data();
    stage.first = &simulator::fourier<T>(of.first_points);
    stage.second = of.axes == 2 ? &simulator::fourier<T>(of.second_points) : stage.first;
    stage.end = components * of.planes * simulator::pieces<T>(of);
    return stage;
  };
  auto run = [](simulator::Stage stage) {
    std::unique_ptr<char[]> scratch(new char[simulator::scratch_bytes<T>(stage.geometry)]);
    stage.scratch = scratch.get();
    simulator::runner<T>()(stage);
  };
  run(stage_of(g, inputs, source, values));
  const index points = size_of(g.target);
  const T *u = values.messages[0].get(), *v = u + points;
  T *product = made.messages[0].get(), largest = -std::numeric_limits<T>::infinity();
  for (index i = 0; i < points; ++i) {
    product[i] = u[i] * v[i], product[points + i] = v[i], product[2 * points + i] = T(3) + u[i];
    largest = std::max(largest, product[i]);
  }
  run(stage_of(back, products, made, expected));

  // Registers: inputs 0 and 1, products 2 to 4, the number 3 in register 5, a temporary result in 6.
  const simulator::Operation operations[] = {{simulator::MULTIPLY, 6, 0, 1}, {simulator::COPY, 2, 6, 6},
                                             {simulator::COPY, 3, 1, 1},     {simulator::ADD, 4, 5, 0},
                                             {simulator::MAXIMUM, 0, 6, 6}};
  const T number[] = {3};
  simulator::Evaluation of{};
  of.to_points = stage_of(g, inputs, source, values), of.to_modes = stage_of(back, products, made, target);
  of.inputs = inputs, of.products = products, of.numbers = 1, of.temporaries = 2, of.reductions = 1;
  of.units = g.planes * simulator::pieces<T>(g);
  of.count = 5, of.operations = operations, of.number = number;
  std::unique_ptr<T[]> reduced(new T[of.units]);
  of.reduced = reduced.get();
  std::unique_ptr<char[]> in(new char[simulator::scratch_bytes<T>(g)]), out(new char[simulator::scratch_bytes<T>(back)]);
  std::unique_ptr<char[]> scratch(new char[simulator::scratch_bytes<T>(of)]);
  of.to_points.scratch = in.get(), of.to_modes.scratch = out.get(), of.scratch = scratch.get();
  const index cut = any(0, of.units);
  of.end = cut;
  simulator::evaluator<T>()(of);
  of.begin = cut, of.end = of.units, of.follows = true;
  simulator::evaluator<T>()(of);

  long double worst = 0, size = 1;
  for (size_t m = 0; m < target.messages.size(); ++m)
    for (index i = 0; i < products * size_of(back.target) * 2; ++i) {
      const long double one = target.messages[m][i], other = expected.messages[m][i];
      worst = std::isnan(one - other) ? one - other : std::isnan(worst) ? worst : std::max(worst, std::abs(one - other));
      size = std::max(size, std::abs(other));
    }
  // The lanes of lines shorter than a tile hold nothing; `Native.evaluation` takes no maxima there.
  const index lines = g.axes == 2 ? g.first_points : g.second_points;
  const T found = *std::max_element(reduced.get(), reduced.get() + of.units);
  const bool maximum = lines < simulator::CELL_BYTES / index(sizeof(T)) ||
                       std::abs(found - largest) <= 40 * std::numeric_limits<T>::epsilon() * std::max(std::abs(largest), T(1)) * 10;
  if (worst <= 40 * std::numeric_limits<T>::epsilon() * size && maximum) return true;
  std::printf("%s, %s: evaluation: error %Lg of %Lg, largest %g for %g\n", simulator::variant_name(),
              sizeof(T) == 8 ? "double" : "single", worst, size, double(found), double(largest));
  for (size_t i = 0; i < simulator::GEOMETRY_LENGTH; ++i) std::printf("%lld ", reinterpret_cast<const index *>(&g)[i]);
  std::printf("\n");
  return false;
}

int main(int argc, char **argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 1000;
  generator.seed(argc > 2 ? std::atoi(argv[2]) : 1);
  int wrong = 0;
  for (const char *variant : {"baseline", "avx2", "avx512"}) {
    if (!simulator::choose_variant(variant)) continue;
    int bad = 0;
    for (int i = 0; i < count && bad < 5; ++i) {
      const Geometry g = random_geometry();
      if (std::getenv("SHOW")) { for (size_t j = 0; j < simulator::GEOMETRY_LENGTH; ++j) std::fprintf(stderr, "%lld ", reinterpret_cast<const index *>(&g)[j]); std::fprintf(stderr, "\n"); }
      bad += !right<double>(g) + !right<float>(g);
      bad += !evaluated<double>() + !evaluated<float>();
    }
    std::printf("%s: %d stages and evaluations, %d wrong\n", variant, 4 * count, bad);
    wrong += bad;
  }
  return wrong != 0;
}
