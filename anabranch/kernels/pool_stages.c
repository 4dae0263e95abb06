/* Primitives of oneDNN, in parts that XLA's own threads compute (`pool_common.c`): a handler that `pool_stages.py` calls.
 *
 * What a call computes stands in an attribute, as text. Its *plan* is made by Python, once in a process: phases that
 * follow one another, each of parts that any thread may compute, each part primitives that run one after the other.
 *
 * The library passes over what is no number. So a plan may have an array looked at, part by part, for numbers that are not
 * finite, and that marked in a byte of another array; or it asks for such a mark. Where there are any, Python computes.
 *
 * Contract: plans that a call uses stay until `anabranch_pool_stages_forget` has given them back. A plan serves one call
 * at a time. Whatever is wrong becomes an error of XLA's that names the operation.
 */

/* These structures are `pool_stages.py`'s, too. */
typedef struct { int argument; void *memory; } StageArgument; /* `dnnl_exec_arg_t` */
typedef struct { void *primitive; const StageArgument *arguments; int count; } Stage;
typedef struct { int first, end; } Span;
/* where an array begins: at an offset (bytes) of one of the call's, or, where its number is below 0, of the scratch memory */
typedef struct { void *memory; int64_t offset; int array; } Place;
typedef struct Plan {
  void *stream;
  int64_t scratch_bytes;
  int64_t mark; /* the offset (bytes) of the mark */
  int (*recover)(void **arrays);
  const Normalization *normalization; /* is computed instead of all stages, unless NULL */
  const Maxima *maxima;               /* likewise */
  const int64_t *elements; /* of each of the call's arrays */
  const Place *places;
  const Span *phases; /* of parts */
  const Span *parts;  /* of stages */
  const Stage *stages;
  int arrays, results, place_count, phase_count;
  int looked_at, width; /* the array that is looked at, -1: none; and how wide its floating-point numbers are (bytes) */
  int marked, asks;     /* the array that holds the mark, -1: none; whether it is asked first, or set */
} Plan;

/* of oneDNN (dnnl.h), and Python's, which makes plans: NULL, and a message, where it cannot */
static int (*execute)(void *, void *, int, const StageArgument *);
static int (*set_data)(void *, void *);
static const Plan *(*make_plan)(const char *, int64_t, char *, int64_t);

/* Names the functions that are called: to be done before the first call. */
void anabranch_pool_stages_use(void *an_execute, void *a_set_data, void *a_make_plan) {
  execute = (int (*)(void *, void *, int, const StageArgument *))an_execute;
  set_data = (int (*)(void *, void *))a_set_data;
  make_plan = (const Plan *(*)(const char *, int64_t, char *, int64_t))a_make_plan;
}

typedef struct Kept {
  struct Kept *next;
  const Plan *plan;
  char *text;
  size_t size;
  int users;            /* calls that run or wait, under the lock of the table */
  pthread_mutex_t lock; /* of the plan */
  void *own_scratch;    /* where the program brings too little: it was compiled where the library wanted less */
} Kept;

enum { BUCKETS = 1024, ALIGNMENT = 64, MOST_ARRAYS = 10 };
static Kept *table[BUCKETS];
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;

static Kept **bucket_of(const char *text, size_t size) {
  uint64_t hash = 14695981039346656037u; /* FNV-1a */
  for (size_t at = 0; at < size; at++) hash = (hash ^ (unsigned char)text[at]) * 1099511628211u;
  return &table[hash % BUCKETS];
}

/* What is kept of a text, for a call more; NULL where nothing is. Under the lock of the table. */
static Kept *taken(const Text *text) {
  for (Kept *kept = *bucket_of(text->data, text->size); kept != NULL; kept = kept->next)
    if (kept->size == text->size && memcmp(kept->text, text->data, text->size) == 0) {
      kept->users++;
      return kept;
    }
  return NULL;
}

