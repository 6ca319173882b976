/* A scripted machine behind the names of NVML: every answer comes from a page that a test writes.
 *
 * The page is the file that SCRIPTED_NVML names, laid out as in __init__.py. Its time moves only
 * when the test or a slow answer moves it, unless `start_ns` binds it to CLOCK_MONOTONIC. What
 * changes with time is on a tape, one row a tick, as a driver refreshes its figures.
 */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BOARDS = 16, INSTANCES = 7, PROCESSES = 16, RULES = 32, TEXT = 96 };
enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    NO_DATA = 21,
    VERSION_MISMATCH = 25,
};
enum { FIELD_ENERGY = 83, FIELD_AVERAGE = 185, FIELD_INSTANT = 186 };
enum { TYPE_UNSIGNED_INT = 1, TYPE_UNSIGNED_LONG_LONG = 3 };
enum { CLOCK_SM = 1, CLOCK_MEM = 2, GPM_DRAM = 10 };

struct tick {
    uint64_t energy_mj;
    uint64_t traffic_ns; /* for how long, in all, the memory bus was in use */
    uint32_t average_mw;
    uint32_t instant_mw;
};

struct rule { /* of one function, for one board or for all */
    char function[TEXT];
    uint64_t delay_ns;
    int32_t board; /* -1: all */
    int32_t code;
};

struct board {
    char uuid[TEXT], name[TEXT], bus_id[32], instances[INSTANCES][TEXT];
    uint64_t reasons, memory_bytes;
    uint32_t pids[PROCESSES];
    uint32_t pid_count, instance_count, mig, major, minor, limit_mw, default_limit_mw, bus_bits,
        max_memory_mhz, memory_mhz, sm_mhz, celsius, ecc, persistence, gpm, virtualization,
        average_scopes, instant_scopes, zero_scopes; /* bits: the scope is answered for; with 0 */
};

struct page {
    uint64_t time_ns, start_ns, tick_ns, tick_count;
    int64_t open, samples; /* initialised so many times; GPM samples that were not freed */
    char driver[80];
    uint32_t board_count, rule_count;
    struct rule rules[RULES];
    struct board boards[BOARDS];
    struct tick tape[]; /* of the first board, then of the second */
};

static struct page *page;
static size_t page_bytes;

typedef uintptr_t device; /* 1 + board, or 256 * (1 + board) + 1 + instance */

static uint64_t now_ns(void)
{
    struct timespec at;
    if (!page->start_ns)
        return page->time_ns;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec - page->start_ns;
}

static void pass(uint64_t ns)
{
    struct timespec length = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    if (page->start_ns)
        nanosleep(&length, NULL);
    else
        page->time_ns += ns;
}

/* Return what the rules say of this call, after the time that they let it take. */
static int enter(const char *function, int32_t board)
{
    if (!page)
        return UNINITIALIZED;
    for (uint32_t i = 0; i < page->rule_count; i++) {
        struct rule *rule = &page->rules[i];
        if (strcmp(rule->function, function) || (rule->board >= 0 && rule->board != board))
            continue;
        pass(rule->delay_ns);
        if (rule->code)
            return rule->code;
    }
    return SUCCESS;
}

static int find(const char *function, device handle, struct board **board)
{
    if (!page)
        return UNINITIALIZED;
    if (handle < 1 || handle > page->board_count)
        return INVALID_ARGUMENT;
    *board = &page->boards[handle - 1];
    return enter(function, (int32_t)handle - 1);
}

#define BOARD(handle)                              \
    struct board *board;                           \
    int code_ = find(__func__, (handle), &board);  \
    if (code_)                                     \
        return code_

static uint64_t tick_number(void)
{
    uint64_t number = now_ns() / page->tick_ns;
    return number < page->tick_count ? number : page->tick_count - 1;
}

static const struct tick *tick(const struct board *board)
{
    return &page->tape[(uint64_t)(board - page->boards) * page->tick_count + tick_number()];
}

static int text(const char *from, char *into, unsigned length)
{
    if (strlen(from) >= length)
        return INSUFFICIENT_SIZE;
    strcpy(into, from);
    return SUCCESS;
}

/* The library */

