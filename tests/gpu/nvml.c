/* A stand-in for the NVIDIA driver's management library, libnvidia-ml.so.1.

   It answers the calls that dasfprof, distributed and dask-cuda make through pynvml, from the script
   that DASFPROF_TEST_NVML names. The script is read again whenever the file has been replaced. Its
   lines are `key values...`; `device` starts a device, `mig` an instance of the device before it;
   what stands above the first device is the driver's. Of several numbers, each call takes the next
   one and the last one stays. `fail FUNCTION codes...` makes a call return these codes, in the
   same way; 0 is success. A missing value is NVML_ERROR_NOT_SUPPORTED. */

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
};

enum { MAX_SECTIONS = 32, MAX_LINES = 64, TEXT = 200 };

typedef struct {
    char key[TEXT], value[TEXT];
    int calls;
} Line;

typedef struct Section {
    Line lines[MAX_LINES];
    int count;
    struct Section *parent; /* of a MIG instance */
    int is_device;
} Section;

static Section sections[MAX_SECTIONS]; /* the first is the driver's */
static int section_count = 0;
static int initialized = 0;
static struct stat seen;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void load(void)
{
    const char *path = getenv("DASFPROF_TEST_NVML");
    struct stat now;
    char text[TEXT * 2];
    FILE *file;
    if (path == NULL || stat(path, &now) != 0)
        return;
    if (now.st_ino == seen.st_ino && now.st_mtim.tv_sec == seen.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec)
        return;
    seen = now;
    if ((file = fopen(path, "r")) == NULL)
        return;
    Section *section = &sections[0], *device = NULL;
    memset(sections, 0, sizeof sections);
    section_count = 1;
    while (fgets(text, sizeof text, file) != NULL) {
        char key[TEXT] = "", value[TEXT] = "";
        if (sscanf(text, " %199s %199[^\n]", key, value) < 1 || key[0] == '#')
            continue;
        if (strcmp(key, "device") == 0 || strcmp(key, "mig") == 0) {
            if (section_count == MAX_SECTIONS)
                break;
            section = &sections[section_count++];
            section->is_device = strcmp(key, "device") == 0;
            section->parent = section->is_device ? NULL : device;
            if (section->is_device)
                device = section;
            continue;
        }
        if (section->count == MAX_LINES)
            continue;
        Line *line = &section->lines[section->count++];
        if (strcmp(key, "fail") == 0 || strcmp(key, "sleep") == 0) { /* of a function */
            char function[TEXT] = "";
            int used = 0;
            sscanf(value, "%199s %n", function, &used);
            snprintf(line->key, TEXT, "%.5s:%.190s", key, function);
            snprintf(line->value, TEXT, "%s", value + used);
        } else {
            snprintf(line->key, TEXT, "%s", key);
            snprintf(line->value, TEXT, "%s", value);
        }
    }
    fclose(file);
}

static Line *find(Section *section, const char *key)
{
    for (int i = 0; i < section->count; i++)
        if (strcmp(section->lines[i].key, key) == 0)
            return &section->lines[i];
    return NULL;
}

/* The number for this call, of the numbers in a line. */
static int next_number(Section *section, const char *key, unsigned long long *number)
{
    Line *line = find(section, key);
    if (line == NULL)
        return NOT_SUPPORTED;
    char *at = line->value, *end;
    int wanted = line->calls++;
    for (int i = 0;; i++) {
        unsigned long long value = strtoull(at, &end, 10);
        if (end == at)
            return i == 0 ? NOT_SUPPORTED : SUCCESS;
        *number = value;
        if (i == wanted)
            return SUCCESS;
        at = end;
    }
}

/* Every call begins here: load the script, then the code that it orders for this function. */
static int enter(Section *section, const char *function)
{
    char key[TEXT];
    unsigned long long code = 0, seconds = 0;
    pthread_mutex_lock(&mutex);
    load();
    snprintf(key, TEXT, "sleep:%.190s", function);
    next_number(section, key, &seconds);
    if (seconds != 0) {
        pthread_mutex_unlock(&mutex);
        sleep((unsigned)seconds);
        pthread_mutex_lock(&mutex);
    }
    if (section_count == 0)
        return 9; /* no script: the driver is not loaded */
    if (!initialized && strncmp(function, "nvmlInit", 8) != 0)
        return UNINITIALIZED;
    snprintf(key, TEXT, "fail:%.190s", function);
    next_number(section, key, &code);
    return (int)code;
}

static int leave(int code)
{
    pthread_mutex_unlock(&mutex);
    return code;
}