/* The same; its plan is made where there is none. NULL, and a message, where it cannot be made. */
static Kept *found(const Text *text, char *message, int64_t size) {
  pthread_mutex_lock(&table_lock);
  Kept *kept = taken(text);
  pthread_mutex_unlock(&table_lock);
  if (kept != NULL) return kept;
  const Plan *plan = make_plan(text->data, (int64_t)text->size, message, size);
  if (plan == NULL) return NULL;
  pthread_mutex_lock(&table_lock);
  kept = taken(text); /* another call may have been quicker */
  if (kept == NULL && (kept = calloc(1, sizeof *kept)) != NULL && (kept->text = malloc(text->size + 1)) == NULL) {
    free(kept);
    kept = NULL;
  } else if (kept != NULL && kept->plan == NULL) {
    Kept **bucket = bucket_of(text->data, text->size);
    memcpy(kept->text, text->data, text->size);
    kept->size = text->size;
    kept->plan = plan;
    kept->users = 1;
    pthread_mutex_init(&kept->lock, NULL);
    kept->next = *bucket;
    *bucket = kept;
  }
  pthread_mutex_unlock(&table_lock);
  if (kept == NULL) snprintf(message, size, "it ran out of memory");
  return kept;
}

static void given_back(Kept *kept) {
  pthread_mutex_lock(&table_lock);
  kept->users--;
  pthread_mutex_unlock(&table_lock);
}

/* Forgets the plan of a text, unless a call uses it; returns whether its plan may go. */
int anabranch_pool_stages_forget(const char *text, int64_t size) {
  int may_go = 1;
  pthread_mutex_lock(&table_lock);
  for (Kept **place = bucket_of(text, (size_t)size); *place != NULL; place = &(*place)->next) {
    Kept *kept = *place;
    if (kept->size != (size_t)size || memcmp(kept->text, text, (size_t)size) != 0) continue;
    may_go = kept->users == 0;
    if (may_go) {
      *place = kept->next;
      pthread_mutex_destroy(&kept->lock);
      free(kept->own_scratch);
      free(kept->text);
      free(kept);
    }
    break;
  }
  pthread_mutex_unlock(&table_lock);
  return may_go;
}

typedef struct {
  Job work;
  const Plan *plan;
  int first;
  const char *seen; /* what is looked at in this phase, or NULL */
  int64_t count;    /* of its numbers */
  atomic_int *odd;  /* set where one is not finite */
} StagesJob;

/* Whether the exponent of a number has all its bits: infinities, and what is no number. */
__attribute__((optimize("O3"))) static int has_odd(const void *data, int64_t count, int width) {
  uint32_t odd = 0;
  if (width == 4) {
    const uint32_t *bits = data;
    for (int64_t at = 0; at < count; at++) odd |= (bits[at] & 0x7f800000u) == 0x7f800000u;
  } else {
    const uint16_t *bits = data;
    uint16_t found = 0;
    for (int64_t at = 0; at < count; at++) found |= (bits[at] & 0x7f80u) == 0x7f80u;
    odd = found;
  }
  return odd != 0;
}

static int compute_stages(const Job *work, int part) {
  const StagesJob *job = (const StagesJob *)work;
  const Plan *plan = job->plan;
  const Span *span = &plan->parts[job->first + part];
  if (job->seen != NULL) {
    int64_t begin = job->count * part / work->parts, end = job->count * (part + 1) / work->parts;
    if (has_odd(job->seen + begin * plan->width, end - begin, plan->width)) atomic_store(job->odd, 1);
  }
  for (int at = span->first; at < span->end; at++) {
    const Stage *stage = &plan->stages[at];
    int status = execute(stage->primitive, plan->stream, stage->count, stage->arguments);
    if (status) return status;
  }
  return 0;
}