int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    if (!page) {
        const char *path = getenv("SCRIPTED_NVML");
        struct stat status;
        int file = path ? open(path, O_RDWR) : -1;
        if (file < 0 || fstat(file, &status))
            return DRIVER_NOT_LOADED;
        page_bytes = (size_t)status.st_size;
        page = mmap(NULL, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        if (page == MAP_FAILED) {
            page = NULL;
            return DRIVER_NOT_LOADED;
        }
    }
    page->open++;
    int code = enter(__func__, -1);
    if (code && !--page->open) {
        munmap(page, page_bytes);
        page = NULL;
    }
    return code;
}

int nvmlShutdown(void)
{
    int code = enter(__func__, -1);
    if (!code && !--page->open) {
        munmap(page, page_bytes);
        page = NULL;
    }
    return code;
}

const char *nvmlErrorString(int code)
{
    (void)code;
    return "scripted error";
}

int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    int code = enter(__func__, -1);
    return code ? code : text(page->driver, version, length);
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    int code = enter(__func__, -1);
    if (!code)
        *count = page->board_count;
    return code;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *handle)
{
    *handle = index + 1;
    BOARD(*handle);
    return SUCCESS;
}

/* What a board is */

int nvmlDeviceGetUUID(device handle, char *uuid, unsigned length)
{
    if (page && handle > 256) {
        const struct board *parent = &page->boards[handle / 256 - 1];
        return text(parent->instances[handle % 256 - 1], uuid, length);
    }
    BOARD(handle);
    return text(board->uuid, uuid, length);
}

int nvmlDeviceGetName(device handle, char *name, unsigned length)
{
    BOARD(handle);
    return text(board->name, name, length);
}

struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};

int nvmlDeviceGetPciInfo_v3(device handle, struct pci *pci)
{
    BOARD(handle);
    return text(board->bus_id, pci->bus_id, sizeof pci->bus_id);
}

#define NUMBER(function, type, member)            \
    int function(device handle, type *value)      \
    {                                             \
        BOARD(handle);                            \
        *value = board->member;                   \
        return SUCCESS;                           \
    }

NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, limit_mw)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, default_limit_mw)
NUMBER(nvmlDeviceGetMemoryBusWidth, unsigned, bus_bits)
NUMBER(nvmlDeviceGetPersistenceMode, unsigned, persistence)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, reasons)
NUMBER(nvmlDeviceGetVirtualizationMode, unsigned, virtualization)

