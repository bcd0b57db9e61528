/* A tool for NVTX, as Nsight Systems is one, that writes what it is told to a file.

   NVTX loads the library that NVTX_INJECTION64_PATH names at its first use in a process. Lines go
   to the file DASFPROF_TEST_NVTX with the process's id behind its name, tab-separated; without
   that variable nothing is written:

       push   domain thread depth category colour payload message   depth: open ranges below it
       pop    domain thread depth
       string domain message                                        a registered string

   The types and numbers are those of the headers of NVTX 3, as far as they are needed. */

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    char name[64];
    int number;
} Domain;

typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    union {
        int64_t integer;
        double number;
    } payload;
    int32_t message_type;
    const char *message; /* of a registered string, what `registered` gave */
} Attributes;

typedef void (*Function)(void);

typedef struct {
    size_t size;
    int (*module_functions)(int module, Function ***table, unsigned *size);
} Callbacks;

enum { CALLBACKS = 1, CORE2 = 5 };
enum { RANGE_PUSH = 4, RANGE_POP, REGISTER_STRING = 10, DOMAIN_CREATE = 12 };
enum { MAX_DOMAINS = 16, PAYLOAD_INT64 = 2, REGISTERED = 3 };

static const char *target = NULL;
static Domain domains[MAX_DOMAINS];
static int domain_count = 0;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static __thread int depths[MAX_DOMAINS + 1];

static void write_line(const char *line, int length)
{
    static int file = -1;
    char path[512];
    pthread_mutex_lock(&mutex);
    if (file < 0) {
        snprintf(path, sizeof path, "%s.%d", target, (int)getpid());
        file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    }
    if (write(file, line, (size_t)length) < 0)
        abort();
    pthread_mutex_unlock(&mutex);
}

#define WRITE(...)                                                              \
    do {                                                                        \
        char line[1024];                                                        \
        if (target != NULL)                                                     \
            write_line(line, snprintf(line, sizeof line, __VA_ARGS__));         \
    } while (0)

/* The domain of calls that name none. */
static Domain *known(Domain *domain)
{
    static Domain none = {"", MAX_DOMAINS};
    return domain == NULL ? &none : domain;
}

static unsigned long thread(void) { return (unsigned long)pthread_self(); }

static void write_attributes(const char *what, Domain *domain, long long number,
                             const Attributes *about)
{
    char payload[32] = "";
    if (about->payload_type == PAYLOAD_INT64)
        snprintf(payload, sizeof payload, "%lld", (long long)about->payload.integer);
    WRITE("%s\t%s\t%lu\t%lld\t%u\t%08x\t%s\t%s\n", what, domain->name, thread(), number,
          about->category, about->color, payload,
          about->message_type == REGISTERED ? about->message : "");
}

static Domain *domain_create(const char *name)
{
    pthread_mutex_lock(&mutex);
    Domain *domain = &domains[domain_count < MAX_DOMAINS ? domain_count++ : MAX_DOMAINS - 1];
    snprintf(domain->name, sizeof domain->name, "%s", name);
    domain->number = (int)(domain - domains);
    pthread_mutex_unlock(&mutex);
    return domain;
}

static const char *register_string(Domain *domain, const char *string)
{
    domain = known(domain);
    WRITE("string\t%s\t%s\n", domain->name, string);
    return strdup(string); /* the handle: kept for ever, as NVTX promises */
}

static int range_push(Domain *domain, const Attributes *about)
{
    domain = known(domain);
    int depth = depths[domain->number]++;
    write_attributes("push", domain, depth, about);
    return depth;
}

static int range_pop(Domain *domain)
{
    domain = known(domain);
    int depth = --depths[domain->number];
    WRITE("pop\t%s\t%lu\t%d\n", domain->name, thread(), depth);
    return depth;
}

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t id))
{
    const Callbacks *callbacks = export_table(CALLBACKS);
    target = getenv("DASFPROF_TEST_NVTX");
    Function **functions = NULL;
    unsigned size = 0;
    if (callbacks == NULL || !callbacks->module_functions(CORE2, &functions, &size))
        return 0;
    *functions[RANGE_PUSH] = (Function)range_push;
    *functions[RANGE_POP] = (Function)range_pop;
    *functions[REGISTER_STRING] = (Function)register_string;
    *functions[DOMAIN_CREATE] = (Function)domain_create;
    return 1;
}
