// The functions that XLA calls: a stage, and an array for a loop to fill.
//
// A stage's operands are the messages of its source, then, with `start_in`, the number of its first plane, and, if the
// stage fills a part of the target, the target's messages, whose memory the results reuse. The results are the
// target's messages and scratch memory.

#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "dispatch.h"
#include "order.h"
#include "threads.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

using simulator::Geometry;
using simulator::index;
using simulator::Side;

constexpr index MOST_MESSAGES = 4096;

index numbers(const Side &side) {
  return side.extents[0] * side.extents[1] * side.extents[2] * (side.complex_values ? 2 : 1);
}

// The count of real numbers of the stage's precision in an array.
index numbers(const ffi::AnyBuffer &buffer) {
  const bool two = buffer.element_type() == ffi::C128 || buffer.element_type() == ffi::C64;
  return index(buffer.element_count()) * (two ? 2 : 1);
}

bool holds_double(const ffi::AnyBuffer &buffer) {
  return buffer.element_type() == ffi::C128 || buffer.element_type() == ffi::F64;
}

ffi::Error wrong(const std::string &what) {
  return ffi::Error(ffi::ErrorCode::kInvalidArgument, "native transform: " + what);
}

// The Fourier transforms of a stage, once for all parts: the table of transforms is locked.
void look_up_transforms(simulator::Stage &stage, bool is_double) {
  const auto fourier = [is_double](index n) -> const void * {
    if (is_double) return &simulator::fourier<double>(n);
    return &simulator::fourier<float>(n);
  };
  const Geometry &g = stage.geometry;
  stage.first = fourier(g.first_points);
  stage.second = g.axes == 2 ? fourier(g.second_points) : stage.first;
}

ffi::Error stage(ffi::ThreadPool pool, ffi::RemainingArgs given, ffi::RemainingRets made,
                 ffi::Span<const int64_t> geometry, double scale) {
  if (geometry.size() != simulator::GEOMETRY_LENGTH) return wrong("a geometry of another version");
  simulator::Stage stage;
  std::copy(geometry.begin(), geometry.end(), reinterpret_cast<index *>(&stage.geometry));
  const Geometry &g = stage.geometry;
  const index sources = g.source.messages, targets = g.target.messages;
  const index operands = sources + (g.start_in ? 1 : 0) + (g.start_in == 2 ? targets : 0);
  if (index(given.size()) != operands || index(made.size()) != targets + 1) return wrong("a number of arrays is wrong");
  if (sources > MOST_MESSAGES || targets > MOST_MESSAGES) return wrong("more than 4096 messages");
  void *from[MOST_MESSAGES], *to[MOST_MESSAGES];
  const ffi::AnyBuffer first = *given.get<ffi::AnyBuffer>(0);
  const bool is_double = holds_double(first);
  stage.components = numbers(first) / std::max<index>(numbers(g.source), 1);
  for (index i = 0; i < sources; ++i) {
    const ffi::AnyBuffer message = *given.get<ffi::AnyBuffer>(i);
    if (numbers(message) != stage.components * numbers(g.source) || holds_double(message) != is_double)
      return wrong("a source of another shape");
    from[i] = message.untyped_data();
  }
  stage.start = 0;
  if (g.start_in) {
    const ffi::AnyBuffer start = *given.get<ffi::AnyBuffer>(sources);
    if (start.element_type() != ffi::S32 || start.element_count() != 1) return wrong("a start that is not an integer");
    stage.start = *start.typed_data<int32_t>();
    const Side &side = g.start_in == 1 ? g.source : g.target;
    for (int i = 0; i < 3; ++i)
      if (side.order[i] == g.start_axis &&
          (stage.start < 0 || stage.start + (g.start_axis == g.block ? g.planes : g.second_points) > side.extents[i]))
        return wrong("planes beyond the array's end");
  }
  for (index i = 0; i < targets; ++i) {
    ffi::AnyBuffer message = **made.get<ffi::AnyBuffer>(i);
    if (numbers(message) != stage.components * numbers(g.target) || holds_double(message) != is_double)
      return wrong("a target of another shape");
    to[i] = message.untyped_data();
    if (g.start_in == 2 && to[i] != given.get<ffi::AnyBuffer>(sources + 1 + i)->untyped_data())
      return wrong("a target that is not filled in place");
  }
  ffi::AnyBuffer scratch = **made.get<ffi::AnyBuffer>(targets);
  const index needed = is_double ? simulator::scratch_bytes<double>(g) : simulator::scratch_bytes<float>(g);
  // Each thread works in scratch memory of its own.
  const index threads = index(scratch.size_bytes()) / needed;
  if (!threads) return wrong("too little scratch memory");
  stage.scale = scale;
  stage.source = from;
  stage.target = to;
  const index pieces = is_double ? simulator::pieces<double>(g) : simulator::pieces<float>(g);
  look_up_transforms(stage, is_double);
  const auto run = is_double ? simulator::runner<double>() : simulator::runner<float>();
  std::vector<char> used(threads, false);
  simulator::share(pool, threads, stage.components * g.planes * pieces, [&](index begin, index end, index worker) {
    simulator::Stage part = stage;
    part.begin = begin, part.end = end, part.follows = used[worker];
    part.scratch = static_cast<char *>(scratch.untyped_data()) + worker * needed;
    run(part);
    if (!used[worker]) used[worker] = true;  // else every part would take the line from the other threads
  });
  return ffi::Error::Success();
}