int nvmlDeviceGetMemoryInfo(device handle, unsigned long long sizes[3])
{
    BOARD(handle);
    sizes[0] = sizes[1] = board->memory_bytes;
    sizes[2] = 0;
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(device handle, int *major, int *minor)
{
    BOARD(handle);
    *major = (int)board->major;
    *minor = (int)board->minor;
    return SUCCESS;
}

int nvmlDeviceGetEccMode(device handle, unsigned *current, unsigned *pending)
{
    BOARD(handle);
    *current = *pending = board->ecc;
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(device handle, unsigned type, unsigned *mhz)
{
    BOARD(handle);
    if (type != CLOCK_MEM)
        return NOT_SUPPORTED;
    *mhz = board->max_memory_mhz;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(device handle, unsigned type, unsigned *mhz)
{
    BOARD(handle);
    if (type != CLOCK_SM && type != CLOCK_MEM)
        return NOT_SUPPORTED;
    *mhz = type == CLOCK_SM ? board->sm_mhz : board->memory_mhz;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(device handle, unsigned sensor, unsigned *celsius)
{
    BOARD(handle);
    if (sensor)
        return INVALID_ARGUMENT;
    *celsius = board->celsius;
    return SUCCESS;
}

struct temperature {
    unsigned version, sensor;
    int celsius;
};

int nvmlDeviceGetTemperatureV(device handle, struct temperature *temperature)
{
    BOARD(handle);
    if (temperature->version != (1u << 24 | sizeof *temperature))
        return VERSION_MISMATCH;
    temperature->celsius = (int)board->celsius;
    return SUCCESS;
}

struct process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};

int nvmlDeviceGetComputeRunningProcesses_v3(device handle, unsigned *count, struct process *found)
{
    BOARD(handle);
    unsigned room = *count;
    *count = board->pid_count;
    if (board->pid_count && room < board->pid_count)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < board->pid_count; i++)
        found[i] = (struct process){board->pids[i], 1 << 30, ~0u, ~0u};
    return SUCCESS;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(device handle, unsigned *count, struct process *found)
{
    (void)found;
    BOARD(handle);
    *count = 0;
    return SUCCESS;
}

/* Shares of a board */

int nvmlDeviceGetMigMode(device handle, unsigned *current, unsigned *pending)
{
    BOARD(handle);
    *current = *pending = board->mig;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(device handle, unsigned *count)
{
    BOARD(handle);
    *count = INSTANCES;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(device handle, unsigned index, device *instance)
{
    BOARD(handle);
    if (index >= board->instance_count)
        return NOT_FOUND;
    *instance = 256 * handle + 1 + index;
    return SUCCESS;
}

/* Power and energy */

int nvmlDeviceGetTotalEnergyConsumption(device handle, uint64_t *millijoules)
{
    BOARD(handle);
    *millijoules = tick(board)->energy_mj;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(device handle, unsigned *milliwatts)
{
    BOARD(handle);
    int averages = board->major > 8 || (board->major == 8 && board->minor > 0);
    *milliwatts = averages ? tick(board)->average_mw : tick(board)->instant_mw;
    return SUCCESS;
}

struct field {
    uint32_t id, scope;
    int64_t timestamp_us, latency_us;
    uint32_t type;
    int32_t code;
    union {
        unsigned small;
        unsigned long long large;
    } value;
};

int nvmlDeviceGetFieldValues(device handle, int count, struct field *fields)
{
    BOARD(handle);
    for (int i = 0; i < count; i++) {
        struct field *field = &fields[i];
        int power = field->id == FIELD_AVERAGE || field->id == FIELD_INSTANT;
        uint32_t bit = 1u << field->scope;
        uint32_t answered = field->id == FIELD_AVERAGE ? board->average_scopes
                                                       : board->instant_scopes;
        field->timestamp_us = (int64_t)(now_ns() / 1000);
        field->latency_us = 0;
        field->value.large = 0;
        field->code = SUCCESS;
        if (field->id == FIELD_ENERGY) {
            field->type = TYPE_UNSIGNED_LONG_LONG;
            field->value.large = tick(board)->energy_mj;
        } else if (power && (answered | board->zero_scopes) & bit) {
            uint32_t mw = field->id == FIELD_AVERAGE ? tick(board)->average_mw
                                                     : tick(board)->instant_mw;
            field->type = TYPE_UNSIGNED_INT;
            field->value.small = board->zero_scopes & bit ? 0 : mw;
        } else {
            field->code = NOT_SUPPORTED;
        }
    }
    return SUCCESS;
}

/* Memory traffic */

struct sample {
    struct board *board; /* NULL: not taken yet */
    uint64_t tick, traffic_ns;
};

struct metric {
    unsigned id;
    int code;
    double value;
    const char *names[3];
};

struct metrics {
    unsigned version, count;
    struct sample *first, *second;
    struct metric metrics[];
};

struct support {
    unsigned version, supported;
};

int nvmlGpmQueryDeviceSupport(device handle, struct support *support)
{
    BOARD(handle);
    if (support->version != 1)
        return VERSION_MISMATCH;
    support->supported = board->gpm;
    return SUCCESS;
}

int nvmlGpmSampleAlloc(struct sample **sample)
{
    int code = enter(__func__, -1);
    if (code)
        return code;
    *sample = calloc(1, sizeof **sample);
    page->samples++;
    return SUCCESS;
}

int nvmlGpmSampleFree(struct sample *sample)
{
    free(sample);
    page->samples--;
    return SUCCESS;
}

int nvmlGpmSampleGet(device handle, struct sample *sample)
{
    BOARD(handle);
    if (!board->gpm || board->mig)
        return NOT_SUPPORTED;
    *sample = (struct sample){board, tick_number(), tick(board)->traffic_ns};
    return SUCCESS;
}

int nvmlGpmMetricsGet(struct metrics *asked)
{
    const struct sample *first = asked->first, *second = asked->second;
    if (asked->version != 1)
        return VERSION_MISMATCH;
    if (!first->board || first->board != second->board)
        return INVALID_ARGUMENT;
    int code = enter(__func__, (int32_t)(first->board - page->boards));
    if (code)
        return code;
    for (unsigned i = 0; i < asked->count; i++) {
        struct metric *metric = &asked->metrics[i];
        uint64_t length_ns = (second->tick - first->tick) * page->tick_ns;
        metric->code = metric->id != GPM_DRAM ? NOT_SUPPORTED : length_ns ? SUCCESS : NO_DATA;
        if (!metric->code)
            metric->value = 100.0 * (double)(second->traffic_ns - first->traffic_ns) / (double)length_ns;
    }
    return SUCCESS;
}
