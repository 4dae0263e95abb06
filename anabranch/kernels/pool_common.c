/* What the handlers of this folder share: the structures of XLA's interface for foreign functions (version 0.3), and work
 * in parts that XLA's own threads do. `pool_handler.py` compiles it together with them.
 *
 * A library with threads of its own wakes them for each call, while XLA's wait, and both want the same cores. So the
 * thread that XLA calls takes parts, one after the other, and so do threads of XLA's pool as soon as they come; each
 * part is computed by the library on one thread. Nobody waits for a part that no thread has begun: on crowded cores
 * the caller computes them all.
 *
 * The structures are those of `xla/ffi/api/c_api.h`, whose fields do not move within a major version.
 */
#include <immintrin.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { METADATA = 1, BOOLEAN = 1, FLOAT32 = 11, BFLOAT16 = 16, ARRAY_ATTRIBUTE = 1, STRING_ATTRIBUTE = 4, INTERNAL = 13 };
enum { VERSION_MAJOR = 0, VERSION_MINOR = 3 };

typedef struct Extension { size_t size; int type; struct Extension *next; } Extension;
typedef struct { size_t size; Extension *extension; int major, minor; } Version;
typedef struct { size_t size; Version version; uint32_t traits; } Metadata;
typedef struct { Extension base; Metadata *metadata; } MetadataExtension;
typedef struct { size_t size; Extension *extension; const char *message; int code; } ErrorArguments;
typedef struct { size_t size; Extension *extension; void *context; void (*task)(void *); void *data; } ScheduleArguments;
typedef struct { size_t size; Extension *extension; void *context; int64_t *threads; } ThreadsArguments;
typedef struct { size_t size; Extension *extension; void *error; } DestroyArguments;
typedef struct {
  size_t size;
  Extension *extension;
  Version version;
  const void *internal;
  void *(*create_error)(ErrorArguments *);
  void *message_of_error;
  void (*destroy_error)(DestroyArguments *);
  void *others[8]; /* handlers, streams, types, contexts, states, memory */
  void *(*schedule)(ScheduleArguments *);
  void *(*threads)(ThreadsArguments *);
} Api;
typedef struct { size_t size; Extension *extension; int64_t count; int *types; void **values; } Buffers;
typedef struct { size_t size; Extension *extension; int64_t count; int *types; void **names; void **values; } Attributes;
typedef struct { size_t size; Extension *extension; int type; void *data; int64_t rank; int64_t *lengths; } Buffer;
typedef struct { int type; size_t count; void *data; } Numbers;
typedef struct { const char *data; size_t size; } Text;
typedef struct {
  size_t size;
  Extension *extension;
  const Api *api;
  void *context;
  int stage;
  Buffers arguments, results;
  Attributes attributes;
} Frame;

/* of the OpenMP that oneDNN brings: how many threads it takes for what the calling thread asks for */
static int (*get_threads)(void);
static void (*set_threads)(int);

/* how often a thread looks whether the others are done before it sleeps */
static const int LOOKS = 2000;

/* Work in parts. What a handler needs to know of it follows in a structure of its own that begins with this one. */
typedef struct Job {
  atomic_int holders, next, done, failed, waiting;
  int parts;
  int (*compute)(const struct Job *, int part); /* gives a status of the library's: 0 is success */
} Job;