// The sizes of an evaluation.
simulator::Evaluation evaluation(const int64_t *to_points, const int64_t *to_modes, const int64_t *sizes, bool is_double) {
  simulator::Evaluation of{};
  Geometry &source = of.to_points.geometry, &target = of.to_modes.geometry;
  std::copy(to_points, to_points + simulator::GEOMETRY_LENGTH, reinterpret_cast<index *>(&source));
  std::copy(to_modes, to_modes + simulator::GEOMETRY_LENGTH, reinterpret_cast<index *>(&target));
  index *const into[] = {&of.inputs, &of.products, &of.numbers, &of.temporaries, &of.reductions, &of.sums};
  for (int i = 0; i < 6; ++i) *into[i] = sizes[i];
  of.units = source.planes * (is_double ? simulator::pieces<double>(source) : simulator::pieces<float>(source));
  return of;
}

// Operands: the messages of the source, and the numbers of the operations. Results: the messages of the target, the
// reductions (reduction, unit), and scratch memory.
ffi::Error evaluate(ffi::ThreadPool pool, ffi::RemainingArgs given, ffi::RemainingRets made,
                    ffi::Span<const int64_t> to_points, ffi::Span<const int64_t> to_modes, double points_scale,
                    double modes_scale, ffi::Span<const int64_t> sizes, ffi::Span<const int64_t> operations) {
  if (to_points.size() != simulator::GEOMETRY_LENGTH || to_modes.size() != simulator::GEOMETRY_LENGTH ||
      sizes.size() != 6 || operations.size() % 4)
    return wrong("an evaluation of another version");
  if (!given.size()) return wrong("a number of arrays is wrong");
  const ffi::AnyBuffer number = *given.get<ffi::AnyBuffer>(given.size() - 1);
  const bool is_double = holds_double(number);
  simulator::Evaluation of = evaluation(to_points.begin(), to_modes.begin(), sizes.begin(), is_double);
  const Geometry &source = of.to_points.geometry, &target = of.to_modes.geometry;
  const index sources = source.source.messages, targets = of.products ? target.target.messages : 0;
  if (index(given.size()) != sources + 1 || index(made.size()) != targets + 2) return wrong("a number of arrays is wrong");
  if (sources > MOST_MESSAGES || targets > MOST_MESSAGES) return wrong("more than 4096 messages");
  void *from[MOST_MESSAGES], *to[MOST_MESSAGES];
  for (index i = 0; i < sources; ++i) {
    const ffi::AnyBuffer message = *given.get<ffi::AnyBuffer>(i);
    if (numbers(message) != of.inputs * numbers(source.source) || holds_double(message) != is_double)
      return wrong("a source of another shape");
    from[i] = message.untyped_data();
  }
  for (index i = 0; i < targets; ++i) {
    ffi::AnyBuffer message = **made.get<ffi::AnyBuffer>(i);
    if (numbers(message) != of.products * numbers(target.target) || holds_double(message) != is_double)
      return wrong("a target of another shape");
    to[i] = message.untyped_data();
  }
  ffi::AnyBuffer reduced = **made.get<ffi::AnyBuffer>(targets), scratch = **made.get<ffi::AnyBuffer>(targets + 1);
  const index registers = of.inputs + of.products + of.temporaries;
  of.count = operations.size() / 4;
  of.operations = reinterpret_cast<const simulator::Operation *>(operations.begin());
  if (!source.real || of.inputs > simulator::MOST_FIELDS || of.products > simulator::MOST_FIELDS ||
      of.numbers > of.temporaries || index(number.element_count()) < of.numbers ||
      index(reduced.element_count()) < of.reductions * of.units)
    return wrong("operations of other shapes");
  for (index o = 0; o < of.count; ++o) {
    const simulator::Operation &one = of.operations[o];
    const bool reduces = one.kind >= simulator::MAXIMUM;
    if (one.result < 0 || one.result >= (reduces ? of.reductions : registers) || one.a < 0 || one.a >= registers ||
        one.b < 0 || one.b >= registers || one.kind < 0 || one.kind > simulator::SUM)
      return wrong("an operation on a register that does not exist");
  }
  for (simulator::Stage *stage : {&of.to_points, &of.to_modes}) {
    look_up_transforms(*stage, is_double);
    stage->start = 0;
  }
  of.to_points.components = of.inputs, of.to_modes.components = of.products;
  of.to_points.scale = points_scale, of.to_modes.scale = modes_scale;
  of.to_points.source = from, of.to_modes.target = to;
  of.to_points.target = of.to_modes.source = from;  // not used
  of.number = number.untyped_data(), of.reduced = reduced.untyped_data();
  const auto bytes = [&](const Geometry &g) {
    return is_double ? simulator::scratch_bytes<double>(g) : simulator::scratch_bytes<float>(g);
  };
  const index needed = is_double ? simulator::scratch_bytes<double>(of) : simulator::scratch_bytes<float>(of);
  const index threads = index(scratch.size_bytes()) / needed;
  if (!threads) return wrong("too little scratch memory");
  const auto run = is_double ? simulator::evaluator<double>() : simulator::evaluator<float>();
  std::vector<char> used(threads, false);
  simulator::share(pool, threads, of.units, [&](index begin, index end, index worker) {
    simulator::Evaluation part = of;
    char *own = static_cast<char *>(scratch.untyped_data()) + worker * needed;
    part.to_points.scratch = own, part.to_modes.scratch = own + bytes(source);
    part.scratch = own + bytes(source) + bytes(target);
    part.begin = begin, part.end = end, part.follows = used[worker];
    run(part);
    if (!used[worker]) used[worker] = true;
  });
  return ffi::Error::Success();
}