/* Runs a plan on the arrays of a call, under the plan's lock; returns a status of the library's. */
static int run_plan(const Plan *plan, const Frame *frame, void **arrays, char *scratch) {
  int threads = 0, failed = 0;
  atomic_int odd = 0;
  if (plan->normalization != NULL) return run_normalization(plan->normalization, frame, arrays, (float *)scratch);
  char *mark = plan->marked < 0 ? NULL : (char *)arrays[plan->marked] + plan->mark;
  if (mark != NULL && plan->asks && *mark) return plan->recover(arrays);
  if (plan->maxima != NULL) failed = run_maxima(plan->maxima, frame, arrays, &odd);
  for (int at = 0; at < plan->place_count && !failed; at++) {
    const Place *place = &plan->places[at];
    failed = set_data(place->memory, (place->array < 0 ? scratch : (char *)arrays[place->array]) + place->offset);
  }
  for (int at = 0; at < plan->phase_count && !failed; at++) {
    const Span *phase = &plan->phases[at];
    int parts = phase->end - phase->first, helpers;
    if (parts > 1 && threads == 0) threads = threads_of(frame);
    StagesJob own, *shared = parts > 1 && threads > 1 ? malloc(sizeof *shared) : NULL, *job = shared ? shared : &own;
    memset(job, 0, sizeof *job);
    job->work.parts = parts;
    job->work.compute = compute_stages;
    job->plan = plan;
    job->first = phase->first;
    job->odd = &odd;
    if (at == 0 && plan->looked_at >= 0) {
      job->seen = arrays[plan->looked_at];
      job->count = plan->elements[plan->looked_at];
    }
    helpers = shared == NULL ? 0 : (parts < threads ? parts : threads) - 1;
    failed = do_work(&job->work, frame, helpers, shared == NULL);
  }
  if (failed || mark == NULL || plan->asks) return failed;
  *mark = (char)atomic_load(&odd);
  return *mark ? plan->recover(arrays) : 0;
}

/* The handler: arrays that are read, results, and scratch memory as the last of these; attributes are the operation's
 * name and the text. */
void *anabranch_pool_stages(Frame *frame) {
  if (tells_version(frame)) return NULL;
  const Attributes *attributes = &frame->attributes;
  if (attributes->count != 2 || attributes->types[0] != STRING_ATTRIBUTE || attributes->types[1] != STRING_ATTRIBUTE)
    return error_of(frame, "a call has two attributes, which are texts");
  const char *reason = execute == NULL ? "no library was named to it" : unusable(frame);
  if (reason != NULL) return error_of(frame, reason);
  char message[512] = "";
  Kept *kept = found(attributes->values[1], message, sizeof message);
  if (kept == NULL) return error_of(frame, message);
  const Plan *plan = kept->plan;
  int64_t given = plan->arrays - plan->results;
  int fits = plan->arrays <= MOST_ARRAYS && frame->arguments.count == given && frame->results.count == plan->results + 1;
  void *arrays[MOST_ARRAYS];
  for (int at = 0; fits && at < plan->arrays; at++) {
    const Buffer *buffer = at < given ? frame->arguments.values[at] : frame->results.values[at - given];
    fits = elements_of(buffer) == plan->elements[at];
    arrays[at] = buffer->data;
  }
  if (!fits) {
    given_back(kept);
    return error_of(frame, "the arrays are others than it was prepared for");
  }
  const Buffer *memory = frame->results.values[plan->results];
  char *scratch = memory->data;
  pthread_mutex_lock(&kept->lock);
  if (elements_of(memory) < plan->scratch_bytes) {
    if (kept->own_scratch == NULL) kept->own_scratch = malloc((size_t)plan->scratch_bytes);
    scratch = kept->own_scratch;
  }
  if (scratch != NULL) scratch += (ALIGNMENT - (uintptr_t)scratch % ALIGNMENT) % ALIGNMENT;
  int failed = scratch == NULL && plan->scratch_bytes > 0 ? 1 : run_plan(plan, frame, arrays, scratch);
  pthread_mutex_unlock(&kept->lock);
  given_back(kept);
  return failed ? error_of(frame, "it failed while it ran, or ran out of memory") : NULL;
}
