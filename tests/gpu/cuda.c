/* A stand-in for the CUDA driver, libcuda.so.1: it answers only after cuInit, as the real one.

   The UUIDs of the devices, in CUDA's order, are the letters of DASFPROF_TEST_CUDA: "ba" is two
   devices, whose UUIDs begin with bbbbbbbb and aaaaaaaa. */

#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, INVALID_DEVICE = 101 };

static int initialized = 0;

static const char *letters(void)
{
    const char *given = getenv("DASFPROF_TEST_CUDA");
    return given == NULL ? "" : given;
}

int cuInit(unsigned flags)
{
    initialized = flags == 0;
    return initialized ? SUCCESS : INVALID_VALUE;
}

int cuDeviceGetCount(int *count)
{
    *count = (int)strlen(letters());
    return initialized ? SUCCESS : NOT_INITIALIZED;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    if (!initialized)
        return NOT_INITIALIZED;
    return ordinal < (int)strlen(letters()) ? SUCCESS : INVALID_DEVICE;
}

int cuDeviceGetUuid(unsigned char uuid[16], int device)
{
    unsigned digit = (unsigned)strtoul((char[]){letters()[device], 0}, NULL, 16);
    memset(uuid, 0, 16);
    memset(uuid, (int)(digit << 4 | digit), 4);
    return initialized ? SUCCESS : NOT_INITIALIZED;
}

int cuDeviceGetUuid_v2(unsigned char uuid[16], int device) { return cuDeviceGetUuid(uuid, device); }