// Kernels for particles visit this many entries of an array at a time.
constexpr index ENTRIES = 4096;

// Calls run(part of the call, worker) for all entries of a call.
template <class Call, class Run> void visit(ffi::ThreadPool &pool, index threads, const Call &call, const Run &run) {
  simulator::share(pool, threads, (call.entries + ENTRIES - 1) / ENTRIES, [&](index begin, index end, index worker) {
    Call part = call;
    part.begin = begin * ENTRIES, part.end = std::min(call.entries, end * ENTRIES);
    run(part, worker);
  });
}

simulator::Share sharing(ffi::ThreadPool &pool, index threads) {
  return [&pool, threads](index units, const std::function<void(index, index)> &work) {
    simulator::share(pool, threads, units, [&work](index begin, index end, index) { work(begin, end); });
  };
}

// Calls copy(to, from, bytes) for the parts of an array.
template <class Copy>
void copy_array(ffi::ThreadPool &pool, index threads, ffi::AnyBuffer &to, const ffi::AnyBuffer &from, const Copy &copy) {
  constexpr index PAGE = 1 << 16;
  const index bytes = from.size_bytes();
  char *target = static_cast<char *>(to.untyped_data());
  const char *source = static_cast<const char *>(from.untyped_data());
  simulator::share(pool, threads, (bytes + PAGE - 1) / PAGE, [&](index begin, index end, index) {
    copy(target + begin * PAGE, source + begin * PAGE, std::min(bytes, end * PAGE) - begin * PAGE);
  });
}

ffi::Error weave(ffi::ThreadPool pool, int64_t threads, ffi::AnyBuffer block, ffi::Result<ffi::AnyBuffer> woven,
                 ffi::Span<const int64_t> below, int64_t around) {
  simulator::Weave w;
  const auto extents = block.dimensions(), room = woven->dimensions();
  if (extents.size() != 4 || room.size() != 4 || below.size() != 3 || room[3] != extents[0] ||
      block.element_type() != woven->element_type())
    return wrong("a field interleaved into an array of another shape");
  w.components = extents[0], w.around = around;
  if (w.components != 1 && w.components != 3) return wrong("a field of neither 1 nor 3 components");
  for (int i = 0; i < 3; ++i) {
    w.extents[i] = extents[1 + i], w.below[i] = below[i], w.room[i] = room[i];
    if (w.below[i] < 0 || w.below[i] + w.extents[i] > w.room[i] || !w.extents[i]) return wrong("a field without room");
  }
  w.block = block.untyped_data(), w.woven = woven->untyped_data();
  const auto run = holds_double(block) ? simulator::weaver<double>() : simulator::weaver<float>();
  simulator::share(pool, threads, w.extents[0] * w.extents[1], [&](index begin, index end, index) {
    simulator::Weave part = w;
    part.begin = begin, part.end = end;
    run(part);
  });
  return ffi::Error::Success();
}

