// The kernels for one instruction set: compiled several times, each time with other flags and another name.

#include "stage.h"

namespace SIMULATOR_ISA {

void run_double(const simulator::Stage &stage) { run<double>(stage); }
void run_single(const simulator::Stage &stage) { run<float>(stage); }

}  // namespace SIMULATOR_ISA
