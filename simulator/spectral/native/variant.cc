// The kernels for one instruction set: compiled several times, each time with other flags and another name.

#include "evaluate.h"
#include "particles.h"

namespace SIMULATOR_ISA {

void run_double(const simulator::Stage &stage) { run<double>(stage); }
void run_single(const simulator::Stage &stage) { run<float>(stage); }
void evaluate_double(const simulator::Evaluation &of) { evaluate<double>(of); }
void evaluate_single(const simulator::Evaluation &of) { evaluate<float>(of); }
void gather_double(const simulator::Gather &particles) { gather<double>(particles); }
void gather_single(const simulator::Gather &particles) { gather<float>(particles); }
void deposit_whole(const simulator::Deposit &particles) { deposit<int64_t>(particles); }
void deposit_double(const simulator::Deposit &particles) { deposit<double>(particles); }
void deposit_single(const simulator::Deposit &particles) { deposit<float>(particles); }
void weave_double(const simulator::Weave &field) { weave<double>(field); }
void weave_single(const simulator::Weave &field) { weave<float>(field); }
void kick_double(const simulator::Kick &particles) { kick<double>(particles); }
void kick_single(const simulator::Kick &particles) { kick<float>(particles); }
void drift_double(const simulator::Drift &particles) { drift<double>(particles); }
void drift_single(const simulator::Drift &particles) { drift<float>(particles); }
void advance_double(simulator::Advance &particles) { advance<double>(particles); }
void advance_single(simulator::Advance &particles) { advance<float>(particles); }

}  // namespace SIMULATOR_ISA