// Particles among the points of a block; `room` is the number of points along a whole last axis beyond its period.
template <class Particles>
const char *placed(Particles &p, ffi::Span<const int64_t> geometry, ffi::Span<const double> spacing,
                   const ffi::Buffer<ffi::F64> &position, const ffi::Buffer<ffi::S32> &count,
                   const ffi::Buffer<ffi::S32> &starts, ffi::Span<const int64_t> extents, index room) {
  if (geometry.size() != simulator::PLACES_LENGTH || spacing.size() != 3) return "particles of another version";
  const auto places = position.dimensions();
  if (places.size() != 2 || places[0] != 3 || starts.element_count() != 3 || count.element_count() != 1)
    return "particles of another rank";
  p.sloped = geometry[7];
  p.points = geometry[0], p.entries = places[1], p.count = *count.typed_data(), p.position = position.typed_data();
  if (p.count < 0 || p.count > p.entries) return "more particles than entries";
  if (p.points < 2 || p.points > 4) return "particles on neither 2, 3 nor 4 points";
  for (int i = 0; i < 3; ++i) {
    p.axes[i] = geometry[1 + i], p.periods[i] = geometry[4 + i];
    p.extents[i] = extents[i], p.starts[i] = starts.typed_data()[i], p.spacing[i] = spacing[i];
    const index whole = p.periods[i] + (i == 2 ? room : 0);
    if (p.axes[i] < 0 || p.axes[i] > 2 || (p.periods[i] && p.extents[i] != whole))
      return "particles in a block of another shape";
  }
  return nullptr;
}

// `rate`: (3, entries), or nothing of no entries.
ffi::Error gather(ffi::ThreadPool pool, int64_t threads, ffi::AnyBuffer block, ffi::Buffer<ffi::F64> position,
                  ffi::AnyBuffer rate, ffi::Buffer<ffi::F64> factors, ffi::Buffer<ffi::S32> count, ffi::Buffer<ffi::S32> starts,
                  ffi::Result<ffi::AnyBuffer> values, ffi::Span<const int64_t> geometry, ffi::Span<const double> spacing) {
  simulator::Gather g;
  const auto extents = block.dimensions(), made = values->dimensions();
  if (extents.size() != 4 || made.size() != 2 || geometry.size() < 1) return wrong("a gather of arrays of other ranks");
  if (const char *what = placed(g, geometry, spacing, position, count, starts, extents, geometry[0] - 1)) return wrong(what);
  g.components = extents[3];
  if (g.components != 1 && g.components != 3) return wrong("a gather of neither 1 nor 3 components");
  if (made[0] != g.components || made[1] != g.entries || values->element_type() != block.element_type())
    return wrong("a gather into an array of another shape");
  const index rates = rate.element_count();
  if (rate.element_type() != block.element_type() || (rates && rates != 3 * g.entries) || factors.element_count() != 2)
    return wrong("a gather at moved places of another shape");
  g.rate = rates ? rate.untyped_data() : nullptr;
  std::copy_n(factors.typed_data(), 2, g.factors);
  g.block = block.untyped_data(), g.values = values->untyped_data();
  const auto run = holds_double(block) ? simulator::gatherer<double>() : simulator::gatherer<float>();
  visit(pool, threads, g, [&](const simulator::Gather &part, index) { run(part); });
  return ffi::Error::Success();
}

// Calls `run` for the whole block or, by several threads, for parts of its planes and lines.
void deposit_in_parts(ffi::ThreadPool &pool, index threads, simulator::Deposit d, simulator::RunDeposit run) {
  index parts[] = {1, 1};
  for (int a = 0; a < 2 && threads > 1 && d.count > ENTRIES; ++a) {
    const index wanted = (simulator::PARTS * threads + parts[0] - 1) / parts[0];
    parts[a] = std::max<index>(1, std::min(wanted, d.extents[a] / simulator::TILE));
  }
  const index all = parts[0] * parts[1];
  std::vector<simulator::Span> spans(all > 1 ? (d.count + simulator::BATCH - 1) / simulator::BATCH : 0);
  d.spans = all > 1 ? spans.data() : nullptr;
  if (all > 1) simulator::spans(d, spans.data(), sharing(pool, threads));
  simulator::share(pool, threads, all, [&](index begin, index end, index) {
    for (index number = begin; number < end; ++number) {
      const index place[] = {number / parts[1], number % parts[1]};
      simulator::Deposit part = d;
      for (int a = 0; a < 2; ++a) {
        part.least[a] = place[a] * d.extents[a] / parts[a];
        part.most[a] = (place[a] + 1) * d.extents[a] / parts[a];
      }
      run(part);
    }
  });
}

