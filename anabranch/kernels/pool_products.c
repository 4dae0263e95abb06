/* Products of float32 matrices, in parts that XLA's own threads compute: a handler of XLA's interface for foreign
 * functions (version 0.3), called by `pool_products.py`, compiled by `pool_handler.py`.
 *
 * A library with threads of its own wakes them for each call, while XLA's wait, and both want the same cores. So each
 * part is a call of the library's product on one thread; the thread that XLA calls takes parts, one after the other, and
 * so do threads of XLA's pool as soon as they come. Nobody waits for a part that no thread has begun: on crowded cores
 * the caller computes them all.
 *
 * Contract: the handler checks what it is given, and whatever is wrong becomes an error of XLA's that names the
 * operation. The structures are those of `xla/ffi/api/c_api.h`, whose fields do not move within a major version.
 */
#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { METADATA = 1, FLOAT32 = 11, ARRAY_ATTRIBUTE = 1, STRING_ATTRIBUTE = 4, INTERNAL = 13 };
enum { VERSION_MAJOR = 0, VERSION_MINOR = 3 };
/* what a call's array of numbers holds */
enum { ROWS, COLUMNS, INNER, FIRST_TURNED, SECOND_TURNED, BATCH, FIRST_STEP, SECOND_STEP, NUMBERS };

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

/* of oneDNN (dnnl.h), and of the OpenMP that it brings */
static int (*product)(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *, int64_t, float,
                      float *, int64_t);
static int (*get_threads)(void);
static void (*set_threads)(int);

/* Names the functions that are called: to be done before the first call. */
void anabranch_pool_products_use(void *a_product, void *a_get_threads, void *a_set_threads) {
  product = (int (*)(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *, int64_t, float,
                     float *, int64_t))a_product;
  get_threads = (int (*)(void))a_get_threads;
  set_threads = (void (*)(int))a_set_threads;
}

/* a thread has its share from so many multiplications on */
static const double LEAST_OF_A_PART = 1 << 19;
/* parts begin at multiples of it: rows or columns */
static const int64_t STEP = 16;
/* how often a thread looks whether the others are done before it sleeps */
static const int LOOKS = 2000;

typedef struct {
  atomic_int holders, next, done, failed;
  int parts, along_batch, along_rows;
  int64_t kept[NUMBERS];
  const float *first, *second;
  float *result;
} Job;

static int64_t beginning(int64_t length, int part, int parts, int64_t step) {
  return part == parts ? length : length * part / parts / step * step;
}

static int one_product(const Job *job, int64_t at, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  const int64_t *n = job->kept;
  const float *first = job->first + at * n[FIRST_STEP], *second = job->second + at * n[SECOND_STEP];
  float *result = job->result + at * n[ROWS] * n[COLUMNS] + row * n[COLUMNS] + column;
  if (rows <= 0 || columns <= 0) return 0;
  first += n[FIRST_TURNED] ? row : row * n[INNER];
  second += n[SECOND_TURNED] ? column * n[INNER] : column;
  return product(n[FIRST_TURNED] ? 'T' : 'N', n[SECOND_TURNED] ? 'T' : 'N', rows, columns, n[INNER], 1.0f, first,
                 n[FIRST_TURNED] ? n[ROWS] : n[INNER], second, n[SECOND_TURNED] ? n[INNER] : n[COLUMNS], 0.0f, result,
                 n[COLUMNS]);
}

static int compute(const Job *job, int part) {
  const int64_t *n = job->kept;
  int failed = 0;
  if (job->along_batch) {
    int64_t end = beginning(n[BATCH], part + 1, job->parts, 1);
    for (int64_t at = beginning(n[BATCH], part, job->parts, 1); at < end; at++)
      failed |= one_product(job, at, 0, n[ROWS], 0, n[COLUMNS]);
    return failed;
  }
  int64_t length = n[job->along_rows ? ROWS : COLUMNS];
  int64_t start = beginning(length, part, job->parts, STEP), end = beginning(length, part + 1, job->parts, STEP);
  for (int64_t at = 0; at < n[BATCH]; at++)
    failed |= job->along_rows ? one_product(job, at, start, end - start, 0, n[COLUMNS])
                              : one_product(job, at, 0, n[ROWS], start, end - start);
  return failed;
}

