// The functions that XLA calls: a stage, and an array for a loop to fill.
//
// A stage's operands are the messages of its source, then, with `start_in`, the plane that it starts at, and, if it
// fills a part of the target, the target's messages, whose memory the results reuse. Its results are the target's
// messages and scratch memory.

#include <algorithm>
#include <string>

#include "dispatch.h"
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

// Numbers of the stage's precision in an array.
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

ffi::Error stage(ffi::RemainingArgs given, ffi::RemainingRets made, ffi::Span<const int64_t> geometry, double scale) {
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
    if (start.element_type() != ffi::S32 || start.element_count() != 1) return wrong("a start that is no number");
    stage.start = *start.typed_data<int32_t>();
    const Side &side = g.start_in == 1 ? g.source : g.target;
    for (int i = 0; i < 3; ++i)
      if (side.order[i] == g.block && (stage.start < 0 || stage.start + g.planes > side.extents[i]))
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
  if (index(scratch.size_bytes()) < needed) return wrong("too little scratch memory");
  stage.scale = scale;
  stage.source = from;
  stage.target = to;
  stage.scratch = static_cast<char *>(scratch.untyped_data());
  if (stage.components > 0) (is_double ? simulator::runner<double>() : simulator::runner<float>())(stage);
  return ffi::Error::Success();
}

// Uninitialized memory, for a loop that fills all of it.
ffi::Error blank(ffi::RemainingRets, int64_t) { return ffi::Error::Success(); }

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(simulator_stage, stage,
                              ffi::Ffi::Bind()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<ffi::Span<const int64_t>>("geometry")
                                  .Attr<double>("scale"));

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

}