ffi::Error deposit(ffi::ThreadPool pool, int64_t threads, ffi::Buffer<ffi::F64> position, ffi::Buffer<ffi::F64> mass,
                   ffi::Buffer<ffi::F64> scale, ffi::Buffer<ffi::S32> count, ffi::Buffer<ffi::S32> starts, ffi::Result<ffi::AnyBuffer> block,
                   ffi::Span<const int64_t> geometry, ffi::Span<const double> spacing) {
  simulator::Deposit d;
  const auto extents = block->dimensions();
  if (extents.size() != 3 || scale.element_count() != 1) return wrong("a deposit into an array of another rank");
  if (const char *what = placed(d, geometry, spacing, position, count, starts, extents, 0)) return wrong(what);
  if (index(mass.element_count()) != d.entries) return wrong("a deposit of another number of masses");
  d.mass = mass.typed_data(), d.scale = *scale.typed_data(), d.block = block->untyped_data();
  switch (block->element_type()) {
    case ffi::S64: deposit_in_parts(pool, threads, d, simulator::depositor<int64_t>()); break;
    case ffi::F64: deposit_in_parts(pool, threads, d, simulator::depositor<double>()); break;
    case ffi::F32: deposit_in_parts(pool, threads, d, simulator::depositor<float>()); break;
    default: return wrong("a deposit of other numbers");
  }
  return ffi::Error::Success();
}

// The larger number; not a number if one of them is not.
double larger(double a, double b) { return a != a || b <= a ? a : b; }

// `kicked`: as many velocities, or none.
ffi::Error kick(ffi::ThreadPool pool, int64_t threads, ffi::AnyBuffer pull, ffi::Buffer<ffi::F64> velocity,
                ffi::Buffer<ffi::S32> count, ffi::Buffer<ffi::F64> length, ffi::Result<ffi::Buffer<ffi::F64>> kicked,
                ffi::Result<ffi::Buffer<ffi::F64>> fastest, ffi::Span<const double> spacing) {
  const index numbers = velocity.element_count();
  const index wanted = kicked->element_count();
  if (index(pull.element_count()) != numbers || (wanted && wanted != numbers) || numbers % 3 ||
      count.element_count() != 1 || length.element_count() != 1 || fastest->element_count() != 1 || spacing.size() != 3)
    return wrong("a kick of arrays of other shapes");
  simulator::Kick k;
  k.entries = numbers / 3, k.count = *count.typed_data(), k.length = *length.typed_data();
  if (k.count < 0 || k.count > k.entries) return wrong("a kick of more particles than entries");
  std::copy(spacing.begin(), spacing.end(), k.spacing);
  k.pull = pull.untyped_data(), k.velocity = velocity.typed_data(), k.kicked = wanted ? kicked->typed_data() : nullptr;
  if (pull.element_type() != ffi::F64 && pull.element_type() != ffi::F32) return wrong("a kick by other numbers");
  const auto run = holds_double(pull) ? simulator::kicker<double>() : simulator::kicker<float>();
  std::vector<double> most(threads, 0.0);
  visit(pool, threads, k, [&](simulator::Kick part, index worker) {
    double of_part;
    part.fastest = &of_part;
    run(part);
    most[worker] = larger(most[worker], of_part);
  });
  *fastest->typed_data() = std::accumulate(most.begin(), most.end(), 0.0, larger);
  return ffi::Error::Success();
}