/* Computes parts until all are begun. */
static void take_parts(Job *job) {
  int before = get_threads();
  if (before != 1) set_threads(1);
  for (int part; (part = atomic_fetch_add(&job->next, 1)) < job->parts;) {
    int failed = job->compute(job, part);
    if (failed) atomic_store(&job->failed, failed);
    atomic_fetch_add(&job->done, 1);
    if (atomic_load(&job->waiting))
      syscall(SYS_futex, &job->done, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
  }
  if (before != 1) set_threads(before);
}

/* Waits until so many parts are done; all of them were begun. */
static void wait_until(Job *job, int parts) {
  for (int looks = 0, done; (done = atomic_load(&job->done)) < parts;)
    if (++looks < LOOKS) {
      __builtin_ia32_pause();
    } else {
      atomic_fetch_add(&job->waiting, 1);
      syscall(SYS_futex, &job->done, FUTEX_WAIT_PRIVATE, done, NULL, NULL, 0);
      atomic_fetch_sub(&job->waiting, 1);
    }
}

static void leave(Job *job) {
  if (atomic_fetch_sub(&job->holders, 1) == 1) free(job);
}

static void help(void *data) {
  take_parts(data);
  leave(data);
}

static int threads_of(const Frame *frame) {
  int64_t threads = 1;
  ThreadsArguments arguments = {sizeof arguments, NULL, frame->context, &threads};
  void *error = frame->api->threads(&arguments);
  if (error == NULL) return threads < 1 ? 1 : threads > 256 ? 256 : (int)threads;
  DestroyArguments destroyed = {sizeof destroyed, NULL, error};
  frame->api->destroy_error(&destroyed);
  return 1;
}

/* Does the work with the help of so many threads of the pool at most; returns what a part that failed gave. `job` is of
 * `malloc`, and is freed; without helpers it may be the caller's own. */
static int do_work(Job *job, const Frame *frame, int helpers, int is_own) {
  atomic_store(&job->holders, helpers + 1);
  for (int helper = 0; helper < helpers; helper++) {
    ScheduleArguments arguments = {sizeof arguments, NULL, frame->context, help, job};
    void *error = frame->api->schedule(&arguments);
    if (error != NULL) { /* there is no pool: the caller computes all parts */
      DestroyArguments destroyed = {sizeof destroyed, NULL, error};
      frame->api->destroy_error(&destroyed);
      leave(job);
    }
  }
  take_parts(job);
  wait_until(job, job->parts);
  int failed = atomic_load(&job->failed);
  if (!is_own) leave(job);
  return failed;
}

/* Takes a place to work in, of so many (64 at the most), of which each thread that is at work has one; returns its number. */
static int take_place(atomic_ullong *taken, int places) {
  for (unsigned long long seen = atomic_load(taken);;) {
    int place = seen == ~0ull ? 64 : __builtin_ctzll(~seen);
    if (place >= places)
      seen = atomic_load(taken);
    else if (atomic_compare_exchange_weak(taken, &seen, seen | 1ull << place))
      return place;
  }
}

static void leave_place(atomic_ullong *taken, int place) { atomic_fetch_and(taken, ~(1ull << place)); }

/* An error that names the operation, which the first attribute of each call does. */
static void *error_of(const Frame *frame, const char *what) {
  char message[1024];
  const Text *node = frame->attributes.count > 0 ? frame->attributes.values[0] : NULL;
  int named = node != NULL && frame->attributes.types[0] == STRING_ATTRIBUTE;
  snprintf(message, sizeof message, "the library that computes the operation '%.*s': %s",
           named ? (int)(node->size < 300 ? node->size : 300) : 0, named ? node->data : "", what);
  ErrorArguments arguments = {offsetof(ErrorArguments, code) + sizeof(int), NULL, message, INTERNAL};
  return frame->api->create_error(&arguments);
}

static int64_t elements_of(const Buffer *buffer) {
  int64_t found = 1;
  for (int64_t axis = 0; axis < buffer->rank; axis++) found *= buffer->lengths[axis];
  return found;
}

/* Answers XLA's question for the version; whether it was that question. */
static int tells_version(const Frame *frame) {
  if (frame->extension == NULL || frame->extension->type != METADATA) return 0;
  Version *version = &((MetadataExtension *)frame->extension)->metadata->version;
  version->major = VERSION_MAJOR;
  version->minor = VERSION_MINOR;
  return 1;
}

/* Why no part can be computed here; NULL where they can. */
static const char *unusable(const Frame *frame) {
  if (get_threads == NULL || set_threads == NULL) return "no library was named to it";
  if (frame->api->size < offsetof(Api, threads) + sizeof frame->api->threads) return "XLA's interface has no threads";
  return NULL;
}