/* Computes parts until all are begun. */
static void take_parts(Job *job) {
  int before = get_threads();
  if (before != 1) set_threads(1); /* of those that the library would use for what this thread calls */
  for (int part; (part = atomic_fetch_add(&job->next, 1)) < job->parts;) {
    int failed = compute(job, part);
    if (failed) atomic_store(&job->failed, failed);
    if (atomic_fetch_add(&job->done, 1) + 1 == job->parts)
      syscall(SYS_futex, &job->done, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
  }
  if (before != 1) set_threads(before);
}

static void leave(Job *job) {
  if (atomic_fetch_sub(&job->holders, 1) == 1) free(job);
}

static void help(void *data) {
  take_parts(data);
  leave(data);
}

static void *error_of(const Frame *frame, const char *what) {
  char message[512];
  const Text *node = frame->attributes.count > 0 ? frame->attributes.values[0] : NULL;
  int named = node != NULL && frame->attributes.types[0] == STRING_ATTRIBUTE;
  snprintf(message, sizeof message, "the library that computes the operation '%.*s': %s",
           named ? (int)(node->size < 300 ? node->size : 300) : 0, named ? node->data : "", what);
  ErrorArguments arguments = {offsetof(ErrorArguments, code) + sizeof(int), NULL, message, INTERNAL};
  return frame->api->create_error(&arguments);
}

static int has(const Buffer *buffer, int64_t elements) {
  int64_t found = 1;
  for (int64_t axis = 0; axis < buffer->rank; axis++) found *= buffer->lengths[axis];
  return buffer->type == FLOAT32 && found == elements;
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

/* Makes as many parts as threads have enough to do with, and asks the pool for that many threads. */
static void run(Job *job, const Frame *frame, Job *shared) {
  const int64_t *n = job->kept;
  double each = (double)n[ROWS] * n[COLUMNS] * n[INNER], all = each * n[BATCH];
  int threads = all < 2 * LEAST_OF_A_PART ? 1 : threads_of(frame);
  job->along_batch = n[BATCH] >= 2 * threads;
  job->along_rows = n[ROWS] >= n[COLUMNS];
  int64_t length = job->along_batch ? n[BATCH] : n[job->along_rows ? ROWS : COLUMNS] / STEP;
  int64_t most = all / LEAST_OF_A_PART < threads ? (int64_t)(all / LEAST_OF_A_PART) : threads;
  job->parts = (int)(most < 1 || length < 1 ? 1 : most < length ? most : length);
  if (shared == NULL) job->parts = 1;
  atomic_store(&job->holders, job->parts);
  for (int helper = 1; helper < job->parts; helper++) {
    ScheduleArguments arguments = {sizeof arguments, NULL, frame->context, help, job};
    void *error = frame->api->schedule(&arguments);
    if (error != NULL) { /* there is no pool: the caller computes all parts */
      DestroyArguments destroyed = {sizeof destroyed, NULL, error};
      frame->api->destroy_error(&destroyed);
      leave(job);
    }
  }
  take_parts(job);
  for (int looks = 0, done; (done = atomic_load(&job->done)) < job->parts;)
    if (++looks < LOOKS)
      __builtin_ia32_pause();
    else
      syscall(SYS_futex, &job->done, FUTEX_WAIT_PRIVATE, done, NULL, NULL, 0);
}

/* The handler: two factors, one result; attributes are the operation's name and the numbers. */
void *anabranch_pool_products(Frame *frame) {
  if (frame->extension != NULL && frame->extension->type == METADATA) {
    Version *version = &((MetadataExtension *)frame->extension)->metadata->version;
    version->major = VERSION_MAJOR;
    version->minor = VERSION_MINOR;
    return NULL;
  }
  const Attributes *attributes = &frame->attributes;
  if (attributes->count != 2 || attributes->types[0] != STRING_ATTRIBUTE || attributes->types[1] != ARRAY_ATTRIBUTE)
    return error_of(frame, "a call has two attributes, a text and numbers");
  const Numbers *numbers = attributes->values[1];
  if (numbers->count != NUMBERS || frame->arguments.count != 2 || frame->results.count != 1)
    return error_of(frame, "a call has eight numbers, two factors and one result");
  if (product == NULL || get_threads == NULL || set_threads == NULL)
    return error_of(frame, "no library was named to it");
  if (frame->api->size < offsetof(Api, threads) + sizeof frame->api->threads)
    return error_of(frame, "XLA's interface has no threads");
  const int64_t *n = numbers->data;
  const Buffer *first = frame->arguments.values[0], *second = frame->arguments.values[1];
  const Buffer *result = frame->results.values[0];
  for (int at = ROWS; at <= BATCH; at++)
    if (n[at] < (at == FIRST_TURNED || at == SECOND_TURNED ? 0 : 1)) return error_of(frame, "a length is no length");
  int64_t one = n[ROWS] * n[INNER], other = n[INNER] * n[COLUMNS];
  if ((n[FIRST_STEP] != 0 && n[FIRST_STEP] != one) || (n[SECOND_STEP] != 0 && n[SECOND_STEP] != other) ||
      !has(first, n[FIRST_STEP] ? one * n[BATCH] : one) || !has(second, n[SECOND_STEP] ? other * n[BATCH] : other) ||
      !has(result, n[BATCH] * n[ROWS] * n[COLUMNS]))
    return error_of(frame, "the arrays are others than it was prepared for");
  Job own, *shared = malloc(sizeof *shared), *job = shared != NULL ? shared : &own;
  memset(job, 0, sizeof *job);
  memcpy(job->kept, n, sizeof job->kept);
  job->first = first->data;
  job->second = second->data;
  job->result = result->data;
  run(job, frame, shared);
  int failed = atomic_load(&job->failed);
  if (shared != NULL) leave(shared);
  return failed ? error_of(frame, "it failed while it ran, or ran out of memory") : NULL;
}