// Operands: pull (3, entries), or nothing of no entries; velocity; number of particles; lengths of both kicks and of the
// drift; position; others. Results: velocity, if there is a pull; position and others, in the same memory; and with
// `saves` the velocity between the kicks, and a copy of position and others as they were.
ffi::Error drift(ffi::ThreadPool pool, int64_t threads, ffi::RemainingArgs given, ffi::RemainingRets made,
                 ffi::Span<const double> box, int64_t saves) {
  constexpr size_t FIRST = 4;
  if (given.size() <= FIRST || box.size() != 3) return wrong("a wrong number of arrays of particles to move");
  const size_t moving = given.size() - FIRST;
  if (made.size() != (1 + moving) * (saves ? 2 : 1)) return wrong("a wrong number of arrays of moved particles");
  const ffi::AnyBuffer pull = *given.get<ffi::AnyBuffer>(0), velocity = *given.get<ffi::AnyBuffer>(1);
  const ffi::AnyBuffer count = *given.get<ffi::AnyBuffer>(2), lengths = *given.get<ffi::AnyBuffer>(3);
  ffi::AnyBuffer kicked = **made.get<ffi::AnyBuffer>(0), position = **made.get<ffi::AnyBuffer>(1);
  const index numbers = position.element_count();
  if (numbers % 3 || index(velocity.element_count()) != numbers || kicked.element_count() != pull.element_count() ||
      (pull.element_count() && index(pull.element_count()) != numbers) || count.element_count() != 1 ||
      lengths.element_count() != 3)
    return wrong("a drift of arrays of other shapes");
  for (const ffi::AnyBuffer &array : {position, velocity, lengths, kicked})
    if (array.element_type() != ffi::F64) return wrong("a drift of other numbers");
  simulator::Drift d;
  d.entries = numbers / 3, d.count = *count.typed_data<int32_t>();
  if (d.count < 0 || d.count > d.entries) return wrong("a drift of more particles than entries");
  std::copy(box.begin(), box.end(), d.box);
  d.pull = pull.element_count() ? pull.untyped_data() : nullptr, d.saved = d.slower = nullptr;
  d.velocity = velocity.typed_data<double>(), d.position = position.typed_data<double>();
  std::copy_n(lengths.typed_data<double>(), 2, d.kicks), d.length = lengths.typed_data<double>()[2];
  d.kicked = kicked.typed_data<double>();
  if (saves && d.pull) {
    ffi::AnyBuffer slower = **made.get<ffi::AnyBuffer>(1 + moving);
    if (slower.size_bytes() != kicked.size_bytes()) return wrong("a velocity to keep of another kind");
    d.slower = slower.typed_data<double>();
  }
  for (size_t i = 0; i < moving; ++i) {
    const ffi::AnyBuffer array = *given.get<ffi::AnyBuffer>(FIRST + i);
    ffi::AnyBuffer same = **made.get<ffi::AnyBuffer>(1 + i);
    if (same.untyped_data() != array.untyped_data()) return wrong("an array that does not change in place");
    if (!saves) continue;
    ffi::AnyBuffer copy = **made.get<ffi::AnyBuffer>(2 + moving + i);
    if (copy.size_bytes() != array.size_bytes()) return wrong("an array to keep of another kind");
    if (i)
      copy_array(pool, threads, copy, array, simulator::copy_aside);
    else
      d.saved = copy.typed_data<double>();
  }
  const auto run = holds_double(pull) ? simulator::drifter<double>() : simulator::drifter<float>();
  visit(pool, threads, d, [&](const simulator::Drift &part, index) { run(part); });
  return ffi::Error::Success();
}

// Operands: factors, number of particles, position, displacement, rates. Results: position and displacement, in the same
// memory, and whether a position is not finite.
ffi::Error advance(ffi::ThreadPool pool, int64_t threads, ffi::RemainingArgs given, ffi::RemainingRets made,
                   ffi::Span<const double> box) {
  constexpr size_t FIRST = 4;
  if (given.size() <= FIRST || made.size() != 3 || box.size() != 3) return wrong("a wrong number of arrays to advance");
  const ffi::AnyBuffer factors = *given.get<ffi::AnyBuffer>(0), count = *given.get<ffi::AnyBuffer>(1);
  const ffi::AnyBuffer lost = **made.get<ffi::AnyBuffer>(2), first = *given.get<ffi::AnyBuffer>(FIRST);
  simulator::Advance d;
  double **const moving[] = {&d.position, &d.displacement};
  d.terms = given.size() - FIRST, d.entries = first.element_count() / 3;
  if (index(factors.element_count()) != 1 + d.terms || factors.element_type() != ffi::F64 || count.element_count() != 1 ||
      lost.element_type() != ffi::S32 || lost.element_count() != 1)
    return wrong("an advance of other numbers");
  for (size_t i = 0; i < 2; ++i) {
    const ffi::AnyBuffer array = *given.get<ffi::AnyBuffer>(2 + i);
    if (array.element_type() != ffi::F64 || index(array.element_count()) != 3 * d.entries ||
        (**made.get<ffi::AnyBuffer>(i)).untyped_data() != array.untyped_data())
      return wrong("an advance of an array that does not change in place");
    *moving[i] = array.typed_data<double>();
  }
  std::vector<const void *> rates;
  for (size_t i = FIRST; i < given.size(); ++i) {
    const ffi::AnyBuffer rate = *given.get<ffi::AnyBuffer>(i);
    if (index(rate.element_count()) != 3 * d.entries || rate.element_type() != first.element_type())
      return wrong("an advance by rates of another kind");
    rates.push_back(rate.untyped_data());
  }
  d.count = *count.typed_data<int32_t>(), d.factors = factors.typed_data<double>(), d.rates = rates.data();
  if (d.count < 0 || d.count > d.entries) return wrong("an advance of more particles than entries");
  std::copy(box.begin(), box.end(), d.box);
  const auto run = holds_double(first) ? simulator::advancer<double>() : simulator::advancer<float>();
  std::atomic<bool> any = false;
  visit(pool, threads, d, [&](simulator::Advance part, index) {
    run(part);
    if (part.lost) any = true;
  });
  *lost.typed_data<int32_t>() = any;
  return ffi::Error::Success();
}

