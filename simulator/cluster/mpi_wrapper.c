/* The site's MPI behind the names by which jaxlib calls MPI.

   jaxlib is compiled against MPItrampoline, whose names (MPIABI_*) and types do not depend on the
   implementation of MPI (github.com/eschnett/MPItrampoline, mpiabi/mpiabi.h: handles are as wide as
   a pointer). It opens the library named in MPITRAMPOLINE_LIB and looks up every name at once, but
   its collectives call only the functions below; `absent.c`, which `mpi.py` writes, gives all other
   names a meaning.

   jaxlib calls from the threads of its pool, one collective at a time. MPI is initialized for that
   (MPI_THREAD_SERIALIZED), and a lock keeps calls apart. A waiting process polls, and gives up its
   core between polls, to the threads of XLA on the same core or to other processes; libraries that
   wait by themselves would hold the core. */

#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

typedef uintptr_t Handle;

const int mpiwrapper_version_major = 1;
const int mpiwrapper_version_minor = 0;
const int mpiwrapper_version_patch = 0;
/* jaxlib refuses another major version and an older minor version. The names are those of the
   jaxlib at hand, so that every minor version is new enough. */
const int mpiabi_version_major = 2;
const int mpiabi_version_minor = 1000;
const int mpiabi_version_patch = 0;

void mpiwrapper_export_fortran_constants_(void) {}

#define NUMBER(name) const int MPIABI_##name = MPI_##name;
#define HANDLE(name) const Handle MPIABI_##name = (Handle)MPI_##name;
NUMBER(SUCCESS)
NUMBER(UNDEFINED)
NUMBER(THREAD_FUNNELED)
HANDLE(COMM_WORLD)
HANDLE(BYTE)
HANDLE(INT8_T)
HANDLE(INT16_T)
HANDLE(INT32_T)
HANDLE(INT64_T)
HANDLE(UINT8_T)
HANDLE(UINT16_T)
HANDLE(UINT32_T)
HANDLE(UINT64_T)
HANDLE(FLOAT)
HANDLE(DOUBLE)
HANDLE(C_COMPLEX)
HANDLE(C_DOUBLE_COMPLEX)
HANDLE(SUM)
HANDLE(PROD)
HANDLE(MIN)
HANDLE(MAX)

/* An MPI handle is a pointer (Open MPI) or an int (MPICH). */
#define COMM(handle) ((MPI_Comm)(intptr_t)(handle))
#define TYPE(handle) ((MPI_Datatype)(intptr_t)(handle))
#define OP(handle) ((MPI_Op)(intptr_t)(handle))
#define REQUEST(handle) ((MPI_Request)(intptr_t)(handle))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int unlocked(int code) {
  pthread_mutex_unlock(&lock);
  return code;
}

#define ALONE(call) (pthread_mutex_lock(&lock), unlocked(call))

static const double YIELDING = 0.01;                 /* seconds of polling without pause */
static const struct timespec PAUSE = {0, 50 * 1000}; /* between polls after that */

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

/* Waits for `count` requests. */
static int completed(int count, MPI_Request *requests) {
  const double began = seconds();
  for (;;) {
    int done = 0;
    const int code = ALONE(MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE));
    if (code != MPI_SUCCESS || done) return code;
    if (seconds() - began < YIELDING)
      sched_yield();
    else
      nanosleep(&PAUSE, NULL);
  }
}

/* Starts a collective, which defines `request`, and waits for it. */
#define COMPLETED(start)                                      \
  do {                                                        \
    MPI_Request request;                                      \
    const int code = ALONE(start);                            \
    return code == MPI_SUCCESS ? completed(1, &request) : code; \
  } while (0)

int MPIABI_Init_thread(int *argc, char ***argv, int required, int *provided) {
  (void)argc, (void)argv, (void)required; /* jaxlib asks for less than it uses */
  const int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, provided);
  if (code == MPI_SUCCESS && *provided < MPI_THREAD_SERIALIZED) {
    fprintf(stderr, "simulator: this MPI does not allow calls from several threads "
                    "(MPI_THREAD_SERIALIZED); set run.transport: gloo\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return code;
}

/* jaxlib refuses to create communicators in other threads than the first; here every thread may. */
int MPIABI_Is_thread_main(int *flag) {
  *flag = 1;
  return MPI_SUCCESS;
}

int MPIABI_Finalize(void) { return ALONE(MPI_Finalize()); }

int MPIABI_Get_library_version(char *version, int *length) {
  return MPI_Get_library_version(version, length);
}

int MPIABI_Error_string(int error, char *text, int *length) {
  return MPI_Error_string(error, text, length);
}

int MPIABI_Comm_rank(Handle comm, int *rank) { return ALONE(MPI_Comm_rank(COMM(comm), rank)); }

int MPIABI_Comm_size(Handle comm, int *size) { return ALONE(MPI_Comm_size(COMM(comm), size)); }

int MPIABI_Comm_split(Handle comm, int color, int key, Handle *part) {
  MPI_Comm communicator;
  const int code = ALONE(MPI_Comm_split(COMM(comm), color, key, &communicator));
  *part = (Handle)communicator;
  return code;
}

/* jaxlib frees its communicators at the end of the process, possibly after MPI_Finalize. */
int MPIABI_Comm_free(Handle *comm) {
  (void)comm;
  return MPI_SUCCESS;
}

int MPIABI_Isend(const void *data, int count, Handle type, int target, int tag, Handle comm,
                 Handle *request) {
  MPI_Request started;
  const int code = ALONE(MPI_Isend(data, count, TYPE(type), target, tag, COMM(comm), &started));
  *request = (Handle)started;
  return code;
}

int MPIABI_Irecv(void *data, int count, Handle type, int source, int tag, Handle comm,
                 Handle *request) {
  MPI_Request started;
  const int code = ALONE(MPI_Irecv(data, count, TYPE(type), source, tag, COMM(comm), &started));
  *request = (Handle)started;
  return code;
}

int MPIABI_Wait(Handle *request, void *status) {
  (void)status; /* jaxlib ignores it */
  MPI_Request started = REQUEST(*request);
  return completed(1, &started);
}

int MPIABI_Sendrecv(const void *data, int count, Handle type, int target, int tag, void *room,
                    int most, Handle into, int source, int awaited, Handle comm, void *status) {
  (void)status;
  MPI_Request both[2];
  int code = ALONE(MPI_Irecv(room, most, TYPE(into), source, awaited, COMM(comm), &both[0]));
  if (code != MPI_SUCCESS) return code;
  code = ALONE(MPI_Isend(data, count, TYPE(type), target, tag, COMM(comm), &both[1]));
  return code == MPI_SUCCESS ? completed(2, both) : code;
}

int MPIABI_Allreduce(const void *data, void *result, int count, Handle type, Handle op,
                     Handle comm) {
  COMPLETED(MPI_Iallreduce(data, result, count, TYPE(type), OP(op), COMM(comm), &request));
}

int MPIABI_Allgather(const void *data, int count, Handle type, void *result, int each, Handle into,
                     Handle comm) {
  COMPLETED(
      MPI_Iallgather(data, count, TYPE(type), result, each, TYPE(into), COMM(comm), &request));
}

int MPIABI_Reduce_scatter(const void *data, void *result, const int *counts, Handle type, Handle op,
                          Handle comm) {
  COMPLETED(
      MPI_Ireduce_scatter(data, result, counts, TYPE(type), OP(op), COMM(comm), &request));
}
