// The compiled variants of the kernels, and the choice of one for this processor.

#ifndef SIMULATOR_DISPATCH_H
#define SIMULATOR_DISPATCH_H

#include <string>

#include "plan.h"

#define SIMULATOR_VARIANT(NAME)                    \
  namespace NAME {                                 \
  void run_double(const simulator::Stage &);       \
  void run_single(const simulator::Stage &);       \
  void evaluate_double(const simulator::Evaluation &); \
  void evaluate_single(const simulator::Evaluation &); \
  void gather_double(const simulator::Gather &);   \
  void gather_single(const simulator::Gather &);   \
  void deposit_whole(const simulator::Deposit &);  \
  void deposit_double(const simulator::Deposit &); \
  void deposit_single(const simulator::Deposit &); \
  void weave_double(const simulator::Weave &);     \
  void weave_single(const simulator::Weave &);     \
  void kick_double(const simulator::Kick &);       \
  void kick_single(const simulator::Kick &);       \
  void drift_double(const simulator::Drift &);     \
  void drift_single(const simulator::Drift &);     \
  void advance_double(simulator::Advance &);       \
  void advance_single(simulator::Advance &);       \
  }

#if defined(__x86_64__)
SIMULATOR_VARIANT(avx512)
SIMULATOR_VARIANT(avx2)
#endif
SIMULATOR_VARIANT(baseline)

namespace simulator {

typedef void (*Run)(const Stage &);
typedef void (*RunEvaluation)(const Evaluation &);
typedef void (*RunGather)(const Gather &);
typedef void (*RunDeposit)(const Deposit &);
typedef void (*RunWeave)(const Weave &);
typedef void (*RunKick)(const Kick &);
typedef void (*RunDrift)(const Drift &);
typedef void (*RunAdvance)(Advance &);

// The function that runs a stage with numbers of type T and the widest instructions of this processor.
template <class T> Run runner();
template <class T> RunEvaluation evaluator();
template <class T> RunGather gatherer();
template <class T> RunDeposit depositor();
template <class T> RunWeave weaver();
template <class T> RunKick kicker();
template <class T> RunDrift drifter();
template <class T> RunAdvance advancer();

const char *variant_name();

// Selects another variant, for tests; false if this processor or this library lacks the variant.
bool choose_variant(const std::string &name);

}  // namespace simulator

#endif