// Operands: position (3, entries), number of particles, this device. `ring`: the axis, its planes, those of a device.
ffi::Error leave(ffi::ThreadPool pool, int64_t threads, ffi::Buffer<ffi::F64> position, ffi::Buffer<ffi::S32> count,
                 ffi::Buffer<ffi::S32> here, ffi::Result<ffi::Buffer<ffi::S32>> up, ffi::Result<ffi::Buffer<ffi::S32>> down,
                 ffi::Result<ffi::Buffer<ffi::S32>> both, ffi::Result<ffi::Buffer<ffi::S32>> number,
                 ffi::Span<const int64_t> ring, double spacing) {
  const index entries = position.element_count() / 3;
  if (position.element_count() % 3 || count.element_count() != 1 || here.element_count() != 1 || ring.size() != 3 ||
      number->element_count() != 1 || up->element_count() != down->element_count() ||
      both->element_count() != 2 * up->element_count() || ring[0] < 0 || ring[0] > 2)
    return wrong("a selection of arrays of other shapes");
  const index held = *count.typed_data();
  if (held < 0 || held > entries) return wrong("a selection of more particles than entries");
  const simulator::Ring of{spacing, ring[1], ring[2], *here.typed_data()};
  *number->typed_data() = int32_t(simulator::leaving(position.typed_data() + ring[0] * entries, held, of,
                                                     up->element_count(), entries, up->typed_data(), down->typed_data(),
                                                     both->typed_data(), sharing(pool, threads)));
  return ffi::Error::Success();
}

// Operands: whether the new arrays hold, new arrays, old arrays. Results: the new arrays, in the same memory, or copies
// of the old ones.
ffi::Error restore(ffi::ThreadPool pool, int64_t threads, ffi::RemainingArgs given, ffi::RemainingRets made) {
  if (given.size() != 1 + 2 * made.size()) return wrong("a number of arrays to restore is wrong");
  const ffi::AnyBuffer holds = *given.get<ffi::AnyBuffer>(0);
  if (holds.element_type() != ffi::PRED || holds.element_count() != 1) return wrong("a truth of another kind");
  for (size_t i = 0; i < made.size(); ++i) {
    const ffi::AnyBuffer now = *given.get<ffi::AnyBuffer>(1 + i), old = *given.get<ffi::AnyBuffer>(1 + made.size() + i);
    ffi::AnyBuffer result = **made.get<ffi::AnyBuffer>(i);
    if (result.untyped_data() != now.untyped_data() || old.size_bytes() != now.size_bytes())
      return wrong("an array to restore of another kind");
    if (!*holds.typed_data<bool>())
      copy_array(pool, threads, result, old, [](char *to, const char *from, index n) { std::copy_n(from, n, to); });
  }
  return ffi::Error::Success();
}

// Sorts particles if `due` is not 0. Operands: due, number of particles, position (3, entries), further records.
// Results: position and records, in the same memory.
ffi::Error sort(ffi::ThreadPool pool, int64_t threads, ffi::RemainingArgs given, ffi::RemainingRets made,
                ffi::Span<const int64_t> axes, ffi::Span<const int64_t> cells, ffi::Span<const double> spacing) {
  constexpr size_t FIRST = 2;
  if (given.size() < FIRST + 1 || made.size() != given.size() - FIRST || axes.size() != 3 || cells.size() != 3 ||
      spacing.size() != 3)
    return wrong("a wrong number of arrays of particles to sort");
  const ffi::AnyBuffer due = *given.get<ffi::AnyBuffer>(0), number = *given.get<ffi::AnyBuffer>(1);
  const ffi::AnyBuffer position = *given.get<ffi::AnyBuffer>(FIRST);
  if (due.element_type() != ffi::S32 || number.element_type() != ffi::S32 || due.element_count() != 1 ||
      number.element_count() != 1 || position.element_type() != ffi::F64 || position.element_count() % 3)
    return wrong("particles to sort of another kind");
  const index entries = position.element_count() / 3, count = *number.typed_data<int32_t>();
  if (count < 0 || count > entries) return wrong("more particles to sort than entries");
  for (size_t i = 0; i < made.size(); ++i) {
    const ffi::AnyBuffer record = *given.get<ffi::AnyBuffer>(FIRST + i);
    if (ffi::ByteWidth(record.element_type()) != 8 || (entries && record.element_count() % entries))
      return wrong("a record to sort of another kind");
    if (record.untyped_data() != (**made.get<ffi::AnyBuffer>(i)).untyped_data())
      return wrong("a record that is not sorted in place");
  }
  if (!*due.typed_data<int32_t>() || !count) return ffi::Error::Success();
  index of_axes[3], of_cells[3];
  std::copy(axes.begin(), axes.end(), of_axes), std::copy(cells.begin(), cells.end(), of_cells);
  for (index axis : of_axes)
    if (axis < 0 || axis > 2) return wrong("particles to sort along no axis");
  std::vector<int32_t> places(count);
  const simulator::Share share = sharing(pool, threads);
  simulator::order(position.typed_data<double>(), count, entries, of_axes, of_cells, spacing.begin(), places.data(),
                   share);
  for (size_t i = 0; i < made.size(); ++i) {
    ffi::AnyBuffer record = **made.get<ffi::AnyBuffer>(i);
    simulator::permute_rows(static_cast<uint64_t *>(record.untyped_data()), record.element_count() / entries, count,
                            entries, places.data(), share);
  }
  return ffi::Error::Success();
}