static int number_of(Section *section, const char *function, const char *key, unsigned *out)
{
    unsigned long long number = 0;
    int code = enter(section, function);
    if (code == SUCCESS)
        code = next_number(section, key, &number);
    *out = (unsigned)number;
    return leave(code);
}

static int text_of(Section *section, const char *function, const char *key, char *out, unsigned size)
{
    int code = enter(section, function);
    Line *line = code == SUCCESS ? find(section, key) : NULL;
    if (code == SUCCESS && line == NULL)
        code = NOT_SUPPORTED;
    if (code == SUCCESS)
        snprintf(out, size, "%s", line->value);
    return leave(code);
}

static int index_of(Section *wanted)
{
    int index = 0;
    for (int i = 1; i < section_count; i++) {
        if (&sections[i] == wanted)
            return index;
        index += sections[i].is_device;
    }
    return -1;
}

/* --- the library ------------------------------------------------------------------------- */

static int init(const char *function)
{
    int code = enter(&sections[0], function);
    initialized += code == SUCCESS;
    return leave(code);
}

int nvmlInit_v2(void) { return init("nvmlInit"); }

int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return init("nvmlInit");
}

int nvmlShutdown(void)
{
    int code = enter(&sections[0], "nvmlShutdown");
    initialized -= code == SUCCESS;
    return leave(code);
}

const char *nvmlErrorString(int code)
{
    static __thread char text[TEXT];
    snprintf(text, TEXT, "Scripted error %d", code);
    return text;
}

int nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    return text_of(&sections[0], "nvmlSystemGetDriverVersion", "driver", version, size);
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    int code = enter(&sections[0], "nvmlDeviceGetCount");
    *count = 0;
    for (int i = 1; i < section_count; i++)
        *count += sections[i].is_device;
    return leave(code);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Section **device)
{
    int code = enter(&sections[0], "nvmlDeviceGetHandleByIndex");
    *device = NULL;
    for (int i = 1; i < section_count; i++)
        if (sections[i].is_device && index-- == 0)
            *device = &sections[i];
    if (code == SUCCESS && *device == NULL)
        code = INVALID_ARGUMENT;
    if (code != SUCCESS)
        return leave(code);
    leave(code);
    return leave(enter(*device, "nvmlDeviceGetHandleByIndex"));
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Section **device)
{
    int code = enter(&sections[0], "nvmlDeviceGetHandleByUUID");
    *device = NULL;
    for (int i = 1; i < section_count; i++) {
        Line *line = find(&sections[i], "uuid");
        if (line != NULL && strcmp(line->value, uuid) == 0)
            *device = &sections[i];
    }
    return leave(code == SUCCESS && *device == NULL ? NOT_FOUND : code);
}

int nvmlDeviceGetIndex(Section *device, unsigned *index)
{
    int code = enter(device, "nvmlDeviceGetIndex");
    *index = (unsigned)index_of(device->parent != NULL ? device->parent : device);
    return leave(code);
}

int nvmlDeviceGetUUID(Section *device, char *uuid, unsigned size)
{
    return text_of(device, "nvmlDeviceGetUUID", "uuid", uuid, size);
}

int nvmlDeviceGetName(Section *device, char *name, unsigned size)
{
    return text_of(device, "nvmlDeviceGetName", "name", name, size);
}

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} PciInfo;

int nvmlDeviceGetPciInfo_v3(Section *device, PciInfo *info)
{
    int code = enter(device, "nvmlDeviceGetPciInfo");
    Line *line = find(device, "bus");
    memset(info, 0, sizeof *info);
    if (code == SUCCESS && line == NULL)
        code = NOT_SUPPORTED;
    if (code == SUCCESS) {
        sscanf(line->value, "%x:%x:%x", &info->domain, &info->bus, &info->device);
        snprintf(info->bus_id, sizeof info->bus_id, "%.20s.0", line->value);
    }
    return leave(code);
}

/* --- MIG --------------------------------------------------------------------------------- */

int nvmlDeviceGetMigMode(Section *device, unsigned *current, unsigned *pending)
{
    int code = enter(device, "nvmlDeviceGetMigMode");
    *current = *pending = 0;
    for (int i = 1; i < section_count; i++)
        if (sections[i].parent == device)
            *current = *pending = 1;
    return leave(code);
}

int nvmlDeviceGetMaxMigDeviceCount(Section *device, unsigned *count)
{
    *count = 7;
    return leave(enter(device, "nvmlDeviceGetMaxMigDeviceCount"));
}