// Uninitialized memory, for a loop that fills all of it.
ffi::Error blank(ffi::RemainingRets, int64_t) { return ffi::Error::Success(); }

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(simulator_stage, stage,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<ffi::Span<const int64_t>>("geometry")
                                  .Attr<double>("scale"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(simulator_evaluate, evaluate,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<ffi::Span<const int64_t>>("to_points")
                                  .Attr<ffi::Span<const int64_t>>("to_modes")
                                  .Attr<double>("points_scale")
                                  .Attr<double>("modes_scale")
                                  .Attr<ffi::Span<const int64_t>>("sizes")
                                  .Attr<ffi::Span<const int64_t>>("operations"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(simulator_weave, weave,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<int64_t>("threads")
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<ffi::Span<const int64_t>>("below")
                                  .Attr<int64_t>("around"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(simulator_gather, gather,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<int64_t>("threads")
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::Buffer<ffi::F64>>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::Buffer<ffi::F64>>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<ffi::Span<const int64_t>>("geometry")
                                  .Attr<ffi::Span<const double>>("spacing"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(simulator_deposit, deposit,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<int64_t>("threads")
                                  .Arg<ffi::Buffer<ffi::F64>>()
                                  .Arg<ffi::Buffer<ffi::F64>>()
                                  .Arg<ffi::Buffer<ffi::F64>>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<ffi::Span<const int64_t>>("geometry")
                                  .Attr<ffi::Span<const double>>("spacing"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(simulator_kick, kick,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<int64_t>("threads")
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::Buffer<ffi::F64>>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<ffi::Buffer<ffi::F64>>()
                                  .Ret<ffi::Buffer<ffi::F64>>()
                                  .Ret<ffi::Buffer<ffi::F64>>()
                                  .Attr<ffi::Span<const double>>("spacing"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(simulator_drift, drift,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<int64_t>("threads")
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<ffi::Span<const double>>("box")
                                  .Attr<int64_t>("saves"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(simulator_advance, advance,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<int64_t>("threads")
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<ffi::Span<const double>>("box"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(simulator_leave, leave,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<int64_t>("threads")
                                  .Arg<ffi::Buffer<ffi::F64>>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Ret<ffi::Buffer<ffi::S32>>()
                                  .Ret<ffi::Buffer<ffi::S32>>()
                                  .Ret<ffi::Buffer<ffi::S32>>()
                                  .Ret<ffi::Buffer<ffi::S32>>()
                                  .Attr<ffi::Span<const int64_t>>("ring")
                                  .Attr<double>("spacing"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(simulator_restore, restore,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<int64_t>("threads")
                                  .RemainingArgs()
                                  .RemainingRets());

XLA_FFI_DEFINE_HANDLER_SYMBOL(simulator_sort, sort,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<int64_t>("threads")
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<ffi::Span<const int64_t>>("axes")
                                  .Attr<ffi::Span<const int64_t>>("cells")
                                  .Attr<ffi::Span<const double>>("spacing"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(simulator_blank, blank, ffi::Ffi::Bind().RemainingRets().Attr<int64_t>("number"));

extern "C" {

// The hash of the sources that this library was compiled from.
const char *simulator_key() { return SIMULATOR_KEY; }

const char *simulator_variant() { return simulator::variant_name(); }

int simulator_choose(const char *name) { return simulator::choose_variant(name); }

// Bytes of scratch memory that a stage of GEOMETRY_LENGTH numbers needs; -1 if the stage is of another version.
int64_t simulator_scratch(const int64_t *geometry, int64_t length, int is_double) {
  if (length != simulator::GEOMETRY_LENGTH) return -1;
  Geometry g;
  std::copy(geometry, geometry + length, reinterpret_cast<index *>(&g));
  return is_double ? simulator::scratch_bytes<double>(g) : simulator::scratch_bytes<float>(g);
}

// Bytes of scratch memory that a thread needs for an evaluation, and the units of the evaluation.
void simulator_evaluation(const int64_t *to_points, const int64_t *to_modes, const int64_t *sizes, int is_double,
                          int64_t *found) {
  const simulator::Evaluation of = evaluation(to_points, to_modes, sizes, is_double);
  found[0] = is_double ? simulator::scratch_bytes<double>(of) : simulator::scratch_bytes<float>(of);
  found[1] = of.units;
}

}