int nvmlDeviceGetMigDeviceHandleByIndex(Section *device, unsigned index, Section **instance)
{
    int code = enter(device, "nvmlDeviceGetMigDeviceHandleByIndex");
    *instance = NULL;
    for (int i = 1; i < section_count; i++)
        if (sections[i].parent == device && index-- == 0)
            *instance = &sections[i];
    return leave(code == SUCCESS && *instance == NULL ? NOT_FOUND : code);
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Section *instance, Section **device)
{
    int code = enter(instance, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle");
    *device = instance->parent;
    return leave(code == SUCCESS && *device == NULL ? INVALID_ARGUMENT : code);
}

int nvmlDeviceIsMigDeviceHandle(Section *device, unsigned *is_instance)
{
    *is_instance = device->parent != NULL;
    return leave(enter(device, "nvmlDeviceIsMigDeviceHandle"));
}

/* --- readings ---------------------------------------------------------------------------- */

int nvmlDeviceGetUtilizationRates(Section *device, unsigned rates[2])
{
    unsigned long long gpu = 0, memory = 0;
    int code = enter(device, "nvmlDeviceGetUtilizationRates");
    if (code == SUCCESS)
        code = next_number(device, "utilization", &gpu);
    if (code == SUCCESS)
        code = next_number(device, "memory_utilization", &memory);
    rates[0] = (unsigned)gpu;
    rates[1] = (unsigned)memory;
    return leave(code);
}

static int memory_of(Section *device, const char *function, unsigned long long *used,
                     unsigned long long *total)
{
    int code = enter(device, function);
    if (code == SUCCESS)
        code = next_number(device, "memory_used", used);
    if (code == SUCCESS)
        code = next_number(device, "memory_total", total);
    return leave(code);
}

int nvmlDeviceGetMemoryInfo(Section *device, unsigned long long memory[3])
{
    int code = memory_of(device, "nvmlDeviceGetMemoryInfo", &memory[2], &memory[0]);
    memory[1] = memory[0] - memory[2];
    return code;
}

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} Memory;

int nvmlDeviceGetMemoryInfo_v2(Section *device, Memory *memory)
{
    int code = memory_of(device, "nvmlDeviceGetMemoryInfo_v2", &memory->used, &memory->total);
    memory->reserved = 0;
    memory->free = memory->total - memory->used;
    return code;
}

int nvmlDeviceGetPowerUsage(Section *device, unsigned *milliwatts)
{
    return number_of(device, "nvmlDeviceGetPowerUsage", "power", milliwatts);
}

int nvmlDeviceGetClockInfo(Section *device, int kind, unsigned *megahertz)
{
    const char *key = kind == 2 ? "memory_clock" : "sm_clock";
    return number_of(device, "nvmlDeviceGetClockInfo", key, megahertz);
}

int nvmlDeviceGetTemperature(Section *device, int sensor, unsigned *degrees)
{
    (void)sensor;
    return number_of(device, "nvmlDeviceGetTemperature", "temperature", degrees);
}

int nvmlDeviceGetPcieThroughput(Section *device, int direction, unsigned *kilobytes)
{
    const char *key = direction == 0 ? "pcie_tx" : "pcie_rx";
    return number_of(device, "nvmlDeviceGetPcieThroughput", key, kilobytes);
}

typedef struct {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
} Process;

/* `processes` holds pairs `pid bytes`. */
static int processes_of(Section *device, unsigned *count, Process *processes)
{
    int code = enter(device, "nvmlDeviceGetComputeRunningProcesses");
    Line *line = find(device, "processes");
    unsigned room = *count, pid;
    unsigned long long bytes;
    int used = 0;
    *count = 0;
    if (code == SUCCESS && line == NULL)
        code = NOT_SUPPORTED;
    if (code != SUCCESS)
        return leave(code);
    for (char *at = line->value; sscanf(at, "%u %llu %n", &pid, &bytes, &used) == 2; at += used) {
        if (*count < room && processes != NULL)
            processes[*count] = (Process){pid, bytes, 0, 0};
        ++*count;
    }
    return leave(*count > room ? INSUFFICIENT_SIZE : SUCCESS);
}

int nvmlDeviceGetComputeRunningProcesses_v2(Section *device, unsigned *count, Process *processes)
{
    return processes_of(device, count, processes);
}

int nvmlDeviceGetComputeRunningProcesses_v3(Section *device, unsigned *count, Process *processes)
{
    return processes_of(device, count, processes);
}

/* dask-cuda binds its workers to the cores near their GPU. */
int nvmlDeviceGetCpuAffinity(Section *device, unsigned size, unsigned long *cores)
{
    memset(cores, 0xff, size * sizeof *cores);
    return leave(enter(device, "nvmlDeviceGetCpuAffinity"));
}
